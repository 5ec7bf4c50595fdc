"""The states that the protocol passes through, digit for digit."""

import pytest

from perdure.core.errors import LedgerOrder
from perdure.core.ledger import (
    ATTEMPT,
    ENTRY,
    FINALIZE,
    LEG1_DONE,
    ActivityLedger,
    MessageLedger,
    settle,
)


def test_leg_1_is_entered_done_and_entered_again_by_a_stale_message() -> None:
    step = ActivityLedger()
    assert str(step) == "000000000000000"
    step = step.attempt()
    assert str(step) == "001000000000000"
    step = step.finish_leg1()
    assert str(step) == "001100000000000"
    step = step.attempt()
    assert str(step) == "002100000000000"
    assert step.leg1_done, "so the stale message is acknowledged at once"


def test_a_leg_2_entry_seeds_its_message_with_the_entry_count() -> None:
    step = ActivityLedger(1_100_000_000_000).enter_leg2()
    message = MessageLedger()
    assert str(message) == "000000000000000"
    message = message.seed(step.entries)
    assert (str(step), str(message)) == ("001100000000001", "000000000000001")


def test_step_1_is_marked_on_the_message_and_leaves_the_step_alone() -> None:
    message = MessageLedger(1).finish_work()
    assert str(message) == "000010000000001"


def test_after_a_crash_behind_step_1_the_message_resumes_at_step_2() -> None:
    message = MessageLedger(10_000_000_001)
    assert (message.needs_work, message.needs_spawn, message.needs_completion) == (
        False,
        True,
        False,
    )


def test_step_2_with_two_children_raises_the_semaphore_and_does_not_close() -> None:
    settlement = settle(before=5, spawned=2)
    assert (settlement.delta, settlement.after, settlement.closed) == (1, 6, False)
    message = MessageLedger(10_000_000_001).spawn(closed=settlement.closed)
    assert str(message) == "000011000000001"
    assert message.settled


def test_step_2_without_children_closes_the_run_and_keeps_the_proof() -> None:
    settlement = settle(before=1, spawned=0)
    assert (settlement.delta, settlement.after, settlement.closed) == (-1, 0, True)
    message = MessageLedger(10_000_000_001).spawn(closed=settlement.closed)
    assert str(message) == "000111000000001"


def test_after_a_crash_behind_a_closing_step_2_completion_still_runs_once() -> None:
    message = MessageLedger(111_000_000_001)
    assert message.needs_completion
    message = message.complete()
    assert str(message) == "000111100000001"
    assert message.settled


def test_a_trigger_is_born_with_both_legs_behind_it() -> None:
    step = ActivityLedger.trigger()
    assert str(step) == "101100000000001"
    assert (step.finalize_digit, step.attempts, step.leg1_done, step.entries) == (1, 1, True, 1)


def test_a_trigger_message_goes_through_its_three_steps_without_ordinal_or_closed_bit() -> None:
    message = MessageLedger().finish_work()
    assert str(message) == "000010000000000"
    message = message.spawn(closed=False)
    assert str(message) == "000011000000000"
    message = message.complete()
    assert str(message) == "000011100000000"


def test_a_worker_that_does_not_close_the_run_stays_active() -> None:
    step = ActivityLedger().attempt().finish_leg1().enter_leg2()
    message = MessageLedger().seed(step.entries).finish_work().spawn(closed=False)
    assert (str(step), str(message)) == ("001100000000001", "000011000000001")
    assert step.is_active
    assert message.settled


def test_a_worker_that_closes_the_run_is_finalized_with_completion() -> None:
    step = ActivityLedger().attempt().finish_leg1().enter_leg2()
    message = MessageLedger().seed(step.entries).finish_work().spawn(closed=True)
    step, message = step.finalize(), message.complete()
    assert (str(step), str(message)) == ("201100000000001", "000111100000001")


def test_completion_is_refused_to_a_worker_that_did_not_close_the_run() -> None:
    message = MessageLedger(11_000_000_001)
    with pytest.raises(LedgerOrder, match="did not close the run"):
        message.complete()


def test_a_step_of_leg_1_only_that_closes_the_run_is_finalized_without_entries() -> None:
    assert str(ActivityLedger().attempt().finish_leg1().finalize()) == "201100000000000"


def test_a_cycle_is_preseeded_when_leg_1_is_done() -> None:
    step = ActivityLedger().attempt().finish_leg1(preseed=True)
    assert str(step) == "001100000000001"


def test_the_first_reentry_of_a_preseeded_step_gets_index_1() -> None:
    step = ActivityLedger().attempt().finish_leg1(preseed=True).enter_leg2()
    assert step.dimensional_index == 1


def test_the_first_entry_of_a_step_that_does_not_cycle_gets_index_0() -> None:
    assert ActivityLedger().attempt().finish_leg1().enter_leg2().dimensional_index == 0


def test_a_crash_before_leg_1_is_done_costs_one_more_attempt() -> None:
    assert str(ActivityLedger().attempt().attempt().finish_leg1()) == "002100000000000"


def test_parts_posted_together_and_one_by_one_give_the_same_balance() -> None:
    together = ActivityLedger().post(ATTEMPT + LEG1_DONE + ENTRY + FINALIZE)
    apart = ActivityLedger().attempt().finish_leg1().enter_leg2().finalize()
    assert together == apart
