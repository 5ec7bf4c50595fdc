"""Fibers: the coroutines of a run. The body is one; every branch is another, with step ids of its own."""

from asyncio import CancelledError
from collections.abc import Coroutine
from contextvars import Context
from typing import TYPE_CHECKING, Any

from perdure.authoring.call import BranchOperation
from perdure.authoring.context import Suspension
from perdure.authoring.interruption import Cancelled
from perdure.authoring.values.failures import OUR_FILES
from perdure.core.ids import StepId
from perdure.engine.runs.promise import DurablePromise
from perdure.engine.workflow.loop.current_task import CurrentTask, as_current_task

if TYPE_CHECKING:
    from perdure.engine.workflow.machine import WorkflowMachine


async def _nothing() -> None:
    """Replaces a closed coroutine."""


_NOTHING = _nothing()
_NOTHING.close()

_NO_MACHINE: Any = None


def no_coroutine() -> Coroutine[Any, Any, Any]:
    """A closed coroutine, for a fiber that only owns promises."""
    return _NOTHING


MAIN = 1
"""The number of the body among the fibers and tasks of a run."""

MAX_CLOSES = 20
"""Attempts to close a coroutine that awaits something in its clean-up."""


class Fiber(CurrentTask):
    """A coroutine, the prefix of its step ids, and what it waits for.

    `missing` counts the promises that must settle before it resumes. `thrown` is the exception that it resumes with, if
    any. `open` are the promises that it began and that are not settled. `ending` is its outcome, while its branches
    have not ended yet. `context` is a branch's copy of the context in which it began; the body uses the machine's.
    """

    __slots__ = (
        "context",
        "depth",
        "ending",
        "is_interrupted",
        "missing",
        "next_seq",
        "open",
        "pending",
        "prefix",
        "promise",
        "thrown",
        "wait",
    )

    def __init__(
        self,
        machine: "WorkflowMachine",
        coroutine: Coroutine[Any, Any, Any],
        prefix: str,
        depth: int,
        promise: DurablePromise | None = None,
        context: Context | None = None,
    ) -> None:
        self.machine = machine
        self.coroutine = coroutine
        self.prefix = prefix
        self.depth = depth
        self.promise = promise
        self.context = context
        self.next_seq = 0
        self.wait: Suspension | None = None
        self.missing = 0
        self.is_interrupted = False
        self.pending: Cancelled | None = None
        """Thrown into the coroutine as soon as it begins or awaits anything."""
        self.open: dict[StepId, DurablePromise] = {}
        self.thrown: BaseException | None = None
        self.ending: tuple[Any, BaseException | None] | None = None
        self.number = 0
        self.name = ""
        self.future: Any = None
        self.cancels = 0
        self.is_cancel_due = False

    def cancel_wait(self, error: CancelledError) -> None:
        self.thrown = error
        self.machine.give_up_wait(self)

    @property
    def waits_for_steps(self) -> bool:
        return self.wait is not None

    def done(self) -> bool:
        return self.ending is not None or self.coroutine is _NOTHING or self.machine.is_closed

    def close_coroutine(self) -> None:
        """Close the coroutine in its own context, and release both.

        A coroutine that refuses to close is dropped in that context too, where its verbs find the machine and stop it.
        """
        if self.coroutine is _NOTHING:
            return
        context, self.context = self.context, None
        # Cancel scopes of anyio are left by the task that entered them.
        with as_current_task(self.machine.loop, self.current_task):
            if context is None:
                self._close_coroutine()
            else:
                context.run(self._close_coroutine)

    @property
    def current_task(self) -> Any:
        """What asyncio takes for the current task while the coroutine runs."""
        return self

    def _close_coroutine(self) -> None:
        for _ in range(MAX_CLOSES):
            # An exception during the close is not an outcome of the run. A RuntimeError may say that the coroutine
            # awaits something in a clean-up, as a task group does; then the next attempt closes it there.
            try:
                self.coroutine.close()
            except RuntimeError:
                continue
            except BaseException:  # noqa: S110 - as above
                pass
            break
        self.coroutine = _NOTHING
        self.machine = _NO_MACHINE
        if self.promise is not None and isinstance(self.promise.operation, BranchOperation):
            self.promise.operation.coroutine = _NOTHING

    @property
    def is_cleaning_up(self) -> bool:
        """Whether this fiber or one above it was interrupted."""
        if self.is_interrupted or self.promise is None:
            return self.is_interrupted
        above: Fiber = self.promise.owner
        return above.is_cleaning_up

    def take_pending(self) -> Cancelled | None:
        pending, self.pending = self.pending, None
        return pending

    @property
    def is_shielded(self) -> bool:
        """Whether this fiber or one above it is shielded: it runs to its end although the run is cancelled."""
        promise = self.promise
        if promise is None:
            return False
        is_shield = isinstance(promise.operation, BranchOperation) and promise.operation.is_shielded
        return is_shield or promise.owner.is_shielded

    @property
    def is_ours(self) -> bool:
        """Whether its code is Perdure's and not the program's: it waits for an operation, or refuses an input."""
        code = getattr(self.coroutine, "cr_code", None)
        return code is not None and code.co_filename.startswith(OUR_FILES)

    @property
    def line(self) -> str:
        """The line where its code is, for error texts."""
        frame = getattr(self.coroutine, "cr_frame", None)
        code = getattr(self.coroutine, "cr_code", None)
        if code is None:
            return "in the program"
        line = code.co_firstlineno if frame is None else frame.f_lineno
        return f"{code.co_filename}:{line} in {code.co_name}"
