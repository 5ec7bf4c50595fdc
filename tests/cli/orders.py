"""A user's program, whose runs the tests of commands look at."""

from contextlib import suppress
from datetime import timedelta

import perdure
from perdure import Engine, Request, RunFailed, Signal, task, workflow
from perdure.core.ids import RunId
from tests.client.engines import until_store

approval = Signal("approval", bool)


@task(name="orders.charge")
async def charge(order: str) -> str:
    return f"receipt for {order}"


@workflow(name="orders.checkout")
async def checkout(order: str) -> str:
    receipt = await charge(order)
    await perdure.sleep(timedelta(milliseconds=1))
    is_approved = await approval.receive()
    return receipt if is_approved else "refused"


@task(name="orders.pack", queue="orders.packing")
async def pack(order: str) -> str:
    return f"packed {order}"


@workflow(name="orders.pack_later")
async def pack_later(order: str) -> str:
    return await pack(order)


@workflow(name="orders.many")
async def many(count: int) -> int:
    for number in range(count):
        await charge(str(number))
    return count


@workflow(name="orders.refuse")
async def refuse(order: str) -> str:
    receipt = await charge(order)
    reason = f"no {receipt}"
    raise ValueError(reason)


engine = Engine("sqlite:///orders.db")

COMPLETED, FAILED, WAITING = "completed", "failed", "waiting"
"""Start keys of the three runs."""


async def fill(url: str) -> None:
    """Leave three runs in the store, none of them owned."""
    async with Engine(url) as opened:
        completed = await opened.start(checkout("A"), key=COMPLETED)
        await completed.signal(approval, True)
        failed = await opened.start(refuse("B"), key=FAILED)
        waiting = await opened.start(checkout("C"), key=WAITING)
        await completed.result(60)
        with suppress(ValueError, RunFailed):
            await failed.result(60)

        async def waits_for_signal() -> bool:
            return bool((await waiting.waits()).signals)

        await until_store(waits_for_signal)


async def run_ids(url: str) -> dict[str, RunId]:
    """The ids of the three runs, by key."""
    found = {}
    async with Engine(url, hosts=False) as opened:
        for key, program in ((COMPLETED, checkout), (FAILED, refuse), (WAITING, checkout)):
            run = await opened.find(program, key)
            assert run is not None
            found[key] = run.run_id
    return found


price = Request("orders.price", str, int)


@workflow(name="orders.quote")
async def quote() -> str:
    """Quotes a price, and no price for what there is not."""
    while (ask := await price.receive(ask="What does it cost?", who="sales")).value:
        if ask.value == "unicorn":
            await ask.reject("out of stock")
        else:
            await ask.reply(len(ask.value))
    await ask.reply(0)
    return "closed"
