"""Gaps and lag: readers halt and continue, and an alert reports each."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from typing import Any

import pytest

from perdure import (
    Alert,
    AlertCode,
    Engine,
    EventType,
    InputError,
    SequenceGap,
    Signal,
    SnapshotStatus,
    workflow,
)
from perdure.core.errors import CorruptJournal, StoreUnavailable
from perdure.core.runs.alerts import gap_alert
from perdure.engine.sources import Sources
from perdure.host.clock import HostSources
from perdure.host.runs import views
from perdure.host.runs.feed import MAX_LAG_MS
from perdure.testing.probe import Probe
from tests.client.engines import assert_sound, store_of, until

go = Signal("alerts.go", int)


@workflow(name="alerts.hearing")
async def hearing(count: int) -> int:
    return sum([await go.receive() for _ in range(count)])


class ShiftedSources(HostSources):
    """The machine's clock, and time that a test adds."""

    shift_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.shift_ms


@asynccontextmanager
async def opened(
    on_alert: Callable[[Alert], Awaitable[None] | None] | None = None,
    sources: Sources | None = None,
) -> AsyncIterator[Engine]:
    engine = Engine("sqlite:///:memory:", on_alert=on_alert)
    await Probe(engine).open(sources or HostSources())
    try:
        yield engine
        await assert_sound(engine)
    finally:
        await engine.close()


class Hole:
    """Hides an entry from all readers of an engine's store, as a replica that lacks it would."""

    def __init__(self, engine: Engine, seq: int) -> None:
        self._store = store_of(engine)
        self._read, self._read_grown = self._store.entries, self._store.grown
        self.seq: int | None = seq
        self._store.entries, self._store.grown = self.entries, self.grown

    async def entries(self, *args: Any) -> Any:
        return [each for each in await self._read(*args) if each.seq != self.seq]

    async def grown(self, parts: Any) -> Any:
        found = await self._read_grown(parts)
        return {run: [x for x in each if x.seq != self.seq] for run, each in found.items()}

    def close(self) -> None:
        self.seq = None


async def test_a_gap_makes_the_view_stale_until_it_closes() -> None:
    alerts: list[Alert] = []
    async with opened(alerts.append) as engine:
        run = await engine.start(hearing(1))
        await run.signal(go, 7)
        await run.result(60)
        hole = Hole(engine, 2)
        for _ in range(2):
            view = await run.view()
            assert (view.is_stale, view.gap) == (True, SequenceGap(2, 3))
            assert (view.last_event_seq, view.status) == (1, SnapshotStatus.RUNNING)
        assert [alert.code for alert in alerts] == [AlertCode.PROJECTOR_GAP_DETECTED]
        assert (alerts[0].severity, alerts[0].run_id) == ("P1", run.run_id)
        assert alerts[0].details == {"expected": 2, "found": 3}
        with pytest.raises(CorruptJournal, match="entry 2 of run"):
            [_ async for _ in run.history()]
        hole.close()
        view = await run.view()
        assert (view.is_stale, view.status) == (False, SnapshotStatus.COMPLETED)
        assert engine.alerts() == {"PROJECTOR_GAP_DETECTED": 1}


async def test_a_missing_last_entry_is_a_gap_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(views, "MAX_STEPS", 0)  # no view stays in memory
    async with opened() as engine:
        run = await engine.start(hearing(1))
        await run.signal(go, 7)
        await run.result(60)
        last = (await run.view()).last_event_seq
        hole = Hole(engine, last)
        assert (await run.view()).gap == SequenceGap(last, last + 1)
        with pytest.raises(CorruptJournal, match=f"entry {last} of run"):
            [_ async for _ in run.history()]
        with pytest.raises(CorruptJournal, match=f"entry {last} of run"):
            [_ async for _ in run.follow()]
        hole.close()
        assert not (await run.view()).is_stale


async def test_a_follower_halts_at_a_gap_and_continues_when_it_closes() -> None:
    alerts: list[Alert] = []
    async with opened(alerts.append) as engine:
        run = await engine.start(hearing(1))
        hole = Hole(engine, 3)
        async with aclosing(run.follow()) as following, aclosing(run.watch()) as watching:
            seen = [(await anext(following)).seq for _ in range(2)]
            assert not (await anext(watching)).is_stale
            await run.signal(go, 7)
            seen.append((await anext(following)).seq)
            waiting = asyncio.ensure_future(anext(following))
            await until(lambda: len(alerts) > 0)
            seen_views = [await anext(watching)]
            while not seen_views[-1].is_stale:
                seen_views.append(await anext(watching))
            assert seen_views[-1].gap == SequenceGap(3, 4)
            assert (seen, waiting.done()) == ([0, 1, 2], False)
            hole.close()
            assert (await asyncio.wait_for(waiting, 30)).seq == 3
            rest = [event.type async for event in following]
            assert rest[-1] is EventType.RUN_COMPLETED
            seen_views += [view async for view in watching]
            assert seen_views[-1] == await run.view()
        assert {alert.code for alert in alerts} == {AlertCode.PROJECTOR_GAP_DETECTED}


