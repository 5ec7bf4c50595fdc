"""The worker process of the demo: runs the workflow of an order.

    python -m perdure.cli.demo_worker FOLDER

The worker exits when its standard input closes, so it does not outlive the demo.
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


def record_effect() -> None:
    """Records the attempt outside the store, as a real side effect would."""
    info = perdure.info()
    with open(EFFECTS, "a") as effects:
        effects.write(f"{info.step} {perdure.key()}\n")


@task
async def charge(order: int) -> str:
    record_effect()
    await asyncio.sleep(0.5)
    return f"receipt {order}"


@task
def reserve(order: int) -> str:
    record_effect()
    time.sleep(0.5)
    return f"shelf {order % 7}"


@task
async def pack(order: int) -> str:
    record_effect()
    # The first attempt is slow, so that it is still running when the demo kills the worker.
    await asyncio.sleep(30 if perdure.info().attempt == 1 else 0.9)
    return f"parcel {order}"


@task(retry=Retry(attempts=4, first=0.5, on=ConnectionError))
async def ship(parcel: str) -> str:
    record_effect()
    await asyncio.sleep(0.4)
    if perdure.info().attempt == 1:
        raise ConnectionError("the carrier does not respond")
    return f"{parcel} is on its way"


@task
async def email(news: str) -> str:
    record_effect()
    await asyncio.sleep(0.7)
    return f"emailed the customer: {news}"


@task
async def invoice(receipt: str) -> str:
    record_effect()
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


async def run_order() -> None:
    """Starts the run of the order, or resumes it: the key identifies the run."""
    async with Engine(f"sqlite:///{DATABASE}") as engine:
        run = await engine.start(checkout(ORDER), key=KEY)
        await run.result()


def _exit_with_parent() -> None:
    sys.stdin.read()
    os._exit(1)


if __name__ == "__main__":
    os.chdir(sys.argv[1])
    Thread(target=_exit_with_parent, daemon=True).start()
    asyncio.run(run_order())
