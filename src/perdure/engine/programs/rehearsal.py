"""Rehearses a stored run: replays it on the registered code without executing or committing anything."""

from collections.abc import Sequence
from typing import Any

import msgspec

from perdure.authoring.program import Program
from perdure.core.codec import Codec
from perdure.core.errors import PerdureError
from perdure.core.ids import RunId
from perdure.core.journal.entry import Entry
from perdure.core.replay.matching import Divergence, describe_event
from perdure.core.replay.patching import patch_of
from perdure.engine.known_programs import KnownPrograms
from perdure.engine.programs.rebuilding import divergence_error, program_for, rebuild
from perdure.engine.runs.record import Diverged
from perdure.engine.sources import Sources
from perdure.store.rows.records import Run


class DivergedRun(msgspec.Struct, frozen=True):
    """A run that would be parked: at entry `seq` its journal has another event than the program decides.

    The run began with `version` and was replayed on `replayed_on`. `line` is the program's position.
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

    `code` is the error's code: `unknown-name` in the first case.
    """

    run_id: RunId
    program: str
    version: str
    code: str
    text: str

    def __str__(self) -> str:
        return f"run {self.run_id!r}: {self.text}"


class Rehearsal(msgspec.Struct, frozen=True):
    """The result for one run. It follows the `marked` patches; it passed the `missed` ones before they existed."""

    run_id: RunId
    program: str
    version: str
    replayed_on: str | None
    marked: frozenset[str] = frozenset()
    missed: frozenset[str] = frozenset()
    problem: DivergedRun | StrandedRun | None = None


def rehearse(
    run: Run,
    entries: Sequence[Entry],
    codec: Codec,
    sources: Sources,
    programs: KnownPrograms,
    *,
    reveal: bool = False,
) -> Rehearsal:
    """Replay a run and release it. Executes and commits nothing."""
    about = run.run_id, run.program, run.version
    marked: frozenset[str] = frozenset()
    try:
        marked = frozenset(filter(None, (patch_of(entry.event) for entry in entries)))
        workflow = program_for(run, programs)
    except PerdureError as error:
        return Rehearsal(*about, None, marked, problem=_stranded(run, error))
    try:
        machine = rebuild(run, entries, workflow, codec, sources, programs).machine
    except Diverged as diverged:
        divergence = diverged.divergence
        report = divergence_error(run, workflow, divergence, codec, reveal=reveal)
        problem = _diverged(run, workflow, divergence, str(report), reveal=reveal)
        return Rehearsal(*about, workflow.version, marked, problem=problem)
    except PerdureError as error:
        return Rehearsal(*about, None, marked, problem=_stranded(run, error))
    machine.close()
    missed = frozenset(patch for patch, answer in machine.patches.answers.items() if not answer)
    return Rehearsal(*about, workflow.version, marked - missed, missed)


def _diverged(
    run: Run, workflow: Program[..., Any], divergence: Divergence, text: str, *, reveal: bool
) -> DivergedRun:
    return DivergedRun(
        run.run_id,
        run.program,
        run.version,
        workflow.version,
        divergence.seq,
        describe_event(divergence.recorded, reveal=reveal),
        describe_event(divergence.actual, reveal=reveal),
        divergence.place,
        text,
    )


def _stranded(run: Run, error: PerdureError) -> StrandedRun:
    return StrandedRun(run.run_id, run.program, run.version, error.code, str(error))
