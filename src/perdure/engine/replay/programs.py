"""Programs: which code a stored run goes on with, the run rebuilt on it, and what is said if it does not fit."""

from collections.abc import Sequence
from typing import Any

from perdure.authoring.context import Info
from perdure.authoring.graphs.program import GraphProgram
from perdure.authoring.program import Program
from perdure.authoring.registry import versions_of
from perdure.authoring.workflow import Workflow
from perdure.core.codec import Codec
from perdure.core.errors import RunDiverged, UnknownName
from perdure.core.ids import StepId
from perdure.core.journal.entry import Entry
from perdure.core.journal.events import Event, InvokeStarted
from perdure.core.replay.matching import Divergence
from perdure.core.replay.suspicion import is_suspect
from perdure.engine.graph.machine import GraphMachine
from perdure.engine.machine import RunMachine
from perdure.engine.programs import Programs
from perdure.engine.replay.machine import Machine
from perdure.engine.replay.warm import WarmRun
from perdure.engine.runs import rebuild_run
from perdure.engine.sources import Sources
from perdure.store.records import Run


def new_machine(
    program: Program[..., Any],
    info: Info,
    codec: Codec,
    sources: Sources,
    programs: Programs,
    recorded: Sequence[Event] = (),
) -> RunMachine:
    """What runs the program."""
    if isinstance(program, GraphProgram):
        return GraphMachine(program, info, codec, sources, programs, recorded)
    assert isinstance(program, Workflow)  # noqa: S101 - there is no other kind
    return Machine(program, info, codec, sources, recorded)


def program_of(run: Run, programs: Programs) -> Program[..., Any]:
    """The version that the run began with; where that is not registered, the current one.

    A run that another version can replay goes on with it; its row keeps the version that it began with.
    """
    program = programs.find(run.program, run.version, run.digest)
    if program is None:
        raise UnknownName(
            f"no workflow or graph {run.program!r} is registered here",
            "import the module that defines it, and start the engine again",
        )
    return program


def rebuild(
    run: Run,
    entries: Sequence[Entry],
    program: Program[..., Any],
    codec: Codec,
    sources: Sources,
    programs: Programs,
) -> WarmRun:
    """The run as its entries tell it, its coroutines where they were. Raises `Diverged` if the program is another."""
    loaded, events = rebuild_run(run, entries)
    # The start key of a chain stays with its first run; the others know it from their first entry.
    key = run.key or getattr(events[0], "idempotency_key", None)
    info = Info(run.run_id, run.program, run.version, key, StepId("root"))
    machine = new_machine(program, info, codec, sources, programs, events)
    try:
        machine.replay()
    except BaseException:
        machine.close()
        raise
    _date_suspects(machine, entries, events)
    return WarmRun(machine, run, loaded=loaded)


def _date_suspects(machine: RunMachine, entries: Sequence[Entry], events: Sequence[Event]) -> None:
    """Say when those steps began last that are suspects, or will be if what is under way is in doubt."""
    promises = machine.promises
    suspects = {
        step
        for step, promise in promises.items()
        if is_suspect(promise.deaths + promise.is_running)
    }
    for entry, event in zip(reversed(entries), reversed(events), strict=True):
        if not suspects:
            return
        if isinstance(event, InvokeStarted) and event.promise_id in suspects:
            promises[event.promise_id].begun_at_ms = entry.at_ms
            suspects.remove(event.promise_id)


def explain(run: Run, workflow: Program[..., Any], divergence: Divergence) -> RunDiverged:
    """Why the run can't go on: where it left its path, which code it began with, and what to do."""
    if workflow.version != run.version:
        fate = f"which is not registered, and was replayed on {_spell(workflow.version)}"
        remedy = "register that version again beside the others"
    elif workflow.digest != run.digest:
        fate = "and its source has changed since"
        remedy = "restore that source, and change it in a new version or behind perdure.patched"
    else:
        fate = "and its source is the same"
        remedy = "mend what it calls, which has changed or does not repeat itself"
    known = ", ".join(map(_spell, versions_of("program", run.program)))
    return RunDiverged(
        f"{workflow.noun} {run.program!r} is not what run {run.run_id!r} began with, {divergence}\n"
        f"  it began with {_spell(run.version)}, {fate} (registered here: {known})",
        f"{remedy}, and start the engine again; or cancel the run",
    )


def _spell(version: str) -> str:
    return f"version {version!r}" if version else "no version"
