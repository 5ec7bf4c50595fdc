"""Posting to an account: the one way in which a balance changes.

`post` runs once per account and commit. A fast check of a few divisions accepts the postings of
normal operation; all others go to `judge_posting`. The fast check accepts only what that accepts.
"""

from functools import lru_cache
from typing import Final

from perdure.core.ledger.digits import ACTIVITY, DigitLayout
from perdure.core.ledger.increments import TRIGGER_SEED
from perdure.core.ledger.rules import judge_posting

_COUNTER: Final = 100_000_000
"""Weight just above the entries and the ordinal."""

_LEG1: Final = 100_000_000_000
"""Weight of the leg-1 marker: above it are the attempts and the finalize digit."""

_ORDINARY: Final = (0, 1, 10, 11, 2000, 2001, 2011)
"""What one posting adds to a step's digits 1 to 4: an attempt, leg 1, finalize, as they combine."""

_ACTIVITY_MOVES: Final = frozenset(
    held * 10_000 + added
    for held in (0, *range(10, 1000, 10), *range(11, 1000, 10))
    for added in _ORDINARY
    for after in (held + added,)
    if held % 10 + added % 10 <= 1 and after % 1000 >= held  # nothing carries
    if after % 10 == 0 or after % 1000 >= 10  # leg 1 is done after an attempt
    if after % 10 == 1 or after < 1000  # finalized after leg 1
)
"""Moves of a step while it is active: digits 1 to 4 of the balance, then those of the increment."""

_STAGES: Final = (0, 100, 110, 1110, 1111)
"""What a message's digits 4 to 7 read as its steps commit: closed, work, spawned, completed."""

_MESSAGE_MOVES: Final = frozenset(
    held * 10_000 + after - held
    for held in _STAGES
    for after in _STAGES
    if held <= after and (held != 110 or after == 110)  # closed at step 2, or never
)
"""Moves of a message: digits 4 to 7 of the balance, then those of the increment."""


def post(balance: int, increment: int, layout: DigitLayout) -> int:
    """The balance after posting `increment`, any sum of named increments.

    Refuses, without any change, what would overflow a field, decrease, or break the order.
    """
    if layout is ACTIVITY:
        return post_activity(balance, increment)
    if _is_ordinary_message(balance, increment):
        return balance + increment
    return judge_posting(balance, increment, layout)


@lru_cache(1024)
def post_activity(balance: int, increment: int) -> int:
    """`post`, to the account of a step. Remembered: most steps are alike."""
    if _is_ordinary_activity(balance, increment):
        return balance + increment
    return judge_posting(balance, increment, ACTIVITY)


def _is_ordinary_activity(balance: int, increment: int) -> bool:
    """True for a step while it is active, and for the birth of a trigger."""
    held, added = balance // _LEG1, increment // _LEG1
    if 0 <= added < 10_000 and held * 10_000 + added in _ACTIVITY_MOVES:
        counted, counting = balance % _LEG1, increment % _LEG1
        if counted + counting >= _COUNTER:
            return False
        return held % 10 == 1 or (counted == 0 and (counting == 0 or added % 10 == 1))
    return balance == 0 and increment == TRIGGER_SEED


def _is_ordinary_message(balance: int, increment: int) -> bool:
    """True for the steps of a message, except a trigger's that completes its run."""
    held, added = balance // _COUNTER, increment // _COUNTER
    if 0 <= added < 10_000 and held * 10_000 + added in _MESSAGE_MOVES:
        return balance == 0 or increment % _COUNTER == 0
    return False
