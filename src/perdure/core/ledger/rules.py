"""The rules of the digits: which balances are possible, and which postings an account takes.

This is the reference implementation, with every rule and every error text. `posting` has a fast check
in front of it.

Two families of rules:

- *room*: every field keeps within its own maximum, so nothing ever carries into a neighbour;
- *order*: a marker needs what comes before it in the protocol, and is posted once.

Order is judged on the balance that results. A balance is therefore possible if and only if it
could be posted to an empty account at once, and parts of the protocol may be posted together.

Which error: a counter that is full raises `AttemptsExhausted` or `EntriesExhausted`; a marker that
is posted already, or too early, raises `LedgerOrder`; digits that have no meaning in the layout
raise `LedgerOverflow`; anything below zero raises `LedgerDecrement`.
"""

from perdure.core.errors import (
    AttemptsExhausted,
    EntriesExhausted,
    LedgerDecrement,
    LedgerError,
    LedgerOrder,
    LedgerOverflow,
)
from perdure.core.ledger.digits import (
    ACTIVITY,
    ATTEMPTS,
    ENTRIES,
    FINALIZE_DIGIT,
    DigitLayout,
    Field,
    digits_of,
    read,
    read_all,
)
from perdure.core.limits import LEDGER_DIGITS, MAX_BALANCE


def require_possible(balance: int, layout: DigitLayout) -> None:
    """Refuse a balance that no sequence of postings could have produced."""
    shown = digits_of(balance)
    remedy = "the account is damaged: find all damage with perdure.audit(url), and restore the row"
    if balance < 0:
        raise LedgerDecrement(f"an account below zero ({balance})", remedy)
    if balance > MAX_BALANCE:
        raise LedgerOverflow(f"an account of more than {LEDGER_DIGITS} digits ({balance})", remedy)
    for field in layout.fields:
        value = read(balance, field)
        if value > field.maximum:
            raise LedgerOverflow(
                f"{_named(field)} of the {layout.name} ledger holds {value},"
                f" at most {field.maximum} ({shown})",
                remedy,
            )
    flaw = _flaw_of(balance, layout)
    if flaw is not None:
        raise LedgerOrder(f"{flaw[0]} ({shown})", remedy)


def judge_posting(balance: int, increment: int, layout: DigitLayout) -> int:
    """The balance after posting `increment`; raises, before anything changes, if it is refused."""
    require_possible(balance, layout)
    if increment < 0:
        raise LedgerDecrement(
            f"a posting of {increment} to the {layout.name} ledger ({digits_of(balance)})",
            "ledgers only grow; to undo work, post the step that compensates for it",
        )
    if increment > MAX_BALANCE:
        raise LedgerOverflow(
            f"a posting of more than {LEDGER_DIGITS} digits ({increment})",
            "post the named increments",
        )
    for field in layout.fields:
        _require_room(balance, increment, field, layout)
    _require_sequence(balance, increment, layout)
    flaw = _flaw_of(balance + increment, layout)
    if flaw is not None:
        what, remedy = flaw
        raise LedgerOrder(f"{what} ({digits_of(balance)} + {digits_of(increment)})", remedy)
    return int(balance + increment)


def located(error: LedgerError, place: str, remedy: str | None = None) -> LedgerError:
    """The same refusal, saying where: `place` is such as "step 'charge' of run 'r_81'".

    Postings are judged without knowing whose they are, so that the hot path builds no text; who
    catches the refusal knows.
    """
    return type(error)(f"{error.what} for {place}", error.remedy if remedy is None else remedy)


def _named(field: Field) -> str:
    if field.width == 1:
        return f"digit {field.position} ({field.name})"
    return f"digits {field.position}-{field.last_position} ({field.name})"


