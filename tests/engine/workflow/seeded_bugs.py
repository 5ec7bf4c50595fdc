"""Deliberate bugs in how workflows are run. The explorer must catch each one.

A bug is a context in which a piece of the engine is replaced by one that is wrong in a way that a real engine
might be.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, NamedTuple

import pytest

from perdure.core.ids import RunId
from perdure.core.journal import events as e
from perdure.core.messages import Message
from perdure.core.replay.doubt import Doubt
from perdure.core.streams.reading import StreamReading
from perdure.engine.runs import attempts, doubts, messages, parent_result
from perdure.engine.runs.attempt_outcome import AttemptOutcome
from perdure.engine.runs.effects import (
    ContinueAsNew,
    CreateRun,
    Enqueue,
    RecordedChange,
    RunEffect,
    SpawnChild,
)
from perdure.engine.runs.machine import RunMachine
from perdure.engine.runs.patches import Patches
from perdure.engine.runs.record import Record
from perdure.engine.runs.warm import WarmRun
from perdure.engine.workflow import ending
from perdure.engine.workflow.cancelling import interrupt_fiber
from perdure.engine.workflow.machine import WorkflowMachine
from perdure.host.messages.delivery import Delivery
from perdure.host.messages.queue import MessageQueue
from perdure.host.runs.batch import Batch, start_of
from perdure.host.runs.dispatcher import Dispatcher
from perdure.host.runs.staging import Staging
from perdure.host.tasks.attempt import Attempt
from perdure.host.tasks.streams import ChunkWriter, Pipe, StreamWriter
from perdure.store.commit.bundle import Bundle
from perdure.store.commit.committer import OnDecided


@contextmanager
def body_before_intent() -> Iterator[None]:
    """Bodies start when they are scheduled, and not when that is durable."""
    submit = Dispatcher._submit

    def hasty(self: Dispatcher, batch: Batch, on_decided: OnDecided) -> None:
        for start in batch.starts:
            self._execute(*start)
        batch.starts.clear()
        submit(self, batch, on_decided)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Dispatcher, "_submit", hasty)
        yield


@contextmanager
def doubt_forgotten() -> Iterator[None]:
    """A step that had started when its host died is never begun again."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(doubts, "_doubt", lambda *_: None)
        yield


@contextmanager
def doubt_taken_for_success() -> Iterator[None]:
    """A step that had started when its host died is taken for done."""

    def believe(warm: WarmRun, promise: Any, _: int) -> None:
        completed = e.InvokeCompleted(promise.step, promise.attempt, payload=b"0")
        warm.machine.feed(completed)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(doubts, "_doubt", believe)
        yield


@contextmanager
def doubt_taken_for_failure() -> Iterator[None]:
    """A step that had started when its host died counts as a failed attempt, and uses up a retry."""

    def despair(warm: WarmRun, promise: Any, _: int) -> None:
        warm.machine.feed(e.InvokeRetrying(promise.step, promise.attempt, 0, payload=b"{}"))
        warm.machine.unstarted.append(promise)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(doubts, "_doubt", despair)
        yield


@contextmanager
def acknowledged_before_effect() -> Iterator[None]:
    """A message is gone before what it says is durable."""
    deliver = Delivery._deliver

    async def careless(self: Delivery, message: Message, line: MessageQueue) -> None:
        host = self._dispatcher
        run = await host.store.run(message.run_id)
        if run is not None and run.owner == host.host_id:
            warm = host.cache.get(message.run_id) or await host.loader.load(message.run_id)
            if warm is not None:
                bundle = Bundle()
                bundle.acknowledge(warm.fence, message.guid)
                await host.store.commit(bundle)
        await deliver(self, message, line)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Delivery, "_deliver", careless)
        yield


