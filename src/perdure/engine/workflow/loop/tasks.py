"""asyncio's tasks and futures of a workflow's loop.

A task is asyncio's own: it steps its coroutine, cancels it and has its outcome exactly as everywhere else. The
coroutine that it steps is a `TaskFiber`, which lends the program's coroutine step ids and turns its waits for steps
into futures.
"""

from asyncio import AbstractEventLoop, CancelledError, Future, Task
from collections.abc import Coroutine
from contextvars import Context
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NoReturn

from perdure.authoring.call import Call, DurableOperation, Sleep
from perdure.authoring.context import Suspension
from perdure.authoring.interruption import Evicted, PayloadUnavailable
from perdure.authoring.signal import Receive
from perdure.core.journal.events import AwaitKind
from perdure.core.limits import MAX_DECISIONS
from perdure.engine.runs.promise import DurablePromise
from perdure.engine.runs.record import Diverged
from perdure.engine.workflow.beginning import begin_operation
from perdure.engine.workflow.cancelling import abandon_promises
from perdure.engine.workflow.coroutines import foreign_await, refused_by_asyncio
from perdure.engine.workflow.fiber import MAIN, Fiber
from perdure.engine.workflow.loop.scope_order import is_scopes
from perdure.engine.workflow.turn_limit import too_long

if TYPE_CHECKING:
    from perdure.engine.workflow.machine import WorkflowMachine


class LoopTask(Task[Any]):
    """A task of the program. Sets of tasks are iterated in the order of hashes; it must be the same in a replay."""

    __slots__ = ("number",)

    number: int

    def __hash__(self) -> int:
        return self.number

    def __eq__(self, other: object) -> bool:
        return self is other

    def cancel(self, msg: Any = None) -> bool:
        if is_scopes():
            scopes = self.get_loop().scopes  # type: ignore[attr-defined]
            scopes.due[self.number] = partial(super().cancel, msg)
            return not self.done()
        return super().cancel(msg)


class LoopFuture(Future[Any]):
    """A future of the program, with a hash as `LoopTask` has it."""

    __slots__ = ("number",)

    def __init__(self, loop: AbstractEventLoop, number: int) -> None:
        self.number = number
        super().__init__(loop=loop)

    def __hash__(self) -> int:
        return self.number

    def __eq__(self, other: object) -> bool:
        return self is other


LEAVES: Final = (Call, Sleep, Receive)
"""Operations of one step."""


class OperationFuture(LoopFuture):
    """The outcome of one step, begun and waited for without a coroutine. Its cancellation abandons the step.

    The step takes the next step id of `creator`. `wait` and `missing` make this a waiter of the promise, as a fiber is.
    """

    __slots__ = ("creator", "is_given_up", "message", "missing", "operation", "promise", "wait")

    def __init__(
        self, loop: AbstractEventLoop, number: int, operation: DurableOperation[Any], creator: Fiber
    ) -> None:
        Future.__init__(self, loop=loop)  # at once: this is made for each call of a fan-out
        self.number = number
        self.operation = operation
        self.creator = creator
        self.promise: DurablePromise | None = None
        self.wait: DurablePromise | None = None
        self.missing = 1
        self.is_given_up = False
        self.message: Any = None

    def advance(self, machine: "WorkflowMachine") -> None:
        """Begin the step, or take its outcome."""
        if self.done():
            return
        try:
            if self.promise is None:
                machine.require_current()
                self.promise = begin_operation(machine, self.creator, self.operation)
                if not self.promise.is_settled:
                    machine.loop.adopt(self.creator, self.promise, self)
                    return
            if self.is_given_up:
                super().cancel(msg=self.message)
            else:
                self.set_result(self.promise.outcome())
        except (Diverged, PayloadUnavailable):
            raise
        except BaseException as error:
            self.set_exception(error)
        self._leave(machine)

    def cancel(self, msg: Any = None) -> bool:
        """Abandon the step. The future is cancelled when the step has ended."""
        loop = self.get_loop()
        if self.done() or loop.is_closed():
            return super().cancel(msg=msg)
        machine: WorkflowMachine = loop.machine  # type: ignore[attr-defined]
        if self.wait is not None and self.promise is not None and not machine.is_closed:
            abandon_promises(machine, [self.promise])
            if self.wait is not None:
                self.is_given_up, self.message = True, msg
                return True
        super().cancel(msg=msg)
        self._leave(machine)
        return True

    def _leave(self, machine: "WorkflowMachine") -> None:
        machine.loop.steps.pop(self.number, None)
        if machine.fibers[MAIN].ending is not None:
            machine.loop.end_body()


