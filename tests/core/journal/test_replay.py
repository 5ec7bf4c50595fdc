from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from perdure.core.errors import (
    CorruptJournal,
    IllegalAppend,
    InvariantViolation,
    LedgerOrder,
    PerdureError,
)
from perdure.core.ids import RunId
from perdure.core.journal import events as e
from perdure.core.journal.entry import Entry, erase, genesis, seal
from perdure.core.journal.invariants import violations
from perdure.core.journal.journal import Journal
from perdure.core.ledger import ATTEMPT, step_account
from tests.core.journal.strategies import legal_journals
from tests.core.journal.writer import OTHER_RUN, RUN, STARTED, Writer, snapshot, started, step

long_enough = legal_journals().filter(lambda writer: len(writer.entries) > 2)


def replayed(entries: Sequence[Entry], run_id: RunId = RUN) -> Journal:
    journal = Journal(run_id)
    journal.replay(entries)
    return journal


def chained(*events: e.Event) -> list[Entry]:
    """Entries of a valid chain, whatever their events are."""
    entries: list[Entry] = []
    for seq, event in enumerate(events):
        head = entries[-1].hash if entries else genesis(RUN)
        entries += seal(seq, 1, [event], head, bytes(16))[0]
    return entries


@settings(max_examples=150, deadline=None)
@given(legal_journals())
def test_replay_rebuilds_state_sequence_and_head(writer: Writer) -> None:
    assert snapshot(replayed(writer.entries)) == snapshot(writer.journal)


@settings(max_examples=50, deadline=None)
@given(legal_journals(), st.integers(0, 60))
def test_replay_in_two_parts_gives_the_same_journal(writer: Writer, cut: int) -> None:
    journal = replayed(writer.entries[:cut])
    journal.replay(writer.entries[cut:])
    assert snapshot(journal) == snapshot(writer.journal)


def test_replayed_journal_takes_the_next_event() -> None:
    writer = started()
    again = Writer()
    again.journal.replay(writer.entries)
    for each in (writer, again):
        each.append(e.InvokeScheduled(step(0), "f"), e.InvokeStarted(step(0), 1))
    assert snapshot(again.journal) == snapshot(writer.journal)


def test_append_after_replay_is_undone_up_to_the_replayed_state() -> None:
    again = Writer()
    again.journal.replay(started(e.InvokeScheduled(step(0), "f")).entries)
    then = snapshot(again.journal)
    with pytest.raises(IllegalAppend):
        again.append(e.InvokeStarted(step(0), 1), e.InvokeStarted(step(0), 1))
    assert snapshot(again.journal) == then


@settings(max_examples=50, deadline=None)
@given(legal_journals())
def test_journal_with_erased_payloads_replays_to_the_same_place(writer: Writer) -> None:
    again = replayed([erase(entry) for entry in writer.entries])
    assert (again.seq, again.head) == (writer.journal.seq, writer.journal.head)
    assert again.state.balances == writer.state.balances
    assert again.state.status == writer.state.status


@settings(max_examples=50, deadline=None)
@given(legal_journals())
def test_replayed_journal_breaks_no_invariant(writer: Writer) -> None:
    assert violations(writer.entries) == []


# Refusals


@settings(max_examples=100, deadline=None)
@given(long_enough, st.data())
def test_dropped_entry_is_refused(writer: Writer, data: st.DataObject) -> None:
    gone = data.draw(st.integers(0, len(writer.entries) - 2))
    kept = [entry for entry in writer.entries if entry.seq != gone]
    with pytest.raises(InvariantViolation) as refused:
        replayed(kept)
    assert "S-1 monotonic_sequence" in refused.value.names
    assert f"entry {gone + 1} of run '{RUN}'" in refused.value.what


@settings(max_examples=100, deadline=None)
@given(long_enough, st.data())
def test_swapped_entries_are_refused(writer: Writer, data: st.DataObject) -> None:
    first = data.draw(st.integers(0, len(writer.entries) - 2))
    entries = list(writer.entries)
    entries[first], entries[first + 1] = entries[first + 1], entries[first]
    with pytest.raises(InvariantViolation) as refused:
        replayed(entries)
    assert "S-1 monotonic_sequence" in refused.value.names


