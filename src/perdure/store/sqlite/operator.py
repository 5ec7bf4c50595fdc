"""What people who operate a SQLite store read and remove."""

import asyncio
from abc import abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import apsw

from perdure.core.books import Books
from perdure.core.ids import RunId
from perdure.store.operator_tables import OperatorQueries
from perdure.store.rows.values import require_storable_values
from perdure.store.sqlite.connections.locks_held import locked_ms
from perdure.store.sqlite.connections.opening import retry_while_locked
from perdure.store.sqlite.reading import books_of
from perdure.store.sqlite.retention import SqliteRetention
from perdure.store.statements import statements

T = TypeVar("T")
_SQL = statements("sqlite_operator")


class SqliteOperator(OperatorQueries):
    """The reads, over the store's reader; and retention."""

    _path: str

    @property
    @abstractmethod
    def is_shared(self) -> bool: ...

    @property
    def retention(self) -> SqliteRetention:
        return SqliteRetention(self._change_by, self._read)

    async def books_of(self, run_id: RunId) -> Books:
        return await self._read(partial(books_of, run_id=run_id))

    async def locked_ms(self) -> int | None:
        return await asyncio.to_thread(locked_ms, self._path) if self.is_shared else None

    async def _fetch_operator_rows(self, name: str, /, **values: Any) -> list[Any]:
        require_storable_values(values.values())
        return await self._read(
            lambda c: retry_while_locked(lambda: c.execute(_SQL[name], values).fetchall())
        )

    @abstractmethod
    async def _read(self, job: Callable[[apsw.Connection], T]) -> T: ...

    @abstractmethod
    async def _change_by(self, job: Callable[[apsw.Connection], T]) -> T: ...
