"""The three whole lives of `tests/core/journal/test_sequences.py`, lived by workflows on a real engine."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

import perdure
from perdure import Engine, Handle, Retry, Signal, Workflow, task, workflow
from perdure.authoring import registry
from perdure.core.ids import RunId
from perdure.core.journal import events as e
from perdure.core.journal.postings import effect_of
from perdure.core.journal.state import Status, fold
from perdure.host import host as hosting
from perdure.host.settings import Settings
from tests.client.engines import store_of
from tests.core.journal.test_sequences import BLOCKING_SIGNAL, BUFFERED_SIGNAL, FULL

pytestmark = pytest.mark.asyncio

Row = tuple[e.Event, Status, int]
Moment = tuple[e.Event, Status, int, e.ExecutionAwaiting | None]

PATIENCE_S = 60

ELSEWHERE = "order_elsewhere"


class Approval(msgspec.Struct):
    approved: bool


class User(msgspec.Struct):
    name: str


USER_APPROVAL = Signal("user_approval", Approval)


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "postgres":
        address: str = request.getfixturevalue("emptied_postgres")
        return address
    return f"sqlite:///{tmp_path}/journals.db"


@pytest.fixture(params=["warm", "always replayed", "stepwise"])
def settings(request: pytest.FixtureRequest) -> Settings:
    warm_memory = 0 if request.param == "always replayed" else 1 << 28
    return Settings(warm_memory=warm_memory, stepwise=request.param == "stepwise")


@pytest.fixture(autouse=True)
def attentive(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hosts poll 50 times a second."""
    monkeypatch.setattr(hosting, "POLL_MS", 20)


def notifying() -> Workflow[[int], str]:
    """The 25 events. Each message has a queue of its own, so that it is sent when that queue is served."""

    @task
    async def fetch_user(id: int) -> User:  # noqa: A002 - the journal holds {"id":42}
        return User("Ada")

    @task(queue="email", retry=Retry(attempts=2, first=0))
    async def send_email() -> bool:
        if perdure.info().attempt == 1:
            raise ConnectionError("timeout")
        return True

    @task(queue="sms")
    async def send_sms() -> bool:
        return True

    @workflow
    async def notify(number: int) -> str:
        perdure.random()
        await fetch_user(number)
        messages = perdure.join_set()
        messages.submit(send_email())
        messages.submit(send_sms())
        async for _ in messages:
            pass
        return "done"

    return notify


def ordering_elsewhere() -> Workflow[[], str]:
    """The same order, created by the host that serves the queue of orders."""

    @task(queue="orders", name="create_order")
    async def create_order() -> dict[str, int]:
        return {"order": 1}

    @workflow(name=ELSEWHERE)
    async def order() -> str:
        await create_order()
        await USER_APPROVAL.receive()
        return "ok"

    return order


def ordering(created: asyncio.Event) -> Workflow[[], str]:
    """The two signals: an order that is created at `created`, then approved."""

    @task
    async def create_order() -> dict[str, int]:
        await created.wait()
        return {"order": 1}

    @workflow(name="order_here")
    async def order() -> str:
        await create_order()
        await USER_APPROVAL.receive()
        return "ok"

    return order


UNTOLD: dict[type[e.Event], tuple[str, ...]] = {
    e.ExecutionStarted: ("program", "component_digest", "root", "scope", "payload"),
    e.RandomGenerated: ("value",),
    e.InvokeScheduled: ("retry_policy", "place", "queue"),
    e.InvokeRetrying: ("retry_at_ms", "queue", "payload"),
    e.InvokeCompleted: ("guid",),
    e.SignalDelivered: ("guid",),
}
"""What a described run leaves open: code, chance, time, queues, the names of messages, the words of an error."""


def bare(event: e.Event) -> e.Event:
    return msgspec.structs.replace(event, **dict.fromkeys(UNTOLD.get(type(event), ())))


def with_waits(life: Sequence[Row]) -> list[Moment]:
    """Each event of a life, and after it: the status, the open obligations, what is waited for."""
    events = [event for event, _, _ in life]
    waits = [fold(events[: end + 1]).wait for end in range(len(events))]
    return [(bare(row[0]), *row[1:], wait) for row, wait in zip(life, waits, strict=True)]


