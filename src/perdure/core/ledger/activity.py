"""The ledger of a step: how often it was entered, which legs committed, whether it is finalized."""

from typing import Self

from perdure.core.errors import LedgerOrder
from perdure.core.ledger.digits import (
    ACTIVITY,
    ATTEMPTS,
    ENTRIES,
    FINALIZE_DIGIT,
    LEG1_MARKER,
    digits_of,
    read,
)
from perdure.core.ledger.increments import ATTEMPT, ENTRY, FINALIZE, LEG1_DONE, TRIGGER_SEED
from perdure.core.ledger.posting import post
from perdure.core.ledger.rules import require_possible


class ActivityLedger(int):
    """A step's balance: an integer that reads its own digits. Posting returns a new one.

    Only a balance that postings can produce can be made.
    """

    __slots__ = ()

    def __new__(cls, balance: int = 0) -> Self:
        require_possible(balance, ACTIVITY)
        return super().__new__(cls, balance)

    def __repr__(self) -> str:
        return f"<ActivityLedger {digits_of(self)}>"

    def __str__(self) -> str:
        return digits_of(self)

    @classmethod
    def trigger(cls) -> Self:
        """The ledger that a trigger is born with: authorized, both legs behind it."""
        return cls(TRIGGER_SEED)

    @property
    def finalize_digit(self) -> int:
        """0 active, 1 born authorized, 2 finalized."""
        return read(self, FINALIZE_DIGIT)

    @property
    def is_active(self) -> bool:
        return self.finalize_digit == 0

    @property
    def is_authorized(self) -> bool:
        """True for triggers, and for nothing else."""
        return self.finalize_digit == 1

    @property
    def is_finalized(self) -> bool:
        """It ran the completion tasks of its run and takes no new leg-2 entry."""
        return self.finalize_digit == 2

    @property
    def attempts(self) -> int:
        """Entries into leg 1: the first, and each re-entry after a crash."""
        return read(self, ATTEMPTS)

    @property
    def leg1_done(self) -> bool:
        return read(self, LEG1_MARKER) == 1

    @property
    def entries(self) -> int:
        """Entries into leg 2, a pre-seeded one included."""
        return read(self, ENTRIES)

    @property
    def dimensional_index(self) -> int:
        """The plane in which the latest entry runs, from 0."""
        if not self.entries:
            raise LedgerOrder(
                f"no dimensional index before the first leg-2 entry ({self})",
                "enter leg 2 first, or use index 0 for the first pass of leg 1",
            )
        return self.entries - 1

    def post(self, increment: int) -> Self:
        """Any sum of named increments; refused postings leave this ledger as it is."""
        return int.__new__(type(self), post(int(self), increment, ACTIVITY))

    def attempt(self) -> Self:
        """Leg 1 is entered. Allowed once leg 1 is done too: stale messages are counted."""
        return self.post(ATTEMPT)

    def finish_leg1(self, *, preseed: bool = False) -> Self:
        """Leg 1 commits. `preseed` for steps that cycle: their first re-entry gets index 1."""
        return self.post(LEG1_DONE + ENTRY if preseed else LEG1_DONE)

    def enter_leg2(self) -> Self:
        """A message enters leg 2; `entries` of the result is its ordinal."""
        return self.post(ENTRY)

    def finalize(self) -> Self:
        """The run is closed by a message of this step, and its completion tasks commit."""
        return self.post(FINALIZE)
