"""Lists of runs, and the user's queries, in a Postgres store."""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, ClassVar, TypeVar

import asyncpg

from perdure.core.errors import ForbiddenStatement, InputError, StatementFailed
from perdure.core.ids import RunId
from perdure.core.list_rows import ListRows
from perdure.core.runs.listing import Position, RunFilter
from perdure.core.texts import require_storable_text
from perdure.store.list_queries import (
    Asking,
    ListQueries,
    numbered,
    require_storable_filter,
    took_too_long,
)
from perdure.store.postgres.connections.opening import LOST, Address, close_connection, unreachable
from perdure.store.postgres.reading import list_rows
from perdure.store.postgres.writing import Connection
from perdure.store.rows.lists import ListedPage, RunCount, SqlRows
from perdure.store.rows.values import require_texts
from perdure.store.user_statements import require_allowed

T = TypeVar("T")

BY_INDEX = """
SET LOCAL enable_seqscan = off; SET LOCAL enable_bitmapscan = off; SET LOCAL enable_sort = off;
SET LOCAL max_parallel_workers_per_gather = 0; SET LOCAL jit = off
"""
"""A page stops at its limit. Plans that read all candidates first may look cheaper to the planner, whose statistics may
be missing or old; these settings leave it the order of the indexes. They end with the transaction."""

_REFUSED = (
    asyncpg.ReadOnlySQLTransactionError,
    asyncpg.InvalidTransactionStateError,
)


class PostgresLists(ABC):
    """The lists of a store."""

    _lists: ClassVar[ListQueries] = ListQueries("postgres")
    _address: Address

    async def list_runs(self, wanted: RunFilter, after: Position | None, limit: int) -> ListedPage:
        require_storable_filter(wanted)
        page: ListedPage = await self._use(
            partial(_ask, lambda: self._lists.page(wanted, after, limit))
        )
        return page

    async def count_runs(self, wanted: RunFilter) -> RunCount:
        require_storable_filter(wanted)
        count: RunCount = await self._use(partial(_ask, lambda: self._lists.count(wanted)))
        return count

    async def list_rows(self, run_id: RunId) -> ListRows:
        require_storable_text("run id", run_id)
        return await self._use(partial(list_rows, run_id=run_id))

    async def read_sql(self, sql: str, args: Sequence[Any], limit: int, limit_s: float) -> SqlRows:
        self._require_open()
        require_allowed(sql)
        require_texts(args)
        connection = None
        try:
            # A connection of its own: a long query must not keep one that hosts need.
            connection = await self._address.connect()
            return await _query(connection, sql, args, limit, limit_s)
        except asyncpg.QueryCanceledError as error:
            raise took_too_long(limit_s) from error
        except _REFUSED as error:
            raise ForbiddenStatement(
                f"a query that writes ({error})", "a query may only read"
            ) from error
        except LOST as error:
            raise unreachable(self._address.name, error) from error
        except (asyncpg.DataError, asyncpg.InterfaceError) as error:
            raise InputError(
                f"an argument of the query does not fit ({error})",
                "pass a value of the type that the parameter has, one for each $1, $2 and so on",
            ) from error
        except asyncpg.PostgresError as error:
            raise StatementFailed(
                f"Postgres refused the query ({error})", "correct it; it only reads"
            ) from error
        finally:
            if connection is not None:
                await close_connection(connection)

    @abstractmethod
    async def _use(self, job: Callable[[Connection], Awaitable[T]]) -> T: ...

    @abstractmethod
    def _require_open(self) -> None: ...


async def _ask(asking: Callable[[], Asking], connection: Connection) -> Any:
    """Execute the statements of a query in one snapshot."""
    async with connection.transaction(isolation="repeatable_read", readonly=True):
        await connection.execute(BY_INDEX)
        steps = asking()
        statement = next(steps)
        while True:
            sql, values = numbered(statement)
            rows = await connection.fetch(sql, *values)
            try:
                statement = steps.send([tuple(row) for row in rows])
            except StopIteration as end:
                return end.value


async def _query(
    connection: Connection, sql: str, args: Sequence[Any], limit: int, limit_s: float
) -> SqlRows:
    async with connection.transaction(isolation="repeatable_read", readonly=True):
        milliseconds = max(1, int(limit_s * 1000))
        await connection.execute(
            f'SET LOCAL statement_timeout = {milliseconds}; SET LOCAL search_path = "$user", public, perdure'
        )
        # Prepared, so that the text holds one statement only.
        prepared = await connection.prepare(sql, name="")
        cursor = await prepared.cursor(*args)
        rows = [tuple(row) for row in await cursor.fetch(limit + 1)]
        columns = tuple(attribute.name for attribute in prepared.get_attributes())
    return SqlRows(columns, rows[:limit], is_complete=len(rows) <= limit)