def _require_room(balance: int, increment: int, field: Field, layout: DigitLayout) -> None:
    held, added = read(balance, field), read(increment, field)
    if field.is_marker and held and added:
        raise LedgerOrder(
            f"{_named(field)} is posted already ({digits_of(balance)})",
            "a finalized step stays so, and a trigger, born authorized, is never finalized"
            if field is FINALIZE_DIGIT
            else "read the account first and skip what its digits prove",
        )
    if held + added <= field.maximum:
        return
    if field is ATTEMPTS:
        raise AttemptsExhausted(
            f"entry attempts exhausted ({held} of {field.maximum})",
            "fail the step: it crashed on every attempt; correct its code, then start a new run",
        )
    if field is ENTRIES:
        raise EntriesExhausted(
            f"leg-2 entries exhausted ({held} of {field.maximum})",
            "fail the step: it can't cycle further; continue in a new run",
        )
    raise LedgerOverflow(
        f"{_named(field)} of the {layout.name} ledger can't take {added}"
        f" ({digits_of(balance)} + {digits_of(increment)})",
        "nothing may be posted there"
        if field.is_reserved
        else f"it holds {held}, at most {field.maximum}; post the named increments",
    )


def _require_sequence(balance: int, increment: int, layout: DigitLayout) -> None:
    """Order that the result can't show: what may not follow, though it may come together."""
    held, added = read_all(balance, layout), read_all(increment, layout)
    shown = digits_of(balance)
    if layout is ACTIVITY:
        if added["finalize"] == 1 and balance:
            raise LedgerOrder(
                f"only an empty account can be born authorized ({shown})",
                "post TRIGGER_SEED as the first posting of a trigger, and nowhere else",
            )
        if held["finalize"] == 2 and added["entries"]:
            raise LedgerOrder(
                f"a finalized step takes no leg-2 entry ({shown})",
                "acknowledge the message as stale: its run is over",
            )
        return
    if added["ordinal"] and balance:
        raise LedgerOrder(
            f"the ordinal is seeded when the account is made, not later ({shown})",
            "resume the message by its digits; it keeps the ordinal that it has",
        )
    if added["closed"] and not added["spawned"]:
        raise LedgerOrder(
            f"the closed bit belongs to step 2 ({shown})",
            "post SPAWNED + CLOSED at once, in the bundle that moves the semaphore",
        )


def _flaw_of(balance: int, layout: DigitLayout) -> tuple[str, str] | None:
    """What is out of order in a balance and what to do instead; `None` if nothing is."""
    held = read_all(balance, layout)
    return _activity_flaw(held) if layout is ACTIVITY else _message_flaw(held)


def _activity_flaw(held: dict[str, int]) -> tuple[str, str] | None:
    if held["leg1_done"] and not held["attempts"]:
        return "leg 1 done without an entry attempt", "post ATTEMPT before LEG1_DONE, or with it"
    if held["entries"] and not held["leg1_done"]:
        return "leg 2 entered before leg 1 is done", "commit leg 1 first: LEG1_DONE, then ENTRY"
    if held["finalize"] == 2 and not held["leg1_done"]:
        return "finalized before leg 1 is done", "commit leg 1 first: LEG1_DONE, then FINALIZE"
    if held["finalize"] == 1 and not held["entries"]:
        return "born authorized without both legs", "seed a trigger with TRIGGER_SEED, at once"
    return None


def _message_flaw(held: dict[str, int]) -> tuple[str, str] | None:
    if held["spawned"] and not held["work_done"]:
        return "children spawned before the work is done", "post WORK_DONE before SPAWNED"
    if held["closed"] and not held["spawned"]:
        return "closed before the children are spawned", "post SPAWNED + CLOSED at once"
    if held["completed"] and not held["spawned"]:
        return "completed before the children are spawned", "post SPAWNED before COMPLETED"
    # A trigger has no ordinal, and closes its run at birth, before there is a semaphore to settle.
    if held["completed"] and not held["closed"] and held["ordinal"]:
        return (
            "completed by a message that did not close the run",
            "leave completion to the message that holds the closed bit",
        )
    return None
