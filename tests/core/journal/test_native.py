"""The native append and the reference implementation in Python give the same results."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import chain
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.core.errors import InvariantViolation, PerdureError
from perdure.core.ids import StepId, message_guid
from perdure.core.journal import events as e
from perdure.core.journal import journal as reference
from perdure.core.journal.journal import Appended, Journal, append_reference
from perdure.core.journal.state import State
from perdure.core.ledger import (
    ATTEMPT,
    CLOSED,
    COMPLETED,
    ENTRY,
    FINALIZE,
    LEG1_DONE,
    SPAWNED,
    TRIGGER_SEED,
    WORK_DONE,
    AccountId,
    message_account,
    post_to,
    step_account,
)
from tests.core.journal.strategies import INVALID, event_sequences, legal_journals
from tests.core.journal.writer import RUN, STARTED, nonces, snapshot, step, written

_quick = pytest.importorskip("perdure.core.journal._quick", reason="it is not compiled here")

Way = Callable[[Journal, Sequence[e.Event], int, bytes], Appended]

texts = st.text(max_size=8)
steps = st.text(min_size=1, max_size=8).map(StepId)
payloads = st.none() | st.binary(max_size=200)


def outcome(way: Way, journal: Journal, events: Sequence[e.Event], at_ms: int) -> Any:
    """The result or the error of an append, and the journal after it."""
    try:
        result: Any = way(journal, events, at_ms, nonces(journal.seq, len(events)))
    except (PerdureError, TypeError, KeyError) as error:
        result = type(error), str(error)
    state, seq, head = snapshot(journal)
    orders = {name: list(index) for name, index in state.items() if isinstance(index, dict)}
    return result, state, seq, head, orders


def require_sameness(batches: Sequence[Sequence[e.Event]]) -> list[Any]:
    """Append the batches with both implementations. Returns the outcome of each."""
    plain, quick = Journal(RUN), Journal(RUN)
    result = []
    for at_ms, events in enumerate(batches):
        expected = outcome(append_reference, plain, events, at_ms)
        assert outcome(_quick.append, quick, events, at_ms) == expected
        result.append(expected[0])
    replayed = Journal(RUN)
    replayed.replay(
        chain.from_iterable(each.entries for each in result if isinstance(each, Appended))
    )
    assert without_zeros(replayed) == without_zeros(plain)
    return result


def without_zeros(journal: Journal) -> Any:
    """All of the journal but empty accounts: to post 0 makes one, and an undo removes it."""
    state, seq, head = snapshot(journal)
    state["balances"] = {account: held for account, held in state["balances"].items() if held}
    return state, seq, head


def in_batches(events: Sequence[e.Event], sizes: Sequence[int]) -> Iterator[Sequence[e.Event]]:
    begin, turn = 0, 0
    while begin < len(events):
        end = begin + sizes[turn % len(sizes)]
        yield events[begin:end]
        begin, turn = end, turn + 1


sizes_of_batches = st.lists(st.integers(1, 7), min_size=1, max_size=5)


@settings(max_examples=400, deadline=None)
@given(event_sequences(), sizes_of_batches)
def test_native_and_reference_append_and_refuse_the_same(
    events: Sequence[e.Event], sizes: Sequence[int]
) -> None:
    require_sameness(list(in_batches(events, sizes)))


def test_native_append_knows_all_fields_of_the_events_that_it_writes() -> None:
    assert _quick.adopt(reference.native_names()) == []


def test_events_with_unknown_fields_are_left_to_the_reference_implementation() -> None:
    class InvokeCompleted(e.InvokeCompleted, frozen=True):
        news: str = ""

    names = reference.native_names()
    try:
        assert _quick.adopt({**names, "InvokeCompleted": InvokeCompleted}) == ["InvokeCompleted"]
        journal = Journal(RUN)
        events = [STARTED, e.InvokeScheduled(step(0), "f"), e.InvokeStarted(step(0), 1)]
        _quick.append(journal, [*events, e.InvokeCompleted(step(0), 1)], 0, nonces(0, 4))
        assert journal.state.completed == {step(0): True}
    finally:
        _quick.adopt(names)


def twin(journal: Journal) -> Journal:
    """The same journal again."""
    again = Journal(journal.run_id)
    again.seq, again.head = journal.seq, journal.head
    for slot in State.__slots__:
        held = getattr(journal.state, slot)
        setattr(again.state, slot, held.copy() if isinstance(held, dict | list) else held)
    return again


def candidates(state: State) -> list[e.Event]:
    """Possible next events, valid or not: every event over a small alphabet, and about everything in the journal."""
    guid = message_guid(RUN, "candidate")
    account, message = step_account(step(0)), message_account(guid)
    found: list[e.Event] = [
        *chain.from_iterable(INVALID),
        e.ExecutionStarted("p", "d", "r", trigger=step(9)),
        e.ExecutionStarted("p", "d", "r", guid=guid),
        e.ExecutionStarted("p", "d", "r", scope=""),
        e.ExecutionStarted("p", "d", "r", scope="shop"),
        *(e.ExecutionCompleted(released=n) for n in range(4)),
        e.ExecutionCompleted(released=1, guid=guid),
        e.ExecutionCompleted(released=1, step=step(0)),
        e.Posted("x", (e.Posting(account, ENTRY), e.Posting(account, ENTRY))),
        e.Posted("x", (e.Posting(account, ENTRY), e.Posting(message, ENTRY))),
        e.Posted("x", (e.Posting(message, ENTRY + WORK_DONE),), 1),
        e.Posted("x", (), -1),
    ]
    taken = {*state.scheduled, *state.timers, *state.allocated, *state.completed, step(99)}
    for place in map(StepId, taken):
        found += [e.InvokeScheduled(place, "f", staged=staged) for staged in (True, False)]
        found += [
            e.InvokeScheduled(place, "f", place=there, queue=queue)
            for there in (None, *e.InvokePlace)
            for queue in (None, "gpu")
        ]
        found += [e.InvokeStarted(place, attempt) for attempt in range(4)]
        found += [
            e.InvokeCompleted(place, attempt, guid=by, staged=staged)
            for attempt in range(4)
            for by in (None, guid)
            for staged in (True, False)
        ]
        found += [e.ExecutionAwaiting((place,), kind) for kind in e.AwaitKind]
    return found


@st.composite
def mixed_journals(draw: st.DrawFn) -> Journal:
    """A workflow's journal at any point of its life, some of it with steps of a graph."""
    journal = draw(legal_journals(30)).journal
    for number in range(50, 50 + draw(st.integers(0, 2))):
        try:
            phase = draw(st.integers(1, 3))
            account = step_account(step(number))
            events = (
                e.Posted("attempt", (e.Posting(account, ATTEMPT),)),
                e.InvokeScheduled(step(number), "f", staged=True),
                e.InvokeStarted(step(number), 1),
            )
            append_reference(journal, events[:phase], 1, bytes(64))
        except PerdureError:
            pass  # the run is blocked, or over
    return journal


