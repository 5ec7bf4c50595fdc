"""The decisions of a supervisor, event by event, without a process."""

import pytest

from perdure.cli.worker.policy import (
    BAD_CONFIG,
    NOT_DRAINED,
    STOP_MARGIN_S,
    Action,
    KillWorker,
    PrintLine,
    RestartBackoff,
    SpawnWorker,
    SupervisionPolicy,
    TerminateWorker,
)

GRACE_S = 10.0


def deeds(actions: list[Action]) -> list[Action]:
    """The actions, without the printed lines."""
    return [action for action in actions if not isinstance(action, PrintLine)]


def due_s(supervision: SupervisionPolicy) -> float | None:
    return supervision.next_due_s


def is_over(supervision: SupervisionPolicy) -> bool:
    return supervision.is_over


def serving(count: int, backoff: RestartBackoff | None = None) -> SupervisionPolicy:
    """All workers serve, since second 0."""
    supervision = SupervisionPolicy(count, backoff)
    supervision.begin()
    for number in range(1, count + 1):
        supervision.ready(number, GRACE_S, 0.0)
    return supervision


def test_restart_delay_doubles_up_to_the_ceiling() -> None:
    backoff = RestartBackoff(first_s=0.5, ceiling_s=5.0)
    assert [backoff.delay_s(n) for n in (1, 2, 3, 4, 5, 6, 10_000)] == [0.5, 1, 2, 4, 5, 5, 5]


def test_other_workers_start_once_the_first_serves() -> None:
    supervision = SupervisionPolicy(3)
    assert supervision.begin() == [SpawnWorker(1)]
    assert deeds(supervision.ready(1, GRACE_S, 1.0)) == [SpawnWorker(2), SpawnWorker(3)]
    assert deeds(supervision.ready(2, GRACE_S, 2.0)) == []


def test_restart_delay_grows_and_resets_after_long_service() -> None:
    supervision = serving(2, RestartBackoff(first_s=1.0, ceiling_s=3.0, steady_s=30.0))
    now = 0.0
    for delay in (1.0, 2.0, 3.0, 3.0):
        assert deeds(supervision.ended(1, -9, now)) == []
        assert due_s(supervision) == now + delay
        assert supervision.due(now + delay - 0.01) == []
        assert supervision.due(now + delay) == [SpawnWorker(1)]
        assert due_s(supervision) is None
        now += delay
        supervision.ready(1, GRACE_S, now)
        now += 29.0
    now += 1.0
    supervision.ended(1, -9, now)
    assert due_s(supervision) == now + 1.0


def test_restart_delay_does_not_reset_without_service() -> None:
    supervision = serving(2, RestartBackoff(first_s=1.0))
    supervision.ended(1, 1, 5.0)
    supervision.due(6.0)
    supervision.ended(1, 1, 500.0)
    assert due_s(supervision) == 502.0


def test_bad_configuration_stops_the_supervisor_if_no_worker_serves() -> None:
    supervision = SupervisionPolicy(3)
    supervision.begin()
    assert deeds(supervision.ended(1, BAD_CONFIG, 0.0)) == []
    assert supervision.is_over
    assert supervision.exit_code == BAD_CONFIG


def test_bad_configuration_is_retried_while_others_serve() -> None:
    supervision = serving(2)
    supervision.ended(1, -9, 1.0)
    supervision.due(2.0)
    supervision.ended(1, BAD_CONFIG, 3.0)
    assert not supervision.is_over
    assert due_s(supervision) == 4.0


def test_bad_configuration_of_the_last_worker_stops_the_supervisor() -> None:
    supervision = serving(1)
    supervision.ended(1, -9, 1.0)
    supervision.due(2.0)
    supervision.ended(1, BAD_CONFIG, 3.0)
    assert supervision.is_over
    assert supervision.exit_code == BAD_CONFIG


def test_first_worker_that_crashes_early_restarts_alone() -> None:
    supervision = SupervisionPolicy(2, RestartBackoff(first_s=1.0))
    supervision.begin()
    supervision.ended(1, 1, 0.0)
    assert supervision.due(1.0) == [SpawnWorker(1)]
    assert deeds(supervision.ready(1, GRACE_S, 2.0)) == [SpawnWorker(2)]


def test_stop_drains_live_workers_and_drops_pending_restarts() -> None:
    supervision = serving(3)
    supervision.ended(2, -9, 1.0)
    assert deeds(supervision.stop("SIGTERM", 1.2)) == [TerminateWorker(1), TerminateWorker(3)]
    supervision.ended(1, 0, 2.0)
    assert not is_over(supervision)
    supervision.ended(3, 0, 3.0)
    assert is_over(supervision)
    assert supervision.exit_code == 0
    assert due_s(supervision) is None


