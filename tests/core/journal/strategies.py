"""Generated events and journals.

`EVENTS_BY_TYPE` has any event of each type, for properties of single events. `legal_journals` gives journals of
workflows that `append` accepted; `event_sequences` gives sequences that are mostly legal and become invalid.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final

from hypothesis import strategies as st

from perdure.core.errors import PerdureError
from perdure.core.ids import Guid, RunId, SetId, StepId, message_guid
from perdure.core.journal import events as e
from perdure.core.journal.state import State, Status, apply_event
from perdure.core.ledger import ATTEMPT, AccountId, step_account
from tests.core.journal.writer import OTHER_RUN, RUN, STARTED, Writer, join_set, step

# Any event of each type

_texts = st.text(max_size=12)
_numbers = st.integers(-(2**63), 2**63 - 1)
_payloads = st.none() | st.binary(max_size=40)
_steps = st.text(min_size=1, max_size=12).map(StepId)
_sets = st.text(min_size=1, max_size=12).map(SetId)
_act_types = _texts | st.sampled_from(e.ActType)
_artifacts = st.builds(
    e.ArtifactRef, _texts, _texts, st.none() | _texts, st.none() | st.integers(0, 2**40)
)
_guids = st.none() | st.builds(message_guid, st.sampled_from([RUN, OTHER_RUN]), _texts)
_retries = st.builds(
    e.RetryPolicy,
    _numbers,
    _numbers,
    st.floats(allow_nan=False, allow_infinity=False),
    _numbers,
)
_signals = st.none() | st.builds(e.AwaitSignal, _texts, _steps)
_postings = st.builds(e.Posting, _texts.map(AccountId), _numbers)
_terminal: dict[str, st.SearchStrategy[Any]] = {
    "released": _numbers,
    "guid": _guids,
    "step": st.none() | _steps,
    "payload": _payloads,
}

EVENTS_BY_TYPE: Final[dict[type[e.Event], st.SearchStrategy[e.Event]]] = {
    e.ExecutionStarted: st.builds(
        e.ExecutionStarted,
        _texts,
        _texts,
        _texts,
        _texts,
        st.none() | _texts,
        st.none() | _texts,
        st.none() | _steps,
        _guids,
        payload=_payloads,
    ),
    e.ExecutionCompleted: st.builds(e.ExecutionCompleted, **_terminal),
    e.ExecutionFailed: st.builds(e.ExecutionFailed, **_terminal),
    e.CancelRequested: st.builds(e.CancelRequested, _texts, _guids),
    e.ExecutionCancelled: st.builds(e.ExecutionCancelled, _texts, **_terminal),
    e.InvokeScheduled: st.builds(
        e.InvokeScheduled,
        _steps,
        _texts,
        st.sampled_from(e.InvokeKind),
        st.none() | _retries,
        st.booleans(),
        st.none() | st.sampled_from(e.InvokePlace),
        st.none() | _texts,
        payload=_payloads,
    ),
    e.InvokeStarted: st.builds(e.InvokeStarted, _steps, _numbers),
    e.InvokeCompleted: st.builds(
        e.InvokeCompleted,
        _steps,
        _numbers,
        st.booleans(),
        _guids,
        st.booleans(),
        _numbers,
        st.just(()) | st.lists(_artifacts, max_size=2).map(tuple),
        payload=_payloads,
    ),
    e.InvokeRetrying: st.builds(
        e.InvokeRetrying, _steps, _numbers, st.just(e.NEVER) | _numbers, payload=_payloads
    ),
    e.RandomGenerated: st.builds(e.RandomGenerated, _steps, st.integers(0, 2**64 - 1)),
    e.TimeRecorded: st.builds(e.TimeRecorded, _steps, _numbers),
    e.TimerScheduled: st.builds(e.TimerScheduled, _steps, _numbers, _numbers, st.booleans()),
    e.TimerFired: st.builds(e.TimerFired, _steps, _guids, st.booleans()),
    e.SignalDelivered: st.builds(e.SignalDelivered, _texts, _numbers, _guids, payload=_payloads),
    e.SignalReceived: st.builds(e.SignalReceived, _steps, _texts, _numbers, payload=_payloads),
    e.ExecutionAwaiting: st.builds(
        e.ExecutionAwaiting,
        st.lists(_steps, max_size=4).map(tuple),
        st.sampled_from(e.AwaitKind),
        _signals,
    ),
    e.ExecutionResumed: st.builds(e.ExecutionResumed),
    e.JoinSetCreated: st.builds(e.JoinSetCreated, _sets),
    e.JoinSetSubmitted: st.builds(e.JoinSetSubmitted, _sets, _steps),
    e.JoinSetAwaited: st.builds(e.JoinSetAwaited, _sets, _steps),
    e.RunApproved: st.builds(e.RunApproved, _texts),
    e.RunPaused: st.builds(e.RunPaused, _texts, st.none() | _texts),
    e.RunResumed: st.builds(e.RunResumed, st.none() | _texts),
    e.StepSkipped: st.builds(
        e.StepSkipped,
        _steps,
        _texts,
        _numbers,
        st.none() | _texts,
        _guids,
        st.booleans(),
        payload=_payloads,
    ),
    e.SignalAccepted: st.builds(
        e.SignalAccepted, _texts, _act_types, _texts, _guids, _texts, st.none() | _steps, _texts
    ),
    e.SignalRejected: st.builds(
        e.SignalRejected,
        *(_texts, _act_types, _texts, _texts, _guids, _texts, st.none() | _steps, _texts),
    ),
    e.RunContinued: st.builds(e.RunContinued, _texts.map(RunId), **_terminal),
    e.Posted: st.builds(e.Posted, _texts, st.lists(_postings, max_size=3).map(tuple), _numbers),
}

any_event: Final = st.one_of(*EVENTS_BY_TYPE.values())


# Possible next events

SIGNALS: Final = ("approval", "stop")

_ENDS: Final = 2**16 // 64
"""How many of the 65,536 picks end a run that may end."""

_LIKELY: Final = 4
"""How often events that advance a run are listed; all others are listed once."""


def _payload_of(name: str, delivery: int) -> bytes:
    return f"{name} {delivery}".encode()


def _free_place(state: State) -> int:
    taken = {*state.scheduled, *state.timers, *state.allocated, *state.completed}
    if state.wait is not None:
        taken.update(state.wait.waiting_on)
    return next(number for number in range(1000) if step(number) not in taken)


def _is_open(state: State, place: StepId) -> bool:
    return place not in state.completed


def _arrivals(state: State) -> list[e.Event]:
    """Facts that reach a run from outside, whatever its program does."""
    found: list[e.Event] = []
    for place in filter(lambda place: _is_open(state, place), state.scheduled):
        last = state.started.get(place, 0)
        found += [e.InvokeStarted(place, last + 1)] * (1 if last else _LIKELY)
        if last:
            found += [e.InvokeCompleted(place, last, payload=b"1")] * _LIKELY
            found.append(e.InvokeCompleted(place, last, False, _guid(place), payload=b"2"))
            found.append(e.InvokeRetrying(place, last, 5, payload=b"3"))
            found.append(e.InvokeRetrying(place, last, e.NEVER, payload=b"4"))
    for place in filter(lambda place: _is_open(state, place), state.timers):
        found.append(e.TimerFired(place))
        found.append(e.TimerFired(place, _guid(place)))
    for name in SIGNALS:
        due = state.last_delivered.get(name, 0) + 1
        payload = _payload_of(name, due)
        found.append(e.SignalDelivered(name, due, payload=payload))
        found.append(e.SignalDelivered(name, due, _guid(f"{name}{due}"), payload=payload))
    return found


def _guid(text: str) -> Guid:
    return message_guid(RUN, text)


def _orders(state: State) -> list[e.Event]:
    """Events of the engine and of operators for an open run."""
    found: list[e.Event] = [
        e.SignalAccepted("s1", "PAUSE"),
        e.SignalRejected("s1", "PAUSE"),
        *(
            e.SignalAccepted("s2", e.ActType.RETRY_STEP, "ops", step=place)
            for place, is_parked in state.parked_steps.items()
            if is_parked
        ),
        e.StepSkipped(step(_free_place(state)), "never"),
    ]
    for place in (*state.scheduled, *state.timers):
        if _is_open(state, place):
            found.append(e.StepSkipped(place, "lost", 1))
            if state.balances.get(step_account(place), 0) < 90 * ATTEMPT:
                found.append(e.Posted("attempt", (e.Posting(step_account(place), ATTEMPT),)))
    if not state.cancel_requested:
        found += [e.CancelRequested("enough"), e.CancelRequested("", _guid("cancel"))]
        found.append(e.RunResumed() if state.paused else e.RunPaused("look"))
    return found


def _receipts(state: State, place: StepId) -> list[e.Event]:
    return [
        e.SignalReceived(place, name, due, payload=_payload_of(name, due))
        for name in SIGNALS
        for due in (state.last_received.get(name, 0) + 1,)
        if (name, due) in state.deliveries
    ]


def _waits(state: State) -> list[e.Event]:
    found: list[e.Event] = []
    place = step(_free_place(state))
    for name in SIGNALS:
        wait = e.AwaitSignal(name, place)
        found.append(e.ExecutionAwaiting((place,), e.AwaitKind.SIGNAL, wait))
    steps = tuple(s for s in (*state.scheduled, *state.timers) if _is_open(state, s))[-3:]
    if steps:
        found.append(e.ExecutionAwaiting(steps[-1:]))
        found.append(e.ExecutionAwaiting(steps, e.AwaitKind.ALL))
        found.append(e.ExecutionAwaiting((place, *steps), e.AwaitKind.ANY))
    return found


def _actions(state: State) -> list[e.Event]:
    """Events of a running program."""
    number = _free_place(state)
    place = step(number)
    found: list[e.Event] = [
        *[e.InvokeScheduled(place, "charge", payload=b"{}")] * _LIKELY,
        e.InvokeScheduled(place, "charge", place=e.InvokePlace.QUEUE, queue="gpu", payload=b"{}"),
        e.TimerScheduled(place, 10, 20),
        e.RandomGenerated(place, 7),
        e.TimeRecorded(place, 8),
        e.JoinSetCreated(join_set(number)),
    ]
    found += _receipts(state, place)
    found += _waits(state)
    for set_id, (_, awaited) in state.set_counts.items():
        if not awaited:
            for invoke in state.scheduled:
                if invoke not in state.member_of:
                    found += [e.JoinSetSubmitted(set_id, invoke)] * _LIKELY
    for (set_id, member), consumed in state.members.items():
        if not consumed and state.completed.get(member):
            found += [e.JoinSetAwaited(set_id, member)] * _LIKELY
    return found


def _ends(state: State) -> list[e.Event]:
    found: list[e.Event] = []
    if state.status is Status.CANCELLING:
        found.append(e.ExecutionCancelled(released=state.semaphore, payload=b"4"))
    if _acts(state):
        found.append(e.ExecutionFailed(released=state.semaphore, payload=b"5"))
        if state.semaphore == 1:
            found.append(e.ExecutionCompleted(released=1, payload=b"6"))
            found.append(e.RunContinued(OTHER_RUN, released=1))
    return found


def _acts(state: State) -> bool:
    runs = state.status in (Status.RUNNING, Status.CANCELLING)
    return runs and state.wait is None and not state.paused


def next_events(state: State) -> list[e.Event]:
    """Events that a workflow's run may append in `state`, except its end."""
    if state.status is Status.PENDING:
        return [STARTED, e.RunApproved("ops")]
    if state.status is Status.APPROVED:
        return [STARTED]
    if state.is_terminal:
        return []
    found = _actions(state) if _acts(state) else []
    found += _arrivals(state)
    found += _orders(state)
    if state.wait is not None:
        if state.wait_is_satisfied and not state.paused:
            found += [e.ExecutionResumed()] * _LIKELY * 2
        elif not state.paused:
            for signal in state.wait.signals:
                receipts = _receipts(state, signal.promise_id)
                wanted = [r for r in receipts if getattr(r, "signal_name", "") == signal.name]
                found += wanted * _LIKELY
    return found


