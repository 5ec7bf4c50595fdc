"""Schedules: what they are, what became of their ticks, and changes of them."""

from datetime import datetime

import msgspec

from perdure.api.endpoint import Reply
from perdure.api.exchange import Exchange
from perdure.client.schedules.schedules import ScheduleHandle, ScheduleInfo, TickInfo
from perdure.core.errors import UnknownSchedule


class SchedulesQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Whose schedules."""

    scope: str | None = None


class ScheduleQuery(msgspec.Struct, frozen=True, kw_only=True):
    """The scope of a schedule, and how much of it."""

    scope: str | None = None
    ticks: int = 50
    next: int = 10

    def __post_init__(self) -> None:
        if not (1 <= self.ticks <= 1000 and 1 <= self.next <= 1000):
            raise ValueError("ticks or next is out of range: pass numbers from 1 to 1000")


class ScheduleList(msgspec.Struct, frozen=True):
    """Schedules in the order of their names."""

    schedules: list[ScheduleInfo]


class ScheduleDetail(ScheduleInfo, frozen=True, kw_only=True):
    """A schedule, its newest ticks, and the next instants at which it ticks."""

    ticks: list[TickInfo]
    next: list[datetime]


class Note(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Why a schedule is paused."""

    note: str = ""


class Trigger(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Triggers with one `id` are one."""

    id: str | None = None


class Backfill(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The ticks from `first` to `end`, without `end`."""

    first: datetime
    end: datetime


async def list_schedules(exchange: Exchange) -> ScheduleList:
    scope = exchange.scope_of(exchange.query.scope)
    return ScheduleList(await exchange.engine.schedules(scope=scope))


def _handle(exchange: Exchange) -> ScheduleHandle:
    """The schedule of the path. One of another tenant is as unknown as one that does not exist."""
    name = exchange.part("schedule")
    scope = exchange.scope_of(exchange.query.scope) or ""
    if not exchange.caller.covers(scope):
        raise UnknownSchedule(f"there is no schedule {name!r:.200}", "see /v1/schedules")
    return exchange.engine.schedule_handle(name, scope=scope)


async def show_schedule(exchange: Exchange) -> ScheduleDetail:
    schedule = _handle(exchange)
    info = await schedule.info()
    query: ScheduleQuery = exchange.query
    return ScheduleDetail(
        *msgspec.structs.astuple(info),
        ticks=await schedule.ticks(query.ticks),
        next=await schedule.next(query.next),
    )


async def pause_schedule(exchange: Exchange) -> ScheduleInfo:
    schedule = _handle(exchange)
    await schedule.pause(exchange.body.note)
    return await schedule.info()


async def resume_schedule(exchange: Exchange) -> ScheduleInfo:
    schedule = _handle(exchange)
    await schedule.resume()
    return await schedule.info()


async def trigger_schedule(exchange: Exchange) -> Reply:
    run = await _handle(exchange).trigger(id=exchange.body.id)
    return Reply({"run_id": run.run_id})


async def backfill_schedule(exchange: Exchange) -> Reply:
    body: Backfill = exchange.body
    return Reply({"ticks": await _handle(exchange).backfill(body.first, body.end)})


async def delete_schedule(exchange: Exchange) -> Reply:
    await _handle(exchange).delete()
    return Reply(None, 204)
