"""The event buses of a store: up to where each run is published to each bus, and the events that a bus refused."""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple, Protocol

import msgspec

from perdure.core.ids import RunId

MOST_COUNTED: Final = 10_000
"""How many rows a count of a bus looks at."""


class StoredBus(msgspec.Struct, frozen=True):
    """A bus as stored. `programs` are those whose runs it gets; `None` if of all."""

    name: str
    programs: tuple[str, ...] | None
    since_ms: int
    down_since_ms: int | None = None
    error: str | None = None

    def gets(self, program: str) -> bool:
        """Whether the runs of this program are published to the bus."""
        return self.programs is None or program in self.programs


class PublicationKey(NamedTuple):
    """A run, and the request to publish a part of it again; '' for the run as it advances."""

    run_id: RunId
    replay: str = ""


class Publication(NamedTuple):
    """What a relay has claimed: `seq` is the next entry to publish, `end_seq` where a replay ends."""

    key: PublicationKey
    seq: int
    end_seq: int | None


class DeadLetter(msgspec.Struct, frozen=True):
    """An event that a bus refused. `reason` is what the bus said last."""

    bus: str
    run_id: RunId
    seq: int
    type: str
    reason: str
    tries: int
    at_ms: int


class RelayProgress(msgspec.Struct):
    """What a relay has published since it last wrote its marks."""

    marks: dict[PublicationKey, int] = {}
    ended: list[PublicationKey] = []
    dead_letters: list[DeadLetter] = []

    def __bool__(self) -> bool:
        return bool(self.marks or self.ended or self.dead_letters)


class AheadPage(NamedTuple):
    """Publications that have more to publish, of one page; `last` is the last key of the page, `None` at the end."""

    ahead: list[PublicationKey]
    last: PublicationKey | None


class BusCounts(NamedTuple):
    """How far a bus is behind: how many runs, since when their oldest entry waits; replays and dead letters."""

    behind: int
    oldest_ms: int | None
    replays: int
    dead_letters: int


class ReplayedPart(NamedTuple):
    """Entries of a run's journal, `first` to `end` - 1, to be published once more."""

    run_id: RunId
    first: int
    end: int


class BusTable(Protocol):
    """The interface that both databases implement."""

    async def register(self, name: str, programs: Sequence[str] | None, now_ms: int) -> None:
        """Commits: runs that are created from now on are published to the bus."""
        ...

    async def all(self) -> list[StoredBus]:
        """The buses in the order of their names. One statement."""
        ...

    async def note(self, name: str, down_since_ms: int | None, error: str | None) -> None:
        """Commits: since when the bus takes no events, and why; or that it takes them."""
        ...

    async def remove(self, name: str) -> None:
        """Commits: the bus is gone, with its marks and its dead letters."""
        ...

    async def enrol_open(self, bus: str, run_ids: Sequence[RunId]) -> None:
        """Commits: those of these runs that are open and have no mark for the bus get one: at their first entry if they
        were started after the bus was registered, else where they are now."""
        ...

    async def ahead(
        self, bus: str, holder: str, after: PublicationKey | None, now_ms: int, limit: int
    ) -> AheadPage:
        """Examine up to `limit` publications after a key, for those that this relay may claim and publish."""
        ...

    async def claim(
        self,
        bus: str,
        holder: str,
        keys: Sequence[PublicationKey],
        now_ms: int,
        lease_until_ms: int,
    ) -> list[Publication]:
        """Commits: this relay holds these publications until the lease ends. Skips those that another relay holds."""
        ...

    async def advance(
        self, bus: str, holder: str, progress: RelayProgress, lease_until_ms: int
    ) -> None:
        """Commits: dead letters, marks and the lease, and which publications are complete. A mark never goes back, and
        that of another relay does not change."""
        ...

    async def counts(self, bus: str) -> BusCounts:
        """How far the bus is behind. Each number stops at `MOST_COUNTED`."""
        ...

    async def replayable(
        self,
        after: RunId | None,
        since_ms: int,
        until_ms: int,
        programs: Sequence[str] | None,
        limit: int,
    ) -> list[tuple[RunId, ReplayedPart | None]]:
        """Runs after an id, in order, each with the part of its journal that was written in a span of time."""
        ...

    async def replay(
        self,
        bus: str,
        replay: str,
        parts: Sequence[ReplayedPart],
        dropped: Sequence[DeadLetter] = (),
    ) -> None:
        """Commits: these parts are to be published once more, and these dead letters are gone."""
        ...

    async def dead_letters(
        self, bus: str | None, run_id: RunId | None, after: DeadLetter | None, limit: int
    ) -> list[DeadLetter]:
        """Dead letters of a bus and a run, or of all, in the order of bus, run and sequence."""
        ...

    async def drop(self, letters: Sequence[DeadLetter]) -> None:
        """Commits: these dead letters are gone."""
        ...

    async def tags(self, run_ids: Sequence[RunId]) -> dict[RunId, dict[str, str]]:
        """The tags and search keys of runs. One statement."""
        ...


def bus_from(row: Any) -> StoredBus:
    name, programs, since_ms, down_since_ms, error = row
    named = None if programs is None else msgspec.json.decode(programs, type=tuple[str, ...])
    return StoredBus(name, named, since_ms, down_since_ms, error)


def programs_text(programs: Sequence[str] | None) -> str | None:
    return None if programs is None else msgspec.json.encode(sorted(programs)).decode()


def publication_from(row: Any) -> Publication:
    run_id, replay, seq, end_seq = row
    return Publication(PublicationKey(RunId(run_id), replay), seq, end_seq)


def ahead_page(rows: Sequence[Any], limit: int) -> AheadPage:
    ahead = [PublicationKey(RunId(row[0]), row[1]) for row in rows if row[2]]
    last = PublicationKey(RunId(rows[-1][0]), rows[-1][1]) if len(rows) == limit else None
    return AheadPage(ahead, last)


def replayable_from(row: Any) -> tuple[RunId, ReplayedPart | None]:
    run_id, first, end = row
    return RunId(run_id), None if first is None else ReplayedPart(RunId(run_id), first, end)


def letter_from(row: Any) -> DeadLetter:
    return DeadLetter(*row)


def tags_from(rows: Sequence[Any]) -> dict[RunId, dict[str, str]]:
    tags: dict[RunId, dict[str, str]] = {}
    for run_id, name, value in rows:
        tags.setdefault(RunId(run_id), {})[name] = value
    return tags


def after_values(after: DeadLetter | None) -> tuple[str, str, int]:
    return ("", "", -1) if after is None else (after.bus, after.run_id, after.seq)
