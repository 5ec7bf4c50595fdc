"""`perdure bus`: how far event buses are behind, and events that are published again."""

import asyncio
from datetime import datetime
from typing import Annotated

from cyclopts import Parameter
from rich.text import Text

from perdure.cli.front_end import front_end
from perdure.cli.output import (
    Column,
    FormatOption,
    ReportOption,
    age,
    cell,
    console,
    print_json,
    print_values,
    printable,
    span,
)
from perdure.cli.schedules.acting import instant
from perdure.cli.store_setting import StoreOption, existing_store
from perdure.client.buses import BusInfo, bus_infos
from perdure.core.errors import UnknownBus
from perdure.host.clock import HostSources

NameArgument = Annotated[str, Parameter(help="The name of a bus.")]


def list_buses(*, store: StoreOption = None, output: FormatOption = "table") -> int:
    """List the event buses: whether each takes events, how far it is behind, and its dead letters."""
    columns: list[Column[BusInfo]] = [
        Column("bus", lambda bus: cell(bus.name)),
        Column("state", _state),
        Column("behind", lambda bus: f"{bus.behind:,}", is_number=True),
        Column("lag", lambda bus: span(bus.lag) if bus.behind else "-"),
        Column("replays", lambda bus: f"{bus.replays:,}", is_number=True),
        Column("dead letters", lambda bus: f"{bus.dead_letters:,}", is_number=True),
        Column("programs", lambda bus: cell(", ".join(bus.programs or ["all"])), is_cut=True),
    ]
    print_values(_infos(store), output, columns, lambda bus: bus.name)
    return 0


def show_bus(
    name: NameArgument, /, *, store: StoreOption = None, output: ReportOption = "table"
) -> int:
    """Show an event bus, and why it takes no events."""
    found = _infos(store)
    bus = next((each for each in found if each.name == name), None)
    if bus is None:
        raise UnknownBus(f"the store has no bus {name!r}", "see `perdure bus list`")
    if output == "json":
        print_json(bus)
        return 0
    lines = [
        f"{printable(bus.name)}  {bus.state}",
        f"programs {', '.join(map(printable, bus.programs or ['all']))}",
        f"{bus.behind:,} runs behind, {bus.replays:,} replays, {bus.dead_letters:,} dead letters",
    ]
    if bus.behind:
        lines.append(f"the oldest event waits for {span(bus.lag)}")
    if bus.down_since is not None:
        since_ms = round(bus.down_since.timestamp() * 1000)
        lines.append(
            f"down since {age(since_ms, HostSources().now_ms())}: {printable(bus.error or '')}"
        )
    for line in lines:
        console().print(line, soft_wrap=True)
    return 0


def replay_bus(
    name: NameArgument,
    runs: Annotated[
        tuple[str, ...], Parameter(help="Ids of runs; without, those of the options.")
    ] = (),
    /,
    *,
    since: Annotated[str | None, Parameter(help="Only events from this time on.")] = None,
    until: Annotated[str | None, Parameter(help="Only events before this time.")] = None,
    program: Annotated[tuple[str, ...], Parameter(help="Only runs of this program.")] = (),
    store: StoreOption = None,
) -> int:
    """Publish events to one bus once more. A host that was opened with the bus does it."""
    begins: datetime | None = None if since is None else instant(since)
    ends = None if until is None else instant(until)

    async def act() -> int:
        async with front_end(store) as engine:
            return await engine.buses.replay(
                name, list(runs) or None, since=begins, until=ends, programs=list(program) or None
            )

    count = asyncio.run(act())
    console().print(f"the events of {count:,} runs are published again", soft_wrap=True)
    return 0


def remove_bus(name: NameArgument, /, *, store: StoreOption = None) -> int:
    """Forget a bus that no engine has any more, with its marks and its dead letters."""

    async def act() -> None:
        async with front_end(store) as engine:
            await engine.buses.remove(name)

    asyncio.run(act())
    return 0


def _infos(store: str | None) -> list[BusInfo]:
    async def read() -> list[BusInfo]:
        async with existing_store(store) as opened:
            return await bus_infos(opened, HostSources().now_ms())

    return asyncio.run(read())


def _state(bus: BusInfo) -> Text:
    return Text(bus.state, style="green" if bus.state == "ok" else "red")
