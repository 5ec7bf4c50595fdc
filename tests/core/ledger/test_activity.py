import copy

import pytest

from perdure.core.errors import (
    AttemptsExhausted,
    EntriesExhausted,
    LedgerDecrement,
    LedgerError,
    LedgerOrder,
    LedgerOverflow,
)
from perdure.core.ledger import (
    ATTEMPT,
    AUTHORIZE,
    ENTRY,
    FINALIZE,
    LEG1_DONE,
    TRIGGER_SEED,
    ActivityLedger,
    located,
)

EMPTY = ActivityLedger()
ENTERED = ActivityLedger(1_000_000_000_000)
DONE = ActivityLedger(1_100_000_000_000)
FINALIZED = ActivityLedger(201_100_000_000_001)


@pytest.mark.parametrize(("before", "after"), [(9, 10), (10, 11), (19, 20), (98, 99)])
def test_attempts_are_counted_in_both_digits(before: int, after: int) -> None:
    assert ActivityLedger(before * ATTEMPT).attempt().attempts == after


@pytest.mark.parametrize("rest", [0, LEG1_DONE, LEG1_DONE + ENTRY, FINALIZE + LEG1_DONE])
def test_the_hundredth_attempt_is_refused_in_every_state(rest: int) -> None:
    ledger = ActivityLedger(99 * ATTEMPT + rest)
    with pytest.raises(AttemptsExhausted, match=r"entry attempts exhausted \(99 of 99\)"):
        ledger.attempt()


def test_two_attempts_at_once_are_refused_when_one_is_left() -> None:
    with pytest.raises(AttemptsExhausted):
        ActivityLedger(98 * ATTEMPT).post(2 * ATTEMPT)


def test_the_last_entry_is_accepted() -> None:
    assert DONE.post(99_999_998).enter_leg2().entries == 99_999_999


def test_the_entry_after_the_last_is_refused() -> None:
    full = DONE.post(99_999_999)
    with pytest.raises(EntriesExhausted, match=r"\(99999999 of 99999999\)"):
        full.enter_leg2()


def test_a_full_account_has_exactly_fifteen_digits() -> None:
    full = ActivityLedger(299_100_099_999_999)
    assert len(str(full)) == 15


def test_leg_1_is_done_once() -> None:
    with pytest.raises(LedgerOrder, match="digit 4 \\(leg1_done\\) is posted already"):
        DONE.finish_leg1()


def test_a_leg_1_marker_of_two_is_no_marker() -> None:
    with pytest.raises(LedgerOverflow, match="can't take 2"):
        ENTERED.post(2 * LEG1_DONE)


def test_leg_1_is_not_done_before_an_attempt() -> None:
    with pytest.raises(LedgerOrder, match="without an entry attempt"):
        EMPTY.finish_leg1()


def test_leg_1_may_be_entered_and_done_at_once() -> None:
    assert EMPTY.post(ATTEMPT + LEG1_DONE) == DONE


@pytest.mark.parametrize("ledger", [EMPTY, ENTERED], ids=str)
def test_leg_2_is_not_entered_before_leg_1_is_done(ledger: ActivityLedger) -> None:
    with pytest.raises(LedgerOrder, match=r"leg 2 entered before leg 1|without an entry"):
        ledger.enter_leg2()


@pytest.mark.parametrize("ledger", [EMPTY, ENTERED], ids=str)
def test_a_step_is_not_finalized_before_leg_1_is_done(ledger: ActivityLedger) -> None:
    with pytest.raises(LedgerOrder, match="finalized before leg 1 is done"):
        ledger.finalize()


def test_a_step_is_finalized_once() -> None:
    with pytest.raises(LedgerOrder, match="digit 1 \\(finalize\\) is posted already"):
        FINALIZED.finalize()


def test_a_finalized_step_accepts_no_entry() -> None:
    with pytest.raises(LedgerOrder, match="takes no leg-2 entry"):
        FINALIZED.enter_leg2()


def test_a_stale_leg_1_message_of_a_finalized_step_is_still_counted() -> None:
    assert FINALIZED.attempt().attempts == 2


def test_a_trigger_is_never_finalized() -> None:
    with pytest.raises(LedgerOrder, match="never finalized"):
        ActivityLedger.trigger().finalize()


def test_authorizing_twice_does_not_finalize() -> None:
    with pytest.raises(LedgerOrder):
        ActivityLedger.trigger().post(AUTHORIZE)


def test_authorizing_a_finalized_step_is_refused() -> None:
    with pytest.raises(LedgerOrder):
        FINALIZED.post(AUTHORIZE)


@pytest.mark.parametrize("ledger", [ENTERED, DONE], ids=str)
def test_only_an_empty_account_can_be_born_authorized(ledger: ActivityLedger) -> None:
    with pytest.raises(LedgerOrder, match="born authorized"):
        ledger.post(AUTHORIZE)


@pytest.mark.parametrize("seed", [AUTHORIZE, AUTHORIZE + ATTEMPT, AUTHORIZE + ATTEMPT + LEG1_DONE])
def test_a_trigger_is_not_seeded_in_parts(seed: int) -> None:
    with pytest.raises(LedgerOrder, match="born authorized without both legs"):
        EMPTY.post(seed)


