"""Runs in memory: a loaded run is a journal and its fence; a warm run has its machine, too."""

import asyncio
from collections.abc import Callable, Sequence

import msgspec

from perdure.core.errors import CorruptJournal
from perdure.core.ids import RunId
from perdure.core.journal.entry import NONCE_BYTES, Entry
from perdure.core.journal.events import Carrier, Event, ExecutionFailed, ExecutionStarted
from perdure.core.journal.journal import Appended, Journal
from perdure.core.large_payloads import MARK, value_bytes
from perdure.core.messages import Message
from perdure.core.runs.fingerprint import error_text
from perdure.core.streams.chunks import ROOT, NewChunk
from perdure.engine.runs.effects import (
    Acknowledge,
    AddHook,
    AppendChunk,
    ContinueAsNew,
    CreateRun,
    Deliver,
    DropWork,
    Enqueue,
    HoldWork,
    IndexEffect,
    ParkStep,
    Publish,
    PutWork,
    RecordedChange,
    RemoveHook,
    RunEffect,
    SendBroadcast,
    SendToMailbox,
    SetReady,
    SetTag,
    SpawnChild,
    StandingEffect,
    TrackJoin,
    UnparkStep,
    UntrackAll,
)
from perdure.engine.runs.held import (
    ENTRY_BYTES,
    MEASURE_BYTES,
    PROMISE_BYTES,
    RUN_BYTES,
    held_bytes,
)
from perdure.engine.runs.machine import RunMachine
from perdure.engine.runs.size import ENTRY_SIZE, STEPS
from perdure.engine.sources import Sources
from perdure.store.commit.bundle import Bundle
from perdure.store.commit.fence import Fence
from perdure.store.rows.records import NewRun, ParkedStep, Run
from perdure.store.store import Store


class LoadedRun:
    """A run that this host owns.

    While a commit is under way, the journal in memory is ahead of the store. If the commit is rejected, drop the run
    and load it again.
    """

    __slots__ = (
        "fence",
        "journal",
    )

    def __init__(self, journal: Journal, fence: Fence) -> None:
        self.journal = journal
        self.fence = fence

    def append(self, events: Sequence[Event], sources: Sources) -> Appended:
        entropy = sources.entropy(NONCE_BYTES * len(events))
        return self.journal.append(events, sources.now_ms(), entropy)


async def load_run(store: Store, run: Run) -> LoadedRun:
    """Read a run's entries and rebuild it, under the epoch of the given row."""
    loaded, _ = rebuild_run(run, await store.entries(run.run_id, 0, run.seq))
    return loaded


def rebuild_run(run: Run, entries: Sequence[Entry]) -> tuple[LoadedRun, list[Event]]:
    """The run rebuilt from its entries, under the epoch of its row; and the events of the entries."""
    journal = Journal(run.run_id)
    events = journal.replay(entries)
    if (journal.seq, journal.head) != (run.seq, run.head):
        raise CorruptJournal(
            f"the journal of run {run.run_id!r} does not end where its row says ({run.seq} entries)",
            "call `Engine.verify()` to find what was changed, and restore it from a backup",
        )
    return LoadedRun(journal, Fence(run.run_id, run.epoch)), events


def create_run(bundle: Bundle, new: NewRun, events: Sequence[Event], sources: Sources) -> LoadedRun:
    """Add a new run, its first entries, and the tags that it starts with, to the bundle."""
    journal = Journal(new.run_id)
    entropy = sources.entropy(NONCE_BYTES * len(events))
    appended = journal.append(events, sources.now_ms(), entropy)
    fence = bundle.create_run(new, appended)
    for event in events:
        if isinstance(event, ExecutionStarted) and event.tags:
            for name, value in event.tags.items():
                bundle.tag(fence, name, value, sources.now_ms(), scope=new.scope)
    return LoadedRun(journal, fence)


RunCreator = Callable[[CreateRun], None]
"""Creates the run that an effect asks for, in the same bundle."""


