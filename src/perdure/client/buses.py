"""The event buses of a store, from outside of relays: `engine.buses`."""

from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import Literal

import msgspec

from perdure.authoring.texts import require_user_text
from perdure.client.schedules.timetables import instant_of
from perdure.core.errors import InputError, UnknownBus, UnknownRun
from perdure.core.ids import RunId, parse_run_id
from perdure.core.limits import MAX_TIME_MS
from perdure.host.bus.bus import require_bus_name
from perdure.host.host import Host
from perdure.store.bus_table import DeadLetter, ReplayedPart, StoredBus
from perdure.store.store import Store

PAGE = 500
MOST_LETTERS = 1000


class BusInfo(msgspec.Struct, frozen=True):
    """An event bus as it is now.

    `behind` counts runs with events that are not published yet, and `lag` is the age of the oldest of these in seconds;
    `replays` counts parts of runs that are to be published again. Counts stop at 10,000. `error` says why it is down.
    """

    name: str
    programs: tuple[str, ...] | None
    state: Literal["ok", "down"]
    since: datetime
    behind: int
    lag: float
    replays: int
    dead_letters: int
    down_since: datetime | None
    error: str | None


class EngineBuses:
    """Shows the event buses of the store, publishes events again, and handles dead letters.

    Works in any process with the same store: relays, wherever they are, publish what is asked for here.
    """

    def __init__(self, host: Callable[[], Host]) -> None:
        self._host = host

    async def all(self) -> list[BusInfo]:
        """The buses in the order of their names."""
        return await bus_infos(self._store, self._now_ms())

    async def info(self, bus: str) -> BusInfo:
        """One bus. Raises `UnknownBus` if no engine was opened with it."""
        stored = await require_bus(self._store, bus)
        return await _info(self._store, stored, self._now_ms())

    async def replay(
        self,
        bus: str,
        runs: Iterable[str] | None = None,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        programs: Sequence[str] | None = None,
    ) -> int:
        """Publish events to one bus once more, with the ids of the first time. Returns of how many runs.

        They are those of these runs, or of all runs (of these programs), as far as they were written in a span of time.
        """
        await require_bus(self._store, bus)
        parts = await replayed_parts(self._store, self._now_ms(), runs, since, until, programs)
        name = self._host().context.sources.entropy(8).hex()
        for at in range(0, len(parts), PAGE):
            await self._store.buses.replay(bus, name, parts[at : at + PAGE])
        return len(parts)

    async def remove(self, bus: str) -> None:
        """Forget a bus that no engine has any more, with its marks and its dead letters."""
        await require_bus(self._store, bus)
        await self._store.buses.remove(bus)
        self._host().relays.refresh_soon(is_changed=True)

    async def dead_letters(
        self,
        bus: str | None = None,
        run: str | None = None,
        *,
        after: DeadLetter | None = None,
        limit: int = 100,
    ) -> list[DeadLetter]:
        """The events that a bus refused, by bus, run and sequence. The next page is `after` the last one."""
        if not 1 <= limit <= MOST_LETTERS:
            raise InputError(f"limit is {limit!r}", f"pass a whole number up to {MOST_LETTERS}")
        name = None if bus is None else require_bus_name(bus)
        run_id = None if run is None else _run_id(run)
        return await self._store.buses.dead_letters(name, run_id, after, limit)

    async def replay_letters(self, letters: Sequence[DeadLetter]) -> int:
        """Publish dead letters again: they leave the list, and return if the bus refuses them again."""
        name = self._host().context.sources.entropy(8).hex()
        given = _require_letters(letters)
        # Each letter of a run has a publication of its own: what lies between two of them is not published again.
        together: dict[tuple[str, int], list[DeadLetter]] = {}
        before: Counter[tuple[str, RunId]] = Counter()
        for letter in given:
            place = before[letter.bus, letter.run_id]
            before[letter.bus, letter.run_id] += 1
            together.setdefault((letter.bus, place), []).append(letter)
        for (bus, place), found in together.items():
            parts = [ReplayedPart(each.run_id, each.seq, each.seq + 1) for each in found]
            await self._store.buses.replay(bus, f"{name}-{place}", parts, found)
        return len(given)

    async def drop_letters(self, letters: Sequence[DeadLetter]) -> int:
        """Delete dead letters. The events stay in the journals of their runs."""
        given = _require_letters(letters)
        await self._store.buses.drop(given)
        return len(given)

    @property
    def _store(self) -> Store:
        return self._host().context.store

    def _now_ms(self) -> int:
        return self._host().context.sources.now_ms()


