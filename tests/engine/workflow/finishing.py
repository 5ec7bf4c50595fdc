"""Workflows that are cancelled while something of them runs to its end."""

import asyncio
from typing import Any

import perdure
from perdure import (
    Cancelled,
    GraphBuilder,
    GraphProgram,
    Handle,
    Retry,
    task,
    workflow,
)
from perdure.testing.workflows import Ended

shipped: list[str] = []
refunded: list[str] = []


@task(on_cancel="finish", retry=Retry(attempts=2, first=1))
async def ship(how: str) -> str:
    await _effect(how)
    return how


@task(on_cancel="finish", queue="elsewhere")
async def ship_elsewhere(how: str) -> str:
    await _effect(how)
    return how


async def _effect(how: str) -> None:
    """Happens at once, and takes so long to return that the run may be cancelled meanwhile."""
    shipped.append(how)
    for _ in range(50):
        await asyncio.sleep(0)


@task(name="finishing.pack_explored")
async def pack(how: str) -> str:
    return how


@task
async def refund(how: str) -> None:
    refunded.append(how)


@workflow
async def ordering(how: str) -> str:
    """Refunds what was not shipped, and says which it was."""
    sent = None
    try:
        await pack(how)
        sent = await (ship_elsewhere(how) if how == "queued" else ship(how))
        await perdure.sleep(3600)
    except Cancelled:
        if sent is None:
            await refund(how)
            return "refunded"
        return "shipped"
    return "kept"


@workflow
async def ship_in_two_steps(how: str) -> str:
    await pack(how)
    return await ship(how)


@workflow
async def shielding(how: str) -> str:
    """The same, where all that belongs to the shipping is shielded."""
    sent: object = None
    try:
        await pack(how)
        if how == "child":
            sent = await perdure.shield(ship_in_two_steps(how))
        elif how == "started":
            child = await perdure.start(ship_in_two_steps(how))
            sent = await perdure.shield(child.result())
        elif how == "gathered":
            sent = await perdure.gather(perdure.shield(ship(how)), perdure.shield(_twice(how)))
        else:
            sent = await perdure.shield(_twice(how))
        await perdure.sleep(3600)
    except Cancelled:
        if sent is None:
            await refund(how)
            return "refunded"
        return "shipped"
    return "kept"


async def _twice(how: str) -> str:
    await pack(how)
    return await ship(how)


@workflow
async def racing(how: str) -> str:
    """Its branches see for themselves what was shipped."""
    outcomes: list[str] = []

    async def branch(each: str) -> None:
        sent = None
        try:
            sent = await ship(each)
            await perdure.sleep(3600)
        finally:
            if sent is None:
                await refund(each)
            outcomes.append("refunded" if sent is None else "shipped")

    try:
        await perdure.gather(branch("a"), branch("b"), perdure.sleep(3600))
    except Cancelled:
        return "shipped" if "shipped" in outcomes or how == "nothing" else "refunded"
    return "kept"


def _shipping() -> GraphProgram[..., Any]:
    """Ships and packs at once; if it is cancelled meanwhile, the shipping is journaled."""
    b = GraphBuilder("shipping_graph")
    b.assign("both", {"n": "1"})
    b.worker("send", ship, input={"how": "'graph'"})
    b.worker("pack", pack, input={"how": "'graph'"})
    b.sleep("later", 3600)
    b.edge("both", "send")
    b.edge("both", "pack")
    b.edge("send", "later")
    return GraphProgram(b.build())


shipping_graph = _shipping()


def begin() -> None:
    shipped.clear()
    refunded.clear()


async def cancel(run: Handle[str]) -> None:
    await run.cancel("enough")


def check(ended: Ended) -> None:
    """Whatever was shipped is not refunded, and what the run says is true."""
    assert ended.status.value in ("completed", "cancelled")
    assert not set(shipped) & set(refunded), f"{shipped} shipped, and {refunded} refunded"
    if ended.status.value == "completed" and "graph" not in shipped:
        said = (ended.payload or b"").decode()
        assert said == ('"shipped"' if shipped else '"refunded"')
