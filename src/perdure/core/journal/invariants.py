"""The 20 invariants of a journal, each a function over the whole journal.

These are the definitions, written for reading. `checker` checks the same invariants for one append in
O(1), and tests prove that both agree. A skipped step counts as completed.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple, Protocol

from perdure.core.journal import events as e
from perdure.core.journal.state import payload_digest


class Recorded(Protocol):
    """An event with its sequence number."""

    @property
    def seq(self) -> int: ...
    @property
    def event(self) -> e.Event: ...


class Violation(NamedTuple):
    """A broken invariant: its name as in `INVARIANTS`, the offending entry, the values at fault."""

    name: str
    seq: int
    detail: str

    def __str__(self) -> str:
        return f"{self.name}: {self.detail} (entry {self.seq})"


RecordedEntries = Sequence[Recorded]
Breaches = Iterator[tuple[int, str]]
"""Sequence number of each offending entry, and the values at fault."""


# Structure


def monotonic_sequence(journal: RecordedEntries) -> Breaches:
    """S-1: sequence numbers count up from 0 without a gap."""
    for expected, entry in enumerate(journal):
        if entry.seq != expected:
            yield entry.seq, f"expected sequence {expected}, found {entry.seq}"
            return


def starts_with_started(journal: RecordedEntries) -> Breaches:
    """S-2: the first event is ExecutionStarted; only an approval may stand before it."""
    for entry in journal:
        if not isinstance(entry.event, e.RunApproved):
            if not isinstance(entry.event, e.ExecutionStarted):
                yield entry.seq, f"{type(entry.event).__name__} comes before ExecutionStarted"
            return


def single_terminal(journal: RecordedEntries) -> Breaches:
    """S-3: at most one terminal event."""
    terminals = [entry for entry in journal if isinstance(entry.event, e.Terminal)]
    for entry in terminals[1:]:
        yield entry.seq, f"{type(entry.event).__name__} is a second terminal event"


def terminal_is_last(journal: RecordedEntries) -> Breaches:
    """S-4: nothing that is not terminal follows a terminal event."""
    ended = False
    for entry in journal:
        if isinstance(entry.event, e.Terminal):
            ended = True
        elif ended:
            yield entry.seq, f"{type(entry.event).__name__} follows the terminal event"


def cancelled_requires_requested(journal: RecordedEntries) -> Breaches:
    """S-5: ExecutionCancelled requires a preceding CancelRequested."""
    requested = False
    for entry in journal:
        if isinstance(entry.event, e.CancelRequested):
            requested = True
        elif isinstance(entry.event, e.ExecutionCancelled) and not requested:
            yield entry.seq, "cancelled without a request"


# Side effects


def started_requires_scheduled(journal: RecordedEntries) -> Breaches:
    """SE-1: InvokeStarted(pid) requires a preceding InvokeScheduled(pid)."""
    scheduled = set()
    for entry in journal:
        if isinstance(entry.event, e.InvokeScheduled):
            scheduled.add(entry.event.promise_id)
        elif isinstance(entry.event, e.InvokeStarted) and entry.event.promise_id not in scheduled:
            yield entry.seq, f"{entry.event.promise_id} started, but was not scheduled"


def completed_requires_started(journal: RecordedEntries) -> Breaches:
    """SE-2: InvokeCompleted(pid) requires a preceding InvokeStarted(pid)."""
    started = set()
    for entry in journal:
        if isinstance(entry.event, e.InvokeStarted):
            started.add(entry.event.promise_id)
        elif isinstance(entry.event, e.InvokeCompleted) and entry.event.promise_id not in started:
            yield entry.seq, f"{entry.event.promise_id} completed, but was not started"


def retrying_requires_started(journal: RecordedEntries) -> Breaches:
    """SE-3: InvokeRetrying(pid, attempt) requires a preceding InvokeStarted(pid, attempt)."""
    started = set()
    for entry in journal:
        event = entry.event
        if isinstance(event, e.InvokeStarted):
            started.add((event.promise_id, event.attempt))
        elif isinstance(event, e.InvokeRetrying):
            if (event.promise_id, event.failed_attempt) not in started:
                what = f"attempt {event.failed_attempt} of {event.promise_id}"
                yield entry.seq, f"{what} is retried, but was not started"


def no_events_after_completed(journal: RecordedEntries) -> Breaches:
    """SE-4: no InvokeStarted or InvokeRetrying after InvokeCompleted for the same pid."""
    completed = set()
    for entry in journal:
        event = entry.event
        if isinstance(event, e.InvokeCompleted | e.StepSkipped):
            completed.add(event.promise_id)
        elif isinstance(event, e.InvokeStarted | e.InvokeRetrying):
            if event.promise_id in completed:
                yield entry.seq, f"{type(event).__name__} of {event.promise_id}, which is complete"


# Control flow


def timer_fired_requires_scheduled(journal: RecordedEntries) -> Breaches:
    """CF-1: TimerFired(pid) requires a preceding TimerScheduled(pid)."""
    scheduled = set()
    for entry in journal:
        if isinstance(entry.event, e.TimerScheduled):
            scheduled.add(entry.event.promise_id)
        elif isinstance(entry.event, e.TimerFired) and entry.event.promise_id not in scheduled:
            yield entry.seq, f"timer {entry.event.promise_id} fired, but was not scheduled"


def signal_received_requires_delivered(journal: RecordedEntries) -> Breaches:
    """CF-2: SignalReceived requires a preceding SignalDelivered of that name, id and payload.

    An erased payload can't be compared, and passes.
    """
    delivered: dict[tuple[str, int], bytes | None] = {}
    for entry in journal:
        event = entry.event
        if isinstance(event, e.SignalDelivered):
            delivered[event.signal_name, event.delivery_id] = payload_digest(event.payload)
        elif isinstance(event, e.SignalReceived):
            what = f"delivery {event.delivery_id} of {event.signal_name!r}"
            key = event.signal_name, event.delivery_id
            if key not in delivered:
                yield entry.seq, f"{what} is received, but was not delivered"
            elif None not in (event.payload, delivered[key]):
                if payload_digest(event.payload) != delivered[key]:
                    yield entry.seq, f"{what} is received with another payload"


def signal_consumed_once(journal: RecordedEntries) -> Breaches:
    """CF-3: each delivery is consumed by at most one SignalReceived."""
    consumed = set()
    for entry in journal:
        event = entry.event
        if isinstance(event, e.SignalReceived):
            key = event.signal_name, event.delivery_id
            if key in consumed:
                yield entry.seq, f"delivery {key[1]} of {key[0]!r} is consumed twice"
            consumed.add(key)


def await_signal_consistent(journal: RecordedEntries) -> Breaches:
    """CF-4: an await of kind signal waits on exactly that signal's promise; others on every signal that they name."""
    for entry in journal:
        if isinstance(entry.event, e.ExecutionAwaiting) and not entry.event.is_consistent:
            yield entry.seq, f"awaits {entry.event.signal}, but waits on {entry.event.waiting_on}"