async def life_of(run: Handle[Any]) -> list[Moment]:
    events = [entry.event async for entry in run.events()]
    ends = range(1, len(events) + 1)
    statuses = [fold(events[:end]).status for end in ends]
    open_ones = [sum(effect_of(event)[1] for event in events[:end]) for end in ends]
    return with_waits(list(zip(events, statuses, open_ones, strict=True)))


async def until(run: Handle[Any], event: e.Event) -> None:
    """Returns when the journal holds `event`."""
    async with asyncio.timeout(PATIENCE_S):
        async for entry in run.events():
            if bare(entry.event) == bare(event):
                return


SECOND_AWAIT = FULL[17][0]


async def test_a_second_host_serves_the_late_queue(url: str, settings: Settings) -> None:
    async with Engine(url, queues=["sms"], settings=settings) as engine:
        run = await engine.start(notifying()(42))
        await until(run, SECOND_AWAIT)
        async with Engine(url, queues=["email"]):
            assert await run.result(timeout=PATIENCE_S) == "done"
        assert await life_of(run) == with_waits(FULL)
        assert (await engine.audit()).is_clean
        assert (await engine.verify()).is_clean


async def test_the_next_host_serves_the_late_queue(url: str, settings: Settings) -> None:
    async with Engine(url, queues=["sms"], settings=settings) as first:
        run = await first.start(notifying()(42))
        await until(run, SECOND_AWAIT)
    async with Engine(url, queues=["email"], settings=settings) as second:
        again = second.handle(run.run_id)
        assert await again.result(timeout=PATIENCE_S) == "done"
        assert await life_of(again) == with_waits(FULL)


async def test_signal_delivered_after_its_await(url: str, settings: Settings) -> None:
    created = asyncio.Event()
    created.set()
    async with Engine(url, settings=settings) as engine:
        run = await engine.start(ordering(created)())
        await until(run, BLOCKING_SIGNAL[6][0])
        await run.signal(USER_APPROVAL, Approval(True))
        assert await run.result(timeout=PATIENCE_S) == "ok"
        assert await life_of(run) == with_waits(BLOCKING_SIGNAL)


async def create_and_approve(url: str, run_id: RunId) -> None:
    """Another process, without the workflow: it creates the order, and then a client approves it there."""
    with pytest.MonkeyPatch.context() as patched:
        patched.delitem(registry._known, ("program", ELSEWHERE))
        async with Engine(url, queues=["orders"]) as worker:
            async with asyncio.timeout(PATIENCE_S):
                while not await store_of(worker).messages(run_id):  # noqa: ASYNC110 - nothing notifies of it
                    await asyncio.sleep(0.005)
            await asyncio.sleep(0.005)  # messages are sorted by the millisecond
            await worker.handle(run_id).signal(USER_APPROVAL, Approval(True))


async def test_signal_delivered_at_its_await(url: str, settings: Settings) -> None:
    """It stands behind the result: the program asks for it in the turn that the result leads to."""
    async with Engine(url, settings=settings) as first:
        run = await first.start(ordering_elsewhere()())
    await create_and_approve(url, run.run_id)
    async with Engine(url, settings=settings) as second:
        again = second.handle(run.run_id)
        assert await again.result(timeout=PATIENCE_S) == "ok"
        assert await life_of(again) == with_waits(BUFFERED_SIGNAL)
        assert (await second.audit()).is_clean
        assert (await second.verify()).is_clean


async def test_signal_delivered_before_its_await(url: str, settings: Settings) -> None:
    """It reaches the program while that waits for something else.

    So the delivery stands before the result that the program waits for, and not after its resumption.
    """
    created = asyncio.Event()
    *begun, completed, resumed, (delivered, _, _), received, ended = BUFFERED_SIGNAL
    async with Engine(url, settings=settings) as engine:
        run = await engine.start(ordering(created)())
        await run.signal(USER_APPROVAL, Approval(True))
        await until(run, delivered)
        created.set()
        assert await run.result(timeout=PATIENCE_S) == "ok"
        while_waiting = (delivered, Status.BLOCKED, 2)
        life = [*begun, while_waiting, completed, resumed, received, ended]
        assert await life_of(run) == with_waits(life)
