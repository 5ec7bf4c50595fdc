import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.core.ids import RunId, StepId
from perdure.core.journal import events as e
from perdure.core.journal.contract import contract_name, keys, step_of
from perdure.core.journal.journal import Journal
from perdure.core.journal.postings import effect_of
from perdure.core.ledger import ATTEMPT, step_account
from perdure.core.replay.patching import marker_of, patch_of, set_markers_apart

RUN = RunId("r_1")
STARTED = e.ExecutionStarted("p", "", "")
WAITING = e.ExecutionAwaiting((StepId("root.0"),))
DOUBT = e.Posted("in doubt", (e.Posting(step_account(StepId("root.0")), ATTEMPT),))


class Placed(msgspec.Struct, frozen=True):
    seq: int
    event: e.Event


def test_a_marker_posts_nothing() -> None:
    assert effect_of(marker_of("tax")) == ((), 0)


@pytest.mark.parametrize("patch", ["tax", "patch:tax", "", "a b", "\u20ac"])
def test_a_marker_names_its_patch(patch: str) -> None:
    assert patch_of(marker_of(patch)) == patch


@pytest.mark.parametrize("event", [STARTED, DOUBT, e.Posted("attempt", ()), e.ExecutionResumed()])
def test_other_events_mark_nothing(event: e.Event) -> None:
    assert patch_of(event) is None


def test_a_run_may_mark_a_patch_while_it_runs_and_while_it_is_cancelled() -> None:
    journal = Journal(RUN)
    events = [STARTED, marker_of("tax"), e.CancelRequested(), marker_of("fee")]
    appended = journal.append(events, 1, bytes(64))
    assert appended.postings == {}
    assert journal.state.semaphore == 1
    again = Journal(RUN)
    again.replay(appended.entries)
    assert again.head == journal.head


def test_the_run_contract_passes_a_marker_under_its_own_name() -> None:
    markers = [Placed(0, marker_of("tax")), Placed(1, marker_of("fee"))]
    assert (contract_name(markers[0].event), step_of(markers[0].event)) == ("Posted", "RUN")
    assert len(set(keys(RUN, "1", markers))) == 2


def test_markers_are_set_apart_with_the_number_of_events_before_them() -> None:
    events = [STARTED, marker_of("tax"), marker_of("fee"), WAITING, DOUBT, marker_of("end")]
    others, markers = set_markers_apart(events)
    assert others == [STARTED, WAITING, DOUBT]
    assert markers == {"tax": 1, "fee": 1, "end": 3}


@given(st.lists(st.sampled_from([STARTED, WAITING, DOUBT, *map(marker_of, "abc")])))
def test_setting_apart_keeps_the_order_and_loses_nothing_else(events: list[e.Event]) -> None:
    others, markers = set_markers_apart(events)
    assert others == [event for event in events if patch_of(event) is None]
    assert set(markers) == {patch_of(event) for event in events} - {None}
    for patch, place in markers.items():
        before = events[: events.index(marker_of(patch))]
        assert place == sum(patch_of(event) is None for event in before)
