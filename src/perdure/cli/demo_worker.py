"""The demo's worker: a process that takes an order through a workflow. It is there to be killed.

    python -m perdure.cli.demo_worker FOLDER

It ends by itself when whoever started it is gone, which it sees at the end of its input.
"""

import asyncio
import os
import sys
import time
from threading import Thread

import perdure
from perdure import Engine, Retry, task, workflow

DATABASE = "orders.db"
EFFECTS = "effects.txt"
ORDER = 42
KEY = f"order-{ORDER}"


def leave_mark() -> None:
    """Do something outside the store, as a real effect would: what has begun shows there."""
    info = perdure.info()
    with open(EFFECTS, "a") as effects:
        effects.write(f"{info.step} {perdure.key()}\n")


@task
async def charge(order: int) -> str:
    leave_mark()
    await asyncio.sleep(0.5)
    return f"receipt {order}"


@task
def reserve(order: int) -> str:
    leave_mark()
    time.sleep(0.5)
    return f"shelf {order % 7}"


@task
async def pack(order: int) -> str:
    leave_mark()
    # The first attempt is slow, so that it is certainly under way when the worker is killed.
    await asyncio.sleep(30 if perdure.info().attempt == 1 else 0.9)
    return f"parcel {order}"


@task(retry=Retry(attempts=4, first=0.5, on=ConnectionError))
async def ship(parcel: str) -> str:
    leave_mark()
    await asyncio.sleep(0.4)
    if perdure.info().attempt == 1:
        raise ConnectionError("the carrier does not answer")
    return f"{parcel} is on its way"


@task
async def email(news: str) -> str:
    leave_mark()
    await asyncio.sleep(0.7)
    return f"told the customer: {news}"


@task
async def invoice(receipt: str) -> str:
    leave_mark()
    await asyncio.sleep(0.5)
    return f"invoiced: {receipt}"


@workflow
async def checkout(order: int) -> str:
    receipt = await charge(order)
    await reserve(order)
    await perdure.sleep(0.8)
    parcel = await pack(order)
    news = await ship(parcel)
    await perdure.gather(email(news), invoice(receipt))
    return news


async def work() -> None:
    """Take the order up, or go on with it: the key makes both the same."""
    async with Engine(f"sqlite:///{DATABASE}") as engine:
        run = await engine.start(checkout(ORDER), key=KEY)
        await run.result()


def _end_with_starter() -> None:
    sys.stdin.read()
    os._exit(1)


if __name__ == "__main__":
    os.chdir(sys.argv[1])
    Thread(target=_end_with_starter, daemon=True).start()
    asyncio.run(work())
