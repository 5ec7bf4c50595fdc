"""The rows that an open run needs in the store to make progress, by its journal; and which of them are missing.

The event that opens an obligation commits together with the row that will end it: a timer and its message, a queued
task and its work, a retry and its message, a child and its run. The commit of the event that ends the obligation
deletes the row. So in every snapshot an open obligation has its row. The ledger's digits do not show this.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, TypeAlias

import msgspec

from perdure.core.ids import Guid, RunId, StepId
from perdure.core.journal import events as e
from perdure.core.messages import AT_ONCE, MessageSummary, WorkSummary, at_once, is_outcome
from perdure.core.replay.identity import child_run_id, result_guid, retry_guid, timer_guid
from perdure.core.runs.acts import RETRY_AT_ONCE_MS

Missing: TypeAlias = tuple[StepId, str, str]
"""Step of an obligation without a row, name of the finding, detail."""


LONGEST_POSTPONED_MS: Final = 86_400_000
"""A host that can't execute work that it claimed gives it back for seconds or minutes. Work that is due later than in a
day, and later than the journal says, was changed: the rest of the day is for clocks that differ."""


class Lifetime(msgspec.Struct, frozen=True):
    """The time of a run's first entry, and the time now."""

    began_ms: int
    now_ms: int


class Child(msgspec.Struct, frozen=True):
    """A child run in the store: whether it exists, and whether the last run of its chain has ended."""

    exists: bool
    is_over: bool = False


class Outstanding(msgspec.Struct, frozen=True):
    """Rows that will bring results to a run: messages by GUID, work by step, children by step.

    `sent` are signals, cancels and acts that concern no step, read for an audit only.
    """

    messages: dict[Guid, MessageSummary] = {}
    work: dict[StepId, WorkSummary] = {}
    children: dict[StepId, Child] = {}
    sent: dict[Guid, MessageSummary] = {}


class Obligations(msgspec.Struct):
    """Open obligations of a journal: `timers` with their due times, and `attempts` of queued tasks and retries that
    have not started. `retries` are the due times of retries, `queues` the queues of attempts, if the journal has them.

    `children` are the steps that wait for a child run, each with its attempt; `delayed` those that will start another
    child run after a delay.
    """

    timers: dict[StepId, int] = {}
    attempts: dict[StepId, int] = {}
    retries: dict[StepId, int] = {}
    queues: dict[StepId, str] = {}
    children: dict[StepId, int] = {}
    delayed: set[StepId] = set()
    parked: dict[StepId, tuple[int, str | None]] = {}
    """Steps that wait for an operator, with the attempt that failed last and the queue of the next one."""

    def take(self, event: e.Event) -> None:
        """Fold one event in."""
        match event:
            case e.TimerScheduled(promise_id=step, fire_at_ms=fire_at):
                self.timers[step] = fire_at
            case e.InvokeScheduled(promise_id=step, place=e.InvokePlace.QUEUE, queue=queue):
                self.attempts[step] = 1
                self._queue(step, queue)
            case e.InvokeScheduled(promise_id=step, place=e.InvokePlace.RUN):
                self.children[step] = 1
            case e.SignalAccepted(signal_type=e.ActType.RETRY_STEP, step=str() as step):
                self._retry_parked(step)
            case e.InvokeRetrying():
                self._fail(event)
            case e.InvokeStarted(promise_id=step, attempt=attempt):
                self._begin(step, attempt)
            case e.InvokeCompleted(promise_id=step) | e.StepSkipped(promise_id=step):
                self._close(step)
            case e.TimerFired(promise_id=step) | e.SignalReceived(promise_id=step, stays=False):
                self._close(step)
            case e.Terminal():
                self.timers, self.attempts, self.retries, self.children = {}, {}, {}, {}
                self.queues, self.delayed, self.parked = {}, set(), {}
            case _:
                pass

    def _fail(self, event: e.InvokeRetrying) -> None:
        step = event.promise_id
        if event.parks:
            self._close(step)
            self.parked[step] = event.failed_attempt, event.queue
        else:
            self._delay(step, event.failed_attempt + 1, event.retry_at_ms)
            self._queue(step, event.queue)

    def _retry_parked(self, step: StepId) -> None:
        """An operator retries the step: its next attempt is due at once."""
        failed = self.parked.pop(step, None)
        if failed is not None:
            attempt, queue = failed
            self._delay(step, attempt + 1, RETRY_AT_ONCE_MS)
            self._queue(step, queue)

    def _queue(self, step: StepId, queue: str | None) -> None:
        if queue is None:
            self.queues.pop(step, None)
        else:
            self.queues[step] = queue

    def _delay(self, step: StepId, attempt: int, again_at_ms: int) -> None:
        self.attempts[step] = attempt
        self.retries[step] = again_at_ms
        if self.children.pop(step, None) is not None:
            self.delayed.add(step)

    def _begin(self, step: StepId, attempt: int) -> None:
        # A local task starts on the run's host; the start of a queued one is journaled with its result.
        self.attempts.pop(step, None)
        self.retries.pop(step, None)
        if step in self.delayed:
            self.delayed.remove(step)
            self.children[step] = attempt

    def _close(self, step: StepId) -> None:
        self.timers.pop(step, None)
        self.attempts.pop(step, None)
        self.retries.pop(step, None)
        self.queues.pop(step, None)
        self.children.pop(step, None)
        self.delayed.discard(step)
        self.parked.pop(step, None)


