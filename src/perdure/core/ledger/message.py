"""The ledger of a message: which of its three steps committed, and whether it closed the run.

    step 1   finish_work   the message's own writes
    step 2   spawn         the children and the semaphore, with the closed bit if it closed the run
    step 3   complete      the run's completion tasks, only if closed

After a crash the digits say which steps remain.
"""

from typing import Self

from perdure.core.errors import LedgerDecrement, LedgerOrder, LedgerOverflow
from perdure.core.ledger.digits import (
    CLOSED_BIT,
    COMPLETION_MARKER,
    MESSAGE,
    ORDINAL,
    SPAWN_MARKER,
    WORK_MARKER,
    digits_of,
    read,
)
from perdure.core.ledger.increments import CLOSED, COMPLETED, SPAWNED, WORK_DONE
from perdure.core.ledger.posting import post
from perdure.core.ledger.rules import require_possible


class MessageLedger(int):
    """A message's balance: an integer that reads its own digits. Posting returns a new one.

    Only a balance that postings can produce can be made. An ordinal of 0 is a trigger's, which may
    complete its run without the closed bit.
    """

    __slots__ = ()

    def __new__(cls, balance: int = 0) -> Self:
        require_possible(balance, MESSAGE)
        return super().__new__(cls, balance)

    def __repr__(self) -> str:
        return f"<MessageLedger {digits_of(self)}>"

    def __str__(self) -> str:
        return digits_of(self)

    @property
    def ordinal(self) -> int:
        """Which leg-2 entry of its step the message made, from 1; 0 for a trigger's message."""
        return read(self, ORDINAL)

    @property
    def work_done(self) -> bool:
        return read(self, WORK_MARKER) == 1

    @property
    def spawned(self) -> bool:
        return read(self, SPAWN_MARKER) == 1

    @property
    def completed(self) -> bool:
        return read(self, COMPLETION_MARKER) == 1

    @property
    def closed(self) -> bool:
        """Step 2 of this message brought the run's semaphore to its threshold."""
        return read(self, CLOSED_BIT) == 1

    @property
    def needs_work(self) -> bool:
        return not self.work_done

    @property
    def needs_spawn(self) -> bool:
        return self.work_done and not self.spawned

    @property
    def needs_completion(self) -> bool:
        """The closed bit is set and step 3 is not. Whatever the semaphore reads by now.

        A trigger has no closed bit: whether it closed its run is read from the run itself.
        """
        return self.closed and not self.completed

    @property
    def settled(self) -> bool:
        """No step remains: acknowledge the message."""
        return not (self.needs_work or self.needs_spawn or self.needs_completion)

    def post(self, increment: int) -> Self:
        """Any sum of named increments; refused postings leave this ledger as it is."""
        return int.__new__(type(self), post(int(self), increment, MESSAGE))

    def seed(self, ordinal: int) -> Self:
        """Make the account, in the bundle that posts the step's leg-2 entry with that number."""
        if ordinal < 0:
            raise LedgerDecrement(f"ordinal {ordinal}", "ordinals count from 1")
        if ordinal == 0:
            raise LedgerOrder(
                "ordinal 0 is a trigger's, which is not seeded",
                "post the step's leg-2 entry first; its number is the ordinal",
            )
        if ordinal > ORDINAL.maximum:
            raise LedgerOverflow(
                f"ordinal {ordinal} of at most {ORDINAL.maximum}",
                "fail the step: it can't cycle further; continue in a new run",
            )
        return self.post(ordinal)

    def finish_work(self) -> Self:
        return self.post(WORK_DONE)

    def spawn(self, *, closed: bool) -> Self:
        """Step 2 commits; `closed` as the semaphore's settlement says. There is no later chance."""
        return self.post(SPAWNED + CLOSED if closed else SPAWNED)

    def complete(self) -> Self:
        return self.post(COMPLETED)
