"""Deliberate bugs in how workflows are run. The explorer must catch each one.

A bug is a context in which a piece of the engine is replaced by one that is wrong in a way that a real engine
might be.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, NamedTuple

import pytest

from perdure.core.journal import events as e
from perdure.core.messages import Message
from perdure.core.replay.doubt import Doubt
from perdure.core.replay.identity import parse_parent, result_guid
from perdure.core.streams.reading import Reading
from perdure.engine.replay import ending, facts
from perdure.engine.replay.effects import Birth, Change, Continue, Spawn
from perdure.engine.replay.machine import Machine
from perdure.engine.replay.patches import Patches
from perdure.engine.replay.record import Record
from perdure.engine.replay.warm import WarmRun
from perdure.host.batch import Batch, start_of
from perdure.host.body import Body
from perdure.host.delivery import Delivery
from perdure.host.host import Host
from perdure.host.line import Line
from perdure.host.staging import Staging
from perdure.host.streaming import ChunkWriter, Pipe, Streaming
from perdure.store.bundle import Bundle
from perdure.store.committer import Decided


@contextmanager
def body_before_intent() -> Iterator[None]:
    """Bodies start when they are scheduled, and not when that is durable."""
    submit = Host._submit

    def hasty(self: Host, batch: Batch, told: Decided) -> None:
        for start in batch.starts:
            self._execute(*start)
        batch.starts.clear()
        submit(self, batch, told)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Host, "_submit", hasty)
        yield


@contextmanager
def doubt_forgotten() -> Iterator[None]:
    """A step that had started when its host died is never begun again."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(facts, "_doubt", lambda *_: None)
        yield


@contextmanager
def doubt_taken_for_success() -> Iterator[None]:
    """A step that had started when its host died is taken for done."""

    def believe(machine: Machine, promise: Any, _: int) -> None:
        machine.feed(e.InvokeCompleted(promise.step, promise.attempt, payload=b"0"))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(facts, "_doubt", believe)
        yield


@contextmanager
def doubt_taken_for_failure() -> Iterator[None]:
    """A step that had started when its host died counts as a failed attempt, and uses up a retry."""

    def despair(machine: Machine, promise: Any, _: int) -> None:
        machine.feed(e.InvokeRetrying(promise.step, promise.attempt, 0, payload=b"{}"))
        machine.unstarted.append(promise)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(facts, "_doubt", despair)
        yield


