"""The four phases of a clean-up, by the clocks of the participants."""

import pytest

from perdure.core.errors import CallsOpen, InputError, OperationFailed, ParticipantFenced
from perdure.core.operations import transitions as t
from perdure.core.operations.data import FrameState, OperationState
from perdure.core.operations.heartbeat import Duty, apply_beat, report
from perdure.core.operations.timing import LedgerSettings
from tests.core.operations.scenes import Actor, Scene, actor


@pytest.fixture
def scene() -> Scene:
    return Scene()


def begun(scene: Scene, *actors: Actor, fail_on_crash: bool = True) -> None:
    """Every participant has a call, and has seen the others."""
    scene.create(actors[0])
    for who in actors:
        scene.start(who, fail_on_crash=fail_on_crash)
    scene.run(1, *actors, every_ms=1000)
    look(scene, *actors)


def look(scene: Scene, *actors: Actor) -> None:
    """Every participant sees the last heartbeat of all others."""
    assert scene.ledger is not None
    for who in actors:
        who.watch.observe(scene.ledger, scene.moment(who).ms)


def states(scene: Scene) -> dict[str, FrameState]:
    assert scene.ledger is not None
    return {frame.participant_id: frame.state for frame in scene.ledger.stack}


def test_each_phase_of_the_clean_up_begins_at_its_time(scene: Scene) -> None:
    a, b, c = actor("a"), actor("b", skew_s=3600), actor("c", skew_s=-86400)
    begun(scene, a, b, c)
    crashed_at = scene.now_ms
    times: dict[str, int] = {}
    while "backup" not in times:
        scene.run(0.1, a, b, every_ms=100)
        phase = "backup" if scene.is_over() else scene.state
        times.setdefault(phase, scene.now_ms - crashed_at)
    assert times == {"running": 100, "cleanup": 10_100, "failed": 30_100, "backup": 40_200}


def test_the_participant_that_detects_a_crash_coordinates_and_the_others_clean_up(
    scene: Scene,
) -> None:
    a, b, c = actor("a"), actor("b"), actor("c")
    begun(scene, a, b, c)
    scene.run(10, a, b)
    assert scene.state is OperationState.RUNNING
    scene.run(5, b)
    assert states(scene) == {
        "a": FrameState.ACTIVE,
        "b": FrameState.CLEANING_UP,
        "c": FrameState.CRASHED,
    }
    scene.run(5, a)
    assert states(scene)["a"] is FrameState.CLEANED_UP
    assert scene.ledger is not None
    assert "'c' (pid 1) crashed" in (scene.ledger.failure_reason or "")
    assert scene.ledger.coordinator == b.me


def test_a_crashed_coordinator_is_replaced_even_by_a_participant_that_has_cleaned_up(
    scene: Scene,
) -> None:
    a, b, c = actor("a"), actor("b"), actor("c")
    begun(scene, a, b, c)
    scene.run(10, a, b)
    scene.run(5, b)
    scene.run(5, a)
    assert states(scene)["a"] is FrameState.CLEANED_UP
    scene.run(15, a)
    assert states(scene) == {
        "a": FrameState.CLEANING_UP,
        "b": FrameState.CRASHED,
        "c": FrameState.CRASHED,
    }
    scene.run(40, a)
    assert scene.is_over()
    assert scene.last is not None
    assert scene.last.operation_state is OperationState.FAILED


def test_a_coordinator_that_crashes_after_it_removed_the_frames_is_replaced_later(
    scene: Scene,
) -> None:
    a, b, c = actor("a"), actor("b"), actor("c")
    begun(scene, a, b, c)
    scene.run(15, a, b)
    coordinator, other = (a, b) if states(scene)["a"] is FrameState.CLEANING_UP else (b, a)
    while scene.state is not OperationState.FAILED:
        scene.run(5, a, b)
    scene.run(15, other)
    assert not scene.is_over()
    scene.run(10, other)
    assert scene.is_over()
    assert coordinator.me != other.me


