"""The graph tables of a SQLite store."""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

import apsw
import msgspec

from perdure.core.messages import Message
from perdure.store.commit.graph_index import WAIT
from perdure.store.graph_tables import MAX_MATCHES, GraphQueries, require_digest, require_version
from perdure.store.rows.records import NewProgram
from perdure.store.rows.runs import message_from
from perdure.store.rows.values import require_storable_values
from perdure.store.sqlite.connections.bulk_statements import execute_rows, fetch_rows
from perdure.store.sqlite.connections.opening import retry_while_locked
from perdure.store.sqlite.writing import in_transaction
from perdure.store.statements import statements

T = TypeVar("T")
_SQL = statements("sqlite") | statements("sqlite_graphs")


class SqliteGraphs(GraphQueries):
    """The graph tables of a store."""

    async def match_hooks(self, now_ms: int, limit: int = MAX_MATCHES) -> list[Message]:
        values = {"now_ms": now_ms, "limit": limit}
        if not await self._fetch_graph_rows("select_matches", **values):
            return []  # the usual case, which needs no write lock
        return await self._change_by(
            lambda c: cast("list[Message]", in_transaction(c, lambda: _match(c, values)))
        )

    async def activate_program(self, name: str, version: str) -> None:
        names = {"name": name, "version": version}

        def activate(connection: apsw.Connection) -> None:
            known = connection.execute(_SQL["lock_versions"], {"name": name}).fetchall()
            require_version(name, version, [cast("str", row[0]) for row in known])
            connection.execute(_SQL["deactivate_program"], names)
            connection.execute(_SQL["activate_program"], names)

        require_storable_values(names.values())
        await self._change_by(lambda c: in_transaction(c, lambda: activate(c)))

    async def _deploy(self, programs: Sequence[NewProgram], at_ms: int) -> None:
        def deploy(connection: apsw.Connection) -> None:
            for program in programs:
                values = msgspec.structs.asdict(program) | {"at_ms": at_ms}
                connection.execute(_SQL["deploy_program"], values)
                where = {"name": program.name, "version": program.version}
                ((digest,),) = connection.execute(_SQL["select_digest"], where).fetchall()
                require_digest(program, cast("str", digest))

        await self._change_by(lambda c: in_transaction(c, lambda: deploy(c)))

    async def _fetch_graph_rows(self, name: str, /, **values: Any) -> list[Any]:
        require_storable_values(values.values())
        return await self._read(
            lambda c: retry_while_locked(lambda: c.execute(_SQL[name], values).fetchall())
        )

    @abstractmethod
    async def _read(self, job: Callable[[apsw.Connection], T]) -> T: ...

    @abstractmethod
    async def _change_by(self, job: Callable[[apsw.Connection], T]) -> T: ...


def _match(connection: apsw.Connection, values: dict[str, Any]) -> list[Message]:
    pairs: list[Any] = connection.execute(_SQL["select_matches"], values).fetchall()
    if not pairs:
        return []
    moved = [message_from(row) for row in fetch_rows(connection, _SQL["move_messages"], pairs)]
    execute_rows(connection, _SQL["acknowledge"], [pair[:2] for pair in pairs])
    arrived = {(message.run_id, message.guid) for message in moved}
    served = [
        (run_id, step, WAIT, mailbox)
        for mailbox, guid, run_id, step in pairs
        if (run_id, guid) in arrived
    ]
    if served:
        execute_rows(connection, _SQL["take_hooks"], served)
    return sorted(moved, key=lambda message: (message.arrival, message.guid))