def obligations_of(events: Iterable[e.Event]) -> Obligations:
    """The obligations that are open after these events."""
    open_ones = Obligations()
    for event in events:
        open_ones.take(event)
    return open_ones


def is_fit(
    held: Mapping[Guid, MessageSummary], guid: Guid, step: StepId, kind: str, due_at_ms: int
) -> bool:
    """Whether the message is stored as it was written, and pending."""
    return held.get(guid) == MessageSummary(step, "pending", kind, due_at_ms, False)


def is_result(held: Mapping[Guid, MessageSummary], guid: Guid, step: StepId) -> bool:
    """Whether the message is stored, carries an outcome to the step, and will be delivered."""
    message = held.get(guid)
    return (
        message is not None
        and has_outcome(message)
        and (message.step, message.state, message.due_at_ms) == (step, "pending", AT_ONCE)
    )


def has_outcome(message: MessageSummary) -> bool:
    """Whether the message carries the outcome of an attempt, be it delivered or not."""
    return is_outcome(message.kind) and bool(message.has_payload)


def unknown_outcome(
    held: Mapping[Guid, MessageSummary], run_id: RunId, step: StepId, attempt: int
) -> str | None:
    """The damage of a stored result that can't be undone, with both values: its outcome, or its attempt, is unknown.

    The attempt has ended, so its task must not be executed again.
    """
    guid = result_guid(run_id, step, attempt)
    ours = f"the result of attempt {attempt} of step {step}"
    message = held.get(guid)
    if message is not None:
        what = f"is a {message.kind!r} {'with' if message.has_payload else 'without'} a payload"
        return None if has_outcome(message) else f"message {guid} {what}, by the journal {ours}"
    earlier = {result_guid(run_id, step, each) for each in range(1, attempt)}
    for other, message in held.items():
        if message.step == step and has_outcome(message) and other not in earlier:
            return f"message {other} is an outcome of step {step}; by the journal {ours} is message {guid}"
    return None


def is_misdated(work: WorkSummary, due_at_ms: int, life: Lifetime) -> bool:
    """Whether hosts may claim the work at a time that contradicts the journal; `due_at_ms` is 0 if it was due at once.

    A host that gives work back makes it due at once, or later. The lease on claimed work ends whenever its host says.
    """
    if work.host is not None:
        return False
    earliest = due_at_ms or life.began_ms - LONGEST_POSTPONED_MS
    tomorrow = life.now_ms + LONGEST_POSTPONED_MS
    due = work.available_at_ms
    is_at_once = at_once(earliest) - LONGEST_POSTPONED_MS <= due <= at_once(tomorrow)
    return not (is_at_once or earliest <= due <= max(due_at_ms, tomorrow))


