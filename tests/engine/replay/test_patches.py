"""What a patch's question is answered at each place of a journal, without a program around it."""

import pytest

from perdure.core.ids import StepId
from perdure.core.journal import events as e
from perdure.core.replay.patching import marker_of
from perdure.engine.replay.effects import Publish
from perdure.engine.replay.patches import Patches
from perdure.engine.replay.record import Diverged, Record

TAX = marker_of("tax")


def drawn(number: int) -> e.RandomGenerated:
    return e.RandomGenerated(StepId(f"root.{number}"), number)


def patches(*recorded: e.Event) -> tuple[Patches, Record]:
    record = Record(recorded, lambda: "here", lambda *_: False)
    return Patches(record), record


def events_of(record: Record) -> list[e.Event]:
    return [change.event for change in record.changes]


def test_where_nothing_is_recorded_the_run_follows_and_says_so_once() -> None:
    asked, record = patches()
    assert [asked.follows("tax") for _ in range(3)] == [True] * 3
    assert events_of(record) == [TAX]


def test_each_patch_has_its_own_marker() -> None:
    asked, record = patches()
    assert asked.follows("tax")
    assert asked.follows("fee")
    assert events_of(record) == [TAX, marker_of("fee")]


def test_a_recorded_marker_is_followed_at_its_place_and_not_written_again() -> None:
    asked, record = patches(TAX, drawn(0))
    assert asked.follows("tax")
    record.emit(drawn(0))
    assert record.changes == []
    assert not record.is_replaying


def test_a_run_that_was_past_the_place_does_not_follow_ever() -> None:
    asked, record = patches(drawn(0))
    assert not asked.follows("tax")
    record.emit(drawn(0))
    assert not asked.follows("tax")
    assert record.changes == []


def test_a_run_that_stands_just_before_the_place_follows() -> None:
    asked, record = patches(drawn(0))
    record.emit(drawn(0))
    assert asked.follows("tax")
    assert events_of(record) == [TAX]


def test_before_its_marker_a_patch_is_not_followed() -> None:
    asked, record = patches(drawn(0), TAX, drawn(1))
    assert not asked.follows("tax")
    record.emit(drawn(0))
    assert not asked.follows("tax")


def test_behind_its_marker_a_patch_is_followed_though_its_first_question_is_gone() -> None:
    asked, record = patches(TAX, drawn(0), drawn(1))
    record.emit(drawn(0))
    assert asked.follows("tax")
    record.emit(drawn(1))
    assert record.changes == []


def test_a_marker_that_nobody_asks_for_is_passed_over() -> None:
    _, record = patches(drawn(0), TAX, drawn(1))
    record.emit(drawn(0))
    record.emit(drawn(1))
    assert not record.is_replaying


def test_a_marker_at_the_end_that_nobody_asks_for_is_not_ahead() -> None:
    _, record = patches(drawn(0), TAX)
    record.emit(drawn(0))
    assert not record.is_replaying


def test_a_marker_takes_no_effect_along() -> None:
    """A program that does not ask any more must not lose what stood before its question."""
    asked, record = patches()
    record.attach(Publish("phase", b"1"))
    asked.follows("tax")
    record.emit(drawn(0))
    assert [change.effects for change in record.changes] == [(), (Publish("phase", b"1"),)]


@pytest.mark.parametrize(("recorded", "seq"), [((TAX, drawn(0)), 1), ((drawn(0), TAX), 0)])
def test_a_divergence_is_told_by_its_entry_in_the_journal(
    recorded: tuple[e.Event, ...], seq: int
) -> None:
    _, record = patches(*recorded)
    with pytest.raises(Diverged) as caught:
        record.emit(drawn(9))
    assert caught.value.divergence.seq == seq
    assert recorded[seq] == caught.value.divergence.recorded
