"""The machine that runs one workflow: facts go in, the program's decisions come out.

It does no I/O. A *fact* is an event that happened to the run: the run started, a task ended, a timer fired, a signal
was delivered, a client cancelled. Given a fact, the machine drives the program's coroutines until each waits again: one
*turn*. The events that the program decided on are in its record.

Replay does the same: the machine feeds the journal's facts in their order and compares each decision with the event
that the journal has at that place. So the program takes the same path, in the same order, or diverges.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from contextvars import Context
from functools import partial
from typing import Any

from perdure.authoring.call import Call, DurableOperation, discard
from perdure.authoring.context import WORKFLOW, Info, Promise, Suspension
from perdure.authoring.interruption import Continued, Evicted, PayloadUnavailable
from perdure.authoring.workflow import Workflow
from perdure.core.codec import Codec
from perdure.core.errors import ForeignAwait, PerdureError, TurnTooLong
from perdure.core.ids import StepId
from perdure.core.journal import events as e
from perdure.core.limits import MAX_DECISIONS
from perdure.engine.runs.effects import RunEffect
from perdure.engine.runs.machine import COMMON_FACTS, HELD, Handlers, HeldOutcome
from perdure.engine.runs.prefetched import NO_MESSAGES, next_prefetched_signal
from perdure.engine.runs.promise import DurablePromise, PromiseKind
from perdure.engine.runs.record import Diverged
from perdure.engine.sources import Sources
from perdure.engine.workflow.awaiting import await_of
from perdure.engine.workflow.beginning import begin_operation
from perdure.engine.workflow.cancelling import (
    abandon_promises,
    cancel_fibers,
    give_up_wait,
    throw_cancelled,
    waits_for_ends,
)
from perdure.engine.workflow.continuing import prepare_continuation
from perdure.engine.workflow.coroutines import (
    drive_alone,
    refuse,
    refused_by_asyncio,
    send_or_throw,
)
from perdure.engine.workflow.ending import detach_steps, end_branch, end_run, end_workflow_at_once
from perdure.engine.workflow.fiber import Fiber
from perdure.engine.workflow.loop.current_task import cancelled_error
from perdure.engine.workflow.loop.event_loop import WorkflowLoop
from perdure.engine.workflow.signals import WorkflowSignals
from perdure.engine.workflow.turn_limit import MAX_REFUSALS, refuse_more
from perdure.engine.workflow.unawaited import Unawaited
from perdure.engine.workflow.upcasting import is_upcast
from perdure.engine.workflow.verbs import VerbMachine

# A fiber is asyncio's current task while it is driven.
_enter_task: Callable[[Any, Any], None] = asyncio.tasks._enter_task
_leave_task: Callable[[Any, Any], None] = asyncio.tasks._leave_task


class WorkflowMachine(VerbMachine):
    """One workflow's coroutines and promises. Implements `WorkflowContext` for the verbs."""

    __slots__ = (
        "_created", "_inherits", "_is_alone", "_is_waiting", "_refusals", "_settlements", "context", "current",
        "decisions", "fibers", "interrupted", "is_closed", "is_closing", "left", "loop", "ready", "signals", "workflow",
    )  # fmt: skip

    def __init__(
        self,
        workflow: Workflow[..., Any],
        info: Info,
        codec: Codec,
        sources: Sources,
        recorded: Sequence[e.Event] = (),
    ) -> None:
        super().__init__(workflow, info, codec, sources, recorded, partial(is_upcast, self))
        self.workflow = workflow
        self.signals = WorkflowSignals(self.record)
        self.context = Context()
        """The body's context. Variables that the body sets keep their values in its later turns and new branches."""
        self.context.run(WORKFLOW.set, self)
        self.loop = WorkflowLoop(self)  # type: ignore[abstract]
        self.fibers: dict[int, Fiber] = {}  # those that have not ended, by number
        self._created = 0
        self.ready: deque[Any] = deque()
        """Fibers to drive and callbacks of the loop, in the order in which they became ready."""
        self.current: Fiber | None = None
        self._inherits = 0
        """Facts inherited from the previous run of the chain and not fed yet; the body begins after them."""
        self._is_waiting = False
        self.interrupted: PayloadUnavailable | None = None
        """Set where a payload can't be read. asyncio may keep the exception as the outcome of a task."""
        self._is_alone = False
        self.is_closed = self.is_closing = False
        """Whether all coroutines are closed; whether verbs are refused, as in an abandoned generator too."""
        self.decisions = 0  # verbs called in this turn
        self._settlements = 0
        self._refusals = 0
        self.left: list[str] = []
        """Async generators that the program abandoned before their end, and that could not clean up."""
        self.unawaited = Unawaited()
        self._last_place = StepId("root")
        self._appended = {}

    # Facts

    def replay(self) -> None:
        """Feed the recorded facts. Raises `Diverged` where the program takes another path."""
        self._drive_alone(self._replay)

    def _replay(self) -> None:
        for event in self.record.facts(_FACTS):
            if self._learn(event):
                self._advance()
            if self.released:
                self._learn_released()
        self.record.forget()

    def feed(self, event: e.Event, *effects: RunEffect) -> None:
        """Add a fact with its effects, and drive the program until it waits again."""
        self.record.add(event, effects)
        if self._learn(event):
            self._drive_alone(self._advance)
        if self.released:
            self._drive_alone(self._learn_released)

    @property
    def home(self) -> str:
        return self.workflow.fn.__module__

    @property
    def is_replaying(self) -> bool:
        return self.record.is_replaying or self.is_closing

    def _learn(self, event: e.Event) -> bool:
        """Handle a fact. Returns whether a coroutine can resume."""
        if self._inherits:
            self._inherits -= 1
        if self.is_paused and isinstance(event, HELD):
            self._hold(event)
            return False
        _FACTS[type(event)](self, event)
        return bool(self.ready) and not self._inherits

    def feed_together(self, feed_all: Callable[[], None]) -> None:
        if self.loop.is_used:
            self._drive_alone(feed_all)
        else:
            feed_all()

    def _drive_alone(self, drive: Callable[[], None]) -> None:
        if self._is_alone:
            drive()
            return
        self._is_alone = True
        try:
            self.context.run(drive_alone, drive, self.loop, self._left)
        finally:
            self._is_alone = False
        if self.is_over:
            # They refer to this machine; a reference cycle would keep both in memory.
            self.context = Context()
            self.loop.release()

    def _place(self) -> str:
        """The program's current line, for error texts."""
        fiber = self.current or next(iter(self.fibers.values()), None)
        while fiber is not None and fiber.is_ours:
            fiber = None if fiber.promise is None else fiber.promise.owner
        where = f"{self.workflow.place} in {self.workflow.fn.__name__}"
        return where if fiber is None else fiber.line

    def _left(self, generator: AsyncGenerator[Any, Any]) -> None:
        """Close an async generator that the program abandoned. What it does in `finally` can't be durable any more."""
        is_closing, self.is_closing = self.is_closing, True
        try:
            generator.aclose().__await__().send(None)
            if not is_closing:
                self.left.append(getattr(generator, "__qualname__", "generator"))
        except Evicted:
            if not is_closing:
                self.left.append(getattr(generator, "__qualname__", "generator"))
        except BaseException:  # noqa: S110 - its errors can't affect the run any more
            pass
        finally:
            self.is_closing = is_closing

    def _on_started(self, event: e.ExecutionStarted) -> None:
        self.begin_as(event)
        coroutine: Coroutine[Any, Any, Any]
        try:
            args, kwargs = self.workflow.signature.unpack(self.codec, event.payload or b"{}")
            coroutine = self.workflow.fn(*args, **kwargs)
        except (PerdureError, TypeError) as error:
            coroutine = refuse(error)
        self.add_fiber(Fiber(self, coroutine, "root", 0))
        self._inherits = event.inherited

    def _on_completed(self, event: HeldOutcome) -> None:
        """A step ended, or an operator skipped it: then the program gets the operator's value."""
        promise = self.promises.get(event.promise_id)
        if promise is not None:
            promise.ok = isinstance(event, e.StepSkipped) or event.ok
            promise.payload = event.payload
            self.settle(promise)

    def _learn_released(self) -> None:
        """Give the program the outcomes that were held during a pause, one by one, as if each came now."""
        while self.released and not self.is_over:
            if self._learn(self.released.popleft()):
                self._advance()
        self.released.clear()

    def stop_at_once(self, event: e.SignalAccepted) -> None:
        end_workflow_at_once(self, event)

    def _on_fired(self, event: e.TimerFired) -> None:
        promise = self.promises.get(event.promise_id)
        if promise is not None:
            self.settle(promise)

    def _on_delivered(self, event: e.SignalDelivered) -> None:
        promise = self.signals.deliver(event)
        if promise is not None:
            self.settle(promise)

    def _on_cancel(self, event: e.CancelRequested) -> None:
        self._is_waiting = False
        if self.is_paused:
            # The program hears of the cancellation first, and of the outcomes only where it looks at them.
            for held in self._release():
                _FACTS[type(held)](self, held)
        # A task of asyncio is cancelled by what waits for it, or when the body has ended.
        fibers = [fiber for fiber in self.fibers.values() if type(fiber) is Fiber]
        cancel_fibers(self, fibers, event)
        if not self.ready and (self.loop.is_used or any(fiber.pending for fiber in fibers)):
            # All that the run waits for ends by itself, so it keeps waiting.
            self._block()

    def expect(self, promise: DurablePromise, name: str) -> None:
        """Settle the promise with a buffered or prefetched signal, or let it wait for one."""
        if self.signals.expect(promise, name) is not None:
            self.settle(promise)
        if self.prefetched is NO_MESSAGES and not self.record.is_replaying:
            return
        # Signals of other names may be ahead in the queue, and other promises may wait longer for this name.
        while not promise.is_settled and (event := next_prefetched_signal(self)) is not None:
            self._on_delivered(event)

    def next_delivery(self, name: str) -> int:
        return self.signals.next_delivery(name)

    # Driving

    def register(self, fiber: Fiber) -> None:
        """Number a fiber in the order of creation."""
        self._created += 1
        fiber.number = self._created
        self.fibers[fiber.number] = fiber

    def add_fiber(self, fiber: Fiber) -> None:
        self.register(fiber)
        self.ready.append(fiber)

    def _advance(self) -> None:
        self.decisions = 0
        is_used = self.loop.is_used
        if is_used:
            self._is_waiting = self.loop.begin_turn(is_waiting=self._is_waiting)
        elif self._is_waiting:
            self._is_waiting = False
            self.record.emit(e.ExecutionResumed())
        self._drive_ready()
        if is_used and self.loop.end_turn():
            self._is_waiting = True
        while not self.is_over and not self._is_waiting:
            self._block()
            if self.ready:
                self._drive_ready()

    def _drive_ready(self) -> None:
        ready, scopes = self.ready, self.loop.scopes
        item: Any
        try:
            while ready:
                item = ready.popleft()
                if type(item) is Fiber:
                    self.current = item
                    scopes.progress += 1
                    self._drive(item)
                else:
                    self.loop.run(item)
                if scopes.due:
                    scopes.deliver()
                if self.interrupted is not None:
                    raise self.interrupted
        finally:
            self.current = item = None  # see `WorkflowLoop._call`

    def _drive(self, fiber: Fiber) -> None:
        if fiber.ending is not None:
            self._finish(fiber, *fiber.ending)
            return
        thrown, fiber.thrown = fiber.thrown, None
        if fiber.future is not None or fiber.is_cancel_due:
            thrown = fiber.resumption(thrown)
        _enter_task(self.loop, fiber)
        try:
            if fiber.context is not None:
                wait = fiber.context.run(send_or_throw, fiber.coroutine, thrown)
            elif thrown is None:
                wait = fiber.coroutine.send(None)
            else:
                wait = fiber.coroutine.throw(thrown)
        except StopIteration as stop:
            self._finish(fiber, stop.value, None)
        except (Diverged, Evicted, PayloadUnavailable, KeyboardInterrupt):
            # Not an outcome of the program: raised by the engine, or by a user who ends the process.
            raise
        except BaseException as error:  # any other error is the coroutine's outcome, SystemExit too
            self._finish(fiber, None, refused_by_asyncio(self.workflow.name, error))
        else:
            self.suspend(fiber, wait)
        finally:
            _leave_task(self.loop, fiber)

    def suspend(self, fiber: Fiber, wait: object) -> None:
        """Let a coroutine wait. It becomes ready again when what it waits for has ended."""
        if type(wait) is not Suspension:
            self.loop.suspend(fiber, wait)
            return
        fiber.wait = wait
        self.loop.has_new_wait = True
        is_undisturbed = fiber.pending is None and not fiber.is_cancel_due
        if (
            is_undisturbed and len(wait.promises) == 1 and not wait.promises[0].is_settled
        ):  # as most are
            fiber.missing = 1
            wait.promises[0].waiters = (*wait.promises[0].waiters, (fiber, wait))
            return
        open_ones = [promise for promise in wait.promises if not promise.is_settled]
        fiber.missing = 1 if wait.kind is e.AwaitKind.ANY else len(open_ones)
        for promise in open_ones:
            promise.waiters = (*promise.waiters, (fiber, wait))
        if fiber.pending is not None and fiber.ending is None and not waits_for_ends(self, fiber):
            throw_cancelled(self, fiber)
        elif fiber.is_cancel_due and fiber.ending is None:
            fiber.is_cancel_due = False
            fiber.cancel_wait(cancelled_error(fiber.cancel_message))

    def give_up_wait(self, fiber: Fiber) -> None:
        """Abandon the steps that a coroutine waits for."""
        give_up_wait(self, fiber)

    def settle(self, promise: DurablePromise) -> None:
        """Close a promise that has its outcome, and make the coroutines ready that waited for it alone."""
        self.promises.pop(promise.step, None)
        promise.owner.open.pop(promise.step, None)
        self._settlements += 1
        promise.is_settled = True
        promise.is_running = False
        promise.settled_at = self._settlements
        waiters, promise.waiters = promise.waiters, ()
        for fiber, wait in waiters:
            if fiber.wait is wait:
                fiber.missing -= 1
                if not fiber.missing:
                    fiber.wait = None
                    self.ready.append(fiber)

    def _block(self) -> None:
        """Journal what the run waits for."""
        self._is_waiting = True
        waits = [fiber.wait for fiber in self.fibers.values() if fiber.wait is not None]
        if self.loop.is_used:
            waits += self.loop.waits()
        if len(waits) == 1 and waits[0].kind is e.AwaitKind.SINGLE:  # the usual case
            self.record.emit(e.ExecutionAwaiting((waits[0].promises[0].step,)))
        else:
            awaiting = await_of(waits)
            if awaiting.waiting_on:
                self.record.emit(awaiting)
            else:
                self._is_waiting = False
                self.loop.unblock()

    def _finish(self, fiber: Fiber, value: Any, error: BaseException | None) -> None:
        """Handle a coroutine that returned or raised. It ends when all steps that it began have ended."""
        fiber.ending = value, error
        left = [promise for promise in fiber.open.values() if not promise.is_detached]
        unended = abandon_promises(self, left)
        if unended:
            self.suspend(fiber, Suspension(unended, e.AwaitKind.ALL))
            return
        if fiber.promise is None and self.loop.is_used and not self.loop.end():
            return
        del self.fibers[fiber.number]
        fiber.context = None
        promise = fiber.promise
        if promise is None:
            detach_steps(self)
            self.is_over = True
            self.ready.clear()
            end_run(self, value, error)
            return
        end_branch(self, promise, value, error)

    def close(self) -> None:
        """Close the coroutines. Their `finally` blocks run, and every verb in them is refused."""
        self.is_closing = self.is_closed = True
        self.unawaited.disown()
        self.loop.close_tasks()
        # In a copy: a replay that ends the run at once has entered the context.
        self.context.copy().run(drive_alone, self._close_coroutines, self.loop, self._left)
        self.context = Context()
        self.loop.release()

    def _close_coroutines(self) -> None:
        for fiber in reversed(self.fibers.values()):
            fiber.close_coroutine()
        self.fibers.clear()
        self.ready.clear()

    # Interruptions

    def abandon(self, promises: Sequence[Promise]) -> tuple[Promise, ...]:
        self.require_current()
        return abandon_promises(self, [p for p in promises if isinstance(p, DurablePromise)])

    # Verbs

    def require_current(self) -> Fiber:
        """The coroutine that runs now; no other one may call verbs. Counts the call."""
        if self.is_closing:
            raise Evicted
        if self.current is None:
            raise ForeignAwait(
                f"a verb of workflow {self.workflow.name!r} is called outside the workflow's turn",
                "call it in the workflow, in a task of it, or in a callback of its event loop",
            )
        self.decisions += 1
        if self.decisions > MAX_DECISIONS:
            place = self._place() if self.current.is_ours else None
            refuse_more(self.workflow.name, self.decisions, place)
        return self.current

    def made(self, operation: DurableOperation[Any]) -> None:
        if self.current is not None and not self.is_closing:
            self.unawaited[id(operation)] = operation
        elif isinstance(operation, Call):
            # Made while the coroutine is closed, or in an asyncio task: `begin` refuses it.
            operation.is_used = True

    def begin(self, operation: DurableOperation[Any]) -> DurablePromise:
        if self.is_closing or self.record.diverged is not None:
            self._refusals += 1
            if self._refusals > MAX_REFUSALS:
                # The coroutine swallows every refusal. A promise that is never settled makes it stop.
                return DurablePromise(
                    self._last_place, PromiseKind.TIMER, operation, None, self.codec
                )
        try:
            fiber = self.require_current()
        except TurnTooLong:
            discard(operation)
            raise
        if fiber.pending is not None:
            pending, fiber.pending = fiber.pending, None
            self.used(operation)
            discard(operation)
            raise pending
        return begin_operation(self, fiber, operation)

    def promise(
        self, fiber: Fiber, kind: PromiseKind, operation: DurableOperation[Any]
    ) -> DurablePromise:
        """Open a promise under the fiber's next step id."""
        step = self._last_place = StepId(f"{fiber.prefix}.{fiber.next_seq}")
        fiber.next_seq += 1
        promise = DurablePromise(step, kind, operation, fiber, self.codec)
        self.promises[step] = fiber.open[step] = promise
        return promise

    def continue_as_new(self, call: Call[Any]) -> Continued:
        return prepare_continuation(self, self.require_current(), call)


_FACTS: Handlers = {
    **COMMON_FACTS,
    e.ExecutionStarted: WorkflowMachine._on_started,
    e.InvokeCompleted: WorkflowMachine._on_completed,
    e.TimerFired: WorkflowMachine._on_fired,
    e.SignalDelivered: WorkflowMachine._on_delivered,
    e.CancelRequested: WorkflowMachine._on_cancel,
    e.StepSkipped: WorkflowMachine._on_completed,
}