def test_a_trigger_is_seeded_in_one_posting() -> None:
    assert EMPTY.post(TRIGGER_SEED) == ActivityLedger.trigger()


def test_a_hundred_attempts_at_once_are_not_an_authorization() -> None:
    with pytest.raises(LedgerError):
        EMPTY.post(100 * ATTEMPT)


@pytest.mark.parametrize("weight", [10**10, 10**9, 10**8])
@pytest.mark.parametrize("digit", range(1, 10))
@pytest.mark.parametrize("ledger", [EMPTY, DONE, FINALIZED], ids=str)
def test_the_reserved_digits_accept_no_posting(
    ledger: ActivityLedger, weight: int, digit: int
) -> None:
    with pytest.raises(LedgerOverflow, match="nothing may be posted there"):
        ledger.post(digit * weight)


@pytest.mark.parametrize("digit", range(3, 10))
def test_the_finalize_digit_accepts_no_other_value(digit: int) -> None:
    with pytest.raises(LedgerOverflow, match="digit 1 "):
        DONE.post(digit * AUTHORIZE)


@pytest.mark.parametrize("increment", [ENTRY, LEG1_DONE, ATTEMPT, AUTHORIZE, FINALIZE])
def test_every_decrement_is_refused(increment: int) -> None:
    with pytest.raises(LedgerDecrement, match=f"a posting of -{increment} "):
        FINALIZED.post(-increment)


def test_a_posting_of_sixteen_digits_is_refused() -> None:
    with pytest.raises(LedgerOverflow, match="more than 15 digits"):
        DONE.post(10**15)


def test_posting_nothing_changes_nothing() -> None:
    assert FINALIZED.post(0) == FINALIZED


def test_a_refused_posting_leaves_the_ledger_as_it_was() -> None:
    ledger = ActivityLedger(99 * ATTEMPT)
    with pytest.raises(AttemptsExhausted):
        ledger.attempt()
    assert str(ledger) == "099000000000000"


@pytest.mark.parametrize(
    ("balance", "error"),
    [
        (-1, LedgerDecrement),
        (10**15, LedgerOverflow),
        (701_100_000_000_000, LedgerOverflow),
        (1_200_000_000_000, LedgerOverflow),
        (1_110_000_000_000, LedgerOverflow),
        (1_101_000_000_000, LedgerOverflow),
        (1_100_100_000_000, LedgerOverflow),
        (100_000_000_000, LedgerOrder),
        (1, LedgerOrder),
        (1_000_000_000_001, LedgerOrder),
        (201_000_000_000_000, LedgerOrder),
        (101_100_000_000_000, LedgerOrder),
    ],
)
def test_an_impossible_balance_can_not_be_made(balance: int, error: type[LedgerError]) -> None:
    with pytest.raises(error, match=r"perdure\.audit\(url\)"):
        ActivityLedger(balance)


def test_posting_to_an_impossible_balance_is_refused_too() -> None:
    damaged = int.__new__(ActivityLedger, 1_110_000_000_000)
    with pytest.raises(LedgerOverflow, match="damaged"):
        damaged.enter_leg2()


def test_there_is_no_dimensional_index_before_the_first_entry() -> None:
    with pytest.raises(LedgerOrder, match="no dimensional index"):
        _ = DONE.dimensional_index


@pytest.mark.parametrize(
    ("ledger", "active", "authorized", "finalized"),
    [
        (DONE, True, False, False),
        (ActivityLedger.trigger(), False, True, False),
        (FINALIZED, False, False, True),
    ],
    ids=str,
)
def test_the_finalize_digit_reads_as_exactly_one_state(
    ledger: ActivityLedger, active: bool, authorized: bool, finalized: bool
) -> None:
    read = (ledger.is_active, ledger.is_authorized, ledger.is_finalized)
    assert read == (active, authorized, finalized)


def test_posting_returns_a_ledger_that_reads_its_digits() -> None:
    assert isinstance(DONE.enter_leg2(), ActivityLedger)


def test_a_ledger_is_the_integer_that_is_stored() -> None:
    assert DONE == 1_100_000_000_000
    assert repr(DONE) == "<ActivityLedger 001100000000000>"
    assert copy.copy(DONE) == DONE


def test_a_refusal_can_name_its_step_and_run() -> None:
    with pytest.raises(AttemptsExhausted) as caught:
        ActivityLedger(99 * ATTEMPT).attempt()
    reported = located(caught.value, "step 'charge' of run 'r_81'", "look at the run")
    assert isinstance(reported, AttemptsExhausted)
    assert str(reported) == (
        "entry attempts exhausted (99 of 99) for step 'charge' of run 'r_81': look at the run"
    )


def test_a_located_refusal_keeps_its_remedy_unless_given_another() -> None:
    error = LedgerOrder("too early", "wait")
    assert str(located(error, "step 'charge'")) == "too early for step 'charge': wait"
