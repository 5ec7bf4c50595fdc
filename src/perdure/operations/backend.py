"""The storage behind a ledger: the interface that the file backend and the store backend implement."""

from typing import Protocol

from perdure.core.operations.data import LedgerData
from perdure.core.operations.transitions import BeforeAfter, Decide, LedgerChange


class Backend(Protocol):
    """Stores ledgers. The ledger calls all methods from one event loop."""

    @property
    def name(self) -> str:
        """The directory or the store URL without its password, for messages."""
        ...

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    async def create(self, change: LedgerChange) -> bool:
        """Commits: a new operation. False if the id is taken, also by a backup."""
        ...

    async def change(self, operation_id: str, decide: Decide) -> BeforeAfter | None:
        """Commits: the ledger that `decide` returns, under the operation's lock; then appends its log lines.

        `None` if the operation does not exist or is in the backups.
        """
        ...

    async def load(self, operation_id: str) -> LedgerData | None:
        """The current ledger; `None` as in `change`."""
        ...

    async def load_backup(self, operation_id: str) -> LedgerData | None: ...

    async def back_up(self, operation_id: str, keep: int) -> None:
        """Commits: moves the operation to the backups and deletes all but the newest `keep`. Idempotent."""
        ...

    async def operation_ids(self, *, backups: bool) -> list[str]:
        """Ids of the current operations, or of those in the backups; oldest first."""
        ...

    async def read_log(self, operation_id: str, *, debug: bool) -> list[str]:
        """The lines of the log or the debug log of an operation, current or in the backups."""
        ...
