import pytest

from perdure.core.ids import StepId
from perdure.core.journal import events as e
from perdure.core.ledger import ATTEMPT, LEG1_DONE, post_to, step_account
from perdure.core.limits import MAX_ATTEMPTS
from perdure.core.replay.doubt import (
    MAX_DOUBTS,
    MOST_DOUBTS,
    Doubt,
    Resolution,
    doubt_entry,
    doubted_steps,
    parse_doubt,
    reconciled_entry,
    resolution_of,
    resolve,
    step_in_doubt,
)

STEP = StepId("root.3")


@pytest.mark.parametrize("policy", Resolution)
def test_the_policy_decides_up_to_the_limit_and_beyond_it_the_step_fails(
    policy: Resolution,
) -> None:
    for total in range(1, MAX_DOUBTS + 1):
        assert resolve(policy, total, MAX_DOUBTS) is policy
    assert resolve(policy, MAX_DOUBTS + 1, MAX_DOUBTS) is Resolution.FAIL
    assert resolve(policy, 1, 0) is Resolution.FAIL


@pytest.mark.parametrize("resolution", Resolution)
def test_an_entry_names_the_step_the_number_of_doubts_and_the_resolution(
    resolution: Resolution,
) -> None:
    entry = doubt_entry(STEP, 2, resolution)
    assert entry.label == f"in doubt: {resolution.value}"
    assert resolution_of(entry) is resolution
    assert doubted_steps(entry) == [(STEP, 2)]
    assert entry.semaphore == 0


def test_an_entry_older_than_policies_means_retry() -> None:
    posting = e.Posting(step_account(STEP), ATTEMPT)
    entry = e.Posted("in doubt", (posting,))
    assert resolution_of(entry) is Resolution.RETRY
    assert doubted_steps(entry) == [(STEP, 1)]


@pytest.mark.parametrize("label", ["attempt", "in doubt: ", "in doubt:retry", "reconciled:root.3"])
def test_other_entries_are_not_about_doubt(label: str) -> None:
    assert resolution_of(e.Posted(label, ())) is None


def test_a_reconciled_entry_names_its_step_and_posts_nothing() -> None:
    assert reconciled_entry(STEP) == e.Posted("reconciled:root.3", ())


@pytest.mark.parametrize("resolution", Resolution)
def test_a_doubt_is_parsed_from_its_text(resolution: Resolution) -> None:
    for doubt in (Doubt(12, resolution), Doubt(12, resolution, 7)):
        assert parse_doubt(str(doubt)) == doubt


def test_the_digits_of_a_step_hold_the_most_doubts_that_there_can_be() -> None:
    account = step_account(STEP)
    entry = doubt_entry(STEP, MOST_DOUBTS, Resolution.RETRY)
    post_to(account, ATTEMPT + LEG1_DONE, entry.postings[0].increment)


def test_a_step_whose_host_ends_every_time_executes_98_times() -> None:
    """The digits count its first start and each end of its host; the last digit belongs to the entry that fails it."""
    executions = ends = 0
    while True:
        executions += 1
        ends += 1
        if resolve(Resolution.RETRY, ends, MOST_DOUBTS, stops=ends) is Resolution.FAIL:
            break
    assert (executions, 1 + ends) == (98, MAX_ATTEMPTS)


def test_the_failure_has_a_reason_and_a_remedy() -> None:
    once = step_in_doubt(STEP, "charge", Resolution.FAIL, 1)
    often = step_in_doubt(STEP, "charge", Resolution.RETRY, 4)
    assert "root.3 (charge) was under way when its host died" in once.what
    assert "root.3 (charge) was under way 4 times" in often.what
    assert "kills its process" in often.remedy


def test_resolutions_of_a_newer_release_are_read_as_a_retry() -> None:
    assert parse_doubt("2:postponed:1") == Doubt(2, Resolution.RETRY, 1)
    assert parse_doubt("2:fail:1:more") == Doubt(2, Resolution.FAIL, 1)
    for label in ("in doubt: postponed", "stopped: postponed"):
        assert resolution_of(e.Posted(label, ())) is Resolution.RETRY
    assert resolution_of(e.Posted("reconciled:root.1", ())) is None
