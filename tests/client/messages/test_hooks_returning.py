"""A signal whose hook ended before delivery goes to the next hook: no signal is lost or received twice."""

import asyncio
import json
from typing import Any

import pytest

from perdure import Engine, GraphProgram, Settings
from perdure.core.graph import model as m
from perdure.core.ids import RunId
from perdure.core.journal import events as e
from perdure.testing.probe import Probe
from tests.client.engines import (
    assert_cancelled,
    opened,
    recorded,
    store_of,
    until_recorded,
    until_store,
)

COUNT = 40


def tried(name: str) -> Any:
    """A graph that waits for a signal by its key `k`, but not longer than `t` seconds."""
    return GraphProgram(
        m.Graph(
            name,
            (
                m.TriggerNode(name="start"),
                m.HookNode(name="heard", topic="turn", key="k", sleep="t"),
                m.OutputNode(name="out", value="heard"),
                m.OutputNode(name="late", value="'late'"),
            ),
            (
                m.Edge("start", "heard"),
                m.Edge("heard", "out"),
                m.Edge("heard", "late", on="timeout"),
            ),
            input={"k": m.FieldType("str"), "t": m.FieldType("float")},
        )
    )


hears_or_not = tried("hears_or_not")


def in_turns(name: str, seconds: str) -> Any:
    """A graph that waits for signals by its key `k`, each time no longer than that, until one says stop."""
    return GraphProgram[..., Any](
        m.Graph(
            name,
            (
                m.TriggerNode(name="start"),
                m.HookNode(name="again", cycle=True),
                m.HookNode(name="heard", topic="turn", key="k", sleep=seconds),
                m.AssignNode(name="keep", set={}, job={"all": "job.get('all', []) + [heard]"}),
                m.CycleNode(name="more", to="again"),
                m.CycleNode(name="idle", to="again"),
                m.OutputNode(name="out", value="job.all"),
            ),
            (
                m.Edge("start", "again"),
                m.Edge("again", "heard"),
                m.Edge("heard", "keep"),
                m.Edge("keep", "out", when="heard == 'stop'"),
                m.Edge("keep", "more", when="heard != 'stop'"),
                m.Edge("heard", "idle", on="timeout"),
            ),
            input={"k": m.FieldType("str")},
        )
    )


SELDOM = Settings(heartbeat=100, stale_after=400)
"""A host that polls so seldom that only its own notifications deliver messages in a test."""

listens_in_turns = in_turns("listens_in_turns", "0.02")
listens_long_in_turns = in_turns("listens_long_in_turns", "20")


async def has_signal(engine: Engine, run_id: RunId) -> bool:
    """Whether the store has a signal to the run, received or not."""
    stored = await store_of(engine).messages(run_id)
    return any(message.kind.startswith("signal:") for message, *_ in stored)


@pytest.mark.parametrize("limit_s", [0.0, 0.002])
async def test_a_signal_that_was_sent_before_comes_before_the_end_of_the_time(
    engine: Engine, limit_s: float
) -> None:
    for number in range(5):
        await engine.send("turn", str(number), number)
        run = await engine.start(hears_or_not(k=str(number), t=limit_s))
        assert await run.result(60) == number


async def test_nothing_is_lost_where_a_loop_hardly_ever_waits(engine_url: str) -> None:
    async with opened(engine_url) as engine:
        run = await engine.start(listens_in_turns(k="loop"))
        for value in range(COUNT):
            await engine.send("turn", "loop", value)
            await asyncio.sleep(0.01)
        heard: list[int] = []
        async with asyncio.timeout(60):
            while len(heard) < COUNT:
                await asyncio.sleep(0.05)
                received = await recorded(engine, run, e.SignalReceived)
                heard = [json.loads(event.payload or b"") for event in received]
        await engine.send("turn", "loop", "stop")
        assert await run.result(60) == [*heard, "stop"]
        assert sorted(heard) == list(range(COUNT))


async def test_next_waiter_gets_the_signal_that_was_too_late_for_the_first(shared_url: str) -> None:
    """Two runs for each key; the first times out as the signal arrives."""
    async with opened(shared_url) as here, opened(shared_url) as there:

        async def both(number: int) -> list[str]:
            key = f"k{number}"
            first = await here.start(hears_or_not(k=key, t=0.2))
            second = await there.start(hears_or_not(k=key, t=20.0))
            await asyncio.sleep(0.19 + number % 20 * 0.001)
            await (here if number % 2 else there).send("turn", key, "heard")
            came = await first.result(60)
            if came == "heard":
                await there.send("turn", key, "later")
            return [came, await second.result(60)]

        for came in await asyncio.gather(*map(both, range(COUNT))):
            assert came in (["heard", "later"], ["late", "heard"])


async def test_a_run_that_is_over_keeps_no_signal(
    shared_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The signal is matched to its hook, and the run is cancelled before the host delivers it."""
    async with opened(shared_url, SELDOM) as engine:
        first = await engine.start(hears_or_not(k="k", t=3600.0))
        monkeypatch.setattr(Probe(engine).host, "message_sent", lambda _: None)
        await engine.send("turn", "k", "heard", id="once")
        await until_store(lambda: has_signal(engine, first.run_id))
        monkeypatch.undo()
        await first.cancel()
        await assert_cancelled(first)
        second = await engine.start(hears_or_not(k="k", t=3600.0))
        await Probe(engine).poll()
        assert await second.result(60) == "heard"
        assert not await has_signal(engine, first.run_id)


async def test_a_signal_that_comes_again_leaves_its_hook_to_be_found(shared_url: str) -> None:
    async with opened(shared_url) as engine:
        run = await engine.start(listens_long_in_turns(k="k"))
        await engine.send("turn", "k", 1, id="one")
        await until_recorded(engine, run, e.SignalReceived)
        await engine.send("turn", "k", 1, id="one")
        await engine.send("turn", "k", "stop", id="two")
        assert await run.result(60) == [1, "stop"]