@settings(max_examples=150, deadline=None)
@given(mixed_journals())
def test_native_and_reference_judge_every_candidate_alike(journal: Journal) -> None:
    for event in candidates(journal.state):
        expected = outcome(append_reference, twin(journal), [event], 7)
        assert outcome(_quick.append, twin(journal), [event], 7) == expected, event


def require_digits_of_the_reference(account: str, balances: Iterable[int], moves: list[int]) -> int:
    """The reference accepts all digits that the native append accepts, with the same sum. Returns how many."""
    state, taken = twin(written(STARTED).journal).state, 0
    posted = [(move, e.Posted("x", (e.Posting(AccountId(account), move),))) for move in moves]
    for balance in balances:
        for move, event in posted:
            state.balances[AccountId(account)] = balance
            if _quick.admit(state, event, {}):
                taken += 1
                assert state.balances[AccountId(account)] == post_to(
                    AccountId(account), balance, move
                )
            else:
                assert state.balances[AccountId(account)] == balance
    return taken


def test_native_step_digits_match_the_reference() -> None:
    heads = (0, 1, 2, 9, 10, 11, 12, 100, 1000, 2000, 2001, 2010, 2011, 4000)
    counts = (0, 1, 2, 10**8 - 1, 10**8)
    balances = (
        head * LEG1_DONE + low
        for head in (*range(1200), *range(1990, 2100), 2991, 2999, 9999)
        for low in (0, 1, 10**8 - 2, 10**8 - 1, 10**8)
    )
    moves = [head * LEG1_DONE + low for head in heads for low in counts]
    assert require_digits_of_the_reference("step:root.1", balances, moves) > 1000


def test_native_message_digits_match_the_reference() -> None:
    heads = (0, 1, 10, 11, 100, 101, 110, 111, 1000, 1001, 1010, 1011, 1100, 1110, 1111, 2000)
    balances = (head * COMPLETED + low for head in range(1300) for low in (0, 1, 10**8 - 1))
    moves = [head * COMPLETED + low for head in heads for low in (0, 1)]
    assert require_digits_of_the_reference("message:m", balances, moves) > 10