class StepFuture(Future[None]):
    """What a task waits for while its coroutine waits for steps. Its cancellation abandons the steps."""

    __slots__ = ("fiber", "is_given_up", "message")

    def __init__(self, loop: AbstractEventLoop, fiber: "TaskFiber") -> None:
        super().__init__(loop=loop)
        self.fiber = fiber
        self.is_given_up = False
        self.message: Any = None

    def cancel(self, msg: Any = None) -> bool:
        """Abandon the steps. The future is cancelled when all of them have ended."""
        fiber = self.fiber
        machine = fiber.machine
        if not self.done() and fiber.wait is not None and not machine.is_closed:
            machine.give_up_wait(fiber)
            if fiber.wait is not None:
                self.is_given_up, self.message = True, msg
                return True
        return super().cancel(msg=msg)

    def settle(self) -> None:
        """Wake the task: the steps have ended."""
        if self.is_given_up:
            super().cancel(msg=self.message)
        elif not self.done():
            self.set_result(None)


class TaskFiber(Fiber, Coroutine[Any, Any, Any]):
    """The coroutine of a task, with step ids of its own. Ends when all steps that it began have ended."""

    __slots__ = ("task",)

    def __init__(
        self,
        machine: "WorkflowMachine",
        coroutine: Coroutine[Any, Any, Any],
        prefix: str,
        depth: int,
        context: Context,
    ) -> None:
        super().__init__(machine, coroutine, prefix, depth, None, context)
        self.task: LoopTask | None = None
        """Kept here, because asyncio itself has only weak references to tasks."""

    def send(self, value: Any) -> Any:
        machine = self.machine
        if self.ending is not None:
            return self._end()
        before, machine.current = machine.current, self
        machine.decisions += 1
        try:
            if machine.decisions > MAX_DECISIONS:
                wait = self.coroutine.throw(too_long(machine.workflow.name, self.line))
            else:
                wait = self.coroutine.send(value)
            return self._future(wait)
        except BaseException as error:  # the coroutine's outcome
            return self._outcome(error)
        finally:
            machine.current = before

    def throw(self, error: Any, value: Any = None, traceback: Any = None) -> Any:  # noqa: ARG002 - as a coroutine's
        machine = self.machine
        if self.ending is not None:
            return self._end()
        before, machine.current = machine.current, self
        try:
            return self._future(self.coroutine.throw(error))
        except BaseException as outcome:
            return self._outcome(outcome)
        finally:
            machine.current = before
            del error  # as in `_end`

    @property
    def current_task(self) -> Any:
        return self if self.task is None else self.task

    def close(self) -> None:
        self.close_coroutine()

    def __await__(self) -> NoReturn:
        raise RuntimeError("the coroutine of a task is being awaited already")

    def _future(self, wait: Any) -> Any:
        """What asyncio's task waits for, when the coroutine waits for `wait`."""
        machine = self.machine
        while True:
            if type(wait) is Suspension:
                return machine.loop.await_steps(self, wait)
            if wait is None or machine.loop.has(wait):
                return wait
            wait = self.coroutine.throw(foreign_await(machine.workflow.name, self.line, wait))

    def _outcome(self, error: BaseException) -> Any:
        if isinstance(error, Diverged | Evicted | PayloadUnavailable):
            raise error
        if isinstance(error, StopIteration):
            self.ending = error.value, None
        else:
            self.ending = None, refused_by_asyncio(self.machine.workflow.name, error)
        del error  # as in `_end`
        return self._end()

    def _end(self) -> Any:
        """End with the coroutine's outcome, or wait for the steps that it began and that have not ended."""
        machine = self.machine
        if self.open:
            left = [promise for promise in self.open.values() if not promise.is_detached]
            unended = abandon_promises(machine, left)
            if unended:
                return machine.loop.await_steps(self, Suspension(unended, AwaitKind.ALL))
        assert self.ending is not None  # noqa: S101 - for the type checker
        value, error = self.ending
        self.context = self.task = self.ending = None
        machine.loop.ended(self)
        try:
            raise StopIteration(value) if error is None else error
        finally:
            # The error refers to this frame: a reference cycle would keep the task, and its report if the program
            # does not retrieve the error, until the garbage collector finds it.
            del error

    def cancel_wait(self, error: CancelledError) -> None:  # noqa: ARG002 - asyncio's task throws it
        self.machine.give_up_wait(self)

    def abandon_task(self) -> None:
        """Keep asyncio from reporting that the task is destroyed while it is pending."""
        if self.task is not None:
            self.task._log_destroy_pending = False  # type: ignore[attr-defined]

    def close_coroutine(self) -> None:
        super().close_coroutine()
        self.task = None

    # What `inspect.getcoroutinestate` and tracebacks of tasks read.

    @property
    def cr_code(self) -> Any:
        return self._of_coroutine("code")

    @property
    def cr_frame(self) -> Any:
        return self._of_coroutine("frame")

    @property
    def cr_await(self) -> Any:
        return getattr(self.coroutine, "cr_await", None)

    @property
    def cr_running(self) -> bool:
        return bool(self._of_coroutine("running"))

    @property
    def cr_suspended(self) -> bool:
        return bool(self._of_coroutine("suspended"))

    def _of_coroutine(self, field: str) -> Any:
        """A field of a coroutine, or of a generator that is used as one."""
        return getattr(self.coroutine, f"cr_{field}", getattr(self.coroutine, f"gi_{field}", None))
