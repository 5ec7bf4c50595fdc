"""Executes task attempts, each in a slot.

An attempt starts only when its slot is reserved and its intent is durable. What its task returns or raises becomes the
outcome of the attempt.
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from contextvars import copy_context
from functools import partial
from logging import DEBUG
from threading import get_ident
from typing import Any, Protocol

from perdure.authoring.context import TASK
from perdure.authoring.signature import Arguments
from perdure.authoring.task import Task
from perdure.authoring.values.failures import encode_failure
from perdure.core.errors import NotDone, PayloadTooLarge
from perdure.core.ids import RunId, StepId
from perdure.core.limits import MAX_PAYLOAD_BYTES
from perdure.engine.runs.attempt_outcome import AttemptOutcome, pack_outcome
from perdure.host.artifacts.payloads import LargeCodec
from perdure.host.context import HostContext
from perdure.host.logs import task_log
from perdure.host.tasks.attempt import Attempt, AttemptGroup
from perdure.host.tasks.exposure import encode_sent
from perdure.host.tasks.gate import Gate
from perdure.host.tasks.logs import note_outcome, note_start
from perdure.host.tasks.published import Publisher
from perdure.host.tasks.requests import TaskRequests
from perdure.host.tasks.streams import StreamWriter
from perdure.host.tasks.threads import Threads
from perdure.host.tasks.timeouts import TimedCall
from perdure.store.process import OwnProcess


class ExecutorOwner(Protocol):
    """The host, as far as the executor needs it."""

    def slot_freed(self) -> bool:
        """A slot is free, and one was refused before. Returns whether a step may still wait for a slot."""

    def may_keep_slot(self, attempt: Attempt) -> bool:
        """Whether the next step of the attempt's run may begin in its slot, although other steps wait for one."""

    async def transact(self, attempt: Attempt) -> AttemptOutcome | None:
        """Execute a transactional attempt and commit its success. Returns a failure that is still to be reported."""