@st.composite
def staged_events(draw: st.DrawFn) -> list[e.Event]:
    """Steps of a graph, phase by phase, with digits that are missing, come twice or come too early."""
    events: list[e.Event] = [STARTED]
    for number in range(draw(st.integers(1, 4))):
        place, guid = step(number), message_guid(RUN, str(number))
        account, message = step_account(place), message_account(guid)
        phases: list[e.Event] = [
            e.Posted("attempt", (e.Posting(account, ATTEMPT),), draw(st.sampled_from((0, 1)))),
            e.InvokeScheduled(place, "charge", staged=True, payload=b"{}"),
            e.InvokeStarted(place, 1),
            e.Posted("entry", (e.Posting(account, ENTRY), e.Posting(message, ENTRY))),
            e.InvokeCompleted(place, 1, guid=guid, staged=True, payload=b"1"),
            e.Posted("spawn", (e.Posting(message, SPAWNED),), draw(st.sampled_from((-1, 0)))),
            e.Posted("end", (e.Posting(message, COMPLETED), e.Posting(account, FINALIZE))),
        ]
        for place_in_order in draw(st.lists(st.integers(0, 6), max_size=2)):
            phases.insert(draw(st.integers(0, 7)), phases[place_in_order])
        if draw(st.booleans()):
            del phases[draw(st.integers(0, len(phases) - 1))]
        events += phases
    return [*events, e.ExecutionCompleted(released=1)]


@settings(max_examples=300, deadline=None)
@given(staged_events(), sizes_of_batches)
def test_native_and_reference_append_the_same_phases_of_graphs(
    events: Sequence[e.Event], sizes: Sequence[int]
) -> None:
    require_sameness(list(in_batches(events, sizes)))


_DIGITS = (
    *(0, 1, -1, ENTRY, 99, 10**8 - 1, ATTEMPT, LEG1_DONE, FINALIZE, TRIGGER_SEED),
    *(CLOSED, WORK_DONE, SPAWNED, COMPLETED, 10**15, 10**18, 2**63, 2**64),
)
increments = st.lists(st.sampled_from(_DIGITS), min_size=1, max_size=3).map(sum)


@settings(max_examples=400, deadline=None)
@given(
    st.sampled_from(("step:root.1", "message:m", "step:", "message:", "other", "step:ö")),
    st.lists(st.lists(increments, min_size=1, max_size=5), max_size=8),
)
def test_native_and_reference_post_the_same_digits(account: str, posted: list[list[int]]) -> None:
    batches: list[list[e.Event]] = [[STARTED]]
    for amounts in posted:
        postings = tuple(e.Posting(account, amount) for amount in amounts[1:])  # type: ignore[arg-type]
        single = e.Posted("x", (e.Posting(account, amounts[0]),))  # type: ignore[arg-type]
        batches += [[single], [e.Posted("x", postings, amounts[0] % 3 - 1)]]
    require_sameness(batches)


@settings(max_examples=300, deadline=None)
@given(st.tuples(texts, texts, texts), texts, st.none() | texts, steps, payloads)
def test_native_and_reference_write_any_text_alike(
    names: tuple[str, str, str],
    version: str,
    key: str | None,
    place: StepId,
    payload: bytes | None,
) -> None:
    """Escapes, control characters, other scripts; and, of surrogates, the refusal."""
    guid = message_guid(RUN, "x")
    require_sameness(
        [
            [e.ExecutionStarted(*names, version, key, key, payload=payload)],
            [
                e.InvokeScheduled(place, names[0], payload=payload),
                e.InvokeScheduled(StepId(place + "2"), names[1], e.InvokeKind.HTTP),
                e.InvokeScheduled(
                    StepId(place + "3"), names[2], retry_policy=e.RetryPolicy(attempts=3)
                ),
                e.ExecutionAwaiting((place, StepId(place + "2")), e.AwaitKind.ANY),
                e.InvokeStarted(place, 1),
            ],
            [e.InvokeCompleted(place, 1, False, guid, claim=2, payload=payload)],
            [
                e.ExecutionResumed(),
                e.Posted(names[0], ()),
                e.StepSkipped(StepId(place + "2"), names[1], 1),
                e.StepSkipped(StepId(place + "3"), names[2], 1),
                e.ExecutionCompleted(released=1, payload=payload),
            ],
        ]
    )


@pytest.mark.parametrize(
    "text", ['"', "\\", "\n", "\0", "\x1f", " ", "~", "\x7f", "é", "\U0001f600", "\ud800"]
)
def test_native_and_reference_write_every_kind_of_character_alike(text: str) -> None:
    for around in (text, f"a{text}", f"{text}z"):
        scheduled = e.InvokeScheduled(step(0), around)
        require_sameness([[e.ExecutionStarted("p", around, "r")], [STARTED, scheduled]])