def _choose(state: State, pick: int) -> e.Event | None:
    """The event that `pick`, 16 bits, selects."""
    if pick < _ENDS:
        ends = _ends(state)
        if ends:
            return ends[pick % len(ends)]
    found = next_events(state)
    return found[pick % len(found)] if found else None


@st.composite
def _picks(draw: st.DrawFn, longest: int) -> list[int]:
    # As bytes of a drawn length: lists of numbers come out short, and crowd at 0.
    length = draw(st.integers(0, longest))
    drawn = draw(st.binary(min_size=2 * length, max_size=2 * length))
    return [int.from_bytes(drawn[at : at + 2], "big") for at in range(0, 2 * length, 2)]


# Journals


def extend_legally(writer: Writer, picks: Sequence[int]) -> None:
    """Append one legal event for each pick, until the run ends."""
    for pick in picks:
        event = _choose(writer.state, pick)
        if event is None:
            return
        writer.append(event)


@st.composite
def legal_journals(draw: st.DrawFn, longest: int = 60) -> Writer:
    """A workflow's journal, appended one event at a time, at any point of its life."""
    writer = Writer()
    extend_legally(writer, draw(_picks(longest)))
    return writer


@st.composite
def legal_tails(draw: st.DrawFn, longest: int = 8) -> Callable[[Writer], None]:
    """How a journal continues."""
    picks = draw(_picks(longest))
    return lambda writer: extend_legally(writer, picks)


