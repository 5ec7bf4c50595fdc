"""`perdure preflight`: would every open run resume on the registered code?"""

import asyncio
from typing import Annotated

from cyclopts import Parameter

from perdure import Engine, Preflight
from perdure.cli.exit_codes import FAILED
from perdure.cli.output import Column, ReportOption, console, plain, print_json, printable, table_of
from perdure.cli.progress import ProgressLine
from perdure.cli.user_code import EngineStoreOption, load_engine
from perdure.client.engine_summary import engine_parts
from perdure.client.preflight import preflight_store
from perdure.engine.programs.preflight import VersionUse
from perdure.store.opening import open_store

ProgramsOption = Annotated[
    list[str], Parameter(name="--program", help="Only this program; may be repeated.", negative=())
]
_VERSIONS: list[Column[VersionUse]] = [
    Column("program", lambda use: use.program, is_cut=True),
    Column("version", lambda use: use.version or "-"),
    Column("replayed on", lambda use: "-" if use.replayed_on is None else use.replayed_on or "-"),
    Column("open runs", lambda use: f"{use.runs:,}", is_number=True),
]


def preflight_command(
    target: str,
    /,
    *,
    program: ProgramsOption | None = None,
    store: EngineStoreOption = None,
    output: ReportOption = "table",
) -> int:
    """Replay every open run on the registered code. Executes and changes nothing.

    The exit code is 1 if a run could not resume: use it before a deployment.

    Parameters
    ----------
    target
        module:name of a perdure.Engine that is not open, or of a function that returns one.
    """
    engine = load_engine(target)
    report = asyncio.run(_checked(engine, store, program))
    if output == "json":
        print_json(plain(report) | {"clean": report.is_clean})
    else:
        _print(report)
    return 0 if report.is_clean else FAILED


async def _checked(engine: Engine, url: str | None, programs: list[str] | None) -> Preflight:
    parts = engine_parts(engine)
    opened = await open_store(url or parts.url, as_it_is=True)
    try:
        with ProgressLine("preflight, runs", await opened.count_open_runs()) as progress:
            return await preflight_store(
                opened,
                parts.codec,
                programs or None,
                reveal=parts.reveal,
                on_run=lambda _: progress.advance(),
            )
    finally:
        await opened.close()


def _print(report: Preflight) -> None:
    screen = console()
    if report.versions:
        screen.print(table_of(report.versions, _VERSIONS))
        screen.print()
    for each in [*report.divergences, *report.stranded]:
        for line in str(each).splitlines():
            screen.print(printable(line), style="red", soft_wrap=True)
        screen.print()
    retirable = [use for use in report.patches if use.is_retirable]
    for use in retirable:
        screen.print(
            f"patch {use.patch!r} of {use.program!r} can be removed: no open run needs the old code"
        )
    stuck = len(report.divergences) + len(report.stranded)
    verdict = "all can resume" if report.is_clean else f"{stuck:,} can't resume"
    screen.print(f"{report.place}: open runs {report.runs:,}, {verdict}", soft_wrap=True)
