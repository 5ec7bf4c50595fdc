"""`perdure schedule list`, `show`, `ticks` and `next`: schedules as the store has them, without the user's code."""

import asyncio
from typing import Annotated

from cyclopts import Parameter
from rich.console import Group, RenderableType
from rich.text import Text

from perdure.cli.output import (
    Column,
    FormatOption,
    ReportOption,
    age,
    cell,
    console,
    print_json,
    print_lines,
    print_values,
    printable,
    span,
    table_of,
)
from perdure.cli.schedules.shown import ShownSchedule, ShownTick, shown_schedule, shown_tick
from perdure.cli.store_setting import StoreOption, existing_store
from perdure.client.schedules.schedules import instants_of, stored_schedule
from perdure.core.errors import InputError
from perdure.core.schedules.timetable import iso
from perdure.host.clock import HostSources
from perdure.store.schedule_table import KEPT_TICKS, StoredSchedule

NameArgument = Annotated[str, Parameter(help="The name of a schedule.")]
ScopeOption = Annotated[str, Parameter(help="The scope of the schedule.")]

MOST_SHOWN = 5
"""Instants and ticks that `show` prints."""

_COLOURS = {"ticking": "green", "paused": "yellow", "ended": "dim"}
_OUTCOMES = {"started": "green", "failed": "red", "missed": "yellow"}


def list_schedules(
    *,
    scope: Annotated[str | None, Parameter(help="Only schedules of this scope.")] = None,
    store: StoreOption = None,
    output: FormatOption = "table",
) -> int:
    """List the schedules of a store: what each starts, when it ticks next, and whether it is paused."""
    now_ms = HostSources().now_ms()

    async def read() -> list[StoredSchedule]:
        async with existing_store(store) as opened:
            return await opened.schedules.all(scope)

    found = [shown_schedule(each) for each in asyncio.run(read())]
    columns: list[Column[ShownSchedule]] = [
        Column("name", lambda each: cell(each.name)),
        Column("program", lambda each: cell(each.program)),
        Column("state", lambda each: Text(each.state, style=_COLOURS[each.state])),
        Column("next", lambda each: "-" if each.state != "ticking" else age(each.next_ms, now_ms)),
        Column("timetable", lambda each: cell(each.timetable), is_cut=True),
    ]
    if any(each.scope for each in found):
        columns.insert(0, Column("scope", lambda each: cell(each.scope)))
    print_values(found, output, columns, lambda each: each.name)
    return 0


def show_schedule(
    name: NameArgument,
    /,
    *,
    scope: ScopeOption = "",
    store: StoreOption = None,
    output: ReportOption = "table",
) -> int:
    """Show a schedule: its rules, its next instants, and what became of its last ticks."""

    async def read() -> tuple[StoredSchedule, list[ShownTick]]:
        async with existing_store(store) as opened:
            found = await stored_schedule(opened, scope, name)
            ticks = await opened.schedules.ticks(scope, name, MOST_SHOWN)
            return found, list(map(shown_tick, ticks))

    stored, ticks = asyncio.run(read())
    shown, instants = shown_schedule(stored), instants_of(stored.schedule, MOST_SHOWN)
    if output == "json":
        print_json({**shown.plain(), "next": list(map(iso, instants)), "ticks": ticks})
    else:
        console().print(_shown(shown, instants, ticks), soft_wrap=False)
    return 0


def ticks(
    name: NameArgument,
    /,
    *,
    limit: Annotated[int, Parameter(help=f"Ticks at most, up to {KEPT_TICKS:,}.")] = 50,
    scope: ScopeOption = "",
    store: StoreOption = None,
    output: FormatOption = "table",
) -> int:
    """List what became of the newest ticks, newest first. `-o ids` prints the runs that they started."""
    _require_count("--limit", limit)

    async def read() -> list[ShownTick]:
        async with existing_store(store) as opened:
            await stored_schedule(opened, scope, name)
            return list(map(shown_tick, await opened.schedules.ticks(scope, name, limit)))

    found = asyncio.run(read())
    if output == "ids":
        print_lines(tick.run_id for tick in found if tick.run_id is not None)
    else:
        print_values(found, output, _ticks(), lambda tick: tick.at)
    return 0


def next_(
    name: NameArgument,
    /,
    *,
    count: Annotated[int, Parameter(help="Instants to print, up to 1,000.")] = 10,
    scope: ScopeOption = "",
    store: StoreOption = None,
    output: FormatOption = "table",
) -> int:
    """List the next instants at which a schedule ticks; none while it is paused."""
    _require_count("--count", count)

    async def read() -> StoredSchedule:
        async with existing_store(store) as opened:
            return await stored_schedule(opened, scope, name)

    stored = asyncio.run(read())
    now_ms = HostSources().now_ms()
    columns: list[Column[int]] = [
        Column("tick", lambda instant: _short(iso(instant))),
        Column("when", lambda instant: age(instant, now_ms)),
    ]
    instants = instants_of(stored.schedule, count)
    if output == "table":
        console().print(table_of(instants, columns))
    else:
        print_values(list(map(iso, instants)), output, [], str)
    if stored.schedule.pause is not None:
        console(is_error=True).print(
            f"schedule {printable(name)!r} is paused: perdure schedule resume {printable(name)}"
        )
    return 0


def _shown(shown: ShownSchedule, instants: list[int], last: list[ShownTick]) -> RenderableType:
    now_ms = HostSources().now_ms()
    head = Text.assemble((printable(shown.name), "bold"), f"  {printable(shown.program)}  ")
    head.append(shown.state, style=_COLOURS[shown.state])
    if shown.note:
        head.append(f"  ({printable(shown.note)})")
    rules = [f"overlap {shown.overlap}", f"catch-up {span(shown.catch_up_ms / 1000)}"]
    if shown.jitter_ms:
        rules.append(f"jitter {span(shown.jitter_ms / 1000)}")
    if shown.scope:
        rules.append(f"scope {printable(shown.scope)}")
    facts = [
        printable(shown.timetable),
        ", ".join(rules),
        f"arguments {printable(shown.arguments)}",
    ]
    if shown.last_run is not None:
        facts.append(f"last run {shown.last_run}")
    if shown.waiting is not None:
        facts.append(f"the tick of {shown.waiting} waits for the end of that run")
    if shown.starting:
        facts.append(f"runs that a host is about to start: {shown.starting:,}")
    parts: list[RenderableType] = [head, Text("\n".join(facts), style="dim")]
    if instants and shown.state == "ticking":
        lines = [f"{_short(iso(instant))}  {age(instant, now_ms)}" for instant in instants]
        parts += [Text(""), Text("NEXT", style="bold"), Text("\n".join(lines))]
    if last:
        parts += [Text(""), table_of(last, _ticks())]
    return Group(*parts)


def _ticks() -> list[Column[ShownTick]]:
    return [
        Column("tick", lambda tick: _short(tick.at)),
        Column("outcome", lambda tick: Text(tick.outcome, style=_OUTCOMES.get(tick.outcome, ""))),
        Column("ticks", lambda tick: f"{tick.count:,}", is_number=True),
        Column("run, or reason", _run_or_reason, is_cut=True),
    ]


def _short(instant: str) -> str:
    return instant.replace("+00:00", "Z").replace(".000Z", "Z")


def _run_or_reason(tick: ShownTick) -> Text:
    return cell(", ".join(part for part in (tick.run_id or "", tick.reason) if part))


def _require_count(option: str, count: int) -> None:
    if not 1 <= count <= KEPT_TICKS:
        raise InputError(f"{option} is {count}", f"pass a number from 1 to {KEPT_TICKS:,}")
