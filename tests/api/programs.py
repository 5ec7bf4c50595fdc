"""A user's programs, whose runs the tests of the API start and look at."""

from typing import Any

import msgspec

import perdure
from perdure import Engine, Every, GraphProgram, Limit, Signal, load_graph, task, workflow

decision = Signal("decision", bool)
NIGHTLY = Every(86_400)
engine = Engine("sqlite:///api.db")


class Item(msgspec.Struct):
    name: str
    price: int


@task(name="api.price")
async def price(item: Item) -> int:
    return item.price


@task(name="api.stubborn", on_failure="park")
async def stubborn(number: int) -> int:
    raise ValueError(f"not {number}")


@workflow(name="api.decide")
async def decide(item: Item) -> int:
    cost = await price(item)
    is_wanted = await decision.receive()
    return cost if is_wanted else 0


@workflow(name="api.alone", limit=Limit("alone", running=1, over="reject", retry_after=7))
async def alone(number: int) -> bool:
    return await decision.receive()


@workflow(name="api.queued", limit=Limit("queued", running=1))
async def queued(number: int) -> bool:
    return await decision.receive()


class Pace(msgspec.Struct):
    batch: int = 2


@workflow(name="api.paced", params=Pace)
async def paced(number: int) -> int:
    return number * perdure.params(Pace).batch


@workflow(name="api.big")
async def big(number: int) -> dict[str, int]:
    return {"number": number, "small": 1}


@workflow(name="api.parks")
async def parks(number: int) -> int:
    return await stubborn(number)


@workflow(name="api.many")
async def many(count: int) -> int:
    prices = [price(Item(str(number), number)) for number in range(count)]
    return sum(await perdure.gather(*prices))


@workflow(name="api.chain")
async def chain(left: int) -> int:
    await price(Item("link", left))
    if left:
        return await perdure.continue_as_new(chain(left - 1))
    return left


@task(name="api.speak")
async def speak(words: list[str]) -> int:
    said = perdure.stream("words")
    for word in words:
        said.append(word)
    return len(words)


@workflow(name="api.talk")
async def talk(words: list[str]) -> int:
    perdure.publish("said", words[:1])
    return await speak(words)


ORDER: GraphProgram[..., Any] = GraphProgram(
    load_graph(
        """
graph: api.order
input: {number: int}
activities:
  charge: {worker: api.charge, input: {number: number}, output: {receipt: result}}
  approval: {hook: approval, key: number}
  done: {output: "receipt if approval else 'refused'"}
transitions:
  - charge -> approval -> done
"""
    )
)


@task(name="api.charge")
async def charge(number: int) -> str:
    return f"receipt {number}"