@contextmanager
def signal_taken_twice() -> Iterator[None]:
    """A duplicate message is taken again."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(messages, "message_account", lambda _: "message:none")
        yield


@contextmanager
def retries_counted_in_memory() -> Iterator[None]:
    """How often a task has failed is forgotten with the memory of its run."""
    decide = attempts.retry_due_ms
    failures: dict[Any, int] = {}  # by promise: a replay makes new ones

    def forgetful(machine: WorkflowMachine, promise: Any, outcome: AttemptOutcome) -> int | None:
        failures[promise] = failures.get(promise, 0) + 1
        promise.doubts = promise.attempt - failures[promise]
        return decide(machine, promise, outcome)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(attempts, "retry_due_ms", forgetful)
        patch.setattr(messages, "retry_due_ms", forgetful)
        yield


@contextmanager
def fresh_values_in_replay() -> Iterator[None]:
    """A replay draws new random numbers and looks at the clock again."""
    emit = Record.emit

    def inventive(self: Record, event: e.Event, *effects: Any) -> Any:
        stands = emit(self, event, *effects)
        return event if isinstance(event, e.RandomGenerated | e.TimeRecorded) else stands

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Record, "emit", inventive)
        yield


@contextmanager
def created_apart(kind: type[SpawnChild] | type[ContinueAsNew]) -> Iterator[None]:
    """Runs that others ask for are created in commits of their own, after those that ask for them."""
    write, settle = Staging.write, Dispatcher.settle
    held: dict[Batch, list[CreateRun]] = {}

    def loose(self: Staging, batch: Batch) -> Batch:
        changes = batch.run.machine.record.changes
        held[batch] = [x for change in changes for x in change.effects if isinstance(x, kind)]
        for place, change in enumerate(changes):
            kept = tuple(x for x in change.effects if not isinstance(x, kind))
            changes[place] = RecordedChange(change.event, kept)
        return write(self, batch)

    def settle_and_create(self: Dispatcher, batch: Batch) -> None:
        settle(self, batch)
        for birth in held.pop(batch, ()):
            born = self.staging.begin_run(birth.run_id, start_of(batch.run, birth))
            self.staging.reserve(born)
            self.staging.write(born)
            self._submit(born, lambda _: None)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Staging, "write", loose)
        patch.setattr(Dispatcher, "settle", settle_and_create)
        yield


def child_created_apart() -> AbstractContextManager[None]:
    """A child run is created in a commit of its own, after the step that it is."""
    return created_apart(SpawnChild)


@contextmanager
def parent_distinguished() -> Iterator[None]:
    """A child's end is durable before the message to its parent is."""
    settle, result_for_parent = Dispatcher.settle, parent_result.result_for_parent
    words: dict[RunId, Message] = {}

    def keep(machine: RunMachine, kind: str, payload: bytes) -> tuple[RunEffect, ...]:
        for word in result_for_parent(machine, kind, payload):
            assert isinstance(word, Enqueue)
            words[machine.info.run_id] = word.message
        return ()

    def tell(self: Dispatcher, batch: Batch) -> None:
        settle(self, batch)
        for run, _ in batch.endings:
            if run.run_id in words:
                self.context.spawn(tell_later(self, words[run.run_id]))

    async def tell_later(self: Dispatcher, message: Message) -> None:
        bundle = Bundle()
        bundle.enqueue(message)
        await self.store.commit(bundle)
        self.context.listener.message_sent(message)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ending, "result_for_parent", keep)
        patch.setattr(Dispatcher, "settle", tell)
        yield


@contextmanager
def clean_up_repeated() -> Iterator[None]:
    """A run that is cancelling is cancelled again when it comes back to memory."""
    revive = Dispatcher._replay

    async def again(self: Dispatcher, stored: Any) -> WarmRun:
        warm = await revive(self, stored)
        machine = warm.machine
        if isinstance(machine, WorkflowMachine) and machine.cancel_reason is not None:
            for fiber in list(machine.fibers.values()):
                fiber.is_interrupted = False
                interrupt_fiber(machine, fiber)
        return warm

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Dispatcher, "_replay", again)
        yield


