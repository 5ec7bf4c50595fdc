import pytest

from perdure.core.errors import InvalidId, LedgerOrder
from perdure.core.ids import Guid, RunId, StepId, message_guid
from perdure.core.ledger import (
    ACTIVITY,
    ATTEMPT,
    MESSAGE,
    WORK_DONE,
    AccountId,
    layout_of,
    message_account,
    post_to,
    step_account,
)

GUID = message_guid(RunId("r_" + "0" * 32), "start")


@pytest.mark.parametrize("step_id", ["root", "root.3", "price,0,0,1"])
def test_a_step_account_is_named_after_its_step(step_id: str) -> None:
    assert step_account(StepId(step_id)) == f"step:{step_id}"


def test_a_message_account_is_named_after_its_guid() -> None:
    assert message_account(GUID) == f"message:{GUID}"


def test_a_step_account_holds_an_activity_ledger() -> None:
    assert layout_of(step_account(StepId("root.3"))) is ACTIVITY


def test_a_message_account_holds_a_message_ledger() -> None:
    assert layout_of(message_account(GUID)) is MESSAGE


def test_a_step_called_message_is_still_a_step() -> None:
    assert layout_of(step_account(StepId("message:x"))) is ACTIVITY


@pytest.mark.parametrize("name", ["", "step", "step:", "message:", "run:root", "Step:root"])
def test_an_unknown_account_is_refused(name: str) -> None:
    with pytest.raises(InvalidId, match="is not an account"):
        layout_of(AccountId(name))


def test_an_account_needs_a_step() -> None:
    with pytest.raises(InvalidId, match="without a step"):
        step_account(StepId(""))


def test_an_account_needs_a_message() -> None:
    with pytest.raises(InvalidId, match="without a message"):
        message_account(Guid(""))


def test_a_posting_is_judged_by_the_layout_of_its_account() -> None:
    step, message = step_account(StepId("root")), message_account(GUID)
    assert post_to(step, 0, ATTEMPT) == ATTEMPT
    assert post_to(message, 1, WORK_DONE) == WORK_DONE + 1
    with pytest.raises(LedgerOrder):
        post_to(step, 0, 1)
