"""The state of a schedule, and what each tick does to it: pure functions from state and time to a new state.

A tick is decided first, and then carried out: a planned start is stored in the same write that advances the timetable,
and stays until its run exists. The start key of that run is derived from the tick, so that it starts once, however
often and by however many hosts the start is tried.
"""

import re
from collections.abc import Iterable
from enum import StrEnum
from hashlib import sha256
from typing import Final

import msgspec

from perdure.core.errors import InputError
from perdure.core.schedules.timetable import Timetable, iso

MOST_AT_ONCE: Final = 1000
"""Instants that one decision looks at, and starts that may be planned: a schedule that lags further takes several."""

SCHEDULE_TAG: Final = "perdure.schedule"
"""The tag of the runs that a schedule starts; its value is the name of the schedule."""

LOOK_AGAIN_MS: Final = 1000
"""How long after a look at a run that a buffered tick waits for."""


class Overlap(StrEnum):
    """What a tick does while the run of an earlier tick is open."""

    SKIP = "skip"
    """Nothing: the tick is skipped."""

    BUFFER = "buffer"
    """It waits for the end of that run; while one waits, further ticks are skipped."""

    ALLOW = "allow"
    """Its run starts beside the other."""

    REPLACE = "replace"
    """The other run is cancelled, and its own starts."""


class TickOutcome(StrEnum):
    STARTED = "started"
    SKIPPED = "skipped"
    MISSED = "missed"
    FAILED = "failed"


class Tick(msgspec.Struct, frozen=True):
    """What became of a tick; `count` of them in a row, up to `until_ms`, if they shared a fate."""

    instant_ms: int
    outcome: TickOutcome
    run_id: str | None = None
    reason: str = ""
    count: int = 1
    until_ms: int | None = None


class PlannedStart(msgspec.Struct, frozen=True, omit_defaults=True):
    """A run to start: for the instant of the timetable or, with a `trigger`, for a caller's request at that instant."""

    instant_ms: int
    trigger: str = ""
    replaces: str | None = None
    """The run to cancel first."""

    def key(self, name: str) -> str:
        """The start key of the run."""
        what = f"trigger:{self.trigger}" if self.trigger else iso(self.instant_ms)
        return f"schedule:{name}:{what}"


_START_KEY = re.compile(r"schedule:(.+?):(?:trigger:|\d{4}-\d\d-\d\dT)", re.DOTALL)


def schedule_of_key(key: str) -> str | None:
    """The name of the schedule that started the run with this key; `None` if none did."""
    found = _START_KEY.match(key)
    return None if found is None else found[1]


class Schedule(msgspec.Struct, frozen=True, omit_defaults=True):
    """A schedule's rules and state. Times are milliseconds since 1970.

    `next_ms` is the next instant of the timetable. `starts` are decided and not carried out yet. `waiting` is the tick
    that waits for the end of `last_run`. `pause` is the note of a paused schedule.
    """

    timetable: Timetable
    overlap: Overlap = Overlap.SKIP
    jitter_ms: int = 0
    catch_up_ms: int = 3_600_000
    next_ms: int | None = None
    starts: tuple[PlannedStart, ...] = ()
    waiting: PlannedStart | None = None
    last_run: str | None = None
    pause: str | None = None

    @property
    def asks_for_last_run(self) -> bool:
        """Whether the next decision depends on whether the last run is open."""
        return self.last_run is not None and self.overlap is not Overlap.ALLOW


class Advanced(msgspec.Struct, frozen=True):
    """A decision: the new state, and the ticks that were decided otherwise than to start a run."""

    schedule: Schedule
    ticks: tuple[Tick, ...] = ()


def look_at_ms(name: str, schedule: Schedule, now_ms: int) -> int | None:
    """When a host must look at the schedule: 0 is at once, `None` never."""
    if schedule.starts:
        return 0
    times = []
    if schedule.waiting is not None:
        times.append(now_ms + LOOK_AGAIN_MS)
    if schedule.next_ms is not None and schedule.pause is None:
        times.append(schedule.next_ms + jitter_of(name, schedule, schedule.next_ms))
    return min(times, default=None)


def jitter_of(name: str, schedule: Schedule, instant_ms: int) -> int:
    """How much later than its instant the tick is due: the same on every host."""
    if not schedule.jitter_ms:
        return 0
    digest = sha256(f"{name}|{instant_ms}".encode()).digest()
    return int.from_bytes(digest[:8], "big") % schedule.jitter_ms


def advance(name: str, schedule: Schedule, now_ms: int, *, is_open: bool) -> Advanced:
    """Decide on all ticks that are due. `is_open`: the last run has not ended.

    Starts that are decided have to be carried out first: until then nothing changes.
    """
    if schedule.starts:
        return Advanced(schedule)
    deciding = _Deciding(schedule, is_open)
    instants, following = _due(name, schedule, now_ms)
    missed = [instant for instant in instants if now_ms - instant > schedule.catch_up_ms]
    if missed:
        late = f"older than the catch-up window of {schedule.catch_up_ms / 1000:g} s"
        deciding.ticks.append(_together(missed, TickOutcome.MISSED, late))
    for instant in instants[len(missed) :]:
        deciding.take(PlannedStart(instant))
    changed = msgspec.structs.replace(
        schedule, next_ms=following, starts=tuple(deciding.starts), waiting=deciding.waiting
    )
    return Advanced(changed, tuple(deciding.ticks))


