"""Acknowledged order is delivery order, per run, whichever host sent a message and whatever its clock says."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

import perdure
from perdure import Engine, GraphProgram, Handle, RunCancelled, Settings, Signal, task, workflow
from perdure.core.graph import model as m
from perdure.core.journal import events as e
from perdure.testing.probe import Probe
from tests.client.engines import opened, store_of, until_recorded

HOUR_MS = 3_600_000
PATIENCE_S = 30

word = Signal("between.word", str)
more = Signal("between.more", str)


@workflow(name="between.hearing")
async def hearing(count: int) -> list[str]:
    return [await word.receive() for _ in range(count)]


@workflow(name="between.impatient")
async def impatient(timeout_s: float) -> str:
    await more.receive()
    try:
        return await word.receive(timeout=timeout_s)
    except TimeoutError:
        return "timed out"


@task(name="between.cleaning")
async def cleaning() -> None:
    """A step of the clean-up."""


@workflow(name="between.chain")
async def chain(heard: list[str]) -> list[str]:
    heard = [*heard, await word.receive()]
    if len(heard) == 4:
        return heard
    return await perdure.continue_as_new(chain(heard))


def set_clock(engine: Engine, monkeypatch: pytest.MonkeyPatch, ahead_ms: int) -> None:
    """Let the host's wall clock be wrong."""
    sources = Probe(engine).host.context.sources
    now_ms = sources.now_ms
    monkeypatch.setattr(sources, "now_ms", lambda: now_ms() + ahead_ms)


@asynccontextmanager
async def two_engines(url: str) -> AsyncIterator[tuple[Engine, Engine]]:
    """The first engine owns the runs, and polls only when a test lets it."""
    calm = Settings(heartbeat=20, stale_after=120)
    async with opened(url, calm) as owner, opened(url, calm) as other:
        Probe(owner).stop_polling()
        Probe(other).stop_polling()
        yield owner, other


@pytest.fixture
async def engines(
    shared_url: str, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[Engine, Engine]]:
    """Two engines; the clock of the second is an hour ahead of the first, or behind it."""
    async with two_engines(shared_url) as (owner, other):
        set_clock(other, monkeypatch, HOUR_MS if shared_url.startswith("sqlite") else -HOUR_MS)
        yield owner, other


def seen_by(engine: Engine, run: Handle[Any]) -> Handle[Any]:
    return engine.handle(run.run_id)


async def test_owner_takes_a_foreign_signal_before_its_own_later_one(
    engines: tuple[Engine, Engine],
) -> None:
    owner, other = engines
    run = await owner.start(hearing(4))
    await seen_by(other, run).signal(word, "1")
    await seen_by(other, run).signal(word, "2")
    await run.signal(word, "3")
    await seen_by(other, run).signal(word, "4")
    await run.signal(word, "5")
    assert await run.result(PATIENCE_S) == ["1", "2", "3", "4"]


async def test_one_senders_signals_keep_their_order_over_a_takeover(
    engines: tuple[Engine, Engine],
) -> None:
    owner, other = engines
    run = await owner.start(hearing(3))
    mine = seen_by(other, run)
    await mine.signal(word, "1")
    await mine.signal(word, "2")
    # As a takeover does, before the new owner looks for what is due.
    await store_of(other).take_over(Probe(owner).host_id, Probe(other).host_id, 10)
    await mine.signal(word, "3")
    assert await mine.result(PATIENCE_S) == ["1", "2", "3"]


async def test_a_cancel_of_the_owner_does_not_overtake_a_signal(
    engines: tuple[Engine, Engine],
) -> None:
    owner, other = engines
    run = await owner.start(hearing(2))
    await seen_by(other, run).signal(word, "1")
    await run.cancel("enough")
    with pytest.raises(RunCancelled):
        await run.result(PATIENCE_S)
    events = [type(entry.event) async for entry in run.events()]
    assert events.index(e.SignalDelivered) < events.index(e.CancelRequested)


async def test_a_chain_takes_signals_in_order_whichever_run_they_were_sent_to(
    engines: tuple[Engine, Engine],
) -> None:
    owner, other = engines
    run = await owner.start(chain([]))
    await seen_by(other, run).signal(word, "1")
    await seen_by(other, run).signal(word, "2")
    await run.signal(word, "3")
    await until_recorded(owner, run, e.RunContinued)
    await run.signal(word, "4")
    assert await run.result(PATIENCE_S) == ["1", "2", "3", "4"]


async def test_transaction_keeps_the_order_of_its_signals_behind_a_foreign_one(
    engines: tuple[Engine, Engine],
) -> None:
    owner, other = engines
    run = await owner.start(hearing(21))
    await seen_by(other, run).signal(word, "first")
    async with owner.transaction():
        for number in range(20):
            await run.signal(word, str(number))
    assert await run.result(PATIENCE_S) == ["first", *map(str, range(20))]


async def test_a_durable_signal_beats_a_later_timeout(
    engines: tuple[Engine, Engine], monkeypatch: pytest.MonkeyPatch
) -> None:
    owner, other = engines
    run = await owner.start(impatient(HOUR_MS / 2000))
    await run.signal(more, "")
    await until_recorded(owner, run, e.TimerScheduled)
    await seen_by(other, run).signal(word, "in time")
    set_clock(owner, monkeypatch, HOUR_MS)
    await Probe(owner).poll()
    assert await run.result(PATIENCE_S) == "in time"


async def test_a_durable_signal_is_there_for_a_receive_that_does_not_wait(
    engines: tuple[Engine, Engine],
) -> None:
    owner, other = engines
    run = await owner.start(impatient(0))
    await seen_by(other, run).signal(word, "in time")
    await run.signal(more, "")
    assert await run.result(PATIENCE_S) == "in time"


async def test_topics_are_served_in_acknowledged_order(engines: tuple[Engine, Engine]) -> None:
    owner, other = engines
    program = GraphProgram(
        m.Graph(
            "between_topics",
            (
                m.TriggerNode(name="start"),
                m.HookNode(name="heard", topic="between", key="k", pending=True),
                m.AssignNode(name="keep", set={}, job={"all": "job.get('all', []) + [heard]"}),
                m.OutputNode(name="out", value="job.all"),
            ),
            (
                m.Edge("start", "heard"),
                m.Edge("heard", "keep", on="pending"),
                m.Edge("heard", "out"),
            ),
            input={"k": m.FieldType("str")},
        )
    )
    for sender, value in ((other, 1), (owner, 2), (other, 3), (owner, 4)):
        await sender.send("between", "k", value, code=202)
    await owner.send("between", "k")
    run = await owner.start(program(k="k"))
    assert await run.result(PATIENCE_S) == [1, 2, 3, 4]
