"""The event loop of a workflow: asyncio on durable timers, in an order that only the program and its facts decide.

The machine drives the loop: callbacks and tasks wait in the machine's ready queue, beside the fibers, and are called
in the order in which they became ready. So a replay, which feeds the same facts, calls them in the same order. Time
stands still during a turn. The loop reaches nothing outside the run: whatever needs a socket, a thread or a process is
refused (`refused_calls.py`).

A program that uses no asyncio pays for two assignments in a turn: the loop is made without any state.
"""

import asyncio
from asyncio import Future
from collections.abc import Callable
from contextvars import Context, copy_context
from types import MethodType
from typing import TYPE_CHECKING, Any, Final

from perdure.authoring.call import DurableOperation, Sleep
from perdure.authoring.context import Suspension
from perdure.authoring.interruption import Evicted
from perdure.core.errors import ForeignAwait
from perdure.core.ids import StepId
from perdure.core.journal import events as e
from perdure.core.journal.events import AwaitKind
from perdure.core.limits import MAX_DECISIONS, MAX_DEPTH
from perdure.engine.runs.effects import RecordedChange
from perdure.engine.runs.promise import DurablePromise
from perdure.engine.runs.record import Diverged
from perdure.engine.workflow.beginning import begin_timer
from perdure.engine.workflow.cancelling import abandon_promises
from perdure.engine.workflow.coroutines import foreign_await, wait_for
from perdure.engine.workflow.fiber import MAIN, Fiber, no_coroutine
from perdure.engine.workflow.loop.handles import ReadyHandle, TimerCallback
from perdure.engine.workflow.loop.refused_calls import refuse_others
from perdure.engine.workflow.loop.scope_order import ScopeOrder
from perdure.engine.workflow.loop.settings import LoopSettings
from perdure.engine.workflow.loop.task_order import TaskOrder, wrapped_operation
from perdure.engine.workflow.loop.tasks import (
    LEAVES,
    LoopFuture,
    LoopTask,
    OperationFuture,
    StepFuture,
    TaskFiber,
)
from perdure.engine.workflow.turn_limit import too_long

if TYPE_CHECKING:
    from perdure.engine.workflow.machine import WorkflowMachine