def test_a_coordinator_without_a_call_gets_a_frame(scene: Scene) -> None:
    a, b = actor("a"), actor("b")
    begun(scene, a)
    scene.beat(b)
    scene.run(15, b)
    assert scene.ledger is not None
    assert scene.ledger.coordinator == b.me
    assert states(scene) == {"a": FrameState.CRASHED, "b": FrameState.CLEANING_UP}
    scene.run(60, b)
    assert scene.is_over()


def test_a_dead_participant_without_calls_does_not_fail_the_operation(scene: Scene) -> None:
    a, b = actor("a"), actor("b")
    begun(scene, a)
    scene.beat(b)
    scene.run(60, a)
    assert scene.state is OperationState.RUNNING


def test_a_contained_crash_removes_only_its_own_frames(scene: Scene) -> None:
    a, b = actor("a"), actor("b")
    scene.create(a)
    scene.start(a)
    lost = scene.start(b, fail_on_crash=False)
    scene.run(1, a, b)
    look(scene, a)
    scene.run(15, a)
    assert scene.state is OperationState.RUNNING
    assert states(scene) == {"a": FrameState.ACTIVE}
    assert scene.ledger is not None
    assert scene.ledger.crashed_call_ids == (lost,)


def test_a_contained_crash_is_swept_by_another_participant_if_its_finder_dies(
    scene: Scene,
) -> None:
    a, b, finder = actor("a"), actor("b"), actor("finder")
    scene.create(a)
    scene.start(a)
    scene.start(b, fail_on_crash=False)
    scene.run(1, a, b, finder)
    look(scene, a, finder)
    scene.run(10, a)
    scene.now_ms += 1
    look(scene, a)
    finder.watch.observe(scene.ledger, scene.moment(finder).ms - 5000)  # type: ignore[arg-type]
    scene.beat(finder, dies=True)
    assert states(scene) == {"a": FrameState.ACTIVE, "b": FrameState.CRASHED}
    scene.run(5, a)
    assert states(scene) == {"a": FrameState.ACTIVE}


def test_one_crashed_call_that_must_not_crash_fails_the_operation(scene: Scene) -> None:
    a, b = actor("a"), actor("b")
    scene.create(a)
    scene.start(b, fail_on_crash=False)
    scene.start(b, fail_on_crash=True)
    scene.run(1, a, b)
    look(scene, a)
    scene.run(15, a)
    assert scene.state is OperationState.CLEANUP


@pytest.mark.parametrize("fail_on_crash", [True, False])
@pytest.mark.parametrize("later_s", [15, 40])
def test_a_participant_that_was_declared_dead_is_fenced_when_it_returns(
    scene: Scene, fail_on_crash: bool, later_s: int
) -> None:
    a, b = actor("a"), actor("b")
    begun(scene, a, b, fail_on_crash=fail_on_crash)
    scene.run(later_s, a)
    assert scene.ledger is not None
    with pytest.raises(ParticipantFenced, match=r"'b' \(pid 1\) was silent"):
        scene.start(b)
    with pytest.raises(ParticipantFenced) as caught:
        scene.end(b, min(b.held))
    assert set(caught.value.info.crashed_call_ids) == b.held
    result = scene.beat(b)
    assert result is not None
    assert result.duty is Duty.STOP


def test_an_observer_that_was_paused_gives_every_peer_the_whole_threshold(scene: Scene) -> None:
    """All were stopped at once: the first that wakes must not declare the others dead."""
    a, b = actor("a"), actor("b")
    begun(scene, a, b)
    scene.now_ms += 3_600_000
    scene.beat(a)
    assert scene.state is OperationState.RUNNING
    scene.run(10, a, b)
    assert scene.state is OperationState.RUNNING