class Buses:
    """The event buses of an engine."""

    @abstractmethod
    def _require_host(self) -> Host: ...

    @property
    def buses(self) -> EngineBuses:
        """The event buses of the store: how far each is behind, replays, dead letters."""
        return EngineBuses(self._require_host)


async def bus_infos(store: Store, now_ms: int) -> list[BusInfo]:
    return [await _info(store, stored, now_ms) for stored in await store.buses.all()]


async def require_bus(store: Store, name: object) -> StoredBus:
    text = require_bus_name(name)
    buses = await store.buses.all()
    for bus in buses:
        if bus.name == text:
            return bus
    known = ", ".join(bus.name for bus in buses) or "none"
    raise UnknownBus(
        f"the store has no bus {text!r}; it has {known}", "open an engine with it: buses=[...]"
    )


async def _info(store: Store, bus: StoredBus, now_ms: int) -> BusInfo:
    counts = await store.buses.counts(bus.name)
    lag_ms = 0 if counts.oldest_ms is None else max(0, now_ms - counts.oldest_ms)
    down_since = None if bus.down_since_ms is None else _time(bus.down_since_ms)
    return BusInfo(
        bus.name,
        bus.programs,
        "ok" if down_since is None else "down",
        _time(bus.since_ms),
        counts.behind,
        lag_ms / 1000,
        counts.replays,
        counts.dead_letters,
        down_since,
        bus.error,
    )


async def replayed_parts(
    store: Store,
    now_ms: int,
    runs: Iterable[str] | None,
    since: datetime | None,
    until: datetime | None,
    programs: Sequence[str] | None,
) -> list[ReplayedPart]:
    """The parts of journals that a replay publishes."""
    since_ms = 0 if since is None else instant_of(since, "since")
    until_ms = MAX_TIME_MS if until is None else instant_of(until, "until")
    if runs is None and since is None and until is None and programs is None:
        raise InputError("a replay of everything", "name runs, programs or a span of time")
    if runs is not None and programs is not None:
        raise InputError("runs and programs", "name one of them")
    if isinstance(runs, str):
        raise InputError(f"runs is one text, {runs!r}", "pass a list")
    if isinstance(programs, str):
        raise InputError(f"programs is one text, {programs!r}", "pass a list")
    if runs is not None:
        return await _parts_of(store, [_run_id(run) for run in runs], since_ms, until_ms)
    parts: list[ReplayedPart] = []
    after: RunId | None = None
    last_ms = min(until_ms, now_ms + 1)
    while page := await store.buses.replayable(after, since_ms, last_ms, programs, PAGE):
        parts += [part for _, part in page if part is not None]
        after = page[-1][0]
    return parts


async def _parts_of(
    store: Store, run_ids: Sequence[RunId], since_ms: int, until_ms: int
) -> list[ReplayedPart]:
    found = {run.run_id: run for run in await store.runs(run_ids)}
    parts = []
    for run_id in dict.fromkeys(run_ids):
        run = found.get(run_id)
        if run is None:
            raise UnknownRun(f"run {run_id!r} is not in the store", "see its id")
        first, end = 0, run.seq
        if since_ms or until_ms < MAX_TIME_MS:
            entries = await store.entries(run_id, 0, run.seq)
            within = [entry.seq for entry in entries if since_ms <= entry.at_ms < until_ms]
            if not within:
                continue
            first, end = within[0], within[-1] + 1
        parts.append(ReplayedPart(run_id, first, end))
    return parts


def _run_id(run: object) -> RunId:
    return parse_run_id(require_user_text("a run id", run, least=0))


def _require_letters(letters: object) -> list[DeadLetter]:
    if not isinstance(letters, list | tuple) or not all(isinstance(e, DeadLetter) for e in letters):
        raise InputError(f"{letters!r:.200} are no dead letters", "pass a list of `dead_letters`")
    return list(letters)


def _time(at_ms: int) -> datetime:
    return datetime.fromtimestamp(at_ms / 1000, UTC)