@contextmanager
def acknowledged_before_effect() -> Iterator[None]:
    """A message is gone before what it says is durable."""
    deliver = Delivery._deliver

    async def careless(self: Delivery, message: Message, line: Line) -> None:
        host = self._host
        run = await host.store.run(message.run_id)
        if run is not None and run.owner == host.host_id:
            warm = host.residents.get(message.run_id) or await host.loader.load(message.run_id)
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
    """A message that comes again is news."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(facts, "message_account", lambda _: "message:none")
        yield


@contextmanager
def retries_counted_in_memory() -> Iterator[None]:
    """How often a task has failed is forgotten with the memory of its run."""
    decide = facts._retry_at

    def forgetful(machine: Machine, promise: Any, outcome: facts.Outcome) -> int | None:
        counts = machine.__dict__.setdefault("failures", {})
        counts[promise.step] = counts.get(promise.step, 0) + 1
        promise.doubts = promise.attempt - counts[promise.step]
        return decide(machine, promise, outcome)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(facts, "_retry_at", forgetful)
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
def created_apart(kind: type[Spawn] | type[Continue]) -> Iterator[None]:
    """Runs that others ask for are created in commits of their own, after those that ask for them."""
    write, settle = Staging.write, Host.settle
    held: dict[Batch, list[Birth]] = {}

    def loose(self: Staging, batch: Batch) -> Batch:
        changes = batch.run.machine.record.changes
        held[batch] = [x for change in changes for x in change.effects if isinstance(x, kind)]
        for place, change in enumerate(changes):
            kept = tuple(x for x in change.effects if not isinstance(x, kind))
            changes[place] = Change(change.event, kept)
        return write(self, batch)

    def settle_and_create(self: Host, batch: Batch) -> None:
        settle(self, batch)
        for birth in held.pop(batch, ()):
            born = self.staging.begin_run(birth.run_id, start_of(batch.run, birth))
            self.staging.reserve(born)
            self.staging.write(born)
            self._submit(born, lambda _: None)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Staging, "write", loose)
        patch.setattr(Host, "settle", settle_and_create)
        yield


def child_created_apart() -> AbstractContextManager[None]:
    """A child run is created in a commit of its own, after the step that it is."""
    return created_apart(Spawn)


@contextmanager
def parent_told_apart() -> Iterator[None]:
    """A child's end is durable before the word to its parent is."""
    settle = Host.settle

    def tell(self: Host, batch: Batch) -> None:
        settle(self, batch)
        for run, _ in batch.endings:
            parent = run.machine.parent
            if parent is not None:
                self.spawn(tell_later(self, run, parent))

    async def tell_later(self: Host, run: WarmRun, parent: str) -> None:
        run_id, step = parse_parent(parent)
        now = self.sources.now_ms()
        guid = result_guid(run_id, step, 1)
        message = Message(run_id, guid, "completed", now, now, step, b"16")
        bundle = Bundle()
        bundle.enqueue(message)
        await self.store.commit(bundle)
        self.on_message(message)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ending, "tell_parent", lambda *_: ())
        patch.setattr(Host, "settle", tell)
        yield


@contextmanager
def clean_up_repeated() -> Iterator[None]:
    """A run that is cancelling is cancelled again when it comes back to memory."""
    revive = Host._replay

    def again(self: Host, run: Any, entries: Sequence[Any]) -> WarmRun:
        warm = revive(self, run, entries)
        machine = warm.machine
        if isinstance(machine, Machine) and machine.cancel_reason is not None:
            for fiber in list(machine._fibers):
                fiber.is_interrupted = False
                machine._interrupt(fiber)
        return warm

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Host, "_replay", again)
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

    async def hasty(_: ChunkWriter, outcome: facts.Outcome) -> facts.Outcome:
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
    append = Machine.append

    def forgetful(self: Machine, name: str, value: object) -> None:
        append(self, name, value)
        if self.record.is_replaying:
            self._appended.clear()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Machine, "append", forgetful)
        yield


@contextmanager
def claims_taken_for_one() -> Iterator[None]:
    """Two hosts that execute the same attempt of a queued task append as one."""
    make = Pipe.__init__

    def mistaken(self: Pipe, shared: Streaming, body: Body) -> None:
        make(self, shared, body)
        self._origin = self._origin._replace(claim=1)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Pipe, "__init__", mistaken)
        yield


def _unclaimed(outcome: facts.Outcome, _: int, doubt: Doubt | None) -> str:
    return outcome.kind if doubt is None else f"{outcome.kind}:1:{doubt}"


@contextmanager
def claim_not_journaled() -> Iterator[None]:
    """An outcome does not say under which claim it came about."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(facts.Outcome, "kind_by", _unclaimed)
        yield


@contextmanager
def abandoned_in_silence() -> Iterator[None]:
    """Readers are not told that what they have is void."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Reading, "_settle", lambda _: iter(()))
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
        Bug(doubt_taken_for_failure, "chain", "more often than its policy says"),
        Bug(acknowledged_before_effect, "asks_twice", "nothing is due and nothing runs"),
        Bug(signal_taken_twice, "impatient", "is posted already"),
        Bug(retries_counted_in_memory, "retries", "more often than its policy says"),
        Bug(fresh_values_in_replay, "values", "is not what run"),
        Bug(child_created_apart, "parent", "nothing is due and nothing runs"),
        Bug(parent_told_apart, "parent", "nothing is due and nothing runs"),
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
