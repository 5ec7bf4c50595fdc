"""Lists of runs, and the user's queries, in a SQLite store."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, ClassVar, TypeVar

import apsw

from perdure.core.ids import RunId
from perdure.core.list_rows import ListRows
from perdure.core.runs.listing import Position, RunFilter
from perdure.core.texts import require_storable_text
from perdure.store.list_queries import Asking, ListQueries, require_storable_filter
from perdure.store.rows.lists import ListedPage, RunCount, SqlRows
from perdure.store.rows.values import require_texts
from perdure.store.sqlite.connections.damage import run_with_typed_errors
from perdure.store.sqlite.connections.opening import MEMORY, connect_to_file, retry_while_locked
from perdure.store.sqlite.connections.read_only import query
from perdure.store.sqlite.connections.statement_guard import require_values
from perdure.store.sqlite.connections.thread import ConnectionThread
from perdure.store.sqlite.reading import list_rows, snapshot
from perdure.store.user_statements import require_allowed

T = TypeVar("T")


class SqliteLists(ABC):
    """The lists of a store."""

    _lists: ClassVar[ListQueries] = ListQueries("sqlite")
    _path: str

    async def list_runs(self, wanted: RunFilter, after: Position | None, limit: int) -> ListedPage:
        require_storable_filter(wanted)
        page: ListedPage = await self._read(
            partial(_ask, lambda: self._lists.page(wanted, after, limit))
        )
        return page

    async def count_runs(self, wanted: RunFilter) -> RunCount:
        require_storable_filter(wanted)
        count: RunCount = await self._read(partial(_ask, lambda: self._lists.count(wanted)))
        return count

    async def list_rows(self, run_id: RunId) -> ListRows:
        require_storable_text("run id", run_id)
        return await self._read(partial(list_rows, run_id=run_id))

    async def read_sql(self, sql: str, args: Sequence[Any], limit: int, limit_s: float) -> SqlRows:
        self._require_open()
        require_allowed(sql)
        require_texts(args)
        require_values(args)
        job = partial(query, sql, args, limit, limit_s)
        if self._path == MEMORY:
            return await self._read(job)
        # On a connection of its own: a long query must not delay other reads.
        reading = ConnectionThread(f"perdure-sql {self._path}", lambda: connect_to_file(self._path))
        try:
            await reading.open()
            return await reading.run(partial(run_with_typed_errors, self._path, job))
        finally:
            await reading.close()

    @abstractmethod
    async def _read(self, job: Callable[[apsw.Connection], T]) -> T: ...

    @abstractmethod
    def _require_open(self) -> None: ...


def _ask(asking: Callable[[], Asking], connection: apsw.Connection) -> Any:
    """Execute the statements of a query in one snapshot."""

    def execute() -> Any:
        with snapshot(connection):
            steps = asking()
            statement = next(steps)
            while True:
                rows = connection.execute(statement.sql, statement.values).fetchall()
                try:
                    statement = steps.send(rows)
                except StopIteration as end:
                    return end.value

    return retry_while_locked(execute)
