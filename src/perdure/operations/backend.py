"""Where ledgers are kept: what files and stores both offer."""

from typing import Protocol

from perdure.core.operations.data import LedgerData
from perdure.core.operations.transitions import Change, Changed, Decide


class Backend(Protocol):
    """All methods are called from one event loop."""

    @property
    def name(self) -> str:
        """The place, for messages to people."""
        ...

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    async def create(self, change: Change) -> bool:
        """Commits: a new operation. False if there is one of that id, here or among the backups."""
        ...

    async def change(self, operation_id: str, decide: Decide) -> Changed | None:
        """Commits: what `decide` makes of the ledger, under its lock, and then its lines in the log.

        `None` if there is no such operation, or it is in the backups.
        """
        ...

    async def load(self, operation_id: str) -> LedgerData | None:
        """What the ledger says now; `None` as in `change`."""
        ...

    async def load_backup(self, operation_id: str) -> LedgerData | None: ...

    async def back_up(self, operation_id: str, keep: int) -> None:
        """Commits: the operation is in the backups, of which the newest are kept. Done again it changes nothing."""
        ...

    async def operation_ids(self, *, backups: bool) -> list[str]:
        """The operations that are not in the backups, or those that are; oldest first."""
        ...

    async def read_log(self, operation_id: str, *, debug: bool) -> list[str]:
        """The lines of the log, or of the debug log, wherever the operation is."""
        ...
