"""`perdure schedule pause`, `resume`, `trigger`, `backfill` and `delete`."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Annotated

from cyclopts import Parameter

from perdure import InputError, ScheduleHandle
from perdure.cli.exit_codes import FAILED
from perdure.cli.front_end import front_end
from perdure.cli.output import console, print_lines, printable
from perdure.cli.schedules.reading import NameArgument, ScopeOption
from perdure.cli.store_setting import StoreOption, existing_store
from perdure.client.schedules.requests import RequestedRun, request_run
from perdure.client.schedules.schedules import stored_schedule
from perdure.client.schedules.timetables import instant_of
from perdure.core.schedules.schedule import instants_between
from perdure.core.schedules.timetable import iso

_LOOK_S = 0.1
_WAIT_S = 10.0

_TIME = "A time such as 2026-01-31T02:30, in UTC if it names no zone."


def pause_schedule(
    name: NameArgument,
    /,
    *,
    reason: Annotated[str, Parameter(help="Why; `show` says it.")] = "",
    scope: ScopeOption = "",
    store: StoreOption = None,
) -> int:
    """Pause a schedule: it ticks no more until it is resumed. Its open runs continue."""
    _act(name, scope, store, lambda handle: handle.pause(reason))
    return _say(f"paused {name!r}; its open runs continue")


def resume_schedule(
    name: NameArgument, /, *, scope: ScopeOption = "", store: StoreOption = None
) -> int:
    """End the pause of a schedule. It ticks again from now on; the ticks in between are skipped."""
    _act(name, scope, store, lambda handle: handle.resume())
    return _say(f"resumed {name!r}")


def delete(name: NameArgument, /, *, scope: ScopeOption = "", store: StoreOption = None) -> int:
    """Delete a schedule and its list of ticks. Runs that it started stay."""
    _act(name, scope, store, lambda handle: handle.delete())
    return _say(f"deleted {name!r}; the runs that it started stay")


def trigger(
    name: NameArgument,
    /,
    *,
    id_: Annotated[
        str | None,
        Parameter(name="--id", help="Triggers with one id are one: a repeated command is safe."),
    ] = None,
    wait: Annotated[
        float, Parameter(help="Seconds to wait until a host has started it.")
    ] = _WAIT_S,
    scope: ScopeOption = "",
    store: StoreOption = None,
) -> int:
    """Start one more run at once, whatever the timetable says, and also while the schedule is paused. Prints its id.

    A host that has the program starts it. Without one, the trigger waits in the store. The exit code is 1 if the run
    can't be started.
    """
    found = asyncio.run(_triggered(name, scope, store, id_, wait))
    if found.run_id is not None:
        print(found.run_id)
        return 0
    if found.problem is not None:
        text = f"the run can't be started: {printable(found.problem)}"
        console(is_error=True).print(text, style="red", soft_wrap=True)
        return FAILED
    console(is_error=True).print(
        f"the trigger is stored, and no host has started the run yet: perdure schedule ticks {printable(name)}",
        soft_wrap=True,
    )
    return 0


def backfill(
    name: NameArgument,
    first: Annotated[str, Parameter(help=_TIME)],
    end: Annotated[str, Parameter(help="The end of the range, which is not in it.")],
    /,
    *,
    dry_run: Annotated[bool, Parameter(help="Print the instants, and do nothing.")] = False,
    scope: ScopeOption = "",
    store: StoreOption = None,
) -> int:
    """Start the runs of all ticks in a range, at once and beside each other.

    A tick whose run was started before does not start another.
    """
    begins, ends = instant(first), instant(end)
    if begins >= ends:
        raise InputError(f"{first} is not before {end}", "pass the earlier time first")
    if dry_run:
        print_lines(map(iso, asyncio.run(_instants(name, scope, store, begins, ends))))
        return 0
    count = 0

    async def act(handle: ScheduleHandle) -> None:
        nonlocal count
        count = await handle.backfill(begins, ends)

    _act(name, scope, store, act)
    return _say(f"{name!r}: hosts start the runs of {count:,} ticks")


async def _triggered(
    name: str, scope: str, url: str | None, request_id: str | None, wait_s: float
) -> RequestedRun:
    async with front_end(url) as engine:
        look = await request_run(engine.schedule_handle(name, scope=scope), request_id)
        clock = asyncio.get_running_loop().time
        deadline_s = clock() + wait_s
        while (found := await look()) == RequestedRun() and clock() < deadline_s:  # noqa: ASYNC110 - another process starts it
            await asyncio.sleep(_LOOK_S)
        return found


async def _instants(
    name: str, scope: str, url: str | None, first: datetime, end: datetime
) -> list[int]:
    async with existing_store(url) as store:
        stored = await stored_schedule(store, scope, name)
    timetable = stored.schedule.timetable
    return instants_between(timetable, instant_of(first, "first"), instant_of(end, "end"))


def _act(
    name: str, scope: str, url: str | None, act: Callable[[ScheduleHandle], Awaitable[None]]
) -> None:
    async def run() -> None:
        async with front_end(url) as engine:
            await act(engine.schedule_handle(name, scope=scope))

    asyncio.run(run())


def _say(text: str) -> int:
    console().print(text, soft_wrap=True)
    return 0


def instant(text: str) -> datetime:
    """A time that the user wrote: in UTC if it names no zone."""
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise InputError(f"{text!r} is no time", "write one such as 2026-01-31T02:30") from None
    return at.replace(tzinfo=UTC) if at.tzinfo is None else at
