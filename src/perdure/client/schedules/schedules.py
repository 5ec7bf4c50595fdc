"""Schedules: runs that start by themselves."""

from abc import abstractmethod
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Literal

import msgspec

from perdure.authoring.durations import Duration, milliseconds
from perdure.authoring.program import ProgramCall
from perdure.authoring.texts import require_user_text
from perdure.client.engine_arguments import take_program
from perdure.client.runs.handle import Handle
from perdure.client.schedules.timetables import Cron, Every, Once, instant_of
from perdure.client.starts import prepare_start, start_one
from perdure.core.errors import InputError, StoreDamaged, UnknownName, UnknownSchedule
from perdure.core.limits import MAX_NAME_LENGTH
from perdure.core.schedules.schedule import (
    Advanced,
    Overlap,
    PlannedStart,
    Schedule,
    Tick,
    backfilled,
    look_at_ms,
    paused,
    resumed,
    triggered,
)
from perdure.host.host import Host
from perdure.host.runs.batch import RunStart
from perdure.host.schedules.ticker import with_state
from perdure.store.schedule_table import StoredSchedule
from perdure.store.store import Store

_MOST_TRIES = 100


class ScheduleInfo(msgspec.Struct, frozen=True):
    """A schedule as it is now. `timetable` is in words; `note` is that of a paused schedule."""

    name: str
    scope: str
    program: str
    arguments: dict[str, Any]
    timetable: str
    overlap: Overlap
    is_paused: bool
    note: str
    next_at: datetime | None
    waiting: datetime | None
    """The tick that waits for the end of the run before (overlap `buffer`)."""
    last_run: str | None


class TickInfo(msgspec.Struct, frozen=True):
    """What became of a tick: started, skipped, missed or failed, and why. `count` ticks up to `until` shared it."""

    at: datetime
    outcome: str
    run_id: str | None
    reason: str
    count: int
    until: datetime | None


class ScheduleHandle:
    """A schedule. Any process with the same store can have a handle of it."""

    def __init__(self, host: Host, name: str, scope: str) -> None:
        self.name = name
        self.scope = scope
        self._host = host

    def __repr__(self) -> str:
        return f"<ScheduleHandle {self.name!r}>"

    async def info(self) -> ScheduleInfo:
        """The schedule as it is now."""
        return info_of(self._host, await self._stored())

    async def ticks(self, limit: int = 100) -> list[TickInfo]:
        """What became of the newest ticks, newest first. The store keeps the last thousand."""
        await self._stored()
        schedules = self._host.dispatcher.store.schedules
        ticks = await schedules.ticks(self.scope, self.name, _require_count(limit, "limit"))
        return [_tick_info(tick) for tick in ticks]

    async def next(self, count: int = 10) -> list[datetime]:
        """The next instants at which it ticks; none while it is paused."""
        most = _require_count(count, "count")
        return list(map(_time, instants_of((await self._stored()).schedule, most)))

    async def pause(self, note: str = "") -> None:
        """Tick no more, until it is resumed. Its open runs continue."""
        text = require_user_text("the note of a pause", note, least=0)
        await self._change(lambda schedule, _: paused(schedule, text))

    async def resume(self) -> None:
        """Tick again from now on. The ticks in between are skipped, and `ticks` says so."""
        await self._change(resumed)

    async def trigger(self, *, id: str | None = None) -> Handle[Any]:  # noqa: A002 - as in signal
        """Start one more run at once, whatever the timetable and the overlap say. Triggers with one `id` are one."""
        stored, request = await self._request(id)
        dispatcher = self._host.dispatcher
        program = dispatcher.programs.find(stored.program)
        if program is None:
            raise UnknownName(
                f"schedule {self.name!r} starts program {stored.program!r}, which is not registered here; "
                "a host that has it will start the run",
                "look for the run with `ScheduleHandle.ticks`",
            )
        key = PlannedStart(0, request).key(self.name)
        start = RunStart(program, stored.payload, key, self.scope)
        return await start_one(self._host, start, "return")

    async def backfill(self, first: datetime, end: datetime) -> int:
        """Start the runs of all ticks from `first` to `end`, without `end`, at once. Returns how many ticks that are.

        A tick whose run was started before does not start another.
        """
        first_ms, end_ms = instant_of(first, "first"), instant_of(end, "end")
        before = 0

        def decide(schedule: Schedule, _: int) -> Advanced:
            nonlocal before
            before = len(schedule.starts)
            return backfilled(schedule, first_ms, end_ms)

        stored = await self._change(decide)
        return len(stored.schedule.starts) - before

    async def delete(self) -> None:
        """Delete the schedule and its list of ticks. Runs that it started stay."""
        with suppress(StoreDamaged):  # one that can't be read can be deleted
            await self._stored()
        await self._host.dispatcher.store.schedules.delete(self.scope, self.name)

    async def _request(self, request_id: str | None) -> tuple[StoredSchedule, str]:
        """Commits: a trigger. Hosts that have the program start its run. Returns the trigger's id, too."""
        entropy = self._host.dispatcher.sources.entropy
        request = (
            entropy(16).hex() if request_id is None else require_user_text("an id", request_id)
        )
        stored = await self._change(lambda schedule, now: triggered(schedule, now, request))
        return stored, request

    async def _stored(self) -> StoredSchedule:
        return await stored_schedule(self._host.dispatcher.store, self.scope, self.name)

    async def _change(self, decide: Callable[[Schedule, int], Advanced]) -> StoredSchedule:
        """Commits: the decision, made on the newest revision. Hosts look at the schedule at once."""
        dispatcher = self._host.dispatcher
        for _ in range(_MOST_TRIES):
            stored = await self._stored()
            now = dispatcher.sources.now_ms()
            advanced = decide(stored.schedule, now)
            changed = with_state(stored, advanced.schedule, now)
            if await dispatcher.store.schedules.write(changed, advanced.ticks):
                self._host.schedules_changed()
                return changed
        raise InputError(
            f"schedule {self.name!r} is changed all the time by others", "try again later"
        )


