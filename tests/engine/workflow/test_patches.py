"""What a patch's question is answered at each place of a journal, without a program around it."""

import pytest

from perdure.core.ids import StepId
from perdure.core.journal import events as e
from perdure.core.replay.patching import marker_of
from perdure.engine.runs.effects import Publish
from perdure.engine.runs.patches import Patches
from perdure.engine.runs.record import Diverged, Record

TAX = marker_of("tax")


def drawn(number: int) -> e.RandomGenerated:
    return e.RandomGenerated(StepId(f"root.{number}"), number)


def patches(*recorded: e.Event) -> tuple[Patches, Record]:
    record = Record(recorded, lambda: "here", lambda *_: False)
    return Patches(record), record


def events_of(record: Record) -> list[e.Event]:
    return [change.event for change in record.changes]


def test_a_new_run_follows_a_patch_and_marks_it_once() -> None:
    asked, record = patches()
    assert [asked.follows("tax") for _ in range(3)] == [True] * 3
    assert events_of(record) == [TAX]


def test_each_patch_has_its_own_marker() -> None:
    asked, record = patches()
    assert asked.follows("tax")
    assert asked.follows("fee")
    assert events_of(record) == [TAX, marker_of("fee")]


def test_a_recorded_marker_is_followed_and_not_written_again() -> None:
    asked, record = patches(TAX, drawn(0))
    assert asked.follows("tax")
    record.emit(drawn(0))
    assert record.changes == []
    assert not record.is_replaying


def test_a_run_past_the_patch_never_follows_it() -> None:
    asked, record = patches(drawn(0))
    assert not asked.follows("tax")
    record.emit(drawn(0))
    assert not asked.follows("tax")
    assert record.changes == []


def test_a_run_just_before_the_patch_follows_it() -> None:
    asked, record = patches(drawn(0))
    record.emit(drawn(0))
    assert asked.follows("tax")
    assert events_of(record) == [TAX]


def test_before_its_marker_a_patch_is_not_followed() -> None:
    asked, record = patches(drawn(0), TAX, drawn(1))
    assert not asked.follows("tax")
    record.emit(drawn(0))
    assert not asked.follows("tax")


def test_a_patch_is_followed_after_its_marker_although_the_first_call_was_removed() -> None:
    asked, record = patches(TAX, drawn(0), drawn(1))
    record.emit(drawn(0))
    assert asked.follows("tax")
    record.emit(drawn(1))
    assert record.changes == []


def test_a_marker_of_a_removed_patch_is_skipped() -> None:
    _, record = patches(drawn(0), TAX, drawn(1))
    record.emit(drawn(0))
    record.emit(drawn(1))
    assert not record.is_replaying


def test_a_marker_of_a_removed_patch_at_the_end_is_skipped() -> None:
    _, record = patches(drawn(0), TAX)
    record.emit(drawn(0))
    assert not record.is_replaying


def test_a_marker_commits_without_effects() -> None:
    """A program that does not ask any more must not lose what stood before its question."""
    asked, record = patches()
    record.attach(Publish("phase", b"1"))
    asked.follows("tax")
    record.emit(drawn(0))
    assert [change.effects for change in record.changes] == [(), (Publish("phase", b"1"),)]


@pytest.mark.parametrize(("recorded", "seq"), [((TAX, drawn(0)), 1), ((drawn(0), TAX), 0)])
def test_a_divergence_names_its_journal_entry(recorded: tuple[e.Event, ...], seq: int) -> None:
    _, record = patches(*recorded)
    with pytest.raises(Diverged) as caught:
        record.emit(drawn(9))
    assert caught.value.divergence.seq == seq
    assert recorded[seq] == caught.value.divergence.recorded
