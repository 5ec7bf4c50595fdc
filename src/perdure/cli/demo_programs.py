"""The programs of `perdure demo --dashboard`: a small shop in which something happens all the time.

What fails, waits or is slow depends on the number of the order alone, so every demo shows the same.
"""

import asyncio
from typing import Literal

import msgspec

import perdure
from perdure import Engine, GraphProgram, Retry, Signal, load_graph, task, workflow

DEAR_CENTS = 80_000
QUEUE_SERVED = "photos"
QUEUE_WITHOUT_HOST = "labels"


class Order(msgspec.Struct, frozen=True):
    """What a customer ordered."""

    number: int
    customer: str
    cents: int = 4_900
    city: str = "Lisbon"


class RefundDecision(msgspec.Struct, frozen=True):
    """What a person decides about a refund."""

    accepted: bool
    cents: int
    reason: Literal["damaged", "late", "unwanted", "other"] = "other"
    note: str = ""


approval = Signal("approval", bool)
decision = Signal("refund decision", RefundDecision)


@task
async def charge_card(order: Order) -> str:
    await asyncio.sleep(0.4 + order.number % 3 / 4)
    if order.number % 11 == 7:
        raise ValueError("card declined")
    return f"receipt-{order.number}"


@task
async def reserve_shelf(order: Order) -> dict[str, int]:
    await asyncio.sleep(0.3)
    return {"shelf": order.number % 7, "reserved": 1}


@task(retry=Retry(attempts=5, first=1.0, on=ConnectionError))
async def ship_order(order: Order, receipt: str) -> str:
    await asyncio.sleep(0.5)
    if perdure.info().attempt <= order.number % 4:
        raise ConnectionError(f"the carrier does not answer for {receipt}")
    return f"parcel-{order.number}"


@task(on_failure="park", retry=Retry(attempts=2, first=0.5))
async def customs(order: Order) -> str:
    await asyncio.sleep(0.3)
    if perdure.info().logical_attempt == 1:
        raise LookupError(f"no tariff number for {order.city}")
    return f"declared {order.number}"


@task
async def send_email(customer: str, text: str) -> str:
    await asyncio.sleep(0.4)
    return f"to {customer}: {text}"


@workflow
async def place_order(order: Order) -> dict[str, str]:
    """Charge, reserve, and ship an order; a dear one waits for an approval.

    Orders to Oslo go through customs, where a clerk's help may be needed.
    """
    receipt = await charge_card(order)
    await perdure.gather(reserve_shelf(order), send_email(order.customer, "we have your order"))
    if order.cents >= DEAR_CENTS and not await approval.receive():
        await send_email(order.customer, "we can't deliver")
        return {"receipt": receipt, "state": "refused"}
    await perdure.sleep(2)
    if order.city == "Oslo":
        await customs(order)
    parcel = await ship_order(order, receipt)
    await send_email(order.customer, f"{parcel} is on its way")
    return {"receipt": receipt, "parcel": parcel, "state": "shipped"}


@workflow
async def refund(order: Order) -> str:
    """A person decides; the money goes back."""
    decided = await decision.receive()
    if not decided.accepted:
        return await send_email(order.customer, "no refund")
    return await send_email(order.customer, f"{decided.cents} cents are on their way back")


@task
async def fetch_page(page: int) -> list[int]:
    await asyncio.sleep(0.5)
    return [page * 100 + row for row in range(40)]


@task
async def price_article(article: int) -> float:
    await asyncio.sleep(0.15 + article % 9 / 10)
    return round(article * 1.19, 2)


@workflow
async def import_catalog(pages: int) -> dict[str, float]:
    """Fetch pages one after the other, and price their articles side by side."""
    total, articles = 0.0, 0
    for page in range(pages):
        found = await fetch_page(page)
        prices = await perdure.gather(*[price_article(article) for article in found])
        total, articles = total + sum(prices), articles + len(prices)
        perdure.publish("progress", (page + 1) / pages)
    return {"articles": articles, "total": round(total, 2)}


@task
async def write_answer(question: str) -> str:
    tokens = perdure.stream("tokens")
    text = f"About {question}: it depends on the weather, on the stock, and on who asks. "
    for word in (text * 3).split(" "):
        tokens.append(f"{word} ")
        await asyncio.sleep(0.12)
    return text


@workflow
async def assistant(question: str) -> str:
    """Answers a question, word by word."""
    return await write_answer(question)


@task(queue=QUEUE_SERVED)
async def develop(photo: int) -> str:
    await asyncio.sleep(1.2)
    return f"photo-{photo}.jpg"


@task(queue=QUEUE_WITHOUT_HOST)
async def print_label(album: int) -> str:
    return f"label-{album}"


@workflow
async def album(number: int) -> list[str]:
    """Develops photos on a queue, and needs a label printer that no host serves."""
    photos = await perdure.gather(*[develop(number * 10 + each) for each in range(6)])
    if number % 3 == 0:
        await print_label(number)
    return [*photos]


@workflow
async def stocktaking(shop: str) -> int:
    """Imports a catalog in a run of its own, and writes to the manager."""
    found = await import_catalog(1)
    await send_email("manager", f"{shop}: {found['articles']} articles")
    return int(found["articles"])


@task
async def assess(claim: int) -> dict[str, int]:
    await asyncio.sleep(0.6)
    return {"score": claim * 37 % 100}


@task
async def pay_out(claim: int) -> str:
    await asyncio.sleep(0.5)
    return f"payment for claim {claim}"


@task
async def inform(claim: int, text: str) -> str:
    await asyncio.sleep(0.3)
    return f"claim {claim}: {text}"


CLAIM = """
graph: claim
input: {number: int, customer: str}
activities:
  start: {trigger: , keys: {customer: customer}}
  assess: {worker: assess, input: {claim: number}, output: {score: "result['score']"}}
  size: branch
  review: {hook: review, key: number, timeout: 900}
  pay_out: {worker: pay_out, input: {claim: number}}
  refuse: {worker: inform, input: {claim: number, text: "'refused'"}}
  paid: {output: "'paid'"}
  refused: {output: "'refused'"}
transitions:
  - start -> assess -> size
  - {from: size, to: pay_out, when: score < 40}
  - {from: size, to: review}
  - {from: review, to: pay_out, when: result}
  - {from: review, to: refuse, when: not result}
  - {from: review, to: refuse, on: timeout}
  - pay_out -> paid
  - refuse -> refused
"""


def claim_program() -> GraphProgram:
    """The graph of a claim. It is read when it is needed, since YAML is an extra."""
    return GraphProgram(load_graph(CLAIM))


def shop(url: str) -> Engine:
    """An engine that executes these programs, and serves one of their two queues."""
    return Engine(url, queues=[QUEUE_SERVED])
