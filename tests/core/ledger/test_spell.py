from textwrap import dedent

import pytest

from perdure.core.ledger import ACTIVITY, MESSAGE, ActivityLedger, diagram, spell_balance


@pytest.mark.parametrize(
    ("balance", "line"),
    [
        (0, "000000000000000  active · not entered · leg 1 not done · no entries"),
        (1_100_000_000_001, "001100000000001  active · attempt 1 · leg 1 done · 1 entry"),
        (
            12_100_001_234_567,
            "012100001234567  active · attempt 12 · leg 1 done · 1,234,567 entries",
        ),
        (
            101_100_000_000_001,
            "101100000000001  born authorized · attempt 1 · leg 1 done · 1 entry",
        ),
        (201_100_000_000_000, "201100000000000  finalized · attempt 1 · leg 1 done · no entries"),
    ],
)
def test_a_step_is_spelled_on_one_line(balance: int, line: str) -> None:
    assert spell_balance(balance, ACTIVITY) == line


@pytest.mark.parametrize(
    ("balance", "line"),
    [
        (0, "000000000000000  no ordinal"),
        (1, "000000000000001  ordinal 1"),
        (10_000_000_002, "000010000000002  ordinal 2 · work done"),
        (11_000_000_000, "000011000000000  no ordinal · work done · children spawned"),
        (
            111_100_012_345,
            "000111100012345  ordinal 12,345 · work done · children spawned · closed the run"
            " · completion done",
        ),
    ],
)
def test_a_message_is_spelled_up_to_its_last_step(balance: int, line: str) -> None:
    assert spell_balance(balance, MESSAGE) == line


def test_a_diagram_points_at_each_group_of_a_step() -> None:
    assert diagram(212_100_000_000_003, ACTIVITY) == dedent("""\
        212100000000003
        │ ││          └─ 1     3 entries
        │ │└──────────── 100B  leg 1 done
        │ └───────────── 1T    attempt 12
        └─────────────── 100T  finalized""")


def test_a_diagram_points_at_each_group_of_a_message() -> None:
    assert diagram(111_000_000_001, MESSAGE) == dedent("""\
        000111000000001
           ││││       └─ 1     ordinal 1
           │││└───────── 100M  completion not done
           ││└────────── 1B    children spawned
           │└─────────── 10B   work done
           └──────────── 100B  closed the run""")


def test_a_damaged_account_is_drawn_with_its_problem() -> None:
    assert diagram(701_112_000_000_001, ACTIVITY) == dedent("""\
        701112000000001
        │ ││  │       └─ 1     1 entry
        │ ││  └───────── 100M  120 in reserved digits
        │ │└──────────── 100B  leg 1 done
        │ └───────────── 1T    attempt 1
        └─────────────── 100T  finalize reads 7, which means nothing""")


def test_a_damaged_account_is_spelled_with_its_problem() -> None:
    assert (
        spell_balance(1_000_000_000_001, MESSAGE)
        == "001000000000001  ordinal 1 · 001 in reserved digits"
    )


@pytest.mark.parametrize("balance", [-5, 10**15])
def test_a_number_that_is_no_account_is_spelled_as_such(balance: int) -> None:
    line = f"{balance}  not an account of 15 digits"
    assert (spell_balance(balance, ACTIVITY), diagram(balance, MESSAGE)) == (line, line)


def test_a_ledger_object_is_spelled_like_its_integer() -> None:
    ledger = ActivityLedger.trigger()
    assert spell_balance(ledger, ACTIVITY) == spell_balance(int(ledger), ACTIVITY)
