"""Names of accounts: `step:root.3` holds an activity ledger, `message:m_...` a message ledger."""

from typing import Final, NewType

from perdure.core.errors import InvalidId
from perdure.core.ids import Guid, StepId
from perdure.core.ledger.digits import ACTIVITY, MESSAGE, DigitLayout
from perdure.core.ledger.posting import post, post_activity

AccountId = NewType("AccountId", str)
"""An account within its run."""

_STEP: Final = "step:"
_MESSAGE: Final = "message:"


def step_account(step_id: StepId) -> AccountId:
    if not step_id:
        raise InvalidId("a step account without a step", "pass the step's id, such as 'root.3'")
    return AccountId(_STEP + step_id)


def message_account(guid: Guid) -> AccountId:
    if not guid:
        raise InvalidId("a message account without a message", "pass the message's GUID")
    return AccountId(_MESSAGE + guid)


def is_step_account(account: AccountId) -> bool:
    return account[:5] == _STEP


def layout_of(account: AccountId) -> DigitLayout:
    """The layout by which the account's digits are read."""
    if account[:5] == _STEP and account != _STEP:
        return ACTIVITY
    if account[:8] == _MESSAGE and account != _MESSAGE:
        return MESSAGE
    raise InvalidId(
        f"{account!r} is not an account",
        "name accounts with `step_account(step_id)` or `message_account(guid)`",
    )


def post_to(account: AccountId, balance: int, increment: int) -> int:
    """`post`, by the layout that the account's name tells."""
    if account[:5] == _STEP and account != _STEP:
        return post_activity(balance, increment)
    return post(balance, increment, layout_of(account))
