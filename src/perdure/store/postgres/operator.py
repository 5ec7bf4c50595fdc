"""What people who operate a Postgres store read and remove."""

from abc import abstractmethod
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, TypeVar

from perdure.core.books import Books
from perdure.core.ids import RunId
from perdure.store.operator_tables import OperatorQueries
from perdure.store.postgres.reading import books_of
from perdure.store.postgres.retention import PostgresRetention
from perdure.store.postgres.writing import Connection
from perdure.store.rows.values import require_storable_values
from perdure.store.statements import statements

T = TypeVar("T")
_SQL = statements("postgres_operator")


class PostgresOperator(OperatorQueries):
    """The reads, over the store's connections; and retention."""

    @property
    def retention(self) -> PostgresRetention:
        return PostgresRetention(self._use)

    async def books_of(self, run_id: RunId) -> Books:
        return await self._use(partial(books_of, run_id=run_id))

    async def locked_ms(self) -> int | None:
        return None  # writers lock rows, not the database

    async def _fetch_operator_rows(self, name: str, /, **values: Any) -> list[Any]:
        require_storable_values(values.values())
        return await self._use(lambda connection: connection.fetch(_SQL[name], *values.values()))

    @abstractmethod
    async def _use(self, job: Callable[[Connection], Awaitable[T]]) -> T: ...
