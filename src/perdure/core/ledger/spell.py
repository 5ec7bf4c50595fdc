"""Balances as text: the digits, and the meaning of each.

Damaged balances are spelled too, digit by digit, for diagnosis.
"""

from typing import Final

from perdure.core.ledger.digits import (
    ACTIVITY,
    ATTEMPTS,
    CLOSED_BIT,
    COMPLETION_MARKER,
    ENTRIES,
    FINALIZE_DIGIT,
    LEG1_MARKER,
    MESSAGE,
    ORDINAL,
    SPAWN_MARKER,
    WORK_MARKER,
    DigitLayout,
    Field,
    digits_of,
    read,
)
from perdure.core.limits import LEDGER_DIGITS, MAX_BALANCE

_SCALES: Final = ((10**12, "T"), (10**9, "B"), (10**6, "M"), (10**3, "K"))

_SAYS: Final[dict[Field, tuple[str, ...]]] = {
    FINALIZE_DIGIT: ("active", "born authorized", "finalized"),
    LEG1_MARKER: ("leg 1 not done", "leg 1 done"),
    CLOSED_BIT: ("did not close the run", "closed the run"),
    WORK_MARKER: ("work not done", "work done"),
    SPAWN_MARKER: ("children not spawned", "children spawned"),
    COMPLETION_MARKER: ("completion not done", "completion done"),
}

_LINE_ORDER: Final = {
    ACTIVITY: (FINALIZE_DIGIT, ATTEMPTS, LEG1_MARKER, ENTRIES),
    MESSAGE: (ORDINAL, WORK_MARKER, SPAWN_MARKER, CLOSED_BIT, COMPLETION_MARKER),
}


def spell_balance(balance: int, layout: DigitLayout) -> str:
    """One line: `001100000000001  active · attempt 1 · leg 1 done · 1 entry`.

    A message's steps are listed as far as they committed.
    """
    if not 0 <= balance <= MAX_BALANCE:
        return _out_of_range(balance)
    parts = [
        _say(field, read(balance, field))
        for field in _LINE_ORDER[layout]
        if layout is ACTIVITY or field is ORDINAL or read(balance, field)
    ]
    strays = [_say(field, read(balance, field)) for field in _strays(balance, layout)]
    return f"{digits_of(balance)}  {' · '.join(parts + strays)}"


def diagram(balance: int, layout: DigitLayout) -> str:
    """The digits, and under each group of them a pointer to its weight and meaning."""
    if not 0 <= balance <= MAX_BALANCE:
        return _out_of_range(balance)
    strays = _strays(balance, layout)
    groups = [field for field in layout.fields if not field.is_reserved or field in strays]
    columns = [field.last_position - 1 for field in groups]
    lines = [digits_of(balance)]
    for index in reversed(range(len(groups))):
        field, column = groups[index], columns[index]
        stems = _stems(columns[:index], column)
        arm = "└" + "─" * (LEDGER_DIGITS - column)
        lines.append(f"{stems}{arm} {_short(field.weight):<4}  {_say(field, read(balance, field))}")
    return "\n".join(lines)


def _stems(columns: list[int], width: int) -> str:
    return "".join("│" if column in columns else " " for column in range(width))


def _short(weight: int) -> str:
    """100T, 1T, 100B ... 1."""
    for scale, letter in _SCALES:
        if weight >= scale:
            return f"{weight // scale}{letter}"
    return str(weight)


def _say(field: Field, value: int) -> str:
    if field is ATTEMPTS:
        return f"attempt {value}" if value else "not entered"
    if field is ENTRIES:
        return {0: "no entries", 1: "1 entry"}.get(value, f"{value:,} entries")
    if field is ORDINAL:
        return f"ordinal {value:,}" if value else "no ordinal"
    if field.is_reserved:
        return f"{value:0{field.width}d} in reserved digits"
    known = _SAYS[field]
    return (
        known[value] if value < len(known) else f"{field.name} reads {value}, which means nothing"
    )


def _strays(balance: int, layout: DigitLayout) -> list[Field]:
    """Reserved digits that are not 0, as in a damaged account."""
    return [field for field in layout.fields if field.is_reserved and read(balance, field)]


def _out_of_range(balance: int) -> str:
    return f"{int(balance)}  not an account of {LEDGER_DIGITS} digits"
