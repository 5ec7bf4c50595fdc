"""Triggers of schedules from a process that does not have the program: a host that has it starts the run."""

from collections.abc import Awaitable, Callable
from typing import NamedTuple

from perdure.client.schedules.schedules import ScheduleHandle
from perdure.core.ids import RunId
from perdure.core.schedules.schedule import PlannedStart, TickOutcome
from perdure.store.schedule_table import KEPT_TICKS


class RequestedRun(NamedTuple):
    """What became of a trigger so far: its run, or why that can't be started; neither while no host has started it."""

    run_id: RunId | None = None
    problem: str | None = None


async def request_run(
    handle: ScheduleHandle, request_id: str | None
) -> Callable[[], Awaitable[RequestedRun]]:
    """Commits: a trigger, which is durable. Returns a function that looks what became of it."""
    stored, request = await handle._request(request_id)
    key, store = PlannedStart(0, request).key(handle.name), handle._host.dispatcher.store
    instants = {each.instant_ms for each in stored.schedule.starts if each.trigger == request}

    async def look() -> RequestedRun:
        is_planned = any(
            each.trigger == request for each in (await handle._stored()).schedule.starts
        )
        run = await store.run_by_key(handle.scope, stored.program, key)
        if run is not None:
            return RequestedRun(run.run_id)
        if is_planned:
            return RequestedRun()
        ticks = await store.schedules.ticks(handle.scope, handle.name, KEPT_TICKS)
        failed = (tick for tick in ticks if tick.outcome is TickOutcome.FAILED)
        reasons = (tick.reason for tick in failed if tick.instant_ms in instants)
        return RequestedRun(problem=next(reasons, "the list of ticks does not have it any more"))

    return look
