"""The operations of a store: one row each, under a lock of its own, and the lines of their logs."""

from typing import Protocol

from perdure.core.operations.data import LedgerData
from perdure.core.operations.transitions import Change, Changed, Decide


class OperationTable(Protocol):
    """What both databases offer. What is in the backups is not changed any more."""

    async def create(self, change: Change) -> bool:
        """Commits: a new operation, and its first lines. False if its id is taken."""
        ...

    async def change(self, operation_id: str, decide: Decide) -> Changed | None:
        """Commits: what `decide` makes of the ledger, and its lines, under the lock of the row.

        `None` if there is no such operation, or it is in the backups.
        """
        ...

    async def load(self, operation_id: str, *, backups: bool) -> LedgerData | None:
        """What the ledger of an operation says: of one that is in the backups, or of one that is not."""
        ...

    async def back_up(self, operation_id: str, keep: int) -> None:
        """Commits: the operation is in the backups, of which the newest are kept."""
        ...

    async def ids(self, *, backups: bool) -> list[str]:
        """The operations that are in the backups, or those that are not; oldest first."""
        ...

    async def lines(self, operation_id: str, *, debug: bool) -> list[str]:
        """The lines of an operation's log; with those of level `debug`, if wanted."""
        ...
