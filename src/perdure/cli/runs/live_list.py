"""`perdure runs list --watch`: a list of runs that is read again every second until Ctrl-C."""

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable

from rich.console import RenderableType
from rich.live import Live

from perdure import Engine, InputError
from perdure.cli.front_end import front_end
from perdure.cli.output import Format, console, moment, plain, print_lines, printable
from perdure.client.runs.lists import RunSummary
from perdure.host.clock import HostSources

MOST_WATCHED = 1000
"""Runs that are read every second at most."""

_LOOK_S = 1.0
_LINES_AROUND = 2
"""Lines of a terminal that the rows of a table can't use."""

ReadRuns = Callable[[Engine, int], Awaitable[list[RunSummary]]]
"""The newest runs, up to a number."""


def watched_limit(limit: int, output: Format) -> int:
    """How many runs to read. Raises `InputError` if that is too many, or if the format has an end."""
    if output == "json":
        raise InputError("--watch has no end, and a JSON document has", "pass -o jsonl")
    if not 1 <= limit <= MOST_WATCHED:
        raise InputError(
            f"--limit {limit} with --watch", f"pass a number from 1 to {MOST_WATCHED:,}"
        )
    return limit


async def watch_table(
    url: str | None,
    read: ReadRuns,
    limit: int,
    table: Callable[[list[RunSummary]], RenderableType],
) -> None:
    """Shows the newest runs in a terminal, as many as fit."""
    screen = console()
    async with front_end(url) as engine:
        with Live(console=screen, auto_refresh=False) as live:
            while True:
                most = max(1, min(limit, screen.height - _LINES_AROUND))
                live.update(table(await read(engine, most)), refresh=True)
                await asyncio.sleep(_LOOK_S)


async def watch_lines(url: str | None, read: ReadRuns, limit: int, output: Format) -> None:
    """Prints a line for each run that is new in the list, and one whenever its status changes."""
    seen: dict[str, str] = {}
    async with front_end(url) as engine:
        while True:
            runs = await read(engine, limit)
            for run in reversed(runs):  # the newest last, as they appear
                before = seen.get(run.run_id)
                if before != run.status.value and (before is None or output != "ids"):
                    print_lines([_line(run, output)])
            seen = {run.run_id: run.status.value for run in runs}
            sys.stdout.flush()
            await asyncio.sleep(_LOOK_S)


def _line(run: RunSummary, output: Format) -> str:
    if output == "ids":
        return run.run_id
    if output == "jsonl":
        return json.dumps(plain(run), ensure_ascii=False)
    now = moment(HostSources().now_ms())
    return f"{now}  {run.run_id}  {printable(run.program)}  {run.status.value}"