@pytest.mark.parametrize("instructions", [True, False])
def test_hashes_are_those_of_hashlib_whatever_the_length(instructions: bool) -> None:
    _quick.adopt(reference.native_names(instructions=instructions))
    try:
        for length in range(300):
            name = "f" * length
            started = e.ExecutionStarted(name, "d", "r", payload=bytes(length))
            (result,) = require_sameness([[started]])
            assert result.head == result.entries[0].hash
    finally:
        _quick.adopt(reference.native_names())


def test_a_refusal_in_the_middle_undoes_the_whole_append() -> None:
    life = [STARTED, e.InvokeScheduled(step(0), "f"), e.InvokeStarted(step(0), 1)]
    result = require_sameness([life[:1], [*life[1:], life[1]], life[1:]])
    assert [isinstance(each, Appended) for each in result] == [True, False, True]


def test_a_run_whose_step_is_open_does_not_end_though_its_semaphore_allows_it() -> None:
    opened = [STARTED, e.InvokeScheduled(step(0), "f"), e.Posted("miscounted", (), -1)]
    result = require_sameness([opened, [e.ExecutionCompleted(released=1)]])
    assert isinstance(result[0], Appended)
    assert not isinstance(result[1], Appended)


def test_native_and_reference_refuse_an_object_that_is_no_event() -> None:
    require_sameness([[STARTED], [object()], [e.ExecutionResumed(), 1]])  # type: ignore[list-item]


@pytest.mark.parametrize("arguments", [(), (object(), [], 0, b""), (Journal(RUN), 3, 0, b"")])
def test_wrong_arguments_are_refused(arguments: tuple[Any, ...]) -> None:
    with pytest.raises(TypeError):
        _quick.append(*arguments)
    with pytest.raises(TypeError):
        _quick.admit(*arguments[:3])


@pytest.mark.parametrize(
    ("payload", "at_ms", "entropy"),
    [
        (b"{}", True, bytes(16)),
        (b"{}", 1 << 70, bytes(16)),
        (b"{}", -1, bytes(16)),
        (b"{}", "now", bytes(16)),
        (b"{}", 7, bytearray(16)),
        (b"{}", 7, bytes(15)),
        (bytearray(b"{}"), 7, bytes(16)),
        (memoryview(b"{}"), 7, bytes(16)),
        ("text", 7, bytes(16)),
    ],
)
def test_unusual_arguments_go_to_the_reference(payload: Any, at_ms: Any, entropy: Any) -> None:
    result: list[Any] = []
    for way in (append_reference, _quick.append):
        journal = Journal(RUN)
        try:
            started = e.ExecutionStarted("p", "d", "r", payload=payload)
            result.append(way(journal, [started], at_ms, entropy))
        except Exception as error:
            result.append((type(error), str(error)))
        result.append(snapshot(journal))
    assert result[:2] == result[2:]


def test_events_are_kept_while_they_are_appended() -> None:
    """Even if the caller changes its list meanwhile."""
    events: list[e.Event] = []

    class Emptying(str):
        __slots__ = ()

        def __hash__(self) -> int:
            events.clear()
            return 5

    events += [e.InvokeStarted(StepId(Emptying("root.0")), 1), e.ExecutionResumed()]
    journal = written(STARTED).journal
    with pytest.raises(InvariantViolation):
        _quick.append(journal, events, 1, bytes(32))


@pytest.mark.parametrize("slot", State.__slots__)
@pytest.mark.parametrize("is_there", [True, False])
def test_an_incomplete_state_goes_to_the_reference(slot: str, is_there: bool) -> None:
    """The error is that of the reference; nothing else changes."""
    journal = written(STARTED).journal
    setattr(journal.state, slot, 3.5)
    if not is_there:
        delattr(journal.state, slot)
    with suppress(AttributeError, TypeError, PerdureError):
        _quick.append(journal, [e.InvokeScheduled(step(0), "f")], 1, bytes(16))


def test_classes_without_slots_are_refused() -> None:
    class Loose:
        def __init__(self) -> None:
            self.status = None

    try:
        with pytest.raises((TypeError, AttributeError)):
            _quick.adopt(reference.native_names() | {"State": Loose})
        with pytest.raises(TypeError):
            _quick.append(Journal(RUN), [STARTED], 0, bytes(16))
    finally:
        _quick.adopt(reference.native_names())


def test_journals_use_the_native_append() -> None:
    assert reference._append is _quick.append
