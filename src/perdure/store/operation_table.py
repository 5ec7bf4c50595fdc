"""The operations of a store: one row each, with a lock of its own, and the lines of their logs."""

from typing import Protocol

from perdure.core.operations.data import LedgerData
from perdure.core.operations.transitions import BeforeAfter, Decide, LedgerChange


class OperationTable(Protocol):
    """The interface that both databases implement. Operations in the backups never change."""

    async def create(self, change: LedgerChange) -> bool:
        """Commits: a new operation and its first log lines. False if its id is taken."""
        ...

    async def change(self, operation_id: str, decide: Decide) -> BeforeAfter | None:
        """Commits: the ledger and log lines that `decide` returns for the stored ledger, under the row's lock.

        `None` if there is no such operation, or it is in the backups.
        """
        ...

    async def load(self, operation_id: str, *, backups: bool) -> LedgerData | None:
        """The ledger of an operation, either among the backups or among the others."""
        ...

    async def back_up(self, operation_id: str, keep: int) -> None:
        """Commits: the operation is in the backups, of which the `keep` newest stay."""
        ...

    async def ids(self, *, backups: bool) -> list[str]:
        """The operations in the backups, or the others; oldest first."""
        ...

    async def lines(self, operation_id: str, *, debug: bool) -> list[str]:
        """The lines of an operation's log; with `debug`, also those of that level."""
        ...
