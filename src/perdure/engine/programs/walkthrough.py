"""Walks through a stored run: replays it, and shows where in the code each step begins. Executes and commits nothing.

An observer may look at the program's frames at a step: a debugger, or a printer of local variables.
"""

import sys
from collections.abc import Sequence
from datetime import datetime
from types import CodeType, FrameType, TracebackType
from typing import Any, NamedTuple, Protocol

from perdure.authoring.call import DurableOperation
from perdure.authoring.context import Info
from perdure.authoring.interruption import Evicted
from perdure.authoring.program import Program
from perdure.authoring.values.failures import OUR_FILES
from perdure.authoring.workflow import Workflow
from perdure.core.codec import Codec
from perdure.core.ids import StepId
from perdure.core.journal.entry import Entry
from perdure.core.journal.events import Event
from perdure.engine.known_programs import KnownPrograms
from perdure.engine.programs.rebuilding import (
    Rebuilding,
    divergence_error,
    new_machine,
    program_for,
)
from perdure.engine.runs.machine import RunMachine
from perdure.engine.runs.promise import DurablePromise
from perdure.engine.runs.record import Diverged
from perdure.engine.sources import Sources
from perdure.engine.workflow.fiber import Fiber
from perdure.engine.workflow.machine import WorkflowMachine
from perdure.store.rows.records import Run


class SourceLine(NamedTuple):
    """Where a step begins in the program."""

    file: str
    line: int
    function: str


class Observer(Protocol):
    """What looks at the program during the replay. Frames are of the program's code, the innermost first."""

    def step_begins(self, step: StepId, frames: Sequence[FrameType]) -> bool:
        """The program awaits or begins a step. Returns whether the replay continues."""
        ...

    def replay_ends(self, frames: Sequence[FrameType]) -> None:
        """The journal has no more entries, and the program waits."""
        ...

    def program_raised(self, error: BaseException, traceback: TracebackType | None) -> None:
        """The program ended with an error; the traceback is that of its own code."""
        ...


class Walkthrough(NamedTuple):
    """What the replay found: the line of each step; the error if the run can't be replayed on this code."""

    lines: dict[StepId, SourceLine]
    program: Program[..., Any]
    divergence: str | None = None
    was_stopped: bool = False


class ReplayRules(NamedTuple):
    """What a replay needs besides the run."""

    codec: Codec
    sources: Sources
    programs: KnownPrograms
    reveal: bool = False


def walk_through(
    run: Run, entries: Sequence[Entry], rules: ReplayRules, observer: Observer
) -> Walkthrough:
    """Replay a run on the code of this process. Raises `UnknownName` if this process lacks its program."""
    program = program_for(run, rules.programs)
    lines: dict[StepId, SourceLine] = {}
    if not entries:  # the run has not begun
        return Walkthrough(lines, program)

    def make(
        program: Program[..., Any],
        info: Info,
        codec: Codec,
        sources: Sources,
        programs: KnownPrograms,
        recorded: Sequence[Event] = (),
    ) -> RunMachine:
        if not isinstance(program, Workflow):
            return new_machine(program, info, codec, sources, programs, recorded)
        return _ObservedWorkflow(program, info, codec, sources, recorded, (observer, lines))

    rebuilding = Rebuilding(
        run, entries, program, rules.codec, rules.sources, rules.programs, make=make
    )
    try:
        while (warm := rebuilding.advance()) is None:
            pass
    except Diverged as diverged:
        error = divergence_error(
            run, program, diverged.divergence, rules.codec, reveal=rules.reveal
        )
        return Walkthrough(lines, program, str(error))
    except Evicted:
        return Walkthrough(lines, program, was_stopped=True)
    machine = warm.machine
    if isinstance(machine, _ObservedWorkflow) and not machine.is_over:
        observer.replay_ends(machine.waiting_frames())
    machine.close()
    return Walkthrough(lines, program)


class _ObservedWorkflow(WorkflowMachine):
    """A workflow whose steps report their frames."""

    def __init__(
        self,
        workflow: Workflow[..., Any],
        info: Info,
        codec: Codec,
        sources: Sources,
        recorded: Sequence[Event],
        observed: tuple[Observer, dict[StepId, SourceLine]],
    ) -> None:
        super().__init__(workflow, info, codec, sources, recorded)
        self._observer, self._lines = observed

    def begin(self, operation: DurableOperation[Any]) -> DurablePromise:
        promise = super().begin(operation)
        self._begun(promise.step)
        return promise

    def now(self) -> datetime:
        at = super().now()
        self._begun(self.last_place())
        return at

    def draw(self) -> int:
        number = super().draw()
        self._begun(self.last_place())
        return number

    def waiting_frames(self) -> list[FrameType]:
        """The frames of the body, which waits; of a branch, if the body waits in Perdure's own code alone."""
        for fiber in self.fibers.values():
            frames = _suspended_frames(fiber)
            if frames:
                return frames
        return []

    def _begun(self, step: StepId) -> None:
        if self.is_closing or self.record.diverged is not None or step in self._lines:
            return
        frames = _running_frames() or self._frames_of_owner()
        if not frames:
            return
        here = frames[0]
        self._lines[step] = SourceLine(here.f_code.co_filename, here.f_lineno, here.f_code.co_name)
        if not self._observer.step_begins(step, frames):
            self.is_closing = True  # the program's clean-up begins nothing
            raise Evicted

    def _frames_of_owner(self) -> list[FrameType]:
        """The frames of the nearest coroutine above a branch that is Perdure's own."""
        fiber = self.current
        while fiber is not None and fiber.promise is not None:
            fiber = fiber.promise.owner
            if frames := _suspended_frames(fiber):
                return frames
        return []

    def _finish(self, fiber: Fiber, value: Any, error: BaseException | None) -> None:
        if fiber.promise is None and fiber.ending is None and isinstance(error, Exception):
            self._observer.program_raised(error, _own_code(error.__traceback__))
        super()._finish(fiber, value, error)


_DRIVER: CodeType = WorkflowMachine._drive.__code__


def _running_frames() -> list[FrameType]:
    """The frames of the program that are executing, the innermost first."""
    found: list[FrameType] = []
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code is not _DRIVER:
        if not frame.f_code.co_filename.startswith(OUR_FILES):
            found.append(frame)
        frame = frame.f_back
    return found


def _suspended_frames(fiber: Fiber) -> list[FrameType]:
    """The frames of the program in a coroutine that waits, the innermost first."""
    found: list[FrameType] = []
    awaitable: Any = fiber.coroutine
    while awaitable is not None:
        frame = getattr(awaitable, "cr_frame", None) or getattr(awaitable, "gi_frame", None)
        if frame is not None and not frame.f_code.co_filename.startswith(OUR_FILES):
            found.insert(0, frame)
        awaitable = getattr(awaitable, "cr_await", None) or getattr(awaitable, "gi_yieldfrom", None)
    return found


def _own_code(traceback: TracebackType | None) -> TracebackType | None:
    """The traceback from the program's first own frame on."""
    while traceback is not None and traceback.tb_frame.f_code.co_filename.startswith(OUR_FILES):
        traceback = traceback.tb_next
    return traceback
