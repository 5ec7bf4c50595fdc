import pytest

from perdure.core.errors import LedgerDecrement, LedgerError, LedgerOrder, LedgerOverflow
from perdure.core.ledger import CLOSED, COMPLETED, SPAWNED, WORK_DONE, MessageLedger

EMPTY = MessageLedger()
SEEDED = MessageLedger(1)
WORKED = MessageLedger(10_000_000_001)
SPAWNED_OPEN = MessageLedger(11_000_000_001)
SPAWNED_CLOSED = MessageLedger(111_000_000_001)
COMPLETE = MessageLedger(111_100_000_001)
TRIGGER_SPAWNED = MessageLedger(11_000_000_000)


@pytest.mark.parametrize("ordinal", [1, 2, 99_999_999])
def test_an_empty_account_is_seeded_with_its_ordinal(ordinal: int) -> None:
    assert EMPTY.seed(ordinal).ordinal == ordinal


@pytest.mark.parametrize(
    ("ordinal", "error"), [(-1, LedgerDecrement), (0, LedgerOrder), (100_000_000, LedgerOverflow)]
)
def test_an_ordinal_out_of_range_is_refused(ordinal: int, error: type[LedgerError]) -> None:
    with pytest.raises(error, match="ordinal"):
        EMPTY.seed(ordinal)


@pytest.mark.parametrize("ledger", [SEEDED, WORKED, COMPLETE, TRIGGER_SPAWNED], ids=str)
def test_an_account_that_exists_is_not_seeded_again(ledger: MessageLedger) -> None:
    with pytest.raises(LedgerOrder, match="seeded when the account is made"):
        ledger.seed(1)


def test_children_are_not_spawned_before_the_work_is_done() -> None:
    with pytest.raises(LedgerOrder, match="spawned before the work is done"):
        SEEDED.spawn(closed=False)


def test_a_run_is_not_completed_before_the_children_are_spawned() -> None:
    with pytest.raises(LedgerOrder, match="completed before the children are spawned"):
        WORKED.complete()


def test_a_run_is_not_completed_before_the_work_is_done() -> None:
    with pytest.raises(LedgerOrder):
        SEEDED.complete()


def test_a_message_that_did_not_close_the_run_does_not_complete_it() -> None:
    with pytest.raises(LedgerOrder, match="did not close the run"):
        SPAWNED_OPEN.complete()


def test_a_trigger_completes_its_run_without_the_closed_bit() -> None:
    assert str(TRIGGER_SPAWNED.complete()) == "000011100000000"


@pytest.mark.parametrize("ledger", [EMPTY, SEEDED, WORKED, SPAWNED_OPEN], ids=str)
def test_the_closed_bit_is_never_posted_alone(ledger: MessageLedger) -> None:
    with pytest.raises(LedgerOrder, match="belongs to step 2"):
        ledger.post(CLOSED)


def test_the_closed_bit_is_not_posted_late_with_completion() -> None:
    with pytest.raises(LedgerOrder, match="belongs to step 2"):
        SPAWNED_OPEN.post(CLOSED + COMPLETED)


@pytest.mark.parametrize("increment", [WORK_DONE, SPAWNED, COMPLETED, SPAWNED + CLOSED])
def test_every_marker_is_posted_once(increment: int) -> None:
    with pytest.raises(LedgerOrder, match="posted already"):
        COMPLETE.post(increment)


@pytest.mark.parametrize("increment", [2 * WORK_DONE, 5 * SPAWNED, 9 * COMPLETED, 2 * CLOSED])
def test_a_marker_accepts_no_other_value(increment: int) -> None:
    with pytest.raises(LedgerOverflow, match="can't take"):
        SEEDED.post(increment)


@pytest.mark.parametrize("weight", [10**14, 10**13, 10**12])
@pytest.mark.parametrize("digit", range(1, 10))
@pytest.mark.parametrize("ledger", [EMPTY, COMPLETE], ids=str)
def test_the_reserved_digits_accept_no_posting(
    ledger: MessageLedger, weight: int, digit: int
) -> None:
    with pytest.raises(LedgerOverflow, match="nothing may be posted there"):
        ledger.post(digit * weight)


@pytest.mark.parametrize("increment", [1, COMPLETED, SPAWNED, WORK_DONE, CLOSED])
def test_every_decrement_is_refused(increment: int) -> None:
    with pytest.raises(LedgerDecrement, match=f"a posting of -{increment} "):
        COMPLETE.post(-increment)


def test_a_posting_of_sixteen_digits_is_refused() -> None:
    with pytest.raises(LedgerOverflow, match="more than 15 digits"):
        EMPTY.post(10**15)


@pytest.mark.parametrize(
    "increment",
    [WORK_DONE, WORK_DONE + SPAWNED, WORK_DONE + SPAWNED + CLOSED + COMPLETED],
)
def test_steps_may_be_posted_together_with_the_seed(increment: int) -> None:
    assert EMPTY.post(7 + increment) == 7 + increment


@pytest.mark.parametrize(
    ("balance", "error"),
    [
        (-1, LedgerDecrement),
        (10**15, LedgerOverflow),
        (1_000_000_000_001, LedgerOverflow),
        (20_000_000_001, LedgerOverflow),
        (1_000_000_001, LedgerOrder),
        (100_000_000_001, LedgerOrder),
        (110_000_000_001, LedgerOrder),
        (10_100_000_001, LedgerOrder),
        (11_100_000_001, LedgerOrder),
    ],
)
def test_an_impossible_balance_can_not_be_made(balance: int, error: type[LedgerError]) -> None:
    with pytest.raises(error, match=r"perdure\.audit\(url\)"):
        MessageLedger(balance)


@pytest.mark.parametrize(
    ("ledger", "remaining"),
    [
        (EMPTY, "work"),
        (SEEDED, "work"),
        (WORKED, "spawn"),
        (SPAWNED_OPEN, "nothing"),
        (SPAWNED_CLOSED, "completion"),
        (COMPLETE, "nothing"),
        (TRIGGER_SPAWNED, "nothing"),
        (MessageLedger(11_100_000_000), "nothing"),
    ],
    ids=str,
)
def test_the_digits_show_the_one_step_that_remains(ledger: MessageLedger, remaining: str) -> None:
    answers = {
        "work": ledger.needs_work,
        "spawn": ledger.needs_spawn,
        "completion": ledger.needs_completion,
        "nothing": ledger.settled,
    }
    assert [name for name, answer in answers.items() if answer] == [remaining]


def test_every_field_of_a_complete_message_reads_back() -> None:
    read = (COMPLETE.ordinal, COMPLETE.work_done, COMPLETE.spawned, COMPLETE.closed)
    assert read == (1, True, True, True)
    assert COMPLETE.completed


def test_posting_returns_a_ledger_that_reads_its_digits() -> None:
    assert isinstance(SEEDED.finish_work(), MessageLedger)


def test_a_ledger_shows_its_digits() -> None:
    assert repr(WORKED) == "<MessageLedger 000010000000001>"