@contextmanager
def patch_unmarked() -> Iterator[None]:
    """A run follows a patch, and its journal does not say so."""
    decide = Patches._decide

    def silent(self: Patches, patch: str) -> bool:
        answer = decide(self, patch)
        self._record.changes[:] = [c for c in self._record.changes if type(c.event) is not e.Posted]
        return answer

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Patches, "_decide", silent)
        yield


@contextmanager
def outcome_before_chunks() -> Iterator[None]:
    """The outcome of a task does not wait for what it streamed."""

    async def hasty(_: ChunkWriter, outcome: AttemptOutcome) -> AttemptOutcome:
        return outcome

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ChunkWriter, "settle", hasty)
        patch.setattr(ChunkWriter, "close", lambda _: None)
        yield


@contextmanager
def patch_asked_afresh() -> Iterator[None]:
    """A run that missed a patch follows it from where nothing is recorded yet."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Patches, "follows", Patches._decide)
        yield


@contextmanager
def chunks_numbered_in_memory() -> Iterator[None]:
    """How many chunks a workflow has appended is forgotten with the memory of its run."""
    append = WorkflowMachine.append

    def forgetful(self: WorkflowMachine, name: str, value: object) -> None:
        append(self, name, value)
        if self.record.is_replaying:
            self._appended.clear()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(WorkflowMachine, "append", forgetful)
        yield


@contextmanager
def claims_taken_for_one() -> Iterator[None]:
    """Two hosts that execute the same attempt of a queued task append as one."""
    make = Pipe.__init__

    def mistaken(self: Pipe, shared: StreamWriter, body: Attempt) -> None:
        make(self, shared, body)
        self._origin = self._origin._replace(claim=1)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Pipe, "__init__", mistaken)
        yield


def _unclaimed(outcome: AttemptOutcome, _: int, doubt: Doubt | None) -> str:
    return outcome.kind if doubt is None else f"{outcome.kind}:1:{doubt}"


@contextmanager
def claim_not_journaled() -> Iterator[None]:
    """An outcome does not say under which claim it came about."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(AttemptOutcome, "kind_by", _unclaimed)
        yield


@contextmanager
def abandoned_in_silence() -> Iterator[None]:
    """Readers do not learn that the chunks they have are void."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(StreamReading, "_settle", lambda _: iter(()))
        yield


class Bug(NamedTuple):
    """A bug, the program that meets it, and what the explorer then says."""

    seed: Callable[[], AbstractContextManager[None]]
    program: str
    symptom: str


BUGS = {
    bug.seed.__name__: bug
    for bug in (
        Bug(body_before_intent, "chain", "before its intent was durable"),
        Bug(doubt_forgotten, "chain", "nothing is due and nothing runs"),
        Bug(doubt_taken_for_success, "chain", "without faults it ends"),
        Bug(doubt_taken_for_failure, "chain", "more often than its policy allows"),
        Bug(acknowledged_before_effect, "asks_twice", "nothing is due and nothing runs"),
        Bug(signal_taken_twice, "impatient", "is posted already"),
        Bug(retries_counted_in_memory, "retries", "more often than its policy allows"),
        Bug(fresh_values_in_replay, "values", "is not what run"),
        Bug(child_created_apart, "parent", "nothing is due and nothing runs"),
        Bug(parent_distinguished, "parent", "has lost rows: .* of step"),
        Bug(patch_unmarked, "patched", "is not what run"),
        Bug(patch_asked_afresh, "patch_arrives", "but without faults it ends"),
        Bug(clean_up_repeated, "tidies_up", "nothing is due and nothing runs"),
        Bug(outcome_before_chunks, "streaming", "but without faults it ends"),
        Bug(chunks_numbered_in_memory, "streaming", "but without faults it ends"),
        Bug(claims_taken_for_one, "streaming", "but without faults it ends"),
        Bug(claim_not_journaled, "streaming", "was left with"),
        Bug(abandoned_in_silence, "streaming", "was left with"),
    )
}