# Join sets


def submit_requires_created(journal: RecordedEntries) -> Breaches:
    """JS-1: JoinSetSubmitted(js) requires a preceding JoinSetCreated(js)."""
    created = set()
    for entry in journal:
        if isinstance(entry.event, e.JoinSetCreated):
            created.add(entry.event.join_set_id)
        elif isinstance(entry.event, e.JoinSetSubmitted):
            if entry.event.join_set_id not in created:
                yield entry.seq, f"set {entry.event.join_set_id} was not created"


def no_submit_after_await(journal: RecordedEntries) -> Breaches:
    """JS-2: no JoinSetSubmitted(js) after any JoinSetAwaited(js)."""
    awaited = set()
    for entry in journal:
        if isinstance(entry.event, e.JoinSetAwaited):
            awaited.add(entry.event.join_set_id)
        elif isinstance(entry.event, e.JoinSetSubmitted) and entry.event.join_set_id in awaited:
            yield entry.seq, f"set {entry.event.join_set_id} is closed by its first await"


def awaited_requires_member(journal: RecordedEntries) -> Breaches:
    """JS-3: JoinSetAwaited(js, pid) requires a preceding JoinSetSubmitted(js, pid)."""
    members = set()
    for entry in journal:
        event = entry.event
        if isinstance(event, e.JoinSetSubmitted):
            members.add((event.join_set_id, event.promise_id))
        elif isinstance(event, e.JoinSetAwaited):
            if (event.join_set_id, event.promise_id) not in members:
                yield entry.seq, f"{event.promise_id} is not in set {event.join_set_id}"


