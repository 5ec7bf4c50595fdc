"""`perdure runs archive`, `erase` and `purge`: runs leave the store, or lose their data."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Annotated

import msgspec
from cyclopts import Parameter
from rich.text import Text

from perdure import Engine, EngineServices, InputError
from perdure.cli.exit_codes import FAILED
from perdure.cli.front_end import front_end
from perdure.cli.output import (
    Column,
    ReportOption,
    cell,
    console,
    print_json,
    print_lines,
    table_of,
)
from perdure.cli.progress import ProgressLine
from perdure.cli.runs.choosing import confirm, named_runs
from perdure.cli.store_setting import StoreOption
from perdure.core.errors import PerdureError
from perdure.core.ids import parse_run_id

RunsArgument = Annotated[list[str] | None, Parameter(help="The ids of runs.")]

_STAYS = (
    "it is open, or a run that may need it is: its parent, a child, a fork, or one of its chain"
)


@Parameter(name="*")
@dataclass(frozen=True)
class LeavingOptions:
    """The options of commands that take runs or data out of the store."""

    where: Annotated[
        str | None, Parameter(help="Act on all runs that match, as in `perdure runs list`.")
    ] = None
    dry_run: Annotated[bool, Parameter(help="Print the runs, and do nothing.")] = False
    yes: Annotated[bool, Parameter(help="Do not ask before acting on what --where matches.")] = (
        False
    )
    rate: Annotated[float, Parameter(help="Runs per second at most.")] = 1000.0
    archive: Annotated[
        str | None, Parameter(help="The directory of the archive. Default: that of artifacts.")
    ] = None
    artifacts: Annotated[str | None, Parameter(help="The directory of artifacts.")] = None
    store: StoreOption = None
    output: ReportOption = "table"


class Left(msgspec.Struct, frozen=True):
    """What became of a run."""

    run_id: str
    outcome: str
    text: str = ""


def archive(runs: RunsArgument = None, /, *, options: LeavingOptions | None = None) -> int:
    """Move runs that are over to the archive: the store keeps the heads of their journals, and their tags."""

    async def act(engine: Engine, run_id: str) -> Left:
        return _left(run_id, "archived", await engine.retention.archive([run_id]))

    return _act(runs, act, options)


def erase_command(
    runs: RunsArgument = None,
    /,
    *,
    reason: str = "",
    as_: Annotated[str, Parameter(name="--as")] = "",
    options: LeavingOptions | None = None,
) -> int:
    """Erase the data of runs that are over, with that of their child runs and forks, and print the receipts.

    Parameters
    ----------
    reason
        The reason, for the receipts.
    as_
        Who erases, for the receipts.
    """

    async def act(engine: Engine, run_id: str) -> Left:
        erased = await engine.retention.erase(run_id, by=as_, reason=reason, scrub=False)
        receipts = ", ".join(f"{each.run_id} {each.sha256}" for each in erased.runs)
        return Left(run_id, "erased", f"receipts: {receipts}")

    return _act(runs, act, options, scrubs=True)


def purge(runs: RunsArgument = None, /, *, options: LeavingOptions | None = None) -> int:
    """Remove runs that are over from the store and from the archive. The heads of their journals stay."""

    async def act(engine: Engine, run_id: str) -> Left:
        return _left(run_id, "purged", await engine.retention.purge([run_id]))

    return _act(runs, act, options)


def _left(run_id: str, outcome: str, done: Sequence[str]) -> Left:
    return Left(run_id, outcome) if run_id in done else Left(run_id, "stays", _STAYS)


def _act(
    runs: Sequence[str] | None,
    act: Callable[[Engine, str], Awaitable[Left]],
    options: LeavingOptions | None,
    *,
    scrubs: bool = False,
) -> int:
    chosen = options or LeavingOptions()
    if chosen.rate <= 0:
        raise InputError(f"--rate is {chosen.rate:g}", "pass more than 0")
    named = named_runs(runs, chosen.where, chosen.store)
    for run in named:
        parse_run_id(run)
    if chosen.dry_run:
        print_lines(named)
        return 0
    if chosen.where is not None and not chosen.yes:
        confirm(len(named))
    found = asyncio.run(_all_left(named, act, chosen, scrubs=scrubs))
    if chosen.output == "json":
        print_json(found)
    else:
        console().print(table_of(found, _COLUMNS))
        if len(found) > 1:
            counts = Counter(left.outcome for left in found)
            console().print(", ".join(f"{outcome} {count:,}" for outcome, count in counts.items()))
    return FAILED if any(left.outcome in ("refused", "stays") for left in found) else 0


async def _all_left(
    runs: Sequence[str],
    act: Callable[[Engine, str], Awaitable[Left]],
    options: LeavingOptions,
    *,
    scrubs: bool,
) -> list[Left]:
    """Acts on one run after the other. An error of one run does not keep the others."""
    services: EngineServices = {"archive": options.archive, "artifacts": options.artifacts}
    async with front_end(options.store, **services) as engine:
        clock = asyncio.get_running_loop().time
        began_s, found = clock(), []
        with ProgressLine("runs", len(runs)) as progress:
            for number, run_id in enumerate(runs):
                await asyncio.sleep(max(0.0, began_s + number / options.rate - clock()))
                try:
                    found.append(await act(engine, run_id))
                except PerdureError as error:
                    found.append(Left(run_id, "refused", str(error)))
                progress.advance()
        if scrubs and any(left.outcome == "erased" for left in found):
            if not await engine.retention.scrub():
                console(is_error=True).print(
                    "the files of the database may still hold what was deleted: perdure store compact"
                )
        return found


def _outcome(left: Left) -> Text:
    colours = {"refused": "red", "stays": "yellow"}
    return Text(left.outcome, style=colours.get(left.outcome, "green"))


_COLUMNS: list[Column[Left]] = [
    Column("run", lambda left: cell(left.run_id)),
    Column("outcome", _outcome),
    Column("text", lambda left: cell(left.text)),
]
