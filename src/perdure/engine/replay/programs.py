"""Programs: which code a stored run goes on with, the run rebuilt on it, and what is said if it does not fit."""

from collections.abc import Sequence
from typing import Any

from perdure.authoring.context import Info
from perdure.authoring.registry import find, versions_of
from perdure.authoring.workflow import Workflow
from perdure.core.codec import Codec
from perdure.core.errors import RunDiverged, UnknownName
from perdure.core.ids import StepId
from perdure.core.journal.entry import Entry
from perdure.core.replay.matching import Divergence
from perdure.engine.replay.machine import Machine
from perdure.engine.replay.warm import WarmRun
from perdure.engine.runs import rebuild_run
from perdure.engine.sources import Sources
from perdure.store.records import Run


def program_of(run: Run) -> Workflow[..., Any]:
    """The version that the run began with; where that is not registered, the current one.

    A run that another version can replay goes on with it; its row keeps the version that it began with.
    """
    workflow: Workflow[..., Any] | None = find("workflow", run.program, run.version)
    if workflow is None:
        raise UnknownName(
            f"no workflow {run.program!r} is registered here",
            "import the module that defines it, and start the engine again",
        )
    return workflow


def rebuild(
    run: Run,
    entries: Sequence[Entry],
    workflow: Workflow[..., Any],
    codec: Codec,
    sources: Sources,
) -> WarmRun:
    """The run as its entries tell it, its coroutines where they were. Raises `Diverged` if the program is another."""
    loaded, events = rebuild_run(run, entries)
    # The start key of a chain stays with its first run; the others know it from their first entry.
    key = run.key or getattr(events[0], "idempotency_key", None)
    info = Info(run.run_id, run.program, run.version, key, StepId("root"))
    machine = Machine(workflow, info, codec, sources, events)
    try:
        machine.replay()
    except BaseException:
        machine.close()
        raise
    return WarmRun(machine, run, loaded=loaded)


def explain(run: Run, workflow: Workflow[..., Any], divergence: Divergence) -> RunDiverged:
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
    known = ", ".join(map(_spell, versions_of("workflow", run.program)))
    return RunDiverged(
        f"workflow {run.program!r} is not what run {run.run_id!r} began with, {divergence}\n"
        f"  it began with {_spell(run.version)}, {fate} (registered here: {known})",
        f"{remedy}, and start the engine again; or cancel the run",
    )


def _spell(version: str) -> str:
    return f"version {version!r}" if version else "no version"
