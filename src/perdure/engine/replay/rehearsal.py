"""A rehearsal: a stored run replayed on the code that is registered here, and nothing else."""

from collections.abc import Sequence
from typing import Any

import msgspec

from perdure.authoring.program import Program
from perdure.core.codec import Codec
from perdure.core.errors import PerdureError
from perdure.core.ids import RunId
from perdure.core.journal.entry import Entry
from perdure.core.replay.matching import Divergence, spell
from perdure.core.replay.patching import patch_of
from perdure.engine.programs import Programs
from perdure.engine.replay.programs import explain, program_of, rebuild
from perdure.engine.replay.record import Diverged
from perdure.engine.sources import Sources
from perdure.store.records import Run


class DivergedRun(msgspec.Struct, frozen=True):
    """A run that would be parked: at entry `seq` its journal has another event than the program asks for.

    `version` is the one that it began with, `replayed_on` the one that was tried. `line` is where the program is.
    """

    run_id: RunId
    program: str
    version: str
    replayed_on: str
    seq: int
    expected: str
    actual: str
    line: str
    text: str

    def __str__(self) -> str:
        return self.text


class StrandedRun(msgspec.Struct, frozen=True):
    """A run that can't be replayed at all: its program is not registered here, or its journal can't be read.

    `code` is that of the error: `unknown-name` in the first case.
    """

    run_id: RunId
    program: str
    version: str
    code: str
    text: str

    def __str__(self) -> str:
        return f"run {self.run_id!r}: {self.text}"


class Rehearsal(msgspec.Struct, frozen=True):
    """How it went with one run. `marked` patches it follows; `missed` ones came when it was past them."""

    run_id: RunId
    program: str
    version: str
    replayed_on: str | None
    marked: frozenset[str] = frozenset()
    missed: frozenset[str] = frozenset()
    problem: DivergedRun | StrandedRun | None = None


def rehearse(
    run: Run, entries: Sequence[Entry], codec: Codec, sources: Sources, programs: Programs
) -> Rehearsal:
    """Replay a run and take it out of memory again. Nothing is executed, and nothing is committed."""
    about = run.run_id, run.program, run.version
    marked: frozenset[str] = frozenset()
    try:
        marked = frozenset(filter(None, (patch_of(entry.event) for entry in entries)))
        workflow = program_of(run, programs)
    except PerdureError as error:
        return Rehearsal(*about, None, marked, problem=_stranded(run, error))
    try:
        machine = rebuild(run, entries, workflow, codec, sources, programs).machine
    except Diverged as diverged:
        problem = _diverged(run, workflow, diverged.divergence)
        return Rehearsal(*about, workflow.version, marked, problem=problem)
    except PerdureError as error:
        return Rehearsal(*about, None, marked, problem=_stranded(run, error))
    machine.close()
    missed = frozenset(patch for patch, answer in machine.patches.answers.items() if not answer)
    return Rehearsal(*about, workflow.version, marked - missed, missed)


def _diverged(run: Run, workflow: Program[..., Any], divergence: Divergence) -> DivergedRun:
    return DivergedRun(
        run.run_id,
        run.program,
        run.version,
        workflow.version,
        divergence.seq,
        spell(divergence.recorded),
        spell(divergence.actual),
        divergence.place,
        str(explain(run, workflow, divergence)),
    )


def _stranded(run: Run, error: PerdureError) -> StrandedRun:
    return StrandedRun(run.run_id, run.program, run.version, error.code, str(error))
