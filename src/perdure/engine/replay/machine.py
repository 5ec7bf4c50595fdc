"""The machine that runs one workflow: facts go in, the program's decisions come out.

It does no I/O. A *fact* is an event that happened to the run: it started, a task ended, a timer fired, a signal
came, somebody cancelled. Fed with one, the machine drives the program's coroutines until each waits again; the
events that the program decided on are in its record.

Replay is the same thing: the facts of the journal are fed in their order, and each decision is compared with the
one that the journal holds at that place. So the program takes the same path, in the same order, or diverges.
"""

from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from contextvars import Context
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from perdure.authoring.call import Branch, Call, Operation, discard
from perdure.authoring.context import WORKFLOW, Info, Promise, Wait
from perdure.authoring.definition import Definition
from perdure.authoring.failures import encode_failure
from perdure.authoring.interruption import Cancelled, Continued, Evicted
from perdure.authoring.signal import Signal
from perdure.authoring.workflow import Workflow
from perdure.core.codec import Codec
from perdure.core.errors import ForeignAwait, PerdureError, StepCancelled, TurnTooLong
from perdure.core.ids import SetId, StepId
from perdure.core.journal import events as e
from perdure.core.limits import MAX_DECISIONS
from perdure.core.messages import Message
from perdure.core.replay.identity import signal_guid
from perdure.engine.machine import Handlers, RunMachine
from perdure.engine.replay.abandoning import abandon_leaf
from perdure.engine.replay.awaiting import await_of
from perdure.engine.replay.beginning import begin
from perdure.engine.replay.continuing import continuation
from perdure.engine.replay.coroutines import (
    drive_alone,
    foreign_await,
    refuse,
    refused_by_asyncio,
    send_or_throw,
    wait_for,
)
from perdure.engine.replay.effects import AppendChunk, Effect, Enqueue, Publish
from perdure.engine.replay.ending import end
from perdure.engine.replay.endless import refuse_more
from perdure.engine.replay.fiber import Fiber
from perdure.engine.replay.mail import next_at_hand
from perdure.engine.replay.promise import DurablePromise, Place
from perdure.engine.replay.record import Diverged
from perdure.engine.replay.signals import Signals
from perdure.engine.replay.unawaited import Unawaited
from perdure.engine.replay.upcasting import is_upcast
from perdure.engine.sources import Sources

