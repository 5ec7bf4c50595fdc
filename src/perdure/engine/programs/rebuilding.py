"""Rebuilds a stored run on its program: finds the code, replays the journal, explains a divergence."""

from collections.abc import Callable, Sequence
from textwrap import indent
from typing import Any, Final

from perdure.authoring.context import Info
from perdure.authoring.graphs.program import GraphProgram
from perdure.authoring.interruption import PayloadUnavailable
from perdure.authoring.program import Program
from perdure.authoring.registry import versions_of
from perdure.authoring.values.failures import failure_text
from perdure.authoring.workflow import Workflow
from perdure.core.agreement import require_row
from perdure.core.codec import Codec, codec_of_run, is_encrypted
from perdure.core.errors import RunDiverged, UnknownName
from perdure.core.ids import StepId
from perdure.core.journal.entry import NONCE_BYTES, Entry
from perdure.core.journal.events import Event, ExecutionFailed, InvokeStarted, started_of
from perdure.core.large_payloads import MARK, value_bytes
from perdure.core.replay.matching import Divergence
from perdure.core.replay.suspicion import is_suspect
from perdure.engine.graph.machine import GraphMachine
from perdure.engine.known_programs import KnownPrograms
from perdure.engine.runs.machine import RunMachine
from perdure.engine.runs.warm import WarmRun, rebuild_run
from perdure.engine.sources import Sources
from perdure.engine.workflow.machine import WorkflowMachine
from perdure.store.rows.records import Run
from perdure.store.rows.runs import ending_of

LONGEST_TRACEBACK: Final = 2000
"""Characters of a traceback in the text of a divergence."""


MachineFactory = Callable[..., RunMachine]
"""Makes the machine of a run; takes what `new_machine` takes."""


def new_machine(
    program: Program[..., Any],
    info: Info,
    codec: Codec,
    sources: Sources,
    programs: KnownPrograms,
    recorded: Sequence[Event] = (),
) -> RunMachine:
    """The machine for the program's kind."""
    codec = codec_of_run(codec, info.run_id)
    if isinstance(program, Workflow):
        return WorkflowMachine(program, info, codec, sources, recorded)
    assert isinstance(program, GraphProgram)  # noqa: S101 - there is no other kind
    return GraphMachine(program, info, codec, sources, programs, recorded)


def program_for(run: Run, programs: KnownPrograms) -> Program[..., Any]:
    """The program version that the run began with; if that is not registered, the current version.

    If the current version can replay the run, the run resumes with it; its row keeps the version that it began with.
    """
    program = programs.find(run.program, run.version, run.digest)
    if program is None:
        raise UnknownName(
            f"no workflow or graph {run.program!r} is registered here",
            "import the module that defines it, and start the engine again",
        )
    return program


class Rebuilding:
    """Replays a run in bounded parts, so that a host can do other work in between."""

    def __init__(
        self,
        run: Run,
        entries: Sequence[Entry],
        program: Program[..., Any],
        codec: Codec,
        sources: Sources,
        programs: KnownPrograms,
        *,
        make: MachineFactory = new_machine,
    ) -> None:
        self._run = run
        self._entries = entries
        self._loaded, self._events = rebuild_run(run, entries)
        first = started_of(self._events)
        require_row(run.run_id, ending_of(run), self._loaded.journal.state, first)
        # Only the first run of a chain has the start key in its row; later runs have it in their first entry.
        key = run.key or (None if first is None else first.idempotency_key)
        info = Info(run.run_id, run.program, run.version, key, StepId("root"))
        self._machine = make(program, info, codec, sources, programs, self._events)
        self._machine.size.add_entries(entries)

    def advance(self) -> WarmRun | None:
        """Replay the next part. Returns the run when that was the last one."""
        machine = self._machine
        try:
            if not machine.replay_some():
                return None
        except PayloadUnavailable as error:
            machine.close()
            raise (error.__cause__ or error) from None
        except BaseException:
            machine.close()
            raise
        _date_suspects(machine, self._entries, self._events)
        payload_bytes = sum(_value_bytes(entry.sealed) for entry in self._entries if entry.sealed)
        return WarmRun(machine, self._run, loaded=self._loaded, payload_bytes=payload_bytes)


def rebuild(
    run: Run,
    entries: Sequence[Entry],
    program: Program[..., Any],
    codec: Codec,
    sources: Sources,
    programs: KnownPrograms,
) -> WarmRun:
    """The run rebuilt from its entries, with its program where it was. Raises `Diverged` if the program differs."""
    rebuilding = Rebuilding(run, entries, program, codec, sources, programs)
    while (warm := rebuilding.advance()) is None:
        pass
    return warm


def _date_suspects(machine: RunMachine, entries: Sequence[Entry], events: Sequence[Event]) -> None:
    """Set when the last attempt began, for steps that are suspects or would be after one more doubt."""
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


def _value_bytes(sealed: bytes) -> int:
    is_marked = sealed[NONCE_BYTES : NONCE_BYTES + 1] == MARK[:1]
    return value_bytes(sealed[NONCE_BYTES:]) if is_marked else len(sealed)


def divergence_error(
    run: Run,
    workflow: Program[..., Any],
    divergence: Divergence,
    codec: Codec,
    *,
    reveal: bool = False,
) -> RunDiverged:
    """The error for a run that can't resume: where it diverged, which code it began with, and what to do.

    The text shows the shapes of payloads; with `reveal` it shows the payloads.
    """
    if workflow.version != run.version:
        fate = f"which is not registered, and was replayed on {_spell(workflow.version)}"
        remedy = "register that version again beside the others"
    elif workflow.digest != run.digest:
        fate = "and its source has changed since"
        remedy = "restore that source, and change it in a new version or behind perdure.patched"
    else:
        fate = "and its source is the same"
        remedy = "fix the code that it calls, which has changed or is not deterministic"
    known = ", ".join(map(_spell, versions_of("program", run.program)))
    where = divergence.text(reveal=reveal) + _raised(divergence, codec)
    return RunDiverged(
        f"{workflow.noun} {run.program!r} is not what run {run.run_id!r} began with, {where}\n"
        f"  it began with {_spell(run.version)}, {fate} (registered here: {known})",
        f"{remedy}, and start the engine again; or cancel the run",
    )


def _raised(divergence: Divergence, codec: Codec) -> str:
    """The traceback, if the program raised where the journal has another event."""
    actual = divergence.actual
    if not isinstance(actual, ExecutionFailed) or actual.payload is None:
        return ""
    failure = failure_text(codec, actual.payload)
    if is_encrypted(codec, actual.payload) and not failure.type_name.startswith("perdure."):
        # The reason is stored and logged as it is, and a user's exception may quote values.
        return f"\n  the program raised {failure.type_name}, whose text is not shown because payloads are encrypted"
    trace = failure.traceback[-LONGEST_TRACEBACK:]
    return f"\n  the program raised:\n{indent(trace.rstrip(), '    ')}"


def _spell(version: str) -> str:
    return f"version {version!r}" if version else "no version"