def awaited_requires_completed(journal: RecordedEntries) -> Breaches:
    """JS-4: JoinSetAwaited(_, pid) requires a preceding InvokeCompleted(pid)."""
    completed = set()
    for entry in journal:
        if isinstance(entry.event, e.InvokeCompleted | e.StepSkipped):
            completed.add(entry.event.promise_id)
        elif isinstance(entry.event, e.JoinSetAwaited):
            if entry.event.promise_id not in completed:
                yield entry.seq, f"{entry.event.promise_id} is awaited, but not complete"


def no_double_consume(journal: RecordedEntries) -> Breaches:
    """JS-5: no two JoinSetAwaited for the same (js, pid)."""
    awaited = set()
    for entry in journal:
        event = entry.event
        if isinstance(event, e.JoinSetAwaited):
            pair = event.join_set_id, event.promise_id
            if pair in awaited:
                yield entry.seq, f"{pair[1]} of set {pair[0]} is consumed twice"
            awaited.add(pair)


def consume_bounded(journal: RecordedEntries) -> Breaches:
    """JS-6: per set, no more JoinSetAwaited than JoinSetSubmitted. Implied by JS-3 and JS-5."""
    open_members: Counter[str] = Counter()
    for entry in journal:
        event = entry.event
        if isinstance(event, e.JoinSetSubmitted):
            open_members[event.join_set_id] += 1
        elif isinstance(event, e.JoinSetAwaited):
            open_members[event.join_set_id] -= 1
            if open_members[event.join_set_id] < 0:
                yield entry.seq, f"set {event.join_set_id} gives more results than it has members"


def promise_single_owner(journal: RecordedEntries) -> Breaches:
    """JS-7: a promise is in at most one join set."""
    owner: dict[str, str] = {}
    for entry in journal:
        event = entry.event
        if isinstance(event, e.JoinSetSubmitted):
            first = owner.setdefault(event.promise_id, event.join_set_id)
            if first != event.join_set_id:
                yield entry.seq, f"{event.promise_id} is in set {first} already"


INVARIANTS: Final[dict[str, Callable[[RecordedEntries], Breaches]]] = {
    "S-1 monotonic_sequence": monotonic_sequence,
    "S-2 starts_with_started": starts_with_started,
    "S-3 single_terminal": single_terminal,
    "S-4 terminal_is_last": terminal_is_last,
    "S-5 cancelled_requires_requested": cancelled_requires_requested,
    "SE-1 started_requires_scheduled": started_requires_scheduled,
    "SE-2 completed_requires_started": completed_requires_started,
    "SE-3 retrying_requires_started": retrying_requires_started,
    "SE-4 no_events_after_completed": no_events_after_completed,
    "CF-1 timer_fired_requires_scheduled": timer_fired_requires_scheduled,
    "CF-2 signal_received_requires_delivered": signal_received_requires_delivered,
    "CF-3 signal_consumed_once": signal_consumed_once,
    "CF-4 await_signal_consistent": await_signal_consistent,
    "JS-1 submit_requires_created": submit_requires_created,
    "JS-2 no_submit_after_await": no_submit_after_await,
    "JS-3 awaited_requires_member": awaited_requires_member,
    "JS-4 awaited_requires_completed": awaited_requires_completed,
    "JS-5 no_double_consume": no_double_consume,
    "JS-6 consume_bounded": consume_bounded,
    "JS-7 promise_single_owner": promise_single_owner,
}


def violations(journal: RecordedEntries) -> list[Violation]:
    """All violations in a whole journal, in the order of `INVARIANTS`."""
    return [
        Violation(name, seq, detail)
        for name, invariant in INVARIANTS.items()
        for seq, detail in invariant(journal)
    ]
