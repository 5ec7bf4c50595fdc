"""The checker that judges one append in O(1) agrees with the definitions over whole journals."""

from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.core.journal import checker
from perdure.core.journal import events as e
from perdure.core.journal.invariants import INVARIANTS, violations
from perdure.core.journal.state import State, apply_event
from tests.core.journal.strategies import event_sequences, legal_journals
from tests.core.journal.writer import At, Writer


def first_complaint(journal: list[At]) -> tuple[int, set[str]]:
    """Where the incremental checker first reports a violation, and which; the end and nothing if never."""
    state = State()
    for place, (seq, event) in enumerate(journal):
        broken = checker.broken_by(state, place, seq, event)
        if broken:
            return place, {name for name, _ in broken}
        apply_event(state, event)
    return len(journal), set()


def require_agreement(journal: list[At]) -> set[str]:
    place, names = first_complaint(journal)
    assert violations(journal[:place]) == []
    assert {violation.name for violation in violations(journal[: place + 1])} == names
    return names


@settings(max_examples=1000, deadline=None)
@given(event_sequences())
def test_checkers_agree_on_any_sequence(events: list[e.Event]) -> None:
    require_agreement([At(seq, event) for seq, event in enumerate(events)])


def test_sequences_break_every_invariant_that_events_can_break() -> None:
    """Agreement about silence would prove little. S-1 is about places, and comes next."""
    reached: set[str] = set()

    @settings(max_examples=1000, deadline=None, derandomize=True)
    @given(event_sequences())
    def collect(events: list[e.Event]) -> None:
        reached.update(first_complaint([At(*placed) for placed in enumerate(events)])[1])

    collect()
    assert reached == set(INVARIANTS) - {"S-1 monotonic_sequence"}


@settings(max_examples=500, deadline=None)
@given(event_sequences(), st.integers(0, 40), st.integers(-2, 3))
def test_checkers_agree_if_a_place_is_wrong(events: list[e.Event], where: int, by: int) -> None:
    require_agreement([At(seq + by * (seq == where), event) for seq, event in enumerate(events)])


@settings(max_examples=100, deadline=None)
@given(legal_journals(), st.integers(0, 59))
def test_checkers_agree_if_an_entry_is_missing(writer: Writer, gone: int) -> None:
    kept = [entry for entry in writer.entries if entry.seq != gone]
    require_agreement([At(entry.seq, entry.event) for entry in kept])


@settings(max_examples=200, deadline=None)
@given(legal_journals())
def test_both_accept_what_append_accepts(writer: Writer) -> None:
    assert require_agreement([At(entry.seq, entry.event) for entry in writer.entries]) == set()