class WarmRun:
    """A run that this host owns. For a run that is not stored yet, `row` is the row to create.

    While a commit is under way, memory is ahead of the store. If a commit is rejected the host drops the run and loads
    it again.
    """

    __slots__ = (
        "_loaded",
        "_lock",
        "_measure_beyond",
        "_new",
        "_payload_bytes",
        "_pins",
        "act_times",
        "chain",
        "counted_bytes",
        "created_at_ms",
        "is_held",
        "machine",
        "needs_matching",
        "run_id",
        "scope",
        "slice_ends_at",
    )

    def __init__(
        self,
        machine: RunMachine,
        row: NewRun | Run,
        *,
        loaded: LoadedRun | None = None,
        payload_bytes: int = 0,
    ) -> None:
        """`payload_bytes` are those of the entries that a loaded run was replayed from."""
        self.machine = machine
        self.scope = row.scope
        self.chain = row.chain
        """The first run of the chain that this one continues."""
        self.run_id: RunId = machine.info.run_id
        self.created_at_ms = row.created_at_ms
        self.counted_bytes = 0
        """What the host's cache counts this run as."""
        self.slice_ends_at = 0.0
        """Until when the run keeps a slot for its next step, by the event loop's clock."""
        self._payload_bytes = payload_bytes
        """Payload bytes that may be held: all of the journal, or since the last measurement."""
        self._measure_beyond = MEASURE_BYTES
        self._pins = 0
        self.is_held = False
        """Whether the holder of `lock` excludes all others: the run takes no fact meanwhile."""
        self.act_times: list[int] = []
        """When operator acts were decided in the last minute."""
        self.needs_matching = False
        """Hook or signal written; matching still pending."""
        self._loaded = loaded
        self._new = row if isinstance(row, NewRun) else None
        self._lock: asyncio.Lock | None = None

    def pin(self) -> None:
        """Keep the run in memory until a matching `unpin`: a commit of it is under way, or about to be."""
        self._pins += 1

    def unpin(self) -> None:
        if not self._pins:
            raise RuntimeError(f"run {self.run_id!r} is unpinned more often than it was pinned")
        self._pins -= 1

    @property
    def is_pinned(self) -> bool:
        return self._pins > 0

    def estimated_bytes(self) -> int:
        """What the run holds in memory, estimated from counts.

        The program may keep the payloads that the run has taken in, or not: after some megabytes they are measured.
        """
        if self._payload_bytes > self._measure_beyond:
            self._measure_payloads()
        entries = 0 if self._loaded is None else self._loaded.journal.seq
        open_steps = len(self.machine.promises)
        return RUN_BYTES + ENTRY_BYTES * entries + PROMISE_BYTES * open_steps + self._payload_bytes

    def _measure_payloads(self) -> None:
        """Replace the count of payload bytes by what the machine holds. The next measurement follows once the run has
        taken in as much again, so that all of them cost less than decoding the payloads."""
        held = held_bytes(self.machine)
        if held is not None:
            self._payload_bytes = held
        self._measure_beyond = self._payload_bytes + max(MEASURE_BYTES, self._payload_bytes)

    @property
    def lock(self) -> asyncio.Lock:
        """Held from a fact to its commit, where commits are stepwise or contain a user's rows."""
        if self._lock is None:
            self._lock = asyncio.Lock()
        return self._lock

    @property
    def journal(self) -> Journal:
        return (self._loaded or self._require_loaded()).journal

    @property
    def fence(self) -> Fence:
        return (self._loaded or self._require_loaded()).fence

    @property
    def is_new(self) -> bool:
        """Whether the run is not created yet."""
        return self._loaded is None

    def _require_loaded(self) -> LoadedRun:
        if self._loaded is None:
            raise CorruptJournal(
                f"run {self.run_id!r} is not created yet", "write its first changes first"
            )
        return self._loaded

    def write(
        self,
        bundle: Bundle,
        changes: Sequence[RecordedChange],
        sources: Sources,
        create: RunCreator,
    ) -> list[Message]:
        """Add the changes and their effects to the bundle. Returns the messages among them."""
        events = [change.event for change in changes]
        loaded = self._loaded
        if loaded is None and self._new is not None:
            self._loaded = create_run(bundle, self._new, events, sources)
        elif loaded is not None and events:
            bundle.append(loaded.fence, loaded.append(events, sources))
        if events and type(events[-1]) is ExecutionFailed:
            error = error_text(self.machine.codec, events[-1].payload)
            if error is not None:
                bundle.blame(self.fence, error.fingerprint)
        sent: list[Message] = []
        size = self.machine.size
        size.bytes += ENTRY_SIZE * len(events)
        for change in changes:
            event = change.event
            if type(event) in STEPS:
                size.steps += 1
            if isinstance(event, Carrier) and event.payload is not None:
                payload = event.payload
                size.bytes += len(payload)
                self._payload_bytes += (
                    value_bytes(payload) if payload[:1] == MARK[:1] else len(payload)
                )
            for effect in change.effects:
                self._apply(bundle, effect, sources, create, sent)
        return sent

    def _apply(
        self,
        bundle: Bundle,
        effect: RunEffect,
        sources: Sources,
        create: RunCreator,
        sent: list[Message],
    ) -> None:
        match effect:
            case Enqueue(message):
                bundle.enqueue(message)
                sent.append(message)
            case PutWork(work):
                bundle.put_work(self.fence, work)
            case DropWork(step):
                bundle.drop_work(self.fence, step)
            case Acknowledge(guid):
                bundle.acknowledge(self.fence, guid)
            case HoldWork() | ParkStep() | UnparkStep():
                self._stand(bundle, effect)
            case Publish(name, payload, at_ms):
                is_new = at_ms is None
                stamp = sources.stamp() if at_ms is None else at_ms
                bundle.publish(self.run_id, name, payload, stamp, again=not is_new)
            case AppendChunk(name, number, payload):
                at_ms = sources.now_ms()
                bundle.append_chunk(NewChunk(self.run_id, name, ROOT, number, payload, at_ms))
            case SpawnChild() | ContinueAsNew():
                create(effect)
            case _:
                self._index(bundle, effect, sources)

    def _stand(self, bundle: Bundle, effect: StandingEffect) -> None:
        """Apply the effects of pauses, and of steps that wait for an operator."""
        match effect:
            case HoldWork(held):
                bundle.hold_work(self.fence, held=held)
            case ParkStep(step, task, error, since_ms):
                bundle.park_step(self.fence, step, ParkedStep(task, error, since_ms))
            case UnparkStep(step):
                bundle.unpark_step(self.fence, step)

    def _index(self, bundle: Bundle, effect: IndexEffect, sources: Sources) -> None:
        """Apply tags and the effects that only graphs have: hooks, mailboxes, waiting joins."""
        match effect:
            case TrackJoin(step, required, resolved):
                bundle.track(self.fence, step, required, resolved)
            case Deliver(given):
                bundle.deliver(self.fence, *msgspec.structs.astuple(given))
            case SetReady(step):
                bundle.ready(self.fence, step)
            case UntrackAll():
                bundle.untrack_all(self.fence)
            case SetTag(name, value, before):
                bundle.tag(self.fence, name, value, sources.now_ms(), before, self.scope)
            case AddHook(step, mailbox, kind, topic, key, since_ms):
                self.needs_matching = self.needs_matching or bool(key)
                bundle.hook(self.fence, step, mailbox, kind, topic, key, since_ms)
            case SendToMailbox(message):
                self.needs_matching = True
                bundle.enqueue(message)
            case RemoveHook(step):
                bundle.unhook(self.fence, step)
            case SendBroadcast(mailbox, kind, payload, suffix, now_ms, scrubs):
                bundle.broadcast(self.fence, mailbox, kind, payload, suffix, now_ms, scrubs)