PATIENCE = 100
"""How many verbs a coroutine may call while it is closed or unwound, each of which refuses."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Machine(RunMachine):
    """One workflow's coroutines and promises. Implements `WorkflowContext` for the verbs."""

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
        self.signals = Signals(self.record)
        self._context = Context()
        """The body's own: what it sets is there in its next turn, and in branches that it begins then."""
        self._context.run(WORKFLOW.set, self)
        self._fibers: dict[Fiber, None] = {}
        self._ready: deque[Fiber] = deque()
        self._current: Fiber | None = None
        self._inherits = 0
        """Facts of the run before that are still to come; the body begins after them."""
        self._is_waiting = False
        self._is_closing = False
        self._decisions = 0
        """How many verbs this turn has called."""
        self._settlements = 0
        self._refusals = 0
        self.left: list[str] = []
        """Async generators that were left before their end, and could not clean up."""
        self.unawaited = Unawaited()
        self._last_place = StepId("root")
        self._appended: dict[str, int] = {}
        """How many chunks the workflow itself has appended to each stream."""

    # Facts

    def replay(self) -> None:
        """Feed the recorded facts. Raises `Diverged` where the program takes another path."""
        self._drive_alone(self._replay)

    def _replay(self) -> None:
        for event in self.record.facts(_FACTS):
            if self._learn(event):
                self._advance()
        self.record.forget()

    def feed(self, event: e.Event, *effects: Effect) -> None:
        """Take a fact in, and drive the program until it waits again."""
        self.record.add(event, effects)
        if self._learn(event):
            self._drive_alone(self._advance)

    @property
    def is_replaying(self) -> bool:
        return self.record.is_replaying or self._is_closing

    def _learn(self, event: e.Event) -> bool:
        """Whether the program can go on, now that this is known."""
        if self._inherits:
            self._inherits -= 1
        _FACTS[type(event)](self, event)
        return bool(self._ready) and not self._inherits

    def _drive_alone(self, drive: Callable[[], None]) -> None:
        self._context.run(drive_alone, drive, self._left)
        if self.is_over:
            # It holds on to this machine, and must not keep it in memory.
            self._context = Context()

    def _place(self) -> str:
        """Where the program is, for people."""
        fiber = self._current or next(iter(self._fibers), None)
        while fiber is not None and fiber.is_ours:
            fiber = None if fiber.promise is None else fiber.promise.owner
        where = f"{self.workflow.place} in {self.workflow.fn.__name__}"
        return where if fiber is None else fiber.line

    def _left(self, generator: AsyncGenerator[Any, Any]) -> None:
        """An async generator of the program's is gone. What it does in `finally` can't be durable any more."""
        is_closing, self._is_closing = self._is_closing, True
        try:
            generator.aclose().__await__().send(None)
        except Evicted:
            if not is_closing:
                self.left.append(getattr(generator, "__qualname__", "generator"))
        except BaseException:  # noqa: S110 - it has nothing durable to say, or has said it
            pass
        finally:
            self._is_closing = is_closing

    def _on_started(self, event: e.ExecutionStarted) -> None:
        self.parent = event.parent_id
        coroutine: Coroutine[Any, Any, Any]
        try:
            args, kwargs = self.workflow.signature.unpack(self.codec, event.payload or b"{}")
            coroutine = self.workflow.fn(*args, **kwargs)
        except (PerdureError, TypeError) as error:
            coroutine = refuse(error)
        self.add_fiber(Fiber(coroutine, "root", 0))
        self._inherits = event.inherited

    def _on_completed(self, event: e.InvokeCompleted) -> None:
        promise = self.promises.get(event.promise_id)
        if promise is not None:
            promise.ok = event.ok
            promise.payload = event.payload
            self.settle(promise)

    def _on_fired(self, event: e.TimerFired) -> None:
        promise = self.promises.get(event.promise_id)
        if promise is not None:
            self.settle(promise)

    def _on_delivered(self, event: e.SignalDelivered) -> None:
        promise = self.signals.deliver(event)
        if promise is not None:
            self.settle(promise)

    def _on_cancel(self, event: e.CancelRequested) -> None:
        self.cancel_reason = event.reason
        self._is_waiting = False
        # What is being cleaned up already goes on undisturbed.
        disturbed = dict.fromkeys(each for each in self._fibers if not each.is_cleaning_up)
        for fiber in disturbed:
            self._interrupt(fiber)
        for promise in list(self.promises.values()):
            if promise.place is not Place.BRANCH and promise.owner in disturbed:
                abandon_leaf(self, promise)

    def expect(self, promise: DurablePromise, name: str) -> None:
        """Settle it with a signal that is kept, or is delivered on asking; or let it wait for one."""
        if self.signals.expect(promise, name) is not None:
            self.settle(promise)
        # Others may come first: signals of other names, or for those that wait longer for this one.
        while not promise.is_settled and (event := next_at_hand(self)) is not None:
            self._on_delivered(event)

    def next_delivery(self, name: str) -> int:
        return self.signals.next_delivery(name)

    # Driving

    def add_fiber(self, fiber: Fiber) -> None:
        self._fibers[fiber] = None
        self._ready.append(fiber)

    def _advance(self) -> None:
        self._decisions = 0
        if self._is_waiting:
            self._is_waiting = False
            self.record.emit(e.ExecutionResumed())
        while self._ready:
            fiber = self._ready.popleft()
            self._current = fiber
            try:
                self._drive(fiber)
            finally:
                self._current = None
        if not self.is_over:
            self._block()

    def _drive(self, fiber: Fiber) -> None:
        if fiber.ending is not None:
            self._finish(fiber, *fiber.ending)
            return
        thrown, fiber.thrown = fiber.thrown, None
        try:
            if fiber.context is not None:
                wait = fiber.context.run(send_or_throw, fiber.coroutine, thrown)
            elif thrown is None:
                wait = fiber.coroutine.send(None)
            else:
                wait = fiber.coroutine.throw(thrown)
        except StopIteration as stop:
            self._finish(fiber, stop.value, None)
        except (Diverged, Evicted, KeyboardInterrupt):
            # Not the program's word: the engine's, or somebody's who wants the process to end.
            raise
        except BaseException as error:  # the program's failure is its outcome, and so is its exit
            self._finish(fiber, None, refused_by_asyncio(self.workflow.name, error))
        else:
            self._suspend(fiber, wait)

    def _suspend(self, fiber: Fiber, wait: object) -> None:
        if type(wait) is not Wait:
            fiber.thrown = foreign_await(self.workflow.name, fiber.line, wait)
            self._ready.appendleft(fiber)
            return
        fiber.wait = wait
        if len(wait.promises) == 1 and not wait.promises[0].is_settled:  # as most are
            fiber.missing = 1
            wait.promises[0].waiters = (*wait.promises[0].waiters, (fiber, wait))
            return
        open_ones = [promise for promise in wait.promises if not promise.is_settled]
        fiber.missing = 1 if wait.kind is e.AwaitKind.ANY else len(open_ones)
        for promise in open_ones:
            promise.waiters = (*promise.waiters, (fiber, wait))

    def settle(self, promise: DurablePromise) -> None:
        """The promise has its outcome; whoever waited for it may go on."""
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
                    self._ready.append(fiber)

    def _block(self) -> None:
        """Journal what the run waits for."""
        self._is_waiting = True
        waits = [fiber.wait for fiber in self._fibers if fiber.wait is not None]
        self.record.emit(await_of(waits))

    def _finish(self, fiber: Fiber, value: Any, error: BaseException | None) -> None:
        """A coroutine is over. It ends when nothing that it began is left."""
        fiber.ending = value, error
        left = [promise for promise in fiber.open.values() if not promise.is_detached]
        branches = self._abandon(left)
        if branches:
            self._suspend(fiber, Wait(branches, e.AwaitKind.ALL))
            return
        del self._fibers[fiber]
        fiber.context = None
        promise = fiber.promise
        if promise is None:
            for step in self.promises:
                self.record.emit(e.StepSkipped(step, "detached", 1))
            self.promises.clear()
            self.is_over = True
            end(self, value, error)
            return
        payload = None if error is None else encode_failure(self.codec, error)
        self.record.emit(e.InvokeCompleted(promise.step, 1, error is None, payload=payload))
        if isinstance(error, Cancelled):
            error = StepCancelled(f"branch {promise.step} was cancelled", "it has no result")
        promise.value, promise.failure = value, error
        self.settle(promise)

    def close(self) -> None:
        """Take the coroutines out of memory. Their `finally` runs, and every verb in it does nothing."""
        self._is_closing = True
        self.unawaited.disown()
        self._context.run(drive_alone, self._close_coroutines, self._left)
        self._context = Context()

    def _close_coroutines(self) -> None:
        for fiber in reversed(self._fibers):
            fiber.close_coroutine()

    # Interruptions

    def abandon(self, promises: Sequence[Promise]) -> tuple[Promise, ...]:
        self._turn()
        return self._abandon([p for p in promises if isinstance(p, DurablePromise)])

    def _abandon(self, promises: Sequence[DurablePromise]) -> tuple[Promise, ...]:
        branches = []
        for promise in promises:
            if promise.is_settled:
                continue
            if promise.place is Place.BRANCH:
                self._interrupt(promise.fiber)
                branches.append(promise)
            else:
                abandon_leaf(self, promise)
        return tuple(branches)

    def _interrupt(self, fiber: Fiber) -> None:
        """Throw `Cancelled` into a coroutine, once what it waits for has let go. Once only."""
        if fiber.is_interrupted or fiber.ending is not None:
            return
        fiber.is_interrupted = True
        fiber.thrown = Cancelled(self.cancel_reason or "")
        if fiber.wait is not None:
            open_ones = [promise for promise in fiber.wait.promises if not promise.is_settled]
            fiber.missing = len(open_ones)
            self._abandon(open_ones)

    # Verbs

    def _turn(self) -> Fiber:
        """The coroutine that is being driven, and so may decide."""
        if self._is_closing:
            raise Evicted
        if self._current is None:
            raise ForeignAwait(
                f"a verb of workflow {self.workflow.name!r} is used outside its turn",
                "use perdure.gather, perdure.first or perdure.join_set in place of asyncio's",
            )
        self._decisions += 1
        if self._decisions > MAX_DECISIONS:
            place = self._place() if self._current.is_ours else None
            refuse_more(self.workflow.name, self._decisions, place)
        return self._current

    def _take_place(self) -> StepId:
        self._last_place = self._turn().take_place()
        return self._last_place

    def made(self, operation: Operation[Any]) -> None:
        if self._current is not None and not self._is_closing:
            self.unawaited[id(operation)] = operation
        elif isinstance(operation, Call):
            # Made while the coroutine is closed, or in a task of asyncio's: it will be refused.
            operation.is_used = True

    def used(self, operation: Operation[Any]) -> None:
        self.unawaited.pop(id(operation), None)

    def use(self, call: Call[Any]) -> Definition[..., Any]:
        """The call is begun: it is not forgotten any more."""
        self.unawaited.pop(id(call), None)
        call.use()
        return call.definition

    def begin(self, operation: Operation[Any]) -> DurablePromise:
        if self._is_closing or self.record.diverged is not None:
            self._refusals += 1
            if self._refusals > PATIENCE:
                # It swallows whatever it is told. To wait for ever makes it stop.
                return DurablePromise(self._last_place, Place.TIMER, operation, None, self.codec)
        try:
            fiber = self._turn()
        except TurnTooLong:
            discard(operation)
            raise
        return begin(self, fiber, operation)

    def promise(self, fiber: Fiber, place: Place, operation: Operation[Any]) -> DurablePromise:
        """An open promise at the fiber's next place."""
        step = self._last_place = fiber.take_place()
        promise = DurablePromise(step, place, operation, fiber, self.codec)
        self.promises[step] = fiber.open[step] = promise
        return promise

    def now(self) -> datetime:
        step = self._take_place()
        event = self.record.emit(e.TimeRecorded(step, self.sources.now_ms() * 1000))
        return _EPOCH + timedelta(microseconds=event.time_us)

    def draw(self) -> int:
        step = self._take_place()
        value = 0
        if not self.record.is_replaying:
            value = int.from_bytes(self.sources.entropy(8), "big") >> 1
        event: e.RandomGenerated = self.record.emit(e.RandomGenerated(step, value))
        return event.value

    def patched(self, patch: str) -> bool:
        self._turn()
        return self.patches.follows(patch)

    def last_place(self) -> StepId:
        return self._last_place

    def publish(self, name: str, value: object) -> None:
        self._turn()
        self.record.attach(Publish(name, self.codec.encode(value)))

    def append(self, name: str, value: object) -> None:
        self._turn()
        payload = self.codec.encode(value)
        number = self._appended.get(name, 0)
        self._appended[name] = number + 1
        self.record.attach(AppendChunk(name, number, payload))

    def create_set(self) -> SetId:
        set_id = SetId(self._take_place())
        self.record.emit(e.JoinSetCreated(set_id))
        return set_id

    def submit(self, set_id: SetId, operation: Operation[Any]) -> DurablePromise:
        if not isinstance(operation, Call | Branch):
            self.unawaited.pop(id(operation), None)
            operation = Branch(wait_for(operation))
        promise = self.begin(operation)
        self.record.emit(e.JoinSetSubmitted(set_id, promise.step))
        return promise

    def consume(self, set_id: SetId, promise: Promise) -> None:
        self._turn()
        self.record.emit(e.JoinSetAwaited(set_id, promise.step))

    def start_child(self, call: Call[Any]) -> DurablePromise:
        promise = self.begin(call)
        promise.is_detached = True
        return promise

    def continue_as_new(self, call: Call[Any]) -> Continued:
        return continuation(self, self._turn(), call)

    def signal_child(self, promise: Promise, signal: Signal[Any], value: object) -> None:
        child = promise.child_run
        assert child is not None  # noqa: S101 - for the type checker
        payload = signal.encode(self.codec, value)
        guid = signal_guid(child, signal.name, f"{self.info.run_id}/{self._take_place()}")
        now = self.sources.now_ms()
        kind, arrival = f"signal:{signal.name}", self.arrival()
        message = Message(child, guid, kind, now, arrival, payload=payload)
        self.record.attach(Enqueue(message))


_FACTS: Handlers = {
    e.ExecutionStarted: Machine._on_started,
    e.InvokeStarted: Machine.on_invoke_started,
    e.InvokeRetrying: Machine.on_retrying,
    e.InvokeCompleted: Machine._on_completed,
    e.TimerFired: Machine._on_fired,
    e.SignalDelivered: Machine._on_delivered,
    e.CancelRequested: Machine._on_cancel,
    e.Posted: Machine.on_posted,
    e.RunApproved: Machine.ignore,
    e.RunPaused: Machine.ignore,
    e.RunResumed: Machine.ignore,
    e.SignalAccepted: Machine.ignore,
    e.SignalRejected: Machine.ignore,
}
