"""Ledgers in a store's database, over the ledger's own connections."""

from perdure.core.errors import StoreClosed
from perdure.core.operations.data import LedgerData
from perdure.core.operations.names import require_operation_id
from perdure.core.operations.transitions import BeforeAfter, Decide, LedgerChange
from perdure.store.opening import open_store, without_password
from perdure.store.operation_table import OperationTable
from perdure.store.store import Store


class StoreBackend:
    """Opens its store in the ledger's event loop, so that heartbeats do not depend on the program's loop."""

    def __init__(self, url: str, lock_timeout_s: float) -> None:
        self._url = url
        self._lock_timeout_s = lock_timeout_s
        self._store: Store | None = None

    @property
    def name(self) -> str:
        return without_password(self._url) if self._store is None else self._store.name

    async def open(self) -> None:
        self._store = await open_store(self._url)

    async def close(self) -> None:
        store, self._store = self._store, None
        if store is not None:
            await store.close()

    async def create(self, change: LedgerChange) -> bool:
        return await self._table.create(change)

    async def change(self, operation_id: str, decide: Decide) -> BeforeAfter | None:
        return await self._table.change(require_operation_id(operation_id), decide)

    async def load(self, operation_id: str) -> LedgerData | None:
        return await self._table.load(require_operation_id(operation_id), backups=False)

    async def load_backup(self, operation_id: str) -> LedgerData | None:
        return await self._table.load(require_operation_id(operation_id), backups=True)

    async def back_up(self, operation_id: str, keep: int) -> None:
        await self._table.back_up(require_operation_id(operation_id), keep)

    async def operation_ids(self, *, backups: bool) -> list[str]:
        return await self._table.ids(backups=backups)

    async def read_log(self, operation_id: str, *, debug: bool) -> list[str]:
        return await self._table.lines(require_operation_id(operation_id), debug=debug)

    @property
    def _table(self) -> OperationTable:
        if self._store is None:
            raise StoreClosed(
                "the ledger's store is not open", "use the ledger before disposing of it"
            )
        return self._store.operations(self._lock_timeout_s)
