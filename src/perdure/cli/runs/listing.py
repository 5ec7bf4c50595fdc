"""`perdure runs list` and `count`, and `perdure sql`."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

from cyclopts import Parameter
from rich.console import RenderableType
from rich.text import Text

from perdure import Engine, InputError
from perdure.cli.front_end import front_end
from perdure.cli.output import (
    Column,
    Format,
    FormatOption,
    age,
    cell,
    console,
    print_json,
    print_lines,
    print_values,
    printable,
    table_of,
    took,
)
from perdure.cli.runs.live_list import watch_lines, watch_table, watched_limit
from perdure.cli.runs.showing import state_colour
from perdure.cli.store_setting import StoreOption
from perdure.client.runs.lists import RunSummary
from perdure.core.runs.where import Filters, merged, parse_where
from perdure.host.clock import HostSources
from perdure.store.rows.lists import RunCount

LIMIT = 50


@Parameter(name="*")
@dataclass(frozen=True)
class FilterOptions:
    """The filters of a list. All must apply."""

    where: Annotated[
        str,
        Parameter(
            help='Conditions: "status=failed program=checkout tag.customer=acme created>2h". '
            "A duration is an age: created>2h is older than two hours."
        ),
    ] = ""
    status: Annotated[str | None, Parameter(help="A state, or several separated by commas.")] = None
    program: Annotated[str | None, Parameter(help="The name of the program.")] = None
    version: Annotated[str | None, Parameter(help="The version of the program.")] = None
    scope: Annotated[str | None, Parameter(help="The scope.")] = None
    key_prefix: Annotated[str | None, Parameter(help="The beginning of the start key.")] = None
    tag: Annotated[
        tuple[str, ...], Parameter(help="A tag, as NAME=VALUE; may be repeated.", negative=())
    ] = ()
    waiting_for: Annotated[str | None, Parameter(help="The signal that runs wait for.")] = None
    error: Annotated[str | None, Parameter(help="The fingerprint of the error.")] = None

    def filters(self, now_ms: int) -> Filters:
        options: dict[str, Any] = {
            name: getattr(self, name)
            for name in ("program", "version", "scope", "key_prefix", "waiting_for", "error")
        }
        if self.status is not None:
            options["status"] = self.status.split(",") if "," in self.status else self.status
        options["tags"] = dict(map(tag_option, self.tag))
        return merged(parse_where(self.where, now_ms), options)


def tag_option(text: str) -> tuple[str, str]:
    """The name and value of a --tag."""
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise InputError(f"--tag {text}", "write --tag NAME=VALUE")
    return name, value


def print_runs(
    *,
    filters: FilterOptions | None = None,
    limit: int = LIMIT,
    watch: bool = False,
    store: StoreOption = None,
    output: FormatOption = "table",
) -> int:
    """List runs, the newest first.

    Parameters
    ----------
    limit
        The number of runs at most; 0 for all.
    watch
        Read the list again every second until Ctrl-C. Not in a terminal, or with -o jsonl or ids, it prints a line for
        each run that is new in the list, and one whenever the status of a run changes.
    """
    now_ms = HostSources().now_ms()
    options = filters or FilterOptions()
    chosen = options.filters(now_ms)
    if watch:
        asyncio.run(_watch(options, watched_limit(limit, output), store, output))
        return 0

    async def read() -> tuple[list[RunSummary], bool]:
        async with front_end(store) as engine:
            return await _listed(engine, chosen, limit)

    runs, has_more = asyncio.run(read())
    print_values(runs, output, _columns(runs, now_ms), lambda run: run.run_id)
    if has_more:
        console(is_error=True).print("more follow: --limit 0 lists all, --limit N the first N")
    return 0


async def _watch(options: FilterOptions, limit: int, url: str | None, output: Format) -> None:
    async def read(engine: Engine, most: int) -> list[RunSummary]:
        # Ages in the filters count from each look.
        return (await _listed(engine, options.filters(HostSources().now_ms()), most))[0]

    def table(runs: list[RunSummary]) -> RenderableType:
        return table_of(runs, _columns(runs, HostSources().now_ms()))

    if output == "table" and console().is_terminal:
        await watch_table(url, read, limit, table)
    else:
        await watch_lines(url, read, limit, output)


async def _listed(engine: Engine, filters: Filters, limit: int) -> tuple[list[RunSummary], bool]:
    """The first runs, and whether more follow."""
    found: list[RunSummary] = []
    async for run in engine.iterate_runs(**filters):
        if limit and len(found) == limit:
            return found, True
        found.append(run)
    return found, False


def count(*, filters: FilterOptions | None = None, store: StoreOption = None) -> int:
    """Count runs. It examines ten thousand at most: `+` says that there may be more."""
    chosen = (filters or FilterOptions()).filters(HostSources().now_ms())

    async def read() -> RunCount:
        async with front_end(store) as engine:
            return await engine.count(**chosen)

    found = asyncio.run(read())
    print(f"{found.runs}{'' if found.is_complete else '+'}")
    return 0


def sql(
    query: str,
    /,
    *,
    limit: int = 1000,
    timeout: float = 10,
    store: StoreOption = None,
    output: FormatOption = "table",
) -> int:
    """Read from the store with a query of your own, in a read-only transaction.

    The views perdure_v1_runs and so on are stable; tables may change.

    Parameters
    ----------
    query
        One SELECT.
    limit
        The number of rows at most.
    timeout
        Seconds after which the query ends.
    """

    async def read() -> Any:
        async with front_end(store) as engine:
            return await engine.sql(query, limit=limit, timeout=timeout)

    found = asyncio.run(read())
    if output == "table":
        columns = [Column(name, partial(_value_at, at)) for at, name in enumerate(found.columns)]
        console().print(table_of(found.rows, columns))
    elif output == "ids":
        print_lines(printable(str(row[0])) for row in found.rows)
    else:
        named = [dict(zip(found.columns, row, strict=True)) for row in found.rows]
        if output == "json":
            print_json(named)
        else:
            print_values(named, output, [], str)
    if not found.is_complete:
        console(is_error=True).print(f"there are more than {limit} rows: pass --limit")
    return 0


def _value_at(at: int, row: Sequence[Any]) -> Text:
    return cell("" if row[at] is None else str(row[at]))


def _columns(runs: Sequence[RunSummary], now_ms: int) -> list[Column[RunSummary]]:
    """The columns of a list. Keys and tags have one if a run has them."""
    columns: list[Column[RunSummary]] = [
        Column("run", lambda run: cell(run.run_id)),
        Column("program", lambda run: cell(run.program)),
        Column("status", lambda run: Text(run.status.value, style=state_colour(run.status.value))),
        Column("created", lambda run: age(int(run.created.timestamp() * 1000), now_ms)),
        Column("took", _took, is_number=True),
    ]
    if any(run.key for run in runs):
        columns.append(Column("key", lambda run: cell(run.key), is_cut=True))
    if any(run.tags for run in runs):
        columns.append(Column("tags", _tags, is_cut=True))
    return columns


def _tags(run: RunSummary) -> Text:
    return cell(" ".join(f"{name}={value}" for name, value in run.tags.items()))


def _took(run: RunSummary) -> str:
    if run.closed is None:
        return ""
    return took(int((run.closed - run.created).total_seconds() * 1000))