# Invalid sequences

_STEPS: Final = (step(0), step(1), step(2))
_SETS: Final = (join_set(1), join_set(8))
_ATTEMPTS: Final = (1, 2)
_PAYLOADS: Final = (b"approval 1", b"x", None)


def _invalid() -> list[list[e.Event]]:
    """Every event over a small alphabet, by type."""
    groups: list[list[e.Event]] = [
        [STARTED],
        [e.RunApproved()],
        [e.ExecutionCompleted(released=1), e.ExecutionFailed(released=1)],
        [e.RunContinued(OTHER_RUN, released=1)],
        [e.ExecutionCancelled(released=1)],
        [e.CancelRequested()],
        [e.ExecutionResumed()],
        [e.RunPaused(), e.RunResumed()],
        [e.InvokeScheduled(s, "f") for s in _STEPS],
        [e.InvokeStarted(s, n) for s in _STEPS for n in _ATTEMPTS],
        [e.InvokeCompleted(s, n) for s in _STEPS for n in _ATTEMPTS],
        [e.InvokeRetrying(s, n, 5) for s in _STEPS for n in (-1, 0, *_ATTEMPTS)],
        [e.StepSkipped(s, "", n) for s in _STEPS for n in (0, 1)],
        [e.TimerScheduled(s, 1, 2) for s in _STEPS],
        [e.TimerFired(s) for s in _STEPS],
        [e.RandomGenerated(s, 1) for s in _STEPS],
        [e.Posted("x", (e.Posting(step_account(_STEPS[0]), ATTEMPT),), -1)],
        [e.JoinSetCreated(j) for j in _SETS],
        [e.JoinSetSubmitted(j, s) for j in _SETS for s in _STEPS],
        [e.JoinSetAwaited(j, s) for j in _SETS for s in _STEPS],
    ]
    return [*groups, _deliveries(), _invalid_receipts(), _invalid_waits()]