class Schedules:
    """The schedules of an engine."""

    @abstractmethod
    def _require_host(self) -> Host: ...

    @abstractmethod
    def _require_open(self) -> Host: ...

    async def schedule(
        self,
        name: str,
        call: ProgramCall[Any],
        timetable: Cron | Every | Once,
        *,
        overlap: Literal["skip", "buffer", "allow", "replace"] = "skip",
        jitter: Duration = 0,
        catch_up: Duration = 3600,
        scope: str = "",
    ) -> ScheduleHandle:
        """Start runs of a workflow or graph by themselves. Returns when the schedule is durable.

        Each tick starts one run, however many hosts there are and whichever of them crash. `overlap` says what a tick
        does while the run before is open. Ticks that were missed by more than `catch_up`, because no host was there,
        are not made up for. A schedule of that name that exists gets these rules.
        """
        program = take_program(call)
        rules = new_schedule(timetable, overlap, jitter, catch_up)
        start = prepare_start(self._require_host(), program, call.arguments, None, scope)
        return await put_schedule(self._require_host(), name, start, rules)

    async def schedules(self, *, scope: str | None = None) -> list[ScheduleInfo]:
        """The schedules in the order of their names: those of a scope, or all."""
        host = self._require_host()
        return [info_of(host, each) for each in await host.dispatcher.store.schedules.all(scope)]

    def schedule_handle(self, name: str, *, scope: str = "") -> ScheduleHandle:
        """A handle of a schedule that any process has made on this store."""
        return ScheduleHandle(self._require_open(), name, scope)


async def stored_schedule(store: Store, scope: str, name: str) -> StoredSchedule:
    """The schedule of that name. Raises `UnknownSchedule` if there is none."""
    found = await store.schedules.all(scope, name)
    if not found:
        raise UnknownSchedule(
            f"there is no schedule {name!r}" + (f" in scope {scope!r}" if scope else ""),
            "`Engine.schedules` and `perdure schedule list` name those that there are",
        )
    return found[0]


def instants_of(schedule: Schedule, most: int) -> list[int]:
    """The next instants at which it ticks; none while it is paused."""
    instants: list[int] = []
    instant = None if schedule.pause is not None else schedule.next_ms
    while instant is not None and len(instants) < most:
        instants.append(instant)
        instant = schedule.timetable.next_after(instant)
    return instants


