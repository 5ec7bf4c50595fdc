"""The engine that the tests of the dashboard serve. The environment names its store."""

import asyncio
import os
from pathlib import Path
from typing import Literal

import msgspec

import perdure
from perdure import Engine, Retry, Signal, task, workflow

engine = Engine(
    os.environ.get("SHOP_URL", "sqlite:///:memory:"), artifacts=os.environ.get("SHOP_ARTIFACTS")
)
PAPER = Path(os.environ.get("SHOP_PAPER", "no paper"))


class Verdict(msgspec.Struct, frozen=True):
    """What a person says about an order."""

    accepted: bool
    discount: int
    reason: Literal["friend", "late", "none"] = "none"


verdict = Signal("verdict", Verdict)
go = Signal("go", str)


@task
async def weigh(grams: int) -> dict[str, int]:
    return {"grams": grams, "stamps": grams // 20 + 1}


@task
async def stick(stamps: int) -> str:
    return f"{stamps} stamps"


@task(on_failure="park", retry=Retry(attempts=1))
def print_label(order: str) -> str:
    if not PAPER.exists():
        raise RuntimeError("the printer has no paper")
    return f"label of {order}"


@workflow
async def letter(grams: int) -> str:
    """Weighs a letter and puts stamps on it."""
    weight = await weigh(grams)
    return await stick(weight["stamps"])


@workflow
async def parcel(order: str) -> str:
    """Waits for a verdict, and says what it was."""
    await weigh(500)
    found = await verdict.receive()
    await stick(found.discount)
    return f"{order}: {found.accepted}, {found.discount} off, {found.reason}"


@workflow
async def labelled(order: str) -> str:
    return await print_label(order)


@workflow
async def idle(number: int) -> str:
    return await go.receive()


@task
async def price(article: int) -> int:
    return article


@workflow
async def catalog(articles: int) -> int:
    total = 0
    for first in range(0, articles, 500):
        prices = await perdure.gather(
            *[price(first + each) for each in range(min(500, articles - first))]
        )
        total += sum(prices)
    return total


@task
async def make_large(rows: int) -> list[dict[str, str]]:
    return [{"row": str(row), "text": "x" * 60} for row in range(rows)]


@workflow
async def large(rows: int) -> int:
    return len(await make_large(rows))


@task
async def slow(seconds: float) -> str:
    await asyncio.sleep(seconds)
    return "slept"


@workflow
async def steady(turns: int) -> int:
    for _ in range(turns):
        await slow(0.2)
    return turns