async def test_entries_that_are_read_late_raise_an_alert_once_until_they_are_read_in_time() -> None:
    alerts: list[Alert] = []
    sources = ShiftedSources()
    async with opened(alerts.append, sources) as engine:
        run = await engine.start(hearing(4))
        store, may_read, is_reading = store_of(engine), asyncio.Event(), asyncio.Event()
        grown = store.grown

        async def slow(parts: Any) -> Any:
            is_reading.set()
            await may_read.wait()
            return await grown(parts)

        async with aclosing(run.watch()) as watching, aclosing(run.follow()) as following:
            last = (await anext(watching)).last_event_seq
            reading = asyncio.ensure_future(anext(watching))
            await anext(following)
            for delay_ms, raised in (
                (MAX_LAG_MS // 2, 0),
                (MAX_LAG_MS * 2, 1),
                (MAX_LAG_MS * 2, 1),
            ):
                store.grown = slow
                is_reading.clear()
                may_read.clear()
                await run.signal(go, 1)
                await asyncio.wait_for(is_reading.wait(), 30)
                sources.shift_ms += delay_ms
                may_read.set()
                view = await asyncio.wait_for(reading, 30)
                while view.last_event_seq < last + 2:
                    view = await anext(watching)
                last = view.last_event_seq
                reading = asyncio.ensure_future(anext(watching))
                assert len(alerts) == raised
            store.grown = grown
            await run.signal(go, 1)
            await reading
            assert await run.result(60) == 4
        assert [alert.code for alert in alerts] == [AlertCode.PROJECTOR_LAG_HIGH]
        assert alerts[0].severity == "P2"
        assert alerts[0].details["lag_ms"] >= MAX_LAG_MS * 2
        assert engine.alerts() == {"PROJECTOR_LAG_HIGH": 1}


async def test_a_store_that_fails_for_a_while_loses_no_event() -> None:
    async with opened() as engine:
        run = await engine.start(hearing(1))
        store, failures = store_of(engine), [1, 2, 3]
        grown = store.grown

        async def failing(parts: Any) -> Any:
            if failures:
                failures.pop()
                raise StoreUnavailable("the disk is gone", "bring it back")
            return await grown(parts)

        async with aclosing(run.follow()) as following:
            await anext(following)
            store.grown = failing
            await run.signal(go, 7)
            seen = [event.seq async for event in following]
        assert seen == list(range(1, seen[-1] + 1))
        assert not failures


async def test_on_alert_may_be_a_coroutine_function_and_may_fail(
    caplog: pytest.LogCaptureFixture,
) -> None:
    heard: list[str] = []

    async def hear(alert: Alert) -> None:
        await asyncio.sleep(0)
        heard.append(alert.code)
        raise RuntimeError("the pager is broken")

    def fail(_: Alert) -> None:
        raise RuntimeError("the pager is lost")

    async with opened(hear) as engine:
        alerts, alert = (
            Probe(engine).host.context.alerts,
            gap_alert((await started(engine)), 3, 4, 5),
        )
        alerts.subscribe(fail)
        with caplog.at_level(logging.ERROR, "perdure.alert"):
            alerts.raise_alert(alert)
            await until(lambda: "the pager is broken" in caplog.text)
        assert heard == [AlertCode.PROJECTOR_GAP_DETECTED]
        assert "the pager is lost" in caplog.text
        first = caplog.records[0]
        assert first.getMessage().startswith("PROJECTOR_GAP_DETECTED (P1): entry 3 of run")
        assert (first.__dict__["event"], first.__dict__["run_id"]) == ("alert", alert.run_id)


async def started(engine: Engine) -> Any:
    return (await engine.start(hearing(1))).run_id


def test_an_on_alert_that_is_no_function_is_refused() -> None:
    with pytest.raises(InputError, match="on_alert is 'me': pass a function"):
        Engine("sqlite:///:memory:", on_alert="me")  # type: ignore[arg-type]