def test_second_stop_kills_and_sets_the_exit_code() -> None:
    supervision = serving(2)
    supervision.stop("SIGINT", 1.0)
    supervision.ended(1, 0, 1.5)
    assert deeds(supervision.stop("SIGINT", 2.0, killed_code=130)) == [KillWorker(2)]
    supervision.ended(2, -9, 2.1)
    assert supervision.is_over
    assert supervision.exit_code == 130


def test_worker_that_does_not_stop_in_time_is_killed_once() -> None:
    supervision = serving(1)
    supervision.stop("SIGTERM", 1.0)
    until = 1.0 + 2 * GRACE_S + STOP_MARGIN_S
    assert due_s(supervision) == until
    assert deeds(supervision.due(until)) == [KillWorker(1)]
    assert due_s(supervision) is None
    supervision.ended(1, -9, until + 1)
    assert supervision.exit_code == NOT_DRAINED


@pytest.mark.parametrize("code", [0, -15])
def test_worker_stopped_while_starting_counts_as_drained(code: int) -> None:
    supervision = SupervisionPolicy(1)
    supervision.begin()
    assert deeds(supervision.stop("SIGTERM", 1.0)) == [TerminateWorker(1)]
    supervision.ended(1, code, 1.1)
    assert supervision.is_over
    assert supervision.exit_code == 0


def test_serving_worker_killed_by_sigterm_was_not_drained() -> None:
    supervision = serving(1)
    supervision.stop("SIGTERM", 1.0)
    supervision.ended(1, -15, 1.1)
    assert supervision.exit_code == NOT_DRAINED


def test_worker_ready_during_a_stop_gets_no_second_signal_and_no_followers() -> None:
    supervision = SupervisionPolicy(2)
    supervision.begin()
    supervision.stop("SIGTERM", 1.0)
    assert deeds(supervision.ready(1, GRACE_S, 2.0)) == []
    assert due_s(supervision) == 2.0 + 2 * GRACE_S + STOP_MARGIN_S


def test_rolling_restart_replaces_workers_one_by_one() -> None:
    supervision = serving(2)
    assert deeds(supervision.roll("SIGHUP", 1.0)) == [TerminateWorker(1)]
    assert deeds(supervision.roll("SIGHUP", 1.1)) == []
    assert deeds(supervision.ended(1, 0, 2.0)) == [SpawnWorker(1)]
    assert deeds(supervision.ready(1, GRACE_S, 3.0)) == [TerminateWorker(2)]
    assert deeds(supervision.ended(2, 0, 4.0)) == [SpawnWorker(2)]
    assert supervision.ready(2, GRACE_S, 5.0)[-1] == PrintLine("rolling restart finished")
    assert deeds(supervision.roll("SIGHUP", 6.0)) == [TerminateWorker(1)]


def test_failed_rolling_restart_keeps_the_other_workers() -> None:
    supervision = serving(3)
    supervision.roll("SIGHUP", 1.0)
    supervision.ended(1, 0, 2.0)
    assert deeds(supervision.ended(1, BAD_CONFIG, 3.0)) == []
    assert supervision.due(3.5) == [SpawnWorker(1)]
    assert deeds(supervision.ready(1, GRACE_S, 4.0)) == []


def test_rolling_restart_skips_workers_that_back_off() -> None:
    supervision = serving(3)
    supervision.roll("SIGHUP", 1.0)
    supervision.ended(2, -9, 1.1)
    supervision.ended(1, 0, 1.2)
    assert deeds(supervision.ready(1, GRACE_S, 1.3)) == [TerminateWorker(3)]


def test_stop_during_a_rolling_restart_signals_no_worker_twice() -> None:
    supervision = serving(2)
    supervision.roll("SIGHUP", 1.0)
    assert deeds(supervision.stop("SIGTERM", 1.1)) == [TerminateWorker(2)]
    assert deeds(supervision.ended(1, 0, 1.2)) == []
    supervision.ended(2, 0, 1.3)
    assert supervision.is_over
    assert supervision.exit_code == 0


@pytest.mark.parametrize(
    ("code", "said"),
    [(3, "ended with exit code 3"), (-9, "killed by SIGKILL"), (-200, "killed by signal 200")],
)
def test_line_says_how_a_worker_ended(code: int, said: str) -> None:
    assert serving(1).ended(1, code, 1.0) == [PrintLine(f"{said}, restarting in 0.5 s", 1)]
