"""`perdure replay`: the command."""

import asyncio
from pathlib import Path
from typing import NamedTuple

from perdure import Engine, InputError, UnknownStep, Workflow
from perdure.cli.exit_codes import FAILED
from perdure.cli.output import ReportOption, console, print_json, printable
from perdure.cli.replay.debugger import StepDebugger
from perdure.cli.replay.rendering import LocalsAt, print_steps, replayed_step
from perdure.cli.runs.reading import read_run
from perdure.cli.store_setting import existing_store
from perdure.cli.user_code import EngineStoreOption, load_engine
from perdure.client.engine_summary import engine_parts
from perdure.client.preflight import programs_known_to
from perdure.core.errors import PerdureError
from perdure.core.ids import StepId
from perdure.core.journal.entry import Entry
from perdure.core.replay.recorded import RecordedStep, recorded_steps
from perdure.engine.known_programs import KnownPrograms
from perdure.engine.programs.walkthrough import ReplayRules, walk_through
from perdure.host.clock import HostSources
from perdure.store.rows.exported import read_export
from perdure.store.rows.records import Run


def replay(
    run: str,
    target: str,
    /,
    *,
    to: str | None = None,
    pdb: bool = False,
    store: EngineStoreOption = None,
    output: ReportOption = "table",
) -> int:
    """Replay a run on the registered code and print each step with its source line and recorded value.

    It executes no task, and changes nothing. The exit code is 1 if the run and the code diverge.

    Parameters
    ----------
    run
        The id of a run, or a file that `perdure runs export` wrote.
    target
        module:name of a perdure.Engine that is not open, or of a function that returns one.
    to
        Stop at this step, and print the local variables there.
    pdb
        Open a debugger in the program's own code at that step; without one where the program failed or waits.
    """
    step = None if to is None else StepId(to)
    debugger = StepDebugger(step) if pdb else None
    return replay_run(load_engine(target), run, StopAt(step, debugger), store, output)


class StopAt(NamedTuple):
    """The step to stop at, and the debugger that opens there."""

    at: StepId | None = None
    debugger: StepDebugger | None = None


def replay_run(engine: Engine, name: str, stop: StopAt, url: str | None, output: str) -> int:
    parts = engine_parts(engine)
    run, entries, programs = _loaded(name, url or parts.url)
    recorded = recorded_steps(entries)
    at, debugger = stop
    if at is not None and at not in recorded:
        raise UnknownStep(f"run {run.run_id!r} has no step {at!r}", _some_of(recorded))
    printer = LocalsAt(at)
    if debugger is not None:
        _require_code(run, programs)
    # Outside an event loop, as pdb blocks.
    rules = ReplayRules(parts.codec, HostSources(), programs, reveal=True)
    try:
        found = walk_through(run, entries, rules, debugger or printer)
    finally:
        if debugger is not None:
            debugger.finish()
    steps = [
        replayed_step(each, found.lines.get(each.step), parts.codec) for each in recorded.values()
    ]
    if at is not None:
        steps = steps[: [each.step for each in steps].index(at) + 1]
    if output == "json":
        print_json({"run_id": run.run_id, "steps": steps, "divergence": found.divergence})
    elif debugger is None:
        print_steps(steps, printer)
    is_quit = debugger is not None and debugger.quitting
    if found.divergence is not None and not is_quit:
        for line in found.divergence.splitlines():
            console(is_error=True).print(printable(line), style="red", soft_wrap=True)
        return FAILED
    return 0


def _loaded(name: str, url: str) -> tuple[Run, list[Entry], KnownPrograms]:
    """The run from its store or file, and the programs that are known here."""
    if not name.endswith(".jsonl") and not Path(name).is_file():
        return asyncio.run(_stored(name, url))
    try:
        content = Path(name).read_bytes()
    except OSError as error:
        what = f"{name} can't be read ({error.strerror})"
        raise InputError(what, "pass an exported run") from None
    header, entries = read_export(content, name)
    return header.run, entries, asyncio.run(_programs(url))


async def _stored(name: str, url: str) -> tuple[Run, list[Entry], KnownPrograms]:
    async with existing_store(url) as store:
        run, entries = await read_run(store, name)
        return run, entries, await programs_known_to(store)


async def _programs(url: str) -> KnownPrograms:
    """The programs of this process, and those deployed to the engine's store if that is there."""
    try:
        async with existing_store(url) as store:
            return await programs_known_to(store)
    except PerdureError:
        return KnownPrograms()


def _require_code(run: Run, programs: KnownPrograms) -> None:
    found = programs.find(run.program, run.version, run.digest)
    if found is not None and not isinstance(found, Workflow):
        raise InputError(
            f"run {run.run_id!r} is of a {found.noun}, which has no code to debug",
            "replay it without --pdb",
        )


def _some_of(recorded: dict[StepId, RecordedStep]) -> str:
    last = list(recorded)[-5:]
    return f"its last steps are {', '.join(map(repr, last))}" if last else "it has no steps"
