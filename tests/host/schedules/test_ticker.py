"""Hosts that tick at once, and hosts that die at any point: each tick starts one run, and is listed once."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, TypeVar

import pytest

from perdure import Engine, Every, workflow
from perdure.core.errors import StoreDamaged, StoreUnavailable, UnreadableProgram
from perdure.core.ids import RunId
from perdure.core.schedules.schedule import Tick, TickOutcome
from perdure.host.runs.batch import RunStart
from perdure.host.schedules.ticker import Ticker
from perdure.store.schedule_table import MOST_DUE, StoredSchedule
from perdure.testing.explorer import VirtualSources
from perdure.testing.probe import Probe
from tests.client.engines import assert_sound
from tests.store.builders import raw

T = TypeVar("T")

MINUTES = 3


@workflow
async def ticked(n: int) -> int:
    return n


class Died(StoreUnavailable):
    """The host is dead."""


class DyingHost:
    """Stands between a ticker and its store: dies before or after the n-th thing that it does to the store."""

    def __init__(self, probe: Probe, dies_at: int, *, after: bool) -> None:
        self._probe = probe
        self._left = dies_at
        self._after = after
        self.has_died = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._probe.store, name)

    @property
    def schedules(self) -> Any:
        return self

    async def due(
        self, programs: Sequence[str], now_ms: int, skipped: int = 0
    ) -> list[StoredSchedule | StoreDamaged]:
        return await self._probe.store.schedules.due(programs, now_ms, skipped)

    async def write(self, stored: StoredSchedule, ticks: Sequence[Tick] = ()) -> bool:
        return await self._do(self._probe.store.schedules.write, stored, ticks)

    async def begin(self, start: RunStart) -> RunId:
        return await self._do(self._probe.host.begin_run, start)

    async def _do(self, act: Callable[..., Awaitable[T]], *args: Any) -> T:
        self._left -= 1
        self._die(is_now=not self._after)
        done = await act(*args)
        self._die(is_now=self._after)
        return done

    def _die(self, *, is_now: bool) -> None:
        if self.has_died or (is_now and not self._left):
            self.has_died = True
            raise Died("the host is dead", "start another")

    def ticker(self) -> Ticker:
        host = self._probe.host
        context = _Context(host.context, self)
        return Ticker(context, host.dispatcher, self.begin)  # type: ignore[arg-type]


class _Context:
    def __init__(self, context: Any, store: DyingHost) -> None:
        self._context = context
        self.store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)


@pytest.fixture
async def probe() -> AsyncIterator[Probe]:
    """An engine on a virtual clock whose own poller does not tick; its schedule is three ticks late."""
    engine = Engine("sqlite:///:memory:")
    probe, sources = Probe(engine), VirtualSources()
    await probe.open(sources)
    probe.stop_polling()
    await engine.schedule("s", ticked(1), Every(60), overlap="allow")
    sources.advance(MINUTES * 60_000)
    yield probe
    await assert_sound(engine)
    await engine.close()


async def assert_each_tick_ran_once(probe: Probe) -> None:
    ticks = await probe.store.schedules.ticks("", "s", 100)
    assert {tick.outcome for tick in ticks} == {TickOutcome.STARTED}
    assert sorted(Counter(tick.instant_ms for tick in ticks).values()) == [1] * MINUTES
    assert len({tick.run_id for tick in ticks}) == MINUTES
    count = 0
    async for _ in probe.store.books():
        count += 1
    assert count == MINUTES, "a tick started more than one run"


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("dies_at", range(1, MINUTES + 4))
async def test_a_host_that_dies_anywhere_starts_no_tick_twice_and_loses_none(
    probe: Probe, dies_at: int, after: bool
) -> None:
    dying = DyingHost(probe, dies_at, after=after)
    try:
        await dying.ticker().tick()
    except Died:
        pass
    else:
        assert not dying.has_died
    await DyingHost(probe, 0, after=False).ticker().tick()
    await assert_each_tick_ran_once(probe)


async def test_hosts_that_tick_at_the_same_time_start_each_run_once(probe: Probe) -> None:
    tickers = [DyingHost(probe, 0, after=False).ticker() for _ in range(3)]
    await asyncio.gather(*(ticker.tick() for ticker in tickers))
    await assert_each_tick_ran_once(probe)


async def test_a_damaged_schedule_does_not_keep_others_from_ticking(
    probe: Probe, caplog: pytest.LogCaptureFixture
) -> None:
    await raw(probe.store, "INSERT INTO {}schedule VALUES ('', 'bad', 'ticked', x'', 'x', 0, 1)")
    ticker = DyingHost(probe, 0, after=False).ticker()
    await ticker.tick()
    await ticker.tick()
    await assert_each_tick_ran_once(probe)
    assert [record.getMessage().partition(":")[0] for record in caplog.records] == [
        "schedule 'bad' can't be read"
    ]


async def test_as_many_damaged_schedules_as_a_read_takes_do_not_keep_the_host_busy(
    probe: Probe,
) -> None:
    for number in range(MOST_DUE):
        row = f"('', 'bad {number}', 'ticked', x'', 'x', -1, 1)"
        await raw(probe.store, f"INSERT INTO {{}}schedule VALUES {row}")
    async with asyncio.timeout(20):
        await DyingHost(probe, 0, after=False).ticker().tick()
    await assert_each_tick_ran_once(probe)


async def test_one_poll_starts_a_bounded_number_of_runs(
    probe: Probe, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("perdure.host.schedules.ticker.WORK_PER_POLL", 2)
    ticker, begun = DyingHost(probe, 0, after=False).ticker(), []
    for _ in range(MINUTES + 1):
        await ticker.tick()
        ticks = await probe.store.schedules.ticks("", "s", 100)
        begun.append(len(ticks))
        assert (ticker.next_due_ms == 0) == (len(begun) <= MINUTES), begun
    assert begun == [1, 2, 3, 3]
    await assert_each_tick_ran_once(probe)


async def test_a_schedule_whose_program_can_not_be_read_does_not_fail_the_poll(
    probe: Probe, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def unreadable(*_: object) -> None:
        raise UnreadableProgram("version '2' can't be read", "upgrade Perdure on this host")

    ticker = DyingHost(probe, 0, after=False).ticker()
    with monkeypatch.context() as patched:
        patched.setattr(probe.host.dispatcher.programs, "find", unreadable)
        await ticker.tick()
    assert "version '2' can't be read" in caplog.text
    await ticker.tick()
    await assert_each_tick_ran_once(probe)