def _deliveries() -> list[e.Event]:
    return [
        e.SignalDelivered(name, n, payload=payload)
        for name in SIGNALS
        for n in (1, 2)
        for payload in _PAYLOADS
    ]


def _invalid_receipts() -> list[e.Event]:
    return [
        e.SignalReceived(s, name, n, payload=payload)
        for s in _STEPS
        for name in SIGNALS
        for n in (1, 2)
        for payload in _PAYLOADS
    ]


def _invalid_waits() -> list[e.Event]:
    signals = (None, *(e.AwaitSignal("approval", s) for s in _STEPS))
    return [
        e.ExecutionAwaiting(waiting_on, kind, signal)
        for waiting_on in ((), _STEPS[:1], _STEPS[:2])
        for kind in e.AwaitKind
        for signal in signals
    ]


INVALID: Final = _invalid()

stray_events: Final[st.SearchStrategy[e.Event]] = st.tuples(
    st.integers(0, len(INVALID) - 1), st.integers(0, 999)
).map(lambda drawn: INVALID[drawn[0]][drawn[1] % len(INVALID[drawn[0]])])
"""Any event over a small alphabet, each type as likely as the others."""


def _near_misses(state: State) -> list[e.Event]:
    """Events about steps of the journal, at the wrong time as often as at the right one."""
    found: list[e.Event] = []
    for set_id in state.set_counts:
        for place in (*state.scheduled, *state.timers):
            found += [e.JoinSetSubmitted(set_id, place), e.JoinSetAwaited(set_id, place)] * 2
    found += [e.JoinSetAwaited(*member) for member in state.members] * 2
    for place in (*state.scheduled, *state.timers, *state.completed):
        found += [e.InvokeStarted(place, 1), e.InvokeRetrying(place, 1, 5)]
        found += [e.InvokeCompleted(place, 1), e.TimerFired(place), e.StepSkipped(place)]
    for name, delivery in state.deliveries:
        payload = _payload_of(name, delivery)
        found.append(e.SignalReceived(step(_free_place(state)), name, delivery, payload=payload))
    return found


