"""What must hold of graph runs at any stop: the semaphore says whether one is open, the rows what it waits for."""

import re
from collections import Counter
from collections.abc import Iterable

import msgspec

from perdure.authoring.graphs.program import GraphProgram
from perdure.core.codec import Codec
from perdure.core.errors import UnknownName
from perdure.core.ids import Guid, RunId
from perdure.core.journal import events as e
from perdure.core.journal.entry import Entry
from perdure.core.journal.postings import effect_of
from perdure.core.ledger import AccountId, MessageLedger, message_account
from perdure.core.replay.doubt import resolution_of
from perdure.engine.graph.index import Index, index_of, stored_index
from perdure.engine.graph.machine import GraphMachine
from perdure.engine.programs import Programs
from perdure.engine.replay.programs import program_of, rebuild
from perdure.engine.replay.record import Diverged
from perdure.engine.sources import Sources
from perdure.store.bundle import Bundle
from perdure.store.records import Run
from perdure.store.store import Store

Journals = dict[str, Counter[str]]
"""By program, what its runs journaled, save for how often they tried."""

_CLOSING = (e.StepSkipped, e.Terminal)
_OWN_IDS = re.compile(r"([rm])_[0-9a-f]{32}(_[0-9a-f]{32})?")
_MOMENTARY = ("attempt", "claim", "delivery_id", "fire_at_ms", "root", "retry_policy")


class GraphWatch:
    """Follows every graph run of a store, from commit to commit."""

    def __init__(self, store: Store, codec: Codec, *, is_fused: bool) -> None:
        self._store = store
        self._codec = codec
        self._is_fused = is_fused
        self._events: dict[RunId, list[e.Event]] = {}
        self._semaphores: Counter[RunId] = Counter()
        self._balances: dict[RunId, Counter[AccountId]] = {}

    async def look(self, bundle: Bundle) -> list[str]:
        """The bundle is durable. Returns what is wrong now."""
        wrong: list[str] = []
        for new, first in bundle.created:
            if getattr(first.entries[0].event, "trigger", None) is not None:
                self._events[new.run_id] = []
                self._balances[new.run_id] = Counter()
        changed = [first for _, first in bundle.created] + [more for _, more in bundle.appends]
        for run_id, entries in [(each.run_id, each.entries) for each in changed]:
            if run_id in self._events:
                wrong += self._take(run_id, entries)
                wrong += await stray_rows(self._store, run_id, self._codec)
        return wrong

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
                wrong.append(f"run {run_id} goes on after its last obligation: {event}")
            events.append(event)
        left, is_over = self._semaphores[run_id], isinstance(events[-1], e.Terminal)
        if left < 0 or (is_over and left) or (self._is_fused and not is_over and not left):
            wrong.append(
                f"the semaphore of run {run_id}, which is {'over' if is_over else 'open'}, is {left}"
            )
        if is_over:
            wrong += self._judge_messages(run_id)
        return wrong

    def _judge_messages(self, run_id: RunId) -> list[str]:
        """Each message has its place among the entries of a step, unless it began the run; and what was entered
        has done its work, unless the run did not come so far."""
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
        """When all runs are over: what still waits for one of them that it had asked for."""
        return [
            f"a {message.kind} of step {message.step} of run {run_id} is left ({state})"
            for run_id in self._events
            for message, state, _ in await self._store.messages(run_id)
            if message.kind in ("timer", "retry")
        ]

    def journals(self) -> Journals:
        """What all runs have journaled."""
        found: Journals = {}
        for events in self._events.values():
            first = events[0]
            assert isinstance(first, e.ExecutionStarted)  # noqa: S101 - nothing can stand before it
            found.setdefault(first.program, Counter()).update(_told(events))
        return found


def _may_close(event: e.Event) -> bool:
    """Whether it may stand between the last obligation and the end, or is the end."""
    if isinstance(event, e.CancelRequested):
        return event.guid is None
    return isinstance(event, _CLOSING) or (isinstance(event, e.Posted) and event.label == "emit")


def _told(events: Iterable[e.Event]) -> Iterable[str]:
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
    """An event without what differs from run to run."""
    fields = msgspec.to_builtins(event)
    for name in _MOMENTARY:
        fields.pop(name, None)
    if isinstance(event, e.Carrier):
        # What an exception says may hold the number of the attempt.
        is_error = isinstance(event, e.InvokeCompleted) and not event.ok
        fields["payload"] = None if is_error else (event.payload or b"").decode(errors="replace")
    return _OWN_IDS.sub(r"\1_", str(fields))


def differences(ended: Journals, expected: Journals) -> list[str]:
    """What one has journaled and the other has not, for people."""
    found = []
    for program in sorted(ended.keys() | expected.keys()):
        ours, theirs = ended.get(program, Counter()), expected.get(program, Counter())
        found += [f"  + {program}: {text} ({n} more)" for text, n in (ours - theirs).items()]
        found += [f"  - {program}: {text} ({n} less)" for text, n in (theirs - ours).items()]
    return found


async def stray_rows(store: Store, run_id: RunId, codec: Codec) -> list[str]:
    """Where the rows of readiness, inbox and hooks are not what the run's journal says.

    A hook that a signal has found is gone while the signal is on its way. What a run has decided and not
    committed yet, where parts commit apart, has no rows yet. A run that changes meanwhile is not judged, nor one
    whose program is not known here.
    """
    run = await store.run(run_id)
    if run is None:
        return []
    entries = await store.entries(run_id, 0, run.seq)
    hooks = await store.hooks_waiting(run_id)
    stored = stored_index(
        await store.readiness(run_id),
        await store.inbox(run_id),
        ((hook.step, hook.mailbox) for hook in hooks),
    )
    found = {m.step for m, state, _ in await store.messages(run_id) if state == "pending"}
    now = await store.run(run_id)
    if now is None or now.seq != run.seq:
        return []
    if run.closed_at_ms is not None:
        expected = Index()
    else:
        try:
            machine = _machine_of(run, entries, codec)
        except (Diverged, UnknownName):
            return []  # whoever has the run says so
        if machine is None:
            return []
        expected = index_of(machine)
        stored.follow(machine.record.changes)
        for step in expected.hooks.keys() & found:
            del expected.hooks[step]
            stored.hooks.pop(step, None)
    return [] if stored == expected else [f"run {run_id} has the rows {stored}, not {expected}"]


def _machine_of(run: Run, entries: list[Entry], codec: Codec) -> GraphMachine | None:
    """The run as its journal tells it; None if it is no graph."""
    programs = Programs()
    program = program_of(run, programs)
    if not isinstance(program, GraphProgram):
        return None
    machine = rebuild(run, entries, program, codec, _Nothing(), programs).machine
    return machine if isinstance(machine, GraphMachine) else None


class _Nothing(Sources):
    """Sources for a run that is only looked at."""

    def now_ms(self) -> int:
        return 0

    def entropy(self, count: int) -> bytes:
        return bytes(count)
