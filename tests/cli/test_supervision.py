"""What a supervisor decides, event by event, without a process."""

import pytest

from perdure.cli.worker.supervision import (
    HURRY_S,
    NOT_DRAINED,
    UNUSABLE,
    Action,
    Backoff,
    Kill,
    Say,
    Spawn,
    Supervision,
    Terminate,
)

GRACE_S = 10.0


def deeds(actions: list[Action]) -> list[Action]:
    """What is done, without what is said."""
    return [action for action in actions if not isinstance(action, Say)]


def due_s(supervision: Supervision) -> float | None:
    return supervision.next_due_s


def is_over(supervision: Supervision) -> bool:
    return supervision.is_over


def serving(count: int, backoff: Backoff | None = None) -> Supervision:
    """All workers serve, since second 0."""
    supervision = Supervision(count, backoff)
    supervision.begin()
    for number in range(1, count + 1):
        supervision.ready(number, GRACE_S, 0.0)
    return supervision


def test_the_wait_doubles_up_to_the_ceiling() -> None:
    backoff = Backoff(first_s=0.5, ceiling_s=5.0)
    assert [backoff.delay_s(n) for n in (1, 2, 3, 4, 5, 6, 10_000)] == [0.5, 1, 2, 4, 5, 5, 5]


def test_the_first_worker_goes_ahead_and_the_others_follow_when_it_serves() -> None:
    supervision = Supervision(3)
    assert supervision.begin() == [Spawn(1)]
    assert deeds(supervision.ready(1, GRACE_S, 1.0)) == [Spawn(2), Spawn(3)]
    assert deeds(supervision.ready(2, GRACE_S, 2.0)) == []


def test_a_crashed_worker_rests_longer_each_time_and_is_forgiven_when_it_served_long() -> None:
    supervision = serving(2, Backoff(first_s=1.0, ceiling_s=3.0, steady_s=30.0))
    now = 0.0
    for delay in (1.0, 2.0, 3.0, 3.0):
        assert deeds(supervision.ended(1, -9, now)) == []
        assert due_s(supervision) == now + delay
        assert supervision.due(now + delay - 0.01) == []
        assert supervision.due(now + delay) == [Spawn(1)]
        assert due_s(supervision) is None
        now += delay
        supervision.ready(1, GRACE_S, now)
        now += 29.0
    now += 1.0
    supervision.ended(1, -9, now)
    assert due_s(supervision) == now + 1.0


def test_a_worker_that_never_gets_to_serve_is_not_forgiven_however_long_it_tried() -> None:
    supervision = serving(2, Backoff(first_s=1.0))
    supervision.ended(1, 1, 5.0)
    supervision.due(6.0)
    supervision.ended(1, 1, 500.0)
    assert due_s(supervision) == 502.0


def test_who_can_not_start_ends_it_all_if_nobody_serves() -> None:
    supervision = Supervision(3)
    supervision.begin()
    assert deeds(supervision.ended(1, UNUSABLE, 0.0)) == []
    assert supervision.is_over
    assert supervision.exit_code == UNUSABLE


def test_who_can_not_start_while_others_serve_is_tried_again_later() -> None:
    supervision = serving(2)
    supervision.ended(1, -9, 1.0)
    supervision.due(2.0)
    supervision.ended(1, UNUSABLE, 3.0)
    assert not supervision.is_over
    assert due_s(supervision) == 4.0


def test_the_last_one_that_serves_and_then_can_not_start_ends_it_all() -> None:
    supervision = serving(1)
    supervision.ended(1, -9, 1.0)
    supervision.due(2.0)
    supervision.ended(1, UNUSABLE, 3.0)
    assert supervision.is_over
    assert supervision.exit_code == UNUSABLE


def test_a_first_worker_that_crashes_before_it_serves_is_tried_again_alone() -> None:
    supervision = Supervision(2, Backoff(first_s=1.0))
    supervision.begin()
    supervision.ended(1, 1, 0.0)
    assert supervision.due(1.0) == [Spawn(1)]
    assert deeds(supervision.ready(1, GRACE_S, 2.0)) == [Spawn(2)]


def test_a_stop_drains_those_that_live_and_forgets_those_that_rest() -> None:
    supervision = serving(3)
    supervision.ended(2, -9, 1.0)
    assert deeds(supervision.stop("SIGTERM", 1.2)) == [Terminate(1), Terminate(3)]
    supervision.ended(1, 0, 2.0)
    assert not is_over(supervision)
    supervision.ended(3, 0, 3.0)
    assert is_over(supervision)
    assert supervision.exit_code == 0
    assert due_s(supervision) is None