_LONGEST_S: Final = float((1 << 52) // 1000)
"""A timer for longer never fires."""

_RESUMED: Final = e.ExecutionResumed()


class WorkflowLoop(LoopSettings):
    """The loop of one run. It is the running loop exactly while the machine drives the program."""

    def __init__(self, machine: "WorkflowMachine") -> None:
        super().__init__(machine)
        self.is_used = False
        """Whether the program has used it. If not, turns are journaled as without a loop."""
        self.timers: dict[StepId, TimerCallback] = {}
        """Timers that have not fired, in the order in which they were set."""
        self.steps: dict[int, OperationFuture] = {}
        """Futures of single steps that are not done, by number."""
        self.scopes = ScopeOrder()
        self._owner: Fiber | None = None
        self._order: TaskOrder | None = None
        self._futures = 0
        self._now_ms = 0
        self._knows_time = False
        """Whether the time of this turn is journaled."""
        self.has_new_wait = False
        self._resumed_at: int | None = None
        """Where in the record this turn's `ExecutionResumed` belongs, until it is known whether there is one."""

    # Turns

    def begin_turn(self, *, is_waiting: bool) -> bool:
        """Journal that the run resumes. Returns whether it still waits: a replayed turn that decided nothing.

        A task that wakes may only set a future, as with `asyncio.gather` over many calls. Such a turn leaves no entry:
        the wait that is journaled holds until the program decides something. Otherwise a fan-out of n calls would
        journal n waits for up to n steps.
        """
        self._knows_time = self.has_new_wait = False
        self._resumed_at = None
        if self.scopes.has_tried:
            self.scopes.begin_turn(self.machine.ready)
        record = self.machine.record
        if not is_waiting:
            return False
        if not record.is_replaying:
            self._resumed_at = len(record.changes)
            return False
        if not record.is_next_of(e.ExecutionResumed):
            return True
        record.emit(_RESUMED)
        return False

    def end_turn(self) -> bool:
        """Journal that the run resumed in this turn, if it decided anything. Returns whether it did not."""
        begun, self._resumed_at = self._resumed_at, None
        if begun is None:
            return False
        record = self.machine.record
        if len(record.changes) == begun and not self.has_new_wait and not record.has_effects:
            return True
        record.changes.insert(begun, RecordedChange(_RESUMED, ()))
        return False

    def run(self, item: Any) -> None:
        """Call what is next in the ready queue."""
        machine = self.machine
        machine.current = machine.fibers[MAIN]
        kind = type(item)
        if kind is OperationFuture:
            item.advance(machine)
        elif kind is TaskFiber:
            item.future.settle()
        elif kind is TimerCallback:
            if self._is_due(item):
                self._call(item)
        else:
            self.scopes.progress += 1
            if type(item._callback) is not MethodType or not self.scopes.puts_off(item):
                self._call(item)
        del item  # as in `_call`

    def _call(self, handle: Any) -> None:
        machine = self.machine
        machine.decisions += 1
        if machine.decisions > 2 * MAX_DECISIONS:
            # Callbacks that schedule each other for ever. Coroutines were refused before.
            self.call_exception_handler({"message": f"Too many callbacks in a turn: {handle!r}"})
            return
        if handle._cancelled:
            return
        try:
            handle._context.run(handle._callback, *handle._args)
        except (KeyboardInterrupt, Diverged):
            raise
        except SystemExit:
            pass  # the task keeps it for the coroutine that awaits the task
        except BaseException as error:
            context = {"message": f"Exception in callback {handle!r}", "exception": error}
            self.call_exception_handler(context)
        # The traceback of a task's exception refers to this frame, and the handle to the task: without this the
        # garbage collector would have to find the task, before an exception that is not retrieved is reported.
        del handle
        if machine.record.diverged is not None:
            # asyncio has kept it as the outcome of a task.
            raise machine.record.diverged

    def _is_due(self, timer: TimerCallback) -> bool:
        if timer.promise is not None:
            self.timers.pop(timer.promise.step, None)
            self._now_ms = max(self._now_ms, timer.fires_at_ms)
        elif not timer.is_passed_over:
            timer.is_passed_over = True
            self.machine.ready.append(timer)
            return False
        return True

    def unblock(self) -> None:
        """The run waits for nothing that can happen: make the coroutine that waits fail."""
        machine = self.machine
        for fiber in machine.fibers.values():
            if type(fiber) is Fiber and fiber.future is not None:
                fiber.future.remove_done_callback(fiber)
                fiber.future = None
                fiber.thrown = ForeignAwait(
                    f"workflow {machine.workflow.name!r} waits for what nothing in it will set ({fiber.line})",
                    "set it in a task of the workflow; for something from outside await a Signal or a call of a @task",
                )
                machine.ready.append(fiber)
                return
        # The body has ended, and tasks ignore their cancellation.
        for task in [each for each in machine.fibers.values() if type(each) is TaskFiber]:
            task.abandon_task()
            task.close_coroutine()
            self.ended(task)

    def end(self) -> bool:
        """Called when the body has returned: cancel the remaining tasks, as `asyncio.run` does. True if there are none.

        The body is made ready again when the last task has ended.
        """
        machine = self.machine
        for each in [*self.steps.values(), *self.tasks()]:
            each.cancel()
        if self.steps or self.tasks():
            return False
        for timer in self.timers.values():
            timer.wait = None
        self.timers.clear()
        if self._owner is not None:
            abandon_promises(machine, list(self._owner.open.values()))
        return True

    def ended(self, fiber: TaskFiber) -> None:
        """A task's coroutine has ended."""
        self.machine.fibers.pop(fiber.number, None)
        self.end_body()

    def end_body(self) -> None:
        """Let the body end, if it has returned and only waits for tasks and steps, and these have ended."""
        main = self._main
        if main.ending is not None and main.wait is None and not self.steps and not self.tasks():
            self.machine.ready.append(main)

    def tasks(self) -> list[LoopTask]:
        """The tasks that have not ended."""
        return [
            each.task
            for each in self.machine.fibers.values()
            if type(each) is TaskFiber and each.task is not None
        ]

    def close_tasks(self) -> None:
        """Before the coroutines are closed: no task of asyncio reports that it was pending."""
        if self.is_used and not self._is_released:
            for fiber in self.machine.fibers.values():
                if type(fiber) is TaskFiber:
                    fiber.abandon_task()

    def release(self) -> None:
        """The run has ended or leaves memory. The loop refers to the machine no longer, nor to its coroutines."""
        if self._is_released:
            return
        self._is_released = True
        self._is_over = self.machine.is_over
        self.machine = _NO_MACHINE
        self.timers, self.steps = {}, {}
        self._owner = self._order = None

    @property
    def _main(self) -> Fiber:
        """The body. Callbacks act for it."""
        return self.machine.fibers[MAIN]

    # Waits

    def has(self, awaited: Any) -> bool:
        """Whether it is a future of this loop."""
        if not getattr(awaited, "_asyncio_future_blocking", False):
            return False
        loop = awaited.get_loop() if hasattr(awaited, "get_loop") else awaited._loop
        return loop is self

    def suspend(self, fiber: Fiber, awaited: Any) -> None:
        """Let a fiber wait for a future of this loop, or take its turn behind what is ready (`asyncio.sleep(0)`)."""
        self.is_used = True
        machine = self.machine
        if awaited is None:
            machine.decisions += 1
            if machine.decisions > MAX_DECISIONS:
                fiber.thrown = too_long(machine.workflow.name, fiber.line)
            machine.ready.append(fiber)
        elif self.has(awaited):
            awaited._asyncio_future_blocking = False
            fiber.future = awaited
            awaited.add_done_callback(fiber, context=machine.context)
            if fiber.is_cancel_due and awaited.cancel(msg=fiber.cancel_message):
                fiber.is_cancel_due = False
            if fiber.pending is not None:
                fiber.thrown = fiber.interrupt(fiber.pending)
                fiber.pending = None
        else:
            fiber.thrown = foreign_await(machine.workflow.name, fiber.line, awaited)
            machine.ready.appendleft(fiber)

    def await_steps(self, fiber: TaskFiber, wait: Suspension) -> Future[None]:
        """A future that is done when the steps have ended that a task's coroutine waits for."""
        future = fiber.future = StepFuture(self, fiber)
        self.machine.suspend(fiber, wait)
        future._asyncio_future_blocking = True
        return future

    def waits(self) -> list[Suspension]:
        """What timers and futures of steps wait for."""
        waiters: list[Any] = [*self.steps.values(), *self.timers.values()]
        promises = tuple([each.wait for each in waiters if each.wait is not None])
        kind = promises[0].operation.kind if len(promises) == 1 else AwaitKind.ANY
        return [Suspension(promises, kind)] if promises else []

    # What programs and libraries call

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> Any:
        machine = self.machine
        if self._is_released or machine.is_closed:
            return ReadyHandle(callback, args, self, context)
        self.is_used = True
        if type(callback) is Fiber:
            machine.ready.append(callback)
            return _WOKEN
        handle = ReadyHandle(callback, args, self, context)
        machine.ready.append(handle)
        return handle

    def call_later(  # type: ignore[override]
        self,
        delay: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> TimerCallback:
        """Call it after a durable timer of `delay` seconds."""
        if delay <= 0:
            return self._call_next(callback, args, context)
        return self._start_timer(delay, callback, args, context)

    def call_at(  # type: ignore[override]
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> TimerCallback:
        delay = round(when - self.time(), 6)
        if delay <= 0:
            return self._call_next(callback, args, context)
        return self._start_timer(delay, callback, args, context)

    def _call_next(
        self, callback: Callable[..., object], args: tuple[Any, ...], context: Context | None
    ) -> TimerCallback:
        self.is_used = True
        timer = TimerCallback(self._now_ms / 1000, callback, args, self, context)
        if not self._is_closing:
            self.machine.ready.append(timer)
        return timer

    def _start_timer(
        self,
        delay: float,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        context: Context | None,
    ) -> TimerCallback:
        machine = self.machine
        self.is_used = True
        if delay > _LONGEST_S:
            return TimerCallback(float("inf"), callback, args, self, context)
        fiber = machine.require_current()
        promise, event = begin_timer(machine, fiber, Sleep(-int(-delay * 1000 // 1)))
        timer = TimerCallback(event.fire_at_ms / 1000, callback, args, self, context)
        timer.promise = promise
        timer.fires_at_ms = event.fire_at_ms
        self.adopt(fiber, promise, timer)
        self.timers[promise.step] = timer
        self._learn_time(event.fire_at_ms - event.duration_ms)
        return timer

    def _timer_handle_cancelled(self, handle: TimerCallback) -> None:
        """Settle the durable timer of a callback that is cancelled before it fires. `TimerHandle.cancel` calls this."""
        machine = self.machine
        if self._is_closing or handle.wait is None or handle.promise is None:
            return
        handle.wait = None
        self.timers.pop(handle.promise.step, None)
        abandon_promises(machine, [handle.promise])

    def time(self) -> float:
        """Seconds since 1970 on the hosts' clock. The first call of a turn journals the time, as `perdure.now()`."""
        machine = self.machine
        if not self._knows_time and not self._is_closing:
            now = machine.now()
            self._learn_time(round(now.timestamp() * 1000))
        return self._now_ms / 1000

    def _learn_time(self, now_ms: int) -> None:
        self.is_used = self._knows_time = True
        self._now_ms = max(self._now_ms, now_ms)

    def create_future(self) -> LoopFuture:
        self._futures += 1
        return LoopFuture(self, self._futures)

    def create_task(self, coro: Any, **options: Any) -> Any:
        """A task with step ids below the place that its creator takes for it. Takes calls and verbs, too."""
        if self._is_closing or self.machine.is_closing:
            _close(coro)
            raise Evicted
        self.is_used = True
        if isinstance(coro, DurableOperation):
            return self._start_task(coro, wait_for(coro), options)
        operation = wrapped_operation(coro)
        if self._order is None:
            self._order = TaskOrder()
        ordered = self._order.task_of(self, coro, operation)
        if ordered is not None:
            return ordered
        if isinstance(operation, LEAVES) and not options:
            coro.close()
            return self._start_step(operation)
        return self._start_task(operation, coro, options)

    def start(self, given: Any) -> Any:
        """A future for an operation, or a task for a coroutine."""
        if isinstance(given, LEAVES):
            return self._start_step(given)
        return self.create_task(given)

    def _start_step(self, operation: DurableOperation[Any]) -> "OperationFuture":
        """A future for a call or verb that asyncio wraps, as `asyncio.gather(charge(1), charge(2))` does.

        It needs no coroutine and no task. The step begins at the place in the queue that the task would have.
        """
        machine = self.machine
        self._futures += 1
        future = OperationFuture(self, self._futures, operation, machine.current or self._main)
        machine.used(operation)
        self.steps[future.number] = future
        machine.ready.append(future)
        return future

    def adopt(self, fiber: Fiber, promise: DurablePromise, waiter: Any) -> None:
        """Let `waiter` wait for a promise that outlives the coroutine that began it, and ends with the body."""
        if self._owner is None:
            self._owner = Fiber(self.machine, no_coroutine(), "root", 0)
        del fiber.open[promise.step]
        promise.owner = self._owner
        self._owner.open[promise.step] = promise
        waiter.wait = promise
        promise.waiters = ((waiter, promise),)
        self.has_new_wait = True

    def _start_task(self, operation: Any, coro: Any, options: dict[str, Any]) -> Any:
        machine = self.machine
        if not asyncio.iscoroutine(coro):
            raise TypeError(f"a coroutine was expected, got {coro!r}")
        if operation is not None:
            # A task that is cancelled before it begins has not forgotten the call.
            machine.used(operation)
        creator = machine.current or self._main
        if creator.depth + 2 > MAX_DEPTH:
            creator = self._main
        context = options.get("context") or copy_context()
        place = machine.take_place(creator)
        fiber = TaskFiber(machine, coro, place, creator.depth + 1, context)
        machine.register(fiber)
        options["context"] = context
        if options.get("name") is None:
            options["name"] = f"Task-{fiber.number}"
        if self._factory is not None:
            options["eager_start"] = True
        task = LoopTask.__new__(LoopTask)
        task.number = fiber.number
        fiber.task = task
        LoopTask.__init__(task, fiber, loop=self, **options)
        if task.done():  # it has ended within its eager start
            fiber.task = None
        return task


refuse_others(WorkflowLoop)  # type: ignore[type-abstract]

_NO_MACHINE: Any = None

_WOKEN = ReadyHandle(print, (), _NO_MACHINE, None)
"""What `call_soon` returns to a future that wakes a fiber. Futures don't keep it."""


def _close(coro: Any) -> None:
    close = getattr(coro, "close", None)
    if callable(close):
        close()
