"""Bodies: the tasks that this host executes now, each in a slot.

A body starts only when its slot is reserved and its intent is durable. What it returns or raises becomes an
outcome; what it does in between is its own affair.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextvars import copy_context
from functools import partial
from threading import get_ident
from typing import TYPE_CHECKING, Any, NamedTuple

from perdure.authoring.context import TASK, Info
from perdure.authoring.failures import encode_failure
from perdure.authoring.task import Task
from perdure.core.codec import Codec
from perdure.core.ids import RunId, StepId
from perdure.core.replay.identity import idempotency_text
from perdure.engine.replay.facts import Outcome
from perdure.host.threads import Threads

if TYPE_CHECKING:
    from perdure.host.streaming import ChunkWriter

Group = tuple[RunId, bool]
"""The bodies of one run, apart from those that this host claimed from a queue."""

Done = Callable[[Outcome], Awaitable[object]]
PublishFrom = Callable[[RunId, str, bytes], None]


class Order(NamedTuple):
    """One attempt to execute."""

    info: Info
    task: Task[..., Any]
    payload: bytes
    is_claimed: bool = False
    """From a queue: whoever owns the run does not own this body."""
    claim: int = 1
    """Which claim of that work it is."""

    @property
    def group(self) -> Group:
        return self.info.run_id, self.is_claimed


class BodyContext:
    """What a running task can ask for. Implements `TaskContext`."""

    def __init__(
        self, info: Info, bodies: "Bodies", beat: Callable[[], None], chunks: "ChunkWriter"
    ) -> None:
        self.info = info
        self._bodies = bodies
        self._beat = beat
        self._chunks = chunks
        self._children = 0

    @property
    def key(self) -> str:
        return idempotency_text(self.info.run_id, self.info.step)

    def nested(self) -> "BodyContext":
        step = StepId(f"{self.info.step}.{self._children}")
        self._children += 1
        info = self.info
        below = Info(info.run_id, info.program, info.version, info.key, step, info.attempt)
        return BodyContext(below, self._bodies, self._beat, self._chunks)

    def heartbeat(self) -> None:
        self._beat()

    def publish(self, name: str, value: object) -> None:
        self._bodies.publish(self.info.run_id, name, value)

    def append(self, name: str, value: object) -> None:
        self._chunks.append(name, value)

    def flush(self) -> Awaitable[None]:
        return self._chunks.flush()


class Bodies:
    """Slots for async bodies and for threads, and what runs in them."""

    def __init__(self, codec: Codec, concurrency: int, threads: int, publish: PublishFrom) -> None:
        self._loop = asyncio.get_running_loop()
        self._thread = get_ident()
        self._context = copy_context()
        self._codec = codec
        self._publish = publish
        self._free = {True: concurrency, False: threads}
        self._threads = Threads(threads)
        self._running: dict[Group, dict[StepId, asyncio.Task[None]]] = {}
        self._attempts: dict[tuple[Group, StepId], int] = {}
        """The attempt of each step that runs here, or whose outcome is on its way."""
        self.tasks: set[asyncio.Task[None]] = set()
        """Every body that lives, and every outcome that is on its way."""
        self._is_open = True
        self._is_closed = False
        self.on_free: Callable[[bool], None] = lambda _: None
        """Called when a slot is free again, with whether it is one for async bodies."""
        self.published: Callable[[RunId], Awaitable[Any] | None] = lambda _: None
        """What to wait for until all that a run's bodies have published is durable, if anything is on its way."""
        self.on_failure: Callable[[BaseException], None] = lambda _: None
        """Called with what reporting an outcome raised."""
        self.chunks_of: Callable[[Order], ChunkWriter]
        """Where a body's chunks go."""

    def reserve(self, task: Task[..., Any]) -> bool:
        """Take a slot for a body of `task`, if there is one."""
        if not self._is_open or not self._free[task.is_async]:
            return False
        self._free[task.is_async] -= 1
        return True

    def has_slot(self, is_async: bool) -> bool:
        return self._is_open and self._free[is_async] > 0

    def free_slots(self) -> int:
        """How many bodies of either kind could start now."""
        return min(self._free.values()) if self._is_open else 0

    def give_back(self, task: Task[..., Any]) -> None:
        self._free[task.is_async] += 1
        self.on_free(task.is_async)

    def is_running(self, run_id: RunId, step: StepId, attempt: int) -> bool:
        """Whether that attempt, of a run that this host owns, runs here, or its outcome is on its way."""
        return self._attempts.get(((run_id, False), step)) == attempt

    def start(self, order: Order, done: Done) -> None:
        """Execute the order in its reserved slot, then hand the outcome to `done`."""
        if self._is_closed:
            # Its intent became durable too late: whoever has the run next begins it.
            return
        slot, info = Slot(self, order), order.info
        # Not in the context of whoever starts it: what one body sets there is not the next one's.
        context = self._context.copy()
        body = self._loop.create_task(self._live(order, slot, done), context=context)
        self.tasks.add(body)
        # With a context, because asyncio would make a copy of one for it.
        body.add_done_callback(slot.end_of_task, context=context)
        group, step = order.group, order.info.step
        # An earlier attempt may run yet, if the run was lost and came back.
        self.cancel(info.run_id, step, is_claimed=order.is_claimed)
        self._running.setdefault(group, {})[step] = body
        self._attempts[group, step] = info.attempt

    def cancel(self, run_id: RunId, step: StepId, *, is_claimed: bool = False) -> None:
        """Stop one body; its outcome is not wanted. One that is reporting is let go on."""
        group = run_id, is_claimed
        body = self._running.get(group, {}).get(step)
        if body is not None:
            self._forget(group, step)
            self._attempts.pop((group, step), None)
            body.cancel()

    def cancel_run(self, run_id: RunId) -> None:
        for step in list(self._running.get((run_id, False), ())):
            self.cancel(run_id, step)

    def cancel_all(self) -> None:
        for (run_id, is_claimed), steps in list(self._running.items()):
            for step in list(steps):
                self.cancel(run_id, step, is_claimed=is_claimed)

    def drain(self) -> None:
        """Give out no more slots; what has one goes on."""
        self._is_open = False

    def close(self) -> None:
        """Stop what runs."""
        self._is_open = False
        self._is_closed = True
        self.cancel_all()
        self._threads.close()

    def publish(self, run_id: RunId, name: str, value: object) -> None:
        """From whichever thread the body runs in."""
        payload = self._codec.encode(value)
        if get_ident() == self._thread:
            self._publish(run_id, name, payload)
        else:
            self._loop.call_soon_threadsafe(self._publish, run_id, name, payload)

    async def _live(self, order: Order, slot: "Slot", done: Done) -> None:
        group, step = order.group, order.info.step
        outcome = await self._outcome(order, slot)
        self._forget(group, step)
        try:
            # Whoever sees the outcome sees what was published before it.
            if (published := self.published(order.info.run_id)) is not None:
                await published
            if slot.chunks.end():
                outcome = await slot.chunks.settle(outcome)
            await done(outcome)
        finally:
            if self._attempts.get((group, step)) == order.info.attempt:
                del self._attempts[group, step]

    def bury(self, body: asyncio.Task[None]) -> None:
        """The task of a body is over: it has reported, or was cancelled."""
        self.tasks.discard(body)
        if not body.cancelled() and (error := body.exception()) is not None:
            self.on_failure(error)

    def _forget(self, group: Group, step: StepId) -> None:
        steps = self._running.get(group, {})
        steps.pop(step, None)
        if not steps:
            self._running.pop(group, None)

    async def _outcome(self, order: Order, slot: "Slot") -> Outcome:
        try:
            task = order.task
            if task.timeout_ms is None and task.heartbeat_timeout_ms is None:
                result = await self._call(order, slot, _no_beat)
            else:
                result = await self._limited(order, slot)
            payload = self._codec.encode(result)
        except asyncio.CancelledError as error:
            body = asyncio.current_task()
            if body is None or body.cancelling():
                raise
            # Nobody cancelled it: the body raised this itself.
            return Outcome(False, encode_failure(self._codec, error))
        except (KeyboardInterrupt, SystemExit):
            # Not the body's doing, or meant for the whole process.
            raise
        except BaseException as error:  # whatever else a body raises is its outcome
            failure = encode_failure(self._codec, error)
            return Outcome(False, failure, order.task.retry.covers(error))
        finally:
            slot.end_of_body()
        return Outcome(True, payload)

    async def _limited(self, order: Order, slot: "Slot") -> Any:
        """Run the function within its timeouts."""
        task, info = order.task, order.info
        total_s = None if task.timeout_ms is None else task.timeout_ms / 1000
        silence_s = None if task.heartbeat_timeout_ms is None else task.heartbeat_timeout_ms / 1000
        total, silence = asyncio.timeout(total_s), asyncio.timeout(silence_s)

        def beat() -> None:
            if silence_s is not None:
                self._loop.call_soon_threadsafe(_extend, silence, silence_s)

        try:
            async with total, silence:
                return await self._call(order, slot, beat)
        except TimeoutError:
            if total.expired():
                what = f"took longer than {total_s:g} s"
            elif silence.expired():
                what = f"gave no heartbeat for {silence_s:g} s"
            else:
                raise
            raise TimeoutError(f"attempt {info.attempt} of task {task.name!r} {what}") from None

    async def _call(self, order: Order, slot: "Slot", beat: Callable[[], None]) -> Any:
        task = order.task
        TASK.set(BodyContext(order.info, self, beat, slot.chunks))
        args, kwargs = task.signature.unpack(self._codec, order.payload)
        if task.is_async:
            return await task.fn(*args, **kwargs)
        inside = partial(copy_context().run, _contained, partial(task.fn, *args, **kwargs))
        thread = self._threads.submit(inside)
        slot.hold_for(thread)
        # Shielded: a thread goes on when its body is cancelled, and so does its hold on the slot.
        result, error = await asyncio.shield(thread)
        if isinstance(error, KeyboardInterrupt | SystemExit):
            # A thread can neither be interrupted nor end the process: it raised this by itself.
            raise RuntimeError(f"the task raised {error!r}") from error  # noqa: TRY004 - it is no type
        if error is not None:
            raise error
        return result