class Executor:
    """The slots of a host and the attempts in them. Sync attempts also need one of the threads."""

    def __init__(
        self,
        context: HostContext,
        owner: ExecutorOwner,
        gate: Gate,
        publisher: Publisher,
        streams: StreamWriter,
        threads: Threads | None = None,
    ) -> None:
        settings = context.settings
        self.loop = asyncio.get_running_loop()
        self.process = OwnProcess("a task")
        self._thread = get_ident()
        self._caller_context = copy_context()
        self._context = context
        self._codec = context.task_codec
        self._payloads = context.payloads
        self._tracing = context.services.tracing
        self._result_codec = self._codec if self._payloads is None else LargeCodec(self._codec)
        self._owner = owner
        self._gate = gate
        self._publisher = publisher
        self.chunks_of = streams.chunks_of
        """Where an attempt's chunks go."""
        self.requests = TaskRequests(context)
        self._free = settings.concurrency
        self._free_threads = settings.threads
        self._is_wanted = False
        """Whether a slot was refused: the owner then learns of each slot that becomes free."""
        self._threads = threads or Threads(settings.threads)
        self._attempts: dict[AttemptGroup, dict[StepId, Attempt]] = {}
        """The attempts that run here, or whose outcome is on its way."""
        self.tasks: set[asyncio.Task[None]] = set()
        """One for each attempt that runs or reports its outcome."""
        self.stopped: list[Attempt] = []
        """Attempts of this host's own runs that it cancelled, or did not start, because it stops."""
        self.stopped_claims: list[Attempt] = []
        """Attempts of claimed work that it cancelled because it stops."""
        self._is_open = True
        self._is_closed = False

    def reserve(self, task: Task[..., Any]) -> bool:
        """Take a slot for an attempt of `task`, if one is free."""
        if self._free <= 0 or not self._is_open or not (task.is_async or self._free_threads > 0):
            self._is_wanted = True
            return False
        if not task.is_async:
            self._free_threads -= 1
        self._free -= 1
        return True

    @property
    def is_open(self) -> bool:
        """Whether the executor still gives slots out."""
        return self._is_open

    def has_slot(self, is_async: bool) -> bool:
        return self.free(is_async) > 0

    def free(self, is_async: bool) -> int:
        """How many attempts of that kind have a slot; a sync one also needs a thread."""
        free = self._free if is_async else min(self._free, self._free_threads)
        return free if self._is_open else 0

    def free_slots(self, *, is_async: bool = False) -> int:
        """How many attempts could start now: of either kind, or async ones only."""
        may_begin = self._is_open and self._gate.is_open
        free = self.free(is_async) if may_begin else 0
        self._is_wanted = self._is_wanted or free <= 0
        return free

    @property
    def runs(self) -> list[RunId]:
        """The runs of this host that have attempts here."""
        return [run_id for run_id, is_claimed in self._attempts if not is_claimed]

    @property
    def under_way(self) -> list[Attempt]:
        """The attempts whose code runs here and whose outcome is not on its way yet."""
        attempts = (attempt for steps in self._attempts.values() for attempt in steps.values())
        return [attempt for attempt in attempts if not attempt.is_over]

    def give_back(self, task: Task[..., Any]) -> None:
        self._free += 1
        if not task.is_async:
            self._free_threads += 1
        if self._is_wanted:
            self._is_wanted = False
            # Who asks for a slot of another kind meanwhile, and is refused, sets it as well.
            if self._owner.slot_freed():
                self._is_wanted = True

    def executes(self, run_id: RunId) -> bool:
        """Whether an attempt of that run is here, of an own run or claimed from a queue."""
        return (run_id, False) in self._attempts or (run_id, True) in self._attempts

    def find(self, run_id: RunId, step: StepId, *, is_claimed: bool = False) -> Attempt | None:
        """The attempt of a step that runs here or has its outcome on its way, of an own run or of claimed work."""
        return self._attempts.get((run_id, is_claimed), {}).get(step)

    def start(self, attempt: Attempt) -> None:
        """Execute the attempt in its reserved slot, then report its outcome."""
        info = attempt.info
        group, step = (info.run_id, attempt.is_claimed), info.step
        if self._is_closed:
            # Its intent became durable after the stop: the next owner of the run starts it.
            self.stopped.append(attempt)
            self._attempts.setdefault(group, {})[step] = attempt
            return
        if step in self._attempts.get(group, ()):
            # An earlier attempt may still run if this host lost the run and has it again.
            self.cancel(info.run_id, step, is_claimed=attempt.is_claimed)
        attempt.output = self
        # In a context of its own: context variables that one attempt sets must not reach the next.
        attempt.runner = self.loop.create_task(
            self._live(attempt), context=self._caller_context.copy()
        )
        self.tasks.add(attempt.runner)
        self._attempts.setdefault(group, {})[step] = attempt

    def cancel(self, run_id: RunId, step: StepId, *, is_claimed: bool = False) -> None:
        """Stop an attempt and drop its outcome. One that already reports its outcome continues."""
        attempt = self._attempts.get((run_id, is_claimed), {}).get(step)
        if attempt is not None and attempt.runner is not None and not attempt.is_reporting:
            self.forget(attempt)
            self._interrupt(attempt)

    def _interrupt(self, attempt: Attempt) -> None:
        if attempt.runner is not None:
            attempt.runner.cancel()
            if not attempt.has_begun:
                # Its coroutine never starts, so it can't clean up after itself.
                self._end(attempt)

    def cancel_run(self, run_id: RunId) -> None:
        for step in list(self._attempts.get((run_id, False), ())):
            self.cancel(run_id, step)

    def drain(self) -> None:
        """Give out no more slots. Attempts that have one continue."""
        self._is_open = False

    def close(self) -> None:
        """Cancel all attempts."""
        self._is_open = False
        self._is_closed = True
        for (run_id, is_claimed), steps in list(self._attempts.items()):
            for step, attempt in list(steps.items()):
                if is_claimed:
                    if attempt.runner is not None and not attempt.is_reporting:
                        self.stopped_claims.append(attempt)
                    self.cancel(run_id, step, is_claimed=True)
                elif attempt.runner is not None and not attempt.is_reporting:
                    # It stays registered: while it is here, its step is not in doubt.
                    self.stopped.append(attempt)
                    self._interrupt(attempt)
        self._threads.close()

    def publish(self, attempt: Attempt, name: str, value: object) -> None:
        """Publish a value, from any thread."""
        payload = encode_sent(
            self._codec, attempt, name, value, lambda: f"value {name!r} published by {attempt.text}"
        )
        if get_ident() == self._thread:
            self._publisher.publish(attempt, name, payload)
        else:
            self.loop.call_soon_threadsafe(self._publish_from_thread, attempt, name, payload)

    def _publish_from_thread(self, attempt: Attempt, name: str, payload: bytes) -> None:
        if not attempt.is_over:
            self._publisher.publish(attempt, name, payload)

    def forget(self, attempt: Attempt) -> None:
        """Remove an attempt whose run has its outcome, or does not need it."""
        if attempt.keeps_slot:
            self.release_kept(attempt)
        info = attempt.info
        group = info.run_id, attempt.is_claimed
        steps = self._attempts.get(group)
        if steps is not None and steps.get(info.step) is attempt:
            del steps[info.step]
            if not steps:
                del self._attempts[group]

    async def _live(self, attempt: Attempt) -> None:
        attempt.has_begun = True
        try:
            if self._payloads is not None or not self._gate.is_open:
                await self._prepare(attempt)
            is_noted = self._tracing is not None or task_log.isEnabledFor(DEBUG)
            if is_noted:
                self._note_start(attempt)
            if not attempt.task.is_transactional:
                outcome = await self.outcome(attempt)
            elif (failure := await self._transact(attempt)) is not None:
                outcome = failure
            else:
                return
            attempt.is_reporting = True
            # A reader that sees the outcome also sees the values published before it.
            if (published := self._publisher.settle(attempt.info.run_id)) is not None:
                await published
            if attempt.chunks is not None and attempt.chunks.end():
                outcome = await attempt.chunks.settle(outcome)
            if is_noted or not outcome.ok:
                self._note_outcome(attempt, outcome)
            if (report := attempt.report(attempt, outcome)) is not None:
                await report
        except Exception as error:  # no caller awaits this task
            self._context.fail(error)
        finally:
            self._end(attempt)

    def _note_start(self, attempt: Attempt) -> None:
        if task_log.isEnabledFor(DEBUG):
            note_start(attempt)
        if self._tracing is not None:
            attempt.span = self._tracing.attempt_begins(attempt.info, attempt.task.name)

    def _note_outcome(self, attempt: Attempt, outcome: AttemptOutcome) -> None:
        if attempt.span is not None:
            attempt.span.end(attempt.error, failed=not outcome.ok)
        if not outcome.ok or task_log.isEnabledFor(DEBUG):
            note_outcome(attempt, outcome, self._codec)

    async def _prepare(self, attempt: Attempt) -> None:
        """Wait until attempts may begin, and until a large input is here."""
        if not self._gate.is_open:
            await self._gate.wait()
        if self._payloads is not None:
            await self.requests.prefetch(attempt.payload)

    async def _transact(self, attempt: Attempt) -> AttemptOutcome | None:
        """Execute a transactional attempt. Returns a failure that is still to be reported."""
        failure = None
        try:
            failure = await self._owner.transact(attempt)
            if failure is None and attempt.span is not None:
                attempt.span.end()
        finally:
            if failure is None:
                self.forget(attempt)
        return failure

    def _end(self, attempt: Attempt) -> None:
        if attempt.has_slot and not (attempt.is_occupied or attempt.keeps_slot):
            self._release(attempt)
        if attempt.chunks is not None:
            attempt.chunks.close()
        if attempt.span is not None:
            attempt.span.end(failed=True)
            attempt.span = None
        attempt.error = None
        if attempt.runner is not None:
            self.tasks.discard(attempt.runner)
            attempt.runner = None

    def _release(self, attempt: Attempt) -> None:
        if attempt.has_slot:
            attempt.has_slot = False
            self.give_back(attempt.task)

    def _keep_slot(self, attempt: Attempt) -> bool:
        """Keep the slot for the next step of the run, if its outcome is reported at once."""
        is_settled = attempt.chunks is None and attempt.published is None
        is_alone = not (attempt.is_claimed or attempt.task.is_transactional)
        attempt.keeps_slot = is_settled and is_alone and self._owner.may_keep_slot(attempt)
        return attempt.keeps_slot

    def take_over(self, attempts: Sequence[Attempt], task: Task[..., Any]) -> bool:
        """Take a slot that one of these attempts has kept, for an attempt of `task`."""
        for attempt in attempts if self._is_open else ():
            if attempt.keeps_slot and attempt.task.is_async == task.is_async:
                attempt.keeps_slot = attempt.has_slot = False
                return True
        return False

    def release_kept(self, attempt: Attempt) -> None:
        """Give back the slot that the attempt has kept, if it has one that no other attempt took over."""
        if attempt.keeps_slot:
            attempt.keeps_slot = False
            self._release(attempt)

    def _left_thread(self, attempt: Attempt, _: object) -> None:
        attempt.thread = None
        self._left(attempt)

    def _left_call(self, attempt: Attempt, call: asyncio.Task[Any]) -> None:
        if attempt.call is call:
            attempt.call = None
            self._left(attempt)

    def _left(self, attempt: Attempt) -> None:
        if attempt.has_ended:
            # Its caller has given it up already.
            self._release(attempt)

    async def outcome(self, attempt: Attempt) -> AttemptOutcome:
        """Execute the attempt and return its outcome, without reporting it."""
        task = attempt.task
        try:
            if task.timeout_ms is None and task.heartbeat_timeout_ms is None:
                result = await self._call(attempt)
            else:
                result = await self._limited(attempt)
            codec = self._result_codec
            payload = task.pack_result(codec, result, lambda: f"the result of {attempt.text}")
            if attempt.artifacts or attempt.exposed or len(payload) > MAX_PAYLOAD_BYTES:
                payload = await self._settled(attempt, payload)
            return AttemptOutcome(True, payload, False, attempt.is_reconciled, attempt.artifacts)
        except asyncio.CancelledError as error:
            runner = asyncio.current_task()
            if runner is None or runner.cancelling():
                raise
            # The task itself raised this: nothing cancelled the attempt.
            attempt.error = error
            failure = encode_failure(self._codec, error)
            return AttemptOutcome(False, failure, artifacts=attempt.artifacts)
        except KeyboardInterrupt:
            # A request to end the process, not an outcome of the task.
            raise
        except BaseException as error:  # any other exception, SystemExit too, is the outcome
            failure = encode_failure(self._codec, error)
            attempt.error = error
            # A secret would be exposed again.
            may_retry = attempt.exposed is None and task.retry.covers(error)
            return AttemptOutcome(False, failure, may_retry, artifacts=attempt.artifacts)
        finally:
            if not attempt.is_occupied and not (self._is_wanted and self._keep_slot(attempt)):
                self._release(attempt)

    async def _settled(self, attempt: Attempt, payload: bytes) -> bytes:
        """The payload of a result that is large, or of an attempt that has stored artifacts or exposed a secret."""
        if attempt.exposed is not None:
            raise attempt.exposed
        if len(payload) > MAX_PAYLOAD_BYTES:
            payload = await self.requests.store_result(attempt.info.run_id, payload)
        require_room(attempt, payload)
        return payload

    async def _limited(self, attempt: Attempt) -> Any:
        """Call the task's function under its timeouts."""
        task = attempt.task
        total_s = None if task.timeout_ms is None else task.timeout_ms / 1000
        silence_s = None if task.heartbeat_timeout_ms is None else task.heartbeat_timeout_ms / 1000
        name = f"attempt {attempt.info.attempt} of task {task.name!r}"
        call = TimedCall(self._call(attempt), name, total_s, silence_s)
        attempt.call = call.task
        call.task.add_done_callback(partial(self._left_call, attempt))
        if silence_s is not None:
            attempt.on_heartbeat = partial(self.loop.call_soon_threadsafe, call.beat)
        return await call.outcome()

    def _call(self, attempt: Attempt) -> Coroutine[Any, Any, Any]:
        """A coroutine that calls the task's function in the current context."""
        TASK.set(attempt)
        arguments = attempt.task.signature.unpack(self._codec, attempt.payload)
        if attempt.is_doubted:
            return self._call_after_doubt(attempt, arguments)
        return self._call_with(attempt, arguments)

    async def _call_after_doubt(self, attempt: Attempt, arguments: Arguments) -> Any:
        result = await self._reconcile(attempt, arguments)
        return result if attempt.is_reconciled else await self._call_with(attempt, arguments)

    def _call_with(self, attempt: Attempt, arguments: Arguments) -> Coroutine[Any, Any, Any]:
        task = attempt.task
        args, kwargs = arguments
        call: Coroutine[Any, Any, Any]
        if task.is_transactional:
            call = task.fn(attempt.transaction, *args, **kwargs)
        elif task.is_async:
            call = task.fn(*args, **kwargs)
        else:
            call = self._in_thread(attempt, partial(task.fn, *args, **kwargs))
        return call

    async def _reconcile(self, attempt: Attempt, arguments: Arguments) -> Any:
        """Ask the task's reconcile function what became of an attempt in doubt; a result marks it reconciled."""
        reconcile = attempt.task.reconcile
        if reconcile is None:
            return None
        args, kwargs = reconcile.arguments(attempt.key, arguments)
        ask = partial(reconcile.fn, *args, **kwargs)
        try:
            result = await (ask() if reconcile.is_async else self._in_thread(attempt, ask))
        except NotDone:
            return None
        attempt.is_reconciled = True
        return result

    async def _in_thread(self, attempt: Attempt, call: Callable[[], Any]) -> Any:
        inside = partial(copy_context().run, _contained, call)
        thread = attempt.thread = self._threads.submit(inside)
        thread.add_done_callback(partial(self._left_thread, attempt))
        # Shielded: a thread continues when its attempt is cancelled, and keeps the slot until it returns.
        result, error = await asyncio.shield(thread)
        if isinstance(error, KeyboardInterrupt):
            # A thread can't be interrupted: the task raised this itself.
            raise RuntimeError(f"the task raised {error!r}") from error  # noqa: TRY004 - it is no type
        if error is not None:
            raise error
        return result


def require_room(attempt: Attempt, payload: bytes) -> None:
    """Refuse a result of claimed work that does not fit into one message with the references of its artifacts."""
    outcome = AttemptOutcome(True, payload, artifacts=attempt.artifacts)
    if attempt.is_claimed and len(pack_outcome(outcome)) > MAX_PAYLOAD_BYTES:
        raise PayloadTooLarge(
            f"the result of {attempt.text} and its {len(attempt.artifacts)} artifacts are over the limit",
            "store the result as an artifact, too, and return its reference",
        )


def _contained(call: Callable[[], Any]) -> tuple[Any, BaseException | None]:
    """The result or exception of a call, as values: a future can't carry every exception."""
    try:
        return call(), None
    except BaseException as error:  # raised again in the event loop
        return None, error