def test_a_second_stop_kills_and_the_exit_code_tells() -> None:
    supervision = serving(2)
    supervision.stop("SIGINT", 1.0)
    supervision.ended(1, 0, 1.5)
    assert deeds(supervision.stop("SIGINT", 2.0)) == [Kill(2)]
    supervision.ended(2, -9, 2.1)
    assert supervision.is_over
    assert supervision.exit_code == NOT_DRAINED


def test_who_does_not_stop_in_time_is_killed_once() -> None:
    supervision = serving(1)
    supervision.stop("SIGTERM", 1.0)
    until = 1.0 + 2 * GRACE_S + HURRY_S
    assert due_s(supervision) == until
    assert deeds(supervision.due(until)) == [Kill(1)]
    assert due_s(supervision) is None
    supervision.ended(1, -9, until + 1)
    assert supervision.exit_code == NOT_DRAINED


@pytest.mark.parametrize("code", [0, -15])
def test_a_worker_that_is_stopped_while_it_starts_has_nothing_to_drain(code: int) -> None:
    supervision = Supervision(1)
    supervision.begin()
    assert deeds(supervision.stop("SIGTERM", 1.0)) == [Terminate(1)]
    supervision.ended(1, code, 1.1)
    assert supervision.is_over
    assert supervision.exit_code == 0


def test_a_worker_that_serves_and_dies_by_the_signal_was_not_drained() -> None:
    supervision = serving(1)
    supervision.stop("SIGTERM", 1.0)
    supervision.ended(1, -15, 1.1)
    assert supervision.exit_code == NOT_DRAINED


def test_who_gets_ready_while_it_is_stopped_is_not_told_again_and_nobody_follows() -> None:
    supervision = Supervision(2)
    supervision.begin()
    supervision.stop("SIGTERM", 1.0)
    assert deeds(supervision.ready(1, GRACE_S, 2.0)) == []
    assert due_s(supervision) == 2.0 + 2 * GRACE_S + HURRY_S


def test_a_rolling_restart_replaces_one_after_the_other() -> None:
    supervision = serving(2)
    assert deeds(supervision.roll("SIGHUP", 1.0)) == [Terminate(1)]
    assert deeds(supervision.roll("SIGHUP", 1.1)) == []
    assert deeds(supervision.ended(1, 0, 2.0)) == [Spawn(1)]
    assert deeds(supervision.ready(1, GRACE_S, 3.0)) == [Terminate(2)]
    assert deeds(supervision.ended(2, 0, 4.0)) == [Spawn(2)]
    assert supervision.ready(2, GRACE_S, 5.0)[-1] == Say("the rolling restart is through")
    assert deeds(supervision.roll("SIGHUP", 6.0)) == [Terminate(1)]


def test_a_rolling_restart_whose_first_one_does_not_start_leaves_the_others_alone() -> None:
    supervision = serving(3)
    supervision.roll("SIGHUP", 1.0)
    supervision.ended(1, 0, 2.0)
    assert deeds(supervision.ended(1, UNUSABLE, 3.0)) == []
    assert supervision.due(3.5) == [Spawn(1)]
    assert deeds(supervision.ready(1, GRACE_S, 4.0)) == []


def test_a_rolling_restart_passes_over_who_rests() -> None:
    supervision = serving(3)
    supervision.roll("SIGHUP", 1.0)
    supervision.ended(2, -9, 1.1)
    supervision.ended(1, 0, 1.2)
    assert deeds(supervision.ready(1, GRACE_S, 1.3)) == [Terminate(3)]


def test_a_stop_amid_a_rolling_restart_tells_nobody_twice() -> None:
    supervision = serving(2)
    supervision.roll("SIGHUP", 1.0)
    assert deeds(supervision.stop("SIGTERM", 1.1)) == [Terminate(2)]
    assert deeds(supervision.ended(1, 0, 1.2)) == []
    supervision.ended(2, 0, 1.3)
    assert supervision.is_over
    assert supervision.exit_code == 0


@pytest.mark.parametrize(
    ("code", "said"),
    [(3, "ended with exit code 3"), (-9, "killed by SIGKILL"), (-200, "killed by signal 200")],
)
def test_it_is_said_how_a_worker_ended(code: int, said: str) -> None:
    assert serving(1).ended(1, code, 1.0) == [Say(f"{said}, starts again in 0.5 s", 1)]