_SETS_OPEN: Final[list[e.Event]] = [
    STARTED,
    *(e.JoinSetCreated(set_id) for set_id in _SETS),
    *(e.InvokeScheduled(place, "f") for place in _STEPS),
    *(e.InvokeStarted(place, 1) for place in _STEPS),
    *(e.InvokeCompleted(place, 1) for place in _STEPS),
]

_BEGINNINGS: Final[tuple[list[e.Event], ...]] = (
    [],
    [STARTED],
    _SETS_OPEN,
    [*_SETS_OPEN, *(e.JoinSetSubmitted(_SETS[0], place) for place in _STEPS)],
    [STARTED, *(e.SignalDelivered(n, 1, payload=_payload_of(n, 1)) for n in SIGNALS)],
)


@st.composite
def event_sequences(draw: st.DrawFn, longest: int = 40) -> list[e.Event]:
    """Mostly valid events, with some out of place. No check filters them."""
    state = State()
    events = list(draw(st.sampled_from(_BEGINNINGS)))
    for event in events:
        apply_event(state, event)
    strays = draw(st.dictionaries(st.integers(0, longest), stray_events, max_size=3))
    for place, pick in enumerate(draw(_picks(longest))):
        misses = _near_misses(state) if pick % 5 == 0 else []
        chosen = misses[pick // 5 % len(misses)] if misses else _choose(state, pick)
        moved = strays.get(place, chosen)
        if moved is not None:
            apply_event(state, moved)
            events.append(moved)
    return events


def is_refused(writer: Writer, event: e.Event) -> bool:
    """Whether `append` refuses the event; if not, it is appended."""
    try:
        writer.append(event)
    except PerdureError:
        return True
    return False
