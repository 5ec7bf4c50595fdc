"""Checks of graph runs after each commit: semaphore, messages, and rows that agree with the journal."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from perdure.authoring.graphs.program import GraphProgram
from perdure.core.artifacts import SCHEME
from perdure.core.codec import Codec
from perdure.core.errors import UnknownName
from perdure.core.ids import Guid, RunId
from perdure.core.journal import events as e
from perdure.core.journal.entry import Entry
from perdure.core.journal.journal import Appended
from perdure.core.journal.postings import effect_of
from perdure.core.ledger import AccountId, MessageLedger, message_account
from perdure.core.replay.doubt import resolution_of
from perdure.engine.graph.index import Index, index_of, stored_index
from perdure.engine.graph.machine import GraphMachine
from perdure.engine.known_programs import KnownPrograms
from perdure.engine.programs.rebuilding import program_for, rebuild
from perdure.engine.runs.effects import RecordedChange
from perdure.engine.runs.record import Diverged
from perdure.engine.sources import Sources
from perdure.store.commit.bundle import Bundle
from perdure.store.rows.records import Run
from perdure.store.store import Store

JournalCounts = dict[str, Counter[str]]
"""By program, the texts of the events that its runs journaled, without attempts and retries."""

_CLOSING = (e.StepSkipped, e.Terminal)
_ARTIFACTS = re.compile(rf"{SCHEME}[\w/-]+")
_OWN_IDS = re.compile(r"([rm])_[0-9a-f]{32}(_[0-9a-f]{32})?")
_MOMENTARY = ("attempt", "claim", "delivery_id", "fire_at_ms", "root", "retry_policy")


class Replayed(NamedTuple):
    """The index of what a run waits for, from its journal, and the changes that it decided and has not committed."""

    waits: Index
    changes: Sequence[RecordedChange]


class ReplayCache:
    """Replays each journal once.

    The schedules of one exploration share most journals, because they differ only from their first fault on. Two
    journals are the same if their runs' rows are, except for owner and epoch: a row holds the hash of the last entry,
    which covers all entries before it.
    """

    def __init__(self) -> None:
        self._done: dict[Run, Replayed | None] = {}

    async def of(self, store: Store, run: Run, codec: Codec) -> Replayed | None:
        """The replayed journal; `None` if the run is no graph."""
        row = msgspec.structs.replace(run, owner=None, epoch=0)
        if row not in self._done:
            entries = await store.entries(run.run_id, 0, run.seq)
            machine = _machine_of(run, entries, codec)
            self._done[row] = (
                None if machine is None else Replayed(index_of(machine), machine.record.changes)
            )
        return self._done[row]


class GraphChecker:
    """Checks every graph run of a store after each commit."""

    def __init__(self, store: Store, codec: Codec, replays: ReplayCache, *, is_fused: bool) -> None:
        self._store = store
        self._codec = codec
        self._replays = replays
        self._is_fused = is_fused
        self._events: dict[RunId, list[e.Event]] = {}
        self._semaphores: Counter[RunId] = Counter()
        self._balances: dict[RunId, Counter[AccountId]] = {}

    def take(self, bundle: Bundle) -> list[str]:
        """Record what the bundle made durable, and check semaphores and messages. Returns the violations."""
        for new, first in bundle.created:
            if getattr(first.entries[0].event, "trigger", None) is not None:
                self._events[new.run_id] = []
                self._balances[new.run_id] = Counter()
        return [
            problem
            for appended in self._changed(bundle)
            for problem in self._take(appended.run_id, appended.entries)
        ]

    async def check_rows(self, bundle: Bundle) -> list[str]:
        """Check the rows of the runs that the durable bundle changes. Returns the violations."""
        return [
            problem
            for appended in self._changed(bundle)
            for problem in await row_mismatches(
                self._store, appended.run_id, self._codec, self._replays
            )
        ]

    def _changed(self, bundle: Bundle) -> list[Appended]:
        """What the bundle appends to graph runs."""
        appended = [*(first for _, first in bundle.created), *(more for _, more in bundle.appends)]
        return [each for each in appended if each.run_id in self._events]

    def _take(self, run_id: RunId, entries: Iterable[Entry]) -> list[str]:
        events, wrong = self._events[run_id], []
        for entry in entries:
            event = entry.event
            was_open = not events or self._semaphores[run_id] > 0
            postings, delta = effect_of(event)
            self._semaphores[run_id] += delta
            for account, increment in postings:
                self._balances[run_id][account] += increment
            if not was_open and not _may_close(event):
                wrong.append(f"run {run_id} continues after its last obligation: {event}")
            events.append(event)
        left, is_over = self._semaphores[run_id], isinstance(events[-1], e.Terminal)
        if left < 0 or (is_over and left) or (self._is_fused and not is_over and not left):
            wrong.append(
                f"the semaphore of run {run_id}, which is {'over' if is_over else 'open'}, is {left}"
            )
        if is_over:
            wrong += self._check_messages(run_id)
        return wrong

    def _check_messages(self, run_id: RunId) -> list[str]:
        """Messages that the run did not process to the end.

        Each message must have entered a step, except for the one that began the run. If the run completed, each
        message that entered must also have spawned.
        """
        first, *_, last = self._events[run_id]
        began = message_account(getattr(first, "guid", None) or Guid(""))
        is_done = isinstance(last, e.ExecutionCompleted)
        return [
            f"message {account} of run {run_id} ends at {ledger}"
            for account, balance in self._balances[run_id].items()
            if account.startswith("message:") and account != began
            for ledger in [MessageLedger(balance)]
            if not ledger.ordinal or (is_done and not ledger.spawned)
        ]

    async def left_over(self) -> list[str]:
        """Timers and retries that are left in the store when all runs are over."""
        return [
            f"a {message.kind} of step {message.step} of run {run_id} is left ({state})"
            for run_id in self._events
            for message, state, _ in await self._store.messages(run_id)
            if message.kind in ("timer", "retry")
        ]

    def journals(self) -> JournalCounts:
        """The events that all runs have journaled, by program."""
        found: JournalCounts = {}
        for events in self._events.values():
            first = events[0]
            assert isinstance(first, e.ExecutionStarted)  # noqa: S101 - nothing can stand before it
            found.setdefault(first.program, Counter()).update(_event_texts(events))
        return found


def _may_close(event: e.Event) -> bool:
    """Whether the event may follow the last obligation: it closes the run, or precedes the closing event."""
    if isinstance(event, e.CancelRequested):
        return event.guid is None
    return isinstance(event, _CLOSING) or (isinstance(event, e.Posted) and event.label == "emit")


def _event_texts(events: Iterable[e.Event]) -> Iterable[str]:
    attempted = set()
    for event in events:
        if isinstance(event, e.InvokeStarted | e.InvokeRetrying):
            continue
        if isinstance(event, e.Posted):
            if resolution_of(event) is not None or event.label.startswith("reconciled"):
                continue
            if event.label == "attempt":
                attempted.add(event.postings[0].account)
                continue
        yield _text_of(event)
    yield from (f"attempt {account}" for account in attempted)


def _text_of(event: e.Event) -> str:
    """The event without the fields and ids that differ from run to run."""
    fields = msgspec.to_builtins(event)
    for name in _MOMENTARY:
        fields.pop(name, None)
    if isinstance(event, e.Carrier):
        # The text of an exception may contain the number of the attempt.
        is_error = isinstance(event, e.InvokeCompleted) and not event.ok
        fields["payload"] = None if is_error else (event.payload or b"").decode(errors="replace")
    return _OWN_IDS.sub(r"\1_", _ARTIFACTS.sub(SCHEME, str(fields)))


def differences(ended: JournalCounts, expected: JournalCounts) -> list[str]:
    """The events that only one of both has journaled, as lines for an error text."""
    found = []
    for program in sorted(ended.keys() | expected.keys()):
        ours, theirs = ended.get(program, Counter()), expected.get(program, Counter())
        found += [f"  + {program}: {text} ({n} more)" for text, n in (ours - theirs).items()]
        found += [f"  - {program}: {text} ({n} less)" for text, n in (theirs - ours).items()]
    return found


async def row_mismatches(
    store: Store, run_id: RunId, codec: Codec, replays: ReplayCache
) -> list[str]:
    """Rows of readiness, inbox and hooks that disagree with the run's journal.

    Two differences are legal. A matched hook has no row while its signal is under way. Decisions that are not committed
    yet, where parts commit separately, have no rows. A run that changes during the check is skipped, and so is a run
    whose program is not registered here.
    """
    run = await store.run(run_id)
    if run is None:
        return []
    hooks = await store.hooks_waiting(run_id)
    stored = stored_index(
        await store.readiness(run_id),
        await store.inbox(run_id),
        ((hook.step, hook.mailbox) for hook in hooks),
    )
    matched = {m.step for m, state, _ in await store.messages(run_id) if state == "pending"}
    if run.closed_at_ms is not None:
        expected = Index()
    else:
        try:
            replayed = await replays.of(store, run, codec)
        except (Diverged, UnknownName):
            return []  # the host that owns the run parks it for that
        if replayed is None:
            return []
        stored.follow(replayed.changes)
        expected = msgspec.structs.replace(replayed.waits, hooks=dict(replayed.waits.hooks))
        for step in replayed.waits.hooks.keys() & matched:
            del expected.hooks[step]
            stored.hooks.pop(step, None)
    if stored == expected:
        return []
    now = await store.run(run_id)
    has_changed = now is None or now.seq != run.seq
    return [] if has_changed else [f"run {run_id} has the rows {stored}, not {expected}"]


def _machine_of(run: Run, entries: list[Entry], codec: Codec) -> GraphMachine | None:
    """The machine of the replayed run; `None` if the run is no graph."""
    programs = KnownPrograms()
    program = program_for(run, programs)
    if not isinstance(program, GraphProgram):
        return None
    machine = rebuild(run, entries, program, codec, _NullSources(), programs).machine
    return machine if isinstance(machine, GraphMachine) else None


class _NullSources(Sources):
    """Sources for a run that is only replayed."""

    def now_ms(self) -> int:
        return 0

    def entropy(self, count: int) -> bytes:
        return bytes(count)