class _Deciding:
    """Decides on the due ticks of a schedule, one after the other."""

    def __init__(self, schedule: Schedule, is_open: bool) -> None:
        self._overlap = schedule.overlap
        self._open_run = schedule.last_run if is_open else None
        self._is_busy = is_open
        self.starts: list[PlannedStart] = []
        self.ticks: list[Tick] = []
        self.waiting = schedule.waiting
        if self.waiting is not None and not is_open:
            self.starts.append(self.waiting)
            self.waiting, self._is_busy = None, True

    def take(self, start: PlannedStart) -> None:
        if self._overlap is Overlap.ALLOW or not self._is_busy:
            self.starts.append(start)
            self._is_busy = True
        elif self._overlap is Overlap.REPLACE:
            self.ticks += [_skipped(each, "replaced by a later tick") for each in self.starts]
            self.starts = [msgspec.structs.replace(start, replaces=self._open_run)]
        elif self._overlap is Overlap.BUFFER and self.waiting is None:
            self.waiting = start
        elif self._overlap is Overlap.BUFFER:
            self.ticks.append(_skipped(start, "another tick waits for the run before"))
        else:
            earlier = "the tick before is about to start its run"
            reason = earlier if self._open_run is None else f"run {self._open_run} is open"
            self.ticks.append(_skipped(start, reason))


def carried_out(
    schedule: Schedule, start: PlannedStart, run_id: str | None, problem: str = ""
) -> Advanced:
    """The start was carried out: its run exists; or it can't be, because of a `problem`."""
    rest = tuple(each for each in schedule.starts if each != start)
    if len(rest) == len(schedule.starts):
        return Advanced(schedule)  # another host was faster
    last_run = run_id or schedule.last_run
    outcome = TickOutcome.STARTED if run_id else TickOutcome.FAILED
    tick = Tick(
        start.instant_ms, outcome, run_id, problem or ("triggered" if start.trigger else "")
    )
    return Advanced(msgspec.structs.replace(schedule, starts=rest, last_run=last_run), (tick,))


def paused(schedule: Schedule, note: str) -> Advanced:
    """No tick is due any more. Starts that are decided are carried out."""
    return Advanced(msgspec.structs.replace(schedule, pause=note))


def resumed(schedule: Schedule, now_ms: int) -> Advanced:
    """The timetable continues now. The instants in between are skipped."""
    if schedule.pause is None:
        return Advanced(schedule)
    instants, following = _until(schedule, now_ms)
    reason = f"paused: {schedule.pause}" if schedule.pause else "paused"
    ticks = (_together(instants, TickOutcome.SKIPPED, reason),) if instants else ()
    return Advanced(msgspec.structs.replace(schedule, pause=None, next_ms=following), ticks)


def triggered(schedule: Schedule, now_ms: int, request: str) -> Advanced:
    """One more run starts at once, whatever the timetable and the overlap say."""
    return _with_starts(schedule, [PlannedStart(now_ms, request)])


def backfilled(schedule: Schedule, first_ms: int, end_ms: int) -> Advanced:
    """The runs of all instants from `first_ms` up to `end_ms` start at once. One that has started does not again."""
    instants = instants_between(schedule.timetable, first_ms, end_ms)
    return _with_starts(schedule, [PlannedStart(instant) for instant in instants])


def instants_between(timetable: Timetable, first_ms: int, end_ms: int) -> list[int]:
    found: list[int] = []
    instant = timetable.next_after(first_ms - 1)
    while instant is not None and instant < end_ms:
        if len(found) == MOST_AT_ONCE:
            raise InputError(
                f"more than {MOST_AT_ONCE:,} ticks between {iso(first_ms)} and {iso(end_ms)}",
                "backfill a shorter range, and then the next",
            )
        found.append(instant)
        instant = timetable.next_after(instant)
    return found


def _with_starts(schedule: Schedule, new: Iterable[PlannedStart]) -> Advanced:
    starts = tuple(dict.fromkeys((*schedule.starts, *new)))
    if len(starts) > MOST_AT_ONCE:
        raise InputError(
            f"{len(starts):,} runs of the schedule would be waiting to be started",
            "wait until hosts have started some of them",
        )
    return Advanced(msgspec.structs.replace(schedule, starts=starts))


def _due(name: str, schedule: Schedule, now_ms: int) -> tuple[list[int], int | None]:
    """The instants that are due, and the one that follows them."""
    instants: list[int] = []
    instant = None if schedule.pause is not None else schedule.next_ms
    if schedule.pause is not None:
        return [], schedule.next_ms
    while instant is not None and len(instants) < MOST_AT_ONCE:
        if instant + jitter_of(name, schedule, instant) > now_ms:
            break
        instants.append(instant)
        instant = schedule.timetable.next_after(instant)
    return instants, instant


def _until(schedule: Schedule, now_ms: int) -> tuple[list[int], int | None]:
    """The instants up to now, the first thousand of them, and the first one after now."""
    instants: list[int] = []
    instant = schedule.next_ms
    while instant is not None and instant <= now_ms and len(instants) < MOST_AT_ONCE:
        instants.append(instant)
        instant = schedule.timetable.next_after(instant)
    if instant is not None and instant <= now_ms:
        instant = schedule.timetable.next_after(now_ms)
    return instants, instant


def _together(instants: list[int], outcome: TickOutcome, reason: str) -> Tick:
    until = instants[-1] if len(instants) > 1 else None
    return Tick(instants[0], outcome, None, reason, len(instants), until)


def _skipped(start: PlannedStart, reason: str) -> Tick:
    return Tick(start.instant_ms, TickOutcome.SKIPPED, None, reason)