def test_two_processes_of_one_name_and_pid_are_two_participants(scene: Scene) -> None:
    a, twin = actor("a"), actor("a")
    twin.me = twin.watch.me = a.me._replace(session="other")
    begun(scene, a, twin)
    scene.run(15, a)
    assert scene.state is OperationState.CLEANUP
    assert scene.ledger is not None
    assert [frame.state for frame in scene.ledger.stack] == [
        FrameState.CLEANING_UP,
        FrameState.CRASHED,
    ]


def test_the_next_participant_to_read_an_abort_starts_the_clean_up(scene: Scene) -> None:
    a, b = actor("a"), actor("b")
    begun(scene, a, b)
    assert scene.ledger is not None
    at = scene.moment(b).at
    scene.keep(t.request_abort(scene.ledger, b.me, b.held, "enough", at))
    with pytest.raises(OperationFailed, match="aborted by 'b': enough"):
        scene.start(a)
    scene.beat(a)
    assert scene.state is OperationState.CLEANUP
    assert t.request_abort(scene.ledger, b.me, b.held, "again", at).lines == ()


def test_an_operation_with_open_calls_can_not_be_completed(scene: Scene) -> None:
    a = actor("a")
    scene.create(a)
    call = scene.start(a)
    assert scene.ledger is not None
    with pytest.raises(CallsOpen, match=call):
        t.complete_operation(scene.ledger, a.me, a.held, scene.moment(a).at)


def test_a_heartbeat_removes_a_frame_that_its_participant_does_not_hold(scene: Scene) -> None:
    """The caller stopped waiting for the start of a call, and the call started nevertheless."""
    a = actor("a")
    scene.create(a)
    kept, given_up = scene.start(a), scene.start(a)
    a.held.discard(given_up)
    scene.beat(a)
    assert scene.ledger is not None
    assert [frame.call_id for frame in scene.ledger.stack] == [kept]


def test_a_coordinator_that_hands_over_is_replaced_at_once(scene: Scene) -> None:
    a, b, c = actor("a"), actor("b"), actor("c")
    begun(scene, a, b, c)
    scene.run(10, a, b)
    scene.run(5, b)
    assert scene.ledger is not None
    scene.keep(t.hand_over(scene.ledger, b.me))
    scene.beat(a)
    assert scene.ledger.coordinator == a.me


def test_a_former_coordinator_removes_no_frames(scene: Scene) -> None:
    a, b, c = actor("a"), actor("b"), actor("c")
    begun(scene, a, b, c)
    scene.run(15, a)
    assert scene.ledger is not None
    assert t.remove_frames(scene.ledger, b.me, scene.moment(b).at).data == scene.ledger


def test_a_heartbeat_reports_what_it_found(scene: Scene) -> None:
    a, b = actor("a"), actor("b")
    begun(scene, a, b, fail_on_crash=False)
    scene.run(9, a, every_ms=3000)
    before = scene.ledger
    scene.now_ms += 3000
    assert before is not None
    result = apply_beat(before, a.me, a.held, a.watch, scene.moment(a))
    found = report(before, result.data, a.watch, scene.moment(a))
    assert found.participant_heartbeat_ages == {"a": 3000, "b": 12_000}
    assert (found.stale_participants, found.has_stale_children) == (("b",), True)
    assert (found.heartbeat_updated, found.stack_depth, found.is_stale) == (True, 2, False)
    assert (found.data_before, found.data_after) == (before, result.data)


@pytest.mark.parametrize(
    "wrong",
    [
        {"staleness": 5.0},
        {"heartbeat_shortest": 0},
        {"heartbeat_shortest": 6.0},
        {"notice": -1},
        {"backup_delay": float("nan")},
        {"lock_timeout": True},
        {"auto_heartbeat": 1},
    ],
)
def test_invalid_settings_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(InputError):
        LedgerSettings(**wrong)  # type: ignore[arg-type]


def test_heartbeats_are_spread_over_their_interval() -> None:
    settings = LedgerSettings()
    assert (settings.interval(0), settings.interval(0xFFFF)) == (4.0, 5.0)