async def put_schedule(
    host: Host, name: str, start: RunStart, schedule: Schedule
) -> ScheduleHandle:
    """Commits: a new schedule of this start, or these rules for the schedule of that name."""
    require_user_text("the name of a schedule", name, MAX_NAME_LENGTH)
    scope = start.scope
    schedules, sources = host.dispatcher.store.schedules, host.dispatcher.sources
    for _ in range(_MOST_TRIES):
        now = sources.now_ms()
        found = await schedules.all(scope, name)
        merged = _begun(schedule, now) if not found else _edited(found[0].schedule, schedule, now)
        stored = StoredSchedule(
            *(scope, name, start.workflow.name, start.payload, merged),
            look_at_ms(name, merged, now),
            found[0].revision + 1 if found else 1,
        )
        if await schedules.write(stored):
            host.schedules_changed()
            return ScheduleHandle(host, name, scope)
    raise InputError(f"schedule {name!r} is changed all the time by others", "try again later")


def new_schedule(
    timetable: Cron | Every | Once, overlap: str, jitter: Duration, catch_up: Duration
) -> Schedule:
    """The rules of a schedule, checked."""
    if not isinstance(timetable, Cron | Every | Once):
        raise InputError(
            f"the timetable is {timetable!r}",
            "pass Cron('30 2 * * MON'), Every(3600) or Once(datetime)",
        )
    if overlap not in list(Overlap):
        known = ", ".join(map(repr, map(str, Overlap)))
        raise InputError(f"overlap is {overlap!r}", f"pass one of {known}")
    return Schedule(
        timetable.compiled(),
        Overlap(overlap),
        milliseconds(jitter, "jitter"),
        milliseconds(catch_up, "catch_up"),
    )


def info_of(host: Host, stored: StoredSchedule) -> ScheduleInfo:
    schedule = stored.schedule
    waiting = schedule.waiting
    return ScheduleInfo(
        stored.name,
        stored.scope,
        stored.program,
        host.dispatcher.codec.decode(stored.payload, dict[str, Any]),
        schedule.timetable.in_words,
        schedule.overlap,
        schedule.pause is not None,
        schedule.pause or "",
        None if schedule.next_ms is None else _time(schedule.next_ms),
        None if waiting is None else _time(waiting.instant_ms),
        schedule.last_run,
    )


def _begun(schedule: Schedule, now_ms: int) -> Schedule:
    timetable = msgspec.structs.replace(schedule.timetable, anchor_ms=now_ms)
    # A time that has passed is a tick that is late: the catch-up window decides on it.
    first = timetable.next_after(now_ms) if timetable.at_ms is None else timetable.at_ms
    return msgspec.structs.replace(schedule, timetable=timetable, next_ms=first)


def _edited(old: Schedule, new: Schedule, now_ms: int) -> Schedule:
    """The new rules, with the state of the old schedule. The same timetable continues; another one begins now."""
    timetable = msgspec.structs.replace(new.timetable, anchor_ms=old.timetable.anchor_ms)
    is_same = timetable == old.timetable
    begun = new if is_same else _begun(new, now_ms)
    return msgspec.structs.replace(
        old,
        timetable=timetable if is_same else begun.timetable,
        overlap=new.overlap,
        jitter_ms=new.jitter_ms,
        catch_up_ms=new.catch_up_ms,
        next_ms=old.next_ms if is_same else begun.next_ms,
    )


def _tick_info(tick: Tick) -> TickInfo:
    until = None if tick.until_ms is None else _time(tick.until_ms)
    return TickInfo(
        _time(tick.instant_ms), tick.outcome.value, tick.run_id, tick.reason, tick.count, until
    )


def _time(instant_ms: int) -> datetime:
    return datetime.fromtimestamp(instant_ms / 1000, UTC)


def _require_count(count: object, what: str) -> int:
    if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= 1000:
        raise InputError(f"{what} is {count!r}", "pass a whole number from 1 to 1000")
    return count
