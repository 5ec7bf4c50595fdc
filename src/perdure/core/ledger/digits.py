"""Which digit of a 15-digit account means what: the two layouts, as data.

    position   1    2-3   4     5    6   7     8-15
    weight     100T  1T   100B  10B  1B  100M  1
    activity   finalize, attempts, leg1_done, reserved (5-7), entries
    message    reserved (1-3), closed, work_done, spawned, completed, ordinal

Positions count from the left, from 1. A field's weight is what one unit of it adds to the account.
Nothing here judges a balance: reading works on damaged ones too.
"""

from dataclasses import dataclass
from typing import Final

from perdure.core.limits import LEDGER_DIGITS, MAX_ATTEMPTS, MAX_ENTRIES


@dataclass(frozen=True, slots=True)
class Field:
    """A group of neighbouring digits, read as one number from 0 to `maximum`."""

    name: str
    position: int
    width: int
    weight: int
    maximum: int
    meaning: str

    @property
    def last_position(self) -> int:
        return self.position + self.width - 1

    @property
    def is_reserved(self) -> bool:
        return self.maximum == 0

    @property
    def is_marker(self) -> bool:
        """A single digit that is posted once, in contrast to a counter."""
        return self.width == 1


@dataclass(frozen=True, slots=True)
class DigitLayout:
    """The fields of one kind of account, from left to right; together they cover every digit."""

    name: str
    fields: tuple[Field, ...]


FINALIZE_DIGIT: Final = Field(
    "finalize", 1, 1, 100_000_000_000_000, 2, "0 active, 1 born authorized, 2 finalized"
)
ATTEMPTS: Final = Field("attempts", 2, 2, 1_000_000_000_000, MAX_ATTEMPTS, "entries into leg 1")
LEG1_MARKER: Final = Field("leg1_done", 4, 1, 100_000_000_000, 1, "the work of leg 1 committed")
ACTIVITY_RESERVED: Final = Field("reserved", 5, 3, 100_000_000, 0, "never written")
ENTRIES: Final = Field("entries", 8, 8, 1, MAX_ENTRIES, "entries into leg 2")

MESSAGE_RESERVED: Final = Field("reserved", 1, 3, 1_000_000_000_000, 0, "never written")
CLOSED_BIT: Final = Field("closed", 4, 1, 100_000_000_000, 1, "this message closed the run")
WORK_MARKER: Final = Field("work_done", 5, 1, 10_000_000_000, 1, "step 1 committed")
SPAWN_MARKER: Final = Field("spawned", 6, 1, 1_000_000_000, 1, "step 2 committed")
COMPLETION_MARKER: Final = Field("completed", 7, 1, 100_000_000, 1, "step 3 committed")
ORDINAL: Final = Field("ordinal", 8, 8, 1, MAX_ENTRIES, "which leg-2 entry the message made")

ACTIVITY: Final = DigitLayout(
    "activity", (FINALIZE_DIGIT, ATTEMPTS, LEG1_MARKER, ACTIVITY_RESERVED, ENTRIES)
)
"""A step's account."""

MESSAGE: Final = DigitLayout(
    "message",
    (MESSAGE_RESERVED, CLOSED_BIT, WORK_MARKER, SPAWN_MARKER, COMPLETION_MARKER, ORDINAL),
)
"""A message's account."""


def read(balance: int, field: Field) -> int:
    """The number that `field` holds in `balance`."""
    modulus: int = 10**field.width
    return balance // field.weight % modulus


def read_all(balance: int, layout: DigitLayout) -> dict[str, int]:
    """Every field of `balance` by name, from left to right."""
    return {field.name: read(balance, field) for field in layout.fields}


def digits_of(balance: int) -> str:
    """All 15 digits, leading zeros included."""
    return f"{int(balance):0{LEDGER_DIGITS}d}"
