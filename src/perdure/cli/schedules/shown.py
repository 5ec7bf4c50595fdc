"""Schedules and ticks as commands print them."""

from typing import Any, Literal

import msgspec

from perdure.cli.replay.rendering import payload_text
from perdure.core.codec import JsonCodec
from perdure.core.errors import InputError
from perdure.core.schedules.schedule import Tick
from perdure.core.schedules.timetable import Timetable, iso
from perdure.store.schedule_table import StoredSchedule

State = Literal["ticking", "paused", "ended"]


class ShownSchedule(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule as it is printed. `note` is that of a pause; `starting` counts runs that are about to start."""

    name: str
    scope: str
    program: str
    state: State
    note: str
    timetable: str
    overlap: str
    jitter_ms: int
    catch_up_ms: int
    arguments: str
    next_ms: int | None
    waiting: str | None
    last_run: str | None
    starting: int

    def plain(self) -> dict[str, Any]:
        return msgspec.structs.asdict(self)


class ShownTick(msgspec.Struct, frozen=True):
    """What became of a tick. `count` ticks up to `until` shared it."""

    at: str
    outcome: str
    run_id: str | None
    reason: str
    count: int
    until: str | None


def shown_schedule(stored: StoredSchedule) -> ShownSchedule:
    schedule = stored.schedule
    state: State = "ticking"
    if schedule.pause is not None:
        state = "paused"
    elif schedule.next_ms is None:
        state = "ended"
    return ShownSchedule(
        name=stored.name,
        scope=stored.scope,
        program=stored.program,
        state=state,
        note=schedule.pause or "",
        timetable=_in_words(schedule.timetable),
        overlap=schedule.overlap.value,
        jitter_ms=schedule.jitter_ms,
        catch_up_ms=schedule.catch_up_ms,
        # Another codec than JSON may have written them: a command does not have it.
        arguments=payload_text(stored.payload, JsonCodec()),
        next_ms=schedule.next_ms,
        waiting=None if schedule.waiting is None else iso(schedule.waiting.instant_ms),
        last_run=schedule.last_run,
        starting=len(schedule.starts),
    )


def shown_tick(tick: Tick) -> ShownTick:
    until = None if tick.until_ms is None else iso(tick.until_ms)
    return ShownTick(
        iso(tick.instant_ms), tick.outcome.value, tick.run_id, tick.reason, tick.count, until
    )


def _in_words(timetable: Timetable) -> str:
    try:
        return timetable.in_words
    except InputError:  # a list needs no package for cron expressions
        return f"cron {timetable.cron!r} ({timetable.zone})"
