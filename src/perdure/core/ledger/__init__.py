"""The ledger: 15-digit integers that prove what has committed, and the semaphore that closes a run.

`ActivityLedger` and `MessageLedger` read and post one account by name; `post` is the same on plain
integers, for the journal's append path.
"""

from perdure.core.ledger.accounts import (
    AccountId,
    is_step_account,
    layout_of,
    message_account,
    post_to,
    step_account,
)
from perdure.core.ledger.activity import ActivityLedger
from perdure.core.ledger.digits import (
    ACTIVITY,
    MESSAGE,
    DigitLayout,
    Field,
    digits_of,
    read,
    read_all,
)
from perdure.core.ledger.increments import (
    ATTEMPT,
    AUTHORIZE,
    CLOSED,
    COMPLETED,
    ENTRY,
    FINALIZE,
    LEG1_DONE,
    SPAWNED,
    TRIGGER_SEED,
    WORK_DONE,
)
from perdure.core.ledger.message import MessageLedger
from perdure.core.ledger.posting import post
from perdure.core.ledger.rules import located, require_possible
from perdure.core.ledger.semaphore import Settlement, settle
from perdure.core.ledger.spell import diagram, spell_balance

__all__ = [
    "ACTIVITY",
    "ATTEMPT",
    "AUTHORIZE",
    "CLOSED",
    "COMPLETED",
    "ENTRY",
    "FINALIZE",
    "LEG1_DONE",
    "MESSAGE",
    "SPAWNED",
    "TRIGGER_SEED",
    "WORK_DONE",
    "AccountId",
    "ActivityLedger",
    "DigitLayout",
    "Field",
    "MessageLedger",
    "Settlement",
    "diagram",
    "digits_of",
    "is_step_account",
    "layout_of",
    "located",
    "message_account",
    "post",
    "post_to",
    "read",
    "read_all",
    "require_possible",
    "settle",
    "spell_balance",
    "step_account",
]