def missing(
    run_id: RunId, owed: Obligations, held: Outstanding, life: Lifetime | None = None
) -> Iterator[Missing]:
    """Open obligations without a row that would end them, or with a changed one. The due times of work need `life`."""
    for step, fire_at in sorted(owed.timers.items()):
        guid = timer_guid(run_id, step)
        if not is_fit(held.messages, guid, step, "timer", fire_at):
            what = _misfit(held.messages.get(guid), fire_at)
            yield step, "timer_missing", f"the timer of step {step} is open, and its message {what}"
    yield from _missing_attempts(run_id, owed, held, life)
    yield from _missing_children(run_id, owed, held)


def _missing_attempts(
    run_id: RunId, owed: Obligations, held: Outstanding, life: Lifetime | None
) -> Iterator[Missing]:
    for step, attempt in sorted(owed.attempts.items()):
        result, retry = result_guid(run_id, step, attempt), retry_guid(run_id, step, attempt - 1)
        due, work = owed.retries.get(step, AT_ONCE), held.work.get(step)
        if work is not None and work.guid == result:
            yield from _changed(step, work, owed.queues.get(step), due, life)
        elif is_result(held.messages, result, step):
            continue
        elif damage := _damaged_result(run_id, step, attempt, held.messages):
            yield step, "result_damaged", damage
        elif not is_fit(held.messages, retry, step, "retry", due):
            yield (
                *(step, "work_missing"),
                f"attempt {attempt} of step {step} has not started, and has neither work on a queue nor a message",
            )


def _missing_children(run_id: RunId, owed: Obligations, held: Outstanding) -> Iterator[Missing]:
    for step, attempt in sorted(owed.children.items()):
        child = held.children.get(step, Child(False))
        named = f"step {step} waits for run {child_run_id(run_id, step, attempt)}"
        if not child.exists:
            yield step, "child_missing", f"{named}, which is not in the store"
        elif child.is_over and not is_result(
            held.messages, result_guid(run_id, step, attempt), step
        ):
            yield (
                step,
                "result_missing",
                f"{named}, which has ended, and its result message is missing",
            )


def _changed(
    step: StepId, work: WorkSummary, queue: str | None, due_at_ms: int, life: Lifetime | None
) -> Iterator[Missing]:
    if not work.is_readable:
        yield step, "work_unreadable", f"the header of the work of step {step} can't be read"
    if queue not in (None, work.queue):
        what = f"the work of step {step} is on queue {work.queue!r}, and its journal says {queue!r}"
        yield step, "queue_differs", what
    if life is not None and is_misdated(work, due_at_ms, life):
        due = "at once" if due_at_ms == AT_ONCE else f"at {due_at_ms}"
        what = (
            f"the work of step {step} is due at {work.available_at_ms}, and its journal says {due}"
        )
        yield step, "due_differs", what


def _damaged_result(
    run_id: RunId, step: StepId, attempt: int, held: Mapping[Guid, MessageSummary]
) -> str | None:
    """Why the stored result of the attempt would not be delivered; `None` if none is stored."""
    message = held.get(result_guid(run_id, step, attempt))
    if message is None or not has_outcome(message):
        return unknown_outcome(held, run_id, step, attempt)
    return (
        f"the result of attempt {attempt} of step {step} is for step {message.step}, {message.state!r} "
        f"and due at {message.due_at_ms}, and not for step {step}, 'pending' and due at {AT_ONCE}"
    )


def _misfit(message: MessageSummary | None, fire_at_ms: int) -> str:
    if message is None:
        return "is not in the store"
    if not message.is_pending:
        return f"is marked {message.state!r}"
    return (
        f"is a {message.kind!r} of step {message.step}, due at {message.due_at_ms}, "
        f"and not a 'timer', due at {fire_at_ms}"
    )