@settings(max_examples=100, deadline=None)
@given(long_enough, st.data())
def test_changed_sequence_number_is_refused(writer: Writer, data: st.DataObject) -> None:
    place = data.draw(st.integers(0, len(writer.entries) - 1))
    wrong = data.draw(st.integers(0, 100).filter(lambda seq: seq != place))
    entries = list(writer.entries)
    entries[place] = msgspec.structs.replace(entries[place], seq=wrong)
    with pytest.raises(InvariantViolation) as refused:
        replayed(entries)
    assert "S-1 monotonic_sequence" in refused.value.names


@settings(max_examples=100, deadline=None)
@given(long_enough, st.data())
def test_changed_time_is_found_at_the_next_entry(writer: Writer, data: st.DataObject) -> None:
    place = data.draw(st.integers(0, len(writer.entries) - 2))
    entries = list(writer.entries)
    entries[place] = msgspec.structs.replace(entries[place], at_ms=7)
    with pytest.raises(CorruptJournal) as refused:
        replayed(entries)
    assert refused.value.what == (
        f"entry {place + 1} of run '{RUN}' does not continue the hash chain"
    )


def test_changed_payload_is_found_at_the_next_entry() -> None:
    entries = list(started(e.RandomGenerated(step(0), 1)).entries)
    sealed = entries[0].sealed
    assert sealed is not None
    entries[0] = msgspec.structs.replace(entries[0], sealed=sealed + b" ")
    with pytest.raises(CorruptJournal, match="entry 1 of run"):
        replayed(entries)


def test_changed_last_entry_shows_in_the_head() -> None:
    writer = started(e.RandomGenerated(step(0), 1))
    changed = msgspec.structs.replace(writer.entries[-1], at_ms=7)
    assert replayed([writer.entries[0], changed]).head != writer.journal.head


def test_journal_of_another_run_is_refused() -> None:
    with pytest.raises(CorruptJournal, match=f"entry 0 of run '{OTHER_RUN}'"):
        replayed(started().entries, OTHER_RUN)


def test_entry_that_can_not_be_read_is_refused() -> None:
    (entry,) = started().entries
    with pytest.raises(CorruptJournal, match="entry 0 can't be read"):
        replayed([msgspec.structs.replace(entry, body="{}")])


def test_remedy_for_a_broken_journal_is_to_verify_the_store() -> None:
    with pytest.raises(InvariantViolation) as refused:
        replayed(started(e.RandomGenerated(step(0), 1)).entries[1:])
    assert refused.value.remedy.startswith("run `verify`")


@pytest.mark.parametrize(
    ("events", "error"),
    [
        pytest.param([e.ExecutionResumed()], InvariantViolation, id="invariant"),
        pytest.param([STARTED, e.ExecutionResumed()], IllegalAppend, id="guard"),
        pytest.param(
            [STARTED, e.Posted("x", (e.Posting(step_account(step(0)), 1),))],
            LedgerOrder,
            id="ledger",
        ),
    ],
)
def test_replay_judges_as_append_does(events: list[e.Event], error: type[PerdureError]) -> None:
    with pytest.raises(error):
        replayed(chained(*events))


def test_refused_entry_leaves_the_journal_at_the_one_before() -> None:
    two = (e.Posting(step_account(step(0)), ATTEMPT), e.Posting(step_account(step(1)), 1))
    journal = Journal(RUN)
    with pytest.raises(LedgerOrder):
        journal.replay(chained(STARTED, e.Posted("two", two)))
    assert snapshot(journal) == snapshot(replayed(chained(STARTED)))


@settings(max_examples=100, deadline=None)
@given(long_enough, st.data())
def test_journal_is_refused_if_any_body_but_the_last_was_changed(
    writer: Writer, data: st.DataObject
) -> None:
    place, other = data.draw(
        st.tuples(st.integers(0, len(writer.entries) - 2), st.integers(0, len(writer.entries) - 1))
    )
    entries = list(writer.entries)
    assume(entries[place].body != entries[other].body)
    entries[place] = msgspec.structs.replace(entries[place], body=entries[other].body)
    with pytest.raises(PerdureError):
        replayed(entries)