class Slot:
    """A reserved place for one body. A thread can't be stopped: it keeps its slot until it returns."""

    __slots__ = ("_bodies", "_is_held", "_task", "_thread", "chunks")

    def __init__(self, bodies: Bodies, order: Order) -> None:
        self._bodies = bodies
        self._task = order.task
        self.chunks = bodies.chunks_of(order)
        self._is_held = True
        self._thread: asyncio.Future[Any] | None = None

    def hold_for(self, thread: asyncio.Future[Any]) -> None:
        self._thread = thread
        thread.add_done_callback(self._release)

    def end_of_body(self) -> None:
        if self._thread is None:
            self._release()

    def end_of_task(self, body: asyncio.Task[None]) -> None:
        # A body that is cancelled before its first instruction gives its slot back here.
        self.end_of_body()
        self.chunks.close()
        self._bodies.bury(body)

    def _release(self, _: object = None) -> None:
        if self._is_held:
            self._is_held = False
            self._bodies.give_back(self._task)


def _no_beat() -> None:
    """Nobody listens."""


def _contained(call: Callable[[], Any]) -> tuple[Any, BaseException | None]:
    """What a call returns or raises, as a value: a future can't carry every exception."""
    try:
        return call(), None
    except BaseException as error:  # raised again where the body is awaited
        return None, error


def _extend(silence: asyncio.Timeout, silence_s: float) -> None:
    if not silence.expired():
        try:
            silence.reschedule(asyncio.get_running_loop().time() + silence_s)
        except RuntimeError:
            # The body ended between its last heartbeat and now.
            return
