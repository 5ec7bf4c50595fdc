"""`perdure explain`: why a run does not move."""

import asyncio

from rich.text import Text

from perdure import Explanation
from perdure.cli.front_end import front_end
from perdure.cli.output import ReportOption, console, moment, print_json, printable
from perdure.cli.store_setting import StoreOption


def explain_command(
    run: str, /, *, store: StoreOption = None, output: ReportOption = "table"
) -> int:
    """Say why a run does not move, what happens next by itself, and which command moves it.

    Parameters
    ----------
    run
        The id of a run.
    """
    found = asyncio.run(_explained(run, store))
    if output == "json":
        print_json(found)
    else:
        _print(found)
    return 0


async def _explained(run: str, url: str | None) -> Explanation:
    async with front_end(url) as engine:
        return await engine.handle(run).explain()


def _print(found: Explanation) -> None:
    screen = console()
    summary = found.summary.removesuffix(f" To move it: {found.command}")
    screen.print(Text(printable(summary)), soft_wrap=not screen.is_terminal)
    if len(found.causes) > 1:
        screen.print()
        for number, cause in enumerate(found.causes, 1):
            since = f", since {moment(cause.since_ms)}" if cause.since_ms is not None else ""
            run = "" if cause.run_id == found.run_id else f"run {cause.run_id} "
            line = f"{number}. {cause.kind}: {run}{cause.text}{since}"
            screen.print(Text(printable(line)), soft_wrap=True)
    if found.next_at_ms is not None:
        screen.print(f"next: {found.next_text}, at {moment(found.next_at_ms)}", soft_wrap=True)
    if found.command:
        screen.print(
            Text.assemble("\nto move it: ", (printable(found.command), "bold")), soft_wrap=True
        )
