"""Bodies: the tasks that this host executes now, each in a slot.

A body starts only when its slot is reserved and its intent is durable. What it returns or raises becomes an
outcome; what it does in between is its own affair.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextvars import copy_context
from functools import partial
from threading import get_ident
from typing import Any

from perdure.authoring.context import TASK
from perdure.authoring.failures import encode_failure
from perdure.authoring.signature import Arguments
from perdure.authoring.task import Task
from perdure.core.codec import Codec
from perdure.core.errors import NotDone
from perdure.core.ids import RunId, StepId
from perdure.engine.replay.facts import Outcome
from perdure.host.body import Body, Chunks, Group
from perdure.host.gate import Gate
from perdure.host.threads import Threads
from perdure.host.timed import TimedCall

PublishFrom = Callable[[Body, str, bytes], None]


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
        self._bodies: dict[Group, dict[StepId, Body]] = {}
        """Those that run here, or whose outcome is on its way."""
        self.tasks: set[asyncio.Task[None]] = set()
        """Every body that lives, and every outcome that is on its way."""
        self.stopped: list[Body] = []
        """Those of this host's own runs that it has ended, or not begun, because it stops."""
        self.stopped_claims: list[Body] = []
        """Those from queues that it has ended."""
        self._is_open = True
        self._is_closed = False
        self.on_free: Callable[[bool], None] = lambda _: None
        """Called when a slot is free again, with whether it is one for async bodies."""
        self.published: Callable[[RunId], Awaitable[Any] | None] = lambda _: None
        """What to wait for until all that a run's bodies have published is durable, if anything is on its way."""
        self.transact: Callable[[Body], Awaitable[Outcome | None]] = self.outcome
        """Executes a transactional body and commits its success; what it returns is still to be reported."""
        self.on_failure: Callable[[BaseException], None] = lambda _: None
        """Called with what reporting an outcome raised."""
        self.chunks_of: Callable[[Body], Chunks]
        """Where a body's chunks go."""
        self.gate: Gate | None = None
        """Where bodies wait until they may begin; `None` if they always may."""

    def reserve(self, task: Task[..., Any]) -> bool:
        """Take a slot for a body of `task`, if there is one."""
        if not self._is_open or not self._free[task.is_async]:
            return False
        self._free[task.is_async] -= 1
        return True

    @property
    def is_open(self) -> bool:
        """Whether slots are given out at all."""
        return self._is_open

    def has_slot(self, is_async: bool) -> bool:
        return self._is_open and self._free[is_async] > 0

    def free_slots(self) -> int:
        """How many bodies of either kind could start now."""
        may_begin = self._is_open and (self.gate is None or self.gate.is_open)
        return min(self._free.values()) if may_begin else 0

    @property
    def runs(self) -> list[RunId]:
        """The runs of this host that have bodies here."""
        return [run_id for run_id, is_claimed in self._bodies if not is_claimed]

    def give_back(self, task: Task[..., Any]) -> None:
        self._free[task.is_async] += 1
        self.on_free(task.is_async)

    def find(self, run_id: RunId, step: StepId, *, is_claimed: bool = False) -> Body | None:
        """What runs here of a step, of a run that this host owns or from a queue, or has its outcome on its way."""
        return self._bodies.get((run_id, is_claimed), {}).get(step)

    def start(self, body: Body) -> None:
        """Execute the body in its reserved slot, then let it report its outcome."""
        group, step = body.group, body.info.step
        if self._is_closed:
            # Its intent became durable too late: whoever has the run next begins it.
            self.stopped.append(body)
            self._bodies.setdefault(group, {})[step] = body
            return
        if step in self._bodies.get(group, ()):
            # An earlier attempt may run yet, if the run was lost and came back.
            self.cancel(body.info.run_id, step, is_claimed=body.is_claimed)
        body.home = self
        # Not in the context of whoever starts it: what one body sets there is not the next one's.
        body.life = self._loop.create_task(self._live(body), context=self._context.copy())
        self.tasks.add(body.life)
        self._bodies.setdefault(group, {})[step] = body

    def cancel(self, run_id: RunId, step: StepId, *, is_claimed: bool = False) -> None:
        """Stop one body; its outcome is not wanted. One that is reporting is let go on."""
        body = self._bodies.get((run_id, is_claimed), {}).get(step)
        if body is not None and body.life is not None and not body.is_reporting:
            self.forget(body)
            self._interrupt(body)

    def _interrupt(self, body: Body) -> None:
        if body.life is not None:
            body.life.cancel()
            if not body.has_begun:
                # It never will, and so can't clear up after itself.
                self._end(body)

    def cancel_run(self, run_id: RunId) -> None:
        for step in list(self._bodies.get((run_id, False), ())):
            self.cancel(run_id, step)

    def drain(self) -> None:
        """Give out no more slots; what has one goes on."""
        self._is_open = False

    def close(self) -> None:
        """Stop what runs."""
        self._is_open = False
        self._is_closed = True
        for (run_id, is_claimed), steps in list(self._bodies.items()):
            for step, body in list(steps.items()):
                if is_claimed:
                    if body.life is not None and not body.is_reporting:
                        self.stopped_claims.append(body)
                    self.cancel(run_id, step, is_claimed=True)
                elif body.life is not None and not body.is_reporting:
                    # Not forgotten: while it is here, it is not in doubt.
                    self.stopped.append(body)
                    self._interrupt(body)
        self._threads.close()

    def publish(self, body: Body, name: str, value: object) -> None:
        """From whichever thread the body runs in."""
        payload = self._codec.encode(value)
        if get_ident() == self._thread:
            self._publish(body, name, payload)
        else:
            self._loop.call_soon_threadsafe(self._publish_from_thread, body, name, payload)

    def _publish_from_thread(self, body: Body, name: str, payload: bytes) -> None:
        if not body.is_over:
            self._publish(body, name, payload)

    def forget(self, body: Body) -> None:
        """Nobody waits for the body's outcome any more: its run has it, or does not want it."""
        group, step = body.group, body.info.step
        steps = self._bodies.get(group)
        if steps is not None and steps.get(step) is body:
            del steps[step]
            if not steps:
                del self._bodies[group]

    async def _live(self, body: Body) -> None:
        body.has_begun = True
        try:
            if self.gate is not None and not self.gate.is_open:
                await self.gate.wait()
            if not body.task.is_transactional:
                outcome = await self.outcome(body)
            elif (failure := await self._transact(body)) is not None:
                outcome = failure
            else:
                return
            body.is_reporting = True
            # Whoever sees the outcome sees what was published before it.
            if (published := self.published(body.info.run_id)) is not None:
                await published
            if body.chunks is not None and body.chunks.end():
                outcome = await body.chunks.settle(outcome)
            if (report := body.report(body, outcome)) is not None:
                await report
        except Exception as error:  # nobody waits for this task
            self.on_failure(error)
        finally:
            self._end(body)

    async def _transact(self, body: Body) -> Outcome | None:
        """What is left to report, if anything."""
        failure = None
        try:
            failure = await self.transact(body)
        finally:
            if failure is None:
                self.forget(body)
        return failure

    def _end(self, body: Body) -> None:
        if body.has_slot and not body.is_occupied:
            self._release(body)
        if body.chunks is not None:
            body.chunks.close()
        if body.life is not None:
            self.tasks.discard(body.life)
            body.life = None

    def _release(self, body: Body) -> None:
        if body.has_slot:
            body.has_slot = False
            self.give_back(body.task)

    def _left_thread(self, body: Body, _: object) -> None:
        body.thread = None
        self._left(body)

    def _left_call(self, body: Body, call: asyncio.Task[Any]) -> None:
        if body.call is call:
            body.call = None
            self._left(body)

    def _left(self, body: Body) -> None:
        if body.has_ended:
            # Nobody waited for it any more.
            self._release(body)

    async def outcome(self, body: Body) -> Outcome:
        """Execute the body, and do nothing about what comes of it."""
        task = body.task
        try:
            if task.timeout_ms is None and task.heartbeat_timeout_ms is None:
                result = await self._call(body)
            else:
                result = await self._limited(body)
            return Outcome(True, task.pack_result(self._codec, result), False, body.is_reconciled)
        except asyncio.CancelledError as error:
            life = asyncio.current_task()
            if life is None or life.cancelling():
                raise
            # Nobody cancelled it: the body raised this itself.
            return Outcome(False, encode_failure(self._codec, error))
        except KeyboardInterrupt:
            # Not the body's doing: somebody wants the process to end.
            raise
        except BaseException as error:  # whatever else a body raises is its outcome, an exit too
            failure = encode_failure(self._codec, error)
            return Outcome(False, failure, task.retry.covers(error))
        finally:
            if not body.is_occupied:
                self._release(body)

    async def _limited(self, body: Body) -> Any:
        """Run the function within its timeouts."""
        task = body.task
        total_s = None if task.timeout_ms is None else task.timeout_ms / 1000
        silence_s = None if task.heartbeat_timeout_ms is None else task.heartbeat_timeout_ms / 1000
        attempt = f"attempt {body.info.attempt} of task {task.name!r}"
        call = TimedCall(self._call(body), attempt, total_s, silence_s)
        body.call = call.task
        call.task.add_done_callback(partial(self._left_call, body))
        if silence_s is not None:
            body.beat = partial(self._loop.call_soon_threadsafe, call.beat)
        return await call.outcome()

    def _call(self, body: Body) -> Coroutine[Any, Any, Any]:
        """What executes the body, in the context that is current."""
        TASK.set(body)
        arguments = body.task.signature.unpack(self._codec, body.payload)
        if body.is_doubted:
            return self._call_after_doubt(body, arguments)
        return self._call_with(body, arguments)

    async def _call_after_doubt(self, body: Body, arguments: Arguments) -> Any:
        result = await self._reconcile(body, arguments)
        return result if body.is_reconciled else await self._call_with(body, arguments)

    def _call_with(self, body: Body, arguments: Arguments) -> Coroutine[Any, Any, Any]:
        task = body.task
        args, kwargs = arguments
        call: Coroutine[Any, Any, Any]
        if task.is_transactional:
            call = task.fn(body.transaction, *args, **kwargs)
        elif task.is_async:
            call = task.fn(*args, **kwargs)
        else:
            call = self._in_thread(body, partial(task.fn, *args, **kwargs))
        return call

    async def _reconcile(self, body: Body, arguments: Arguments) -> Any:
        """Ask what became of the attempt that was in doubt. The body is reconciled if there is an answer."""
        reconcile = body.task.reconcile
        if reconcile is None:
            return None
        args, kwargs = reconcile.arguments(body.key, arguments)
        ask = partial(reconcile.fn, *args, **kwargs)
        try:
            result = await (ask() if reconcile.is_async else self._in_thread(body, ask))
        except NotDone:
            return None
        body.is_reconciled = True
        return result

    async def _in_thread(self, body: Body, call: Callable[[], Any]) -> Any:
        inside = partial(copy_context().run, _contained, call)
        thread = body.thread = self._threads.submit(inside)
        thread.add_done_callback(partial(self._left_thread, body))
        # Shielded: a thread goes on when its body is cancelled, and so does its hold on the slot.
        result, error = await asyncio.shield(thread)
        if isinstance(error, KeyboardInterrupt):
            # A thread can't be interrupted: it raised this by itself.
            raise RuntimeError(f"the task raised {error!r}") from error  # noqa: TRY004 - it is no type
        if error is not None:
            raise error
        return result


def _contained(call: Callable[[], Any]) -> tuple[Any, BaseException | None]:
    """What a call returns or raises, as a value: a future can't carry every exception."""
    try:
        return call(), None
    except BaseException as error:  # raised again where the body is awaited
        return None, error
