"""A user's transaction on SQLite, on the one connection that writes."""

import time
from collections.abc import Sequence
from functools import partial
from typing import Any

import apsw

from perdure.core.errors import StatementFailed
from perdure.core.transactions import Row
from perdure.store.commit.group import Group
from perdure.store.commit.writer import StatementRefused, bundle_refused
from perdure.store.sqlite.connections.failures import typed_writes
from perdure.store.sqlite.connections.opening import retry_while_locked
from perdure.store.sqlite.connections.statement_guard import (
    StatementResult,
    is_foreign_key,
    require_values,
)
from perdure.store.sqlite.connections.write_lock import WriteLock
from perdure.store.sqlite.writing import apply_in_transaction
from perdure.store.statements import statements
from perdure.store.user_statements import require_no_name_of_ours
from perdure.store.user_transaction import OpenTransaction, changed_back

_SQL = statements("sqlite")


class SqliteTransaction(OpenTransaction):
    """Holds the write lock from its first statement to its end: groups wait meanwhile."""

    is_exclusive = True

    def __init__(self, lock: WriteLock, limit_s: float) -> None:
        super().__init__(limit_s)
        self._lock = lock
        self._writer = lock.writer
        self._has_lock = False
        self._until_s = 0.0

    def _require_values(self, args: Sequence[Any]) -> None:
        require_values(args)

    async def _begin(self) -> None:
        await self._lock.acquire()
        self._has_lock = True
        await self._writer.run(_begin)
        self._until_s = time.monotonic() + self._limit_s

    async def _execute(self, sql: str, args: Sequence[Any]) -> int:
        return (await self._guarded(sql, args))[1]

    async def _fetch(self, sql: str, args: Sequence[Any]) -> list[Row]:
        return (await self._guarded(sql, args))[0]

    async def _guarded(self, sql: str, args: Sequence[Any]) -> StatementResult:
        require_no_name_of_ours(sql)
        guard, until_s = self._lock.guard, self._until_s
        try:
            return await self._writer.run(lambda c: guard.execute(c, sql, args, until_s))
        except StatementFailed as failed:
            if isinstance(failed.__cause__, apsw.InterruptError):
                raise self.too_long() from failed
            raise

    async def _select(self, name: str, values: dict[str, Any]) -> list[Any]:
        return await self._writer.run(lambda c: c.execute(_SQL[name], values).fetchall())

    async def _commit(self, group: Group) -> None:
        try:
            rejected = await self._writer.run(partial(apply_in_transaction, group=group))
        except StatementRefused as refusal:
            if is_foreign_key(refusal.__cause__):
                # Perdure's tables have no foreign keys: a deferred constraint of the user's has failed.
                raise StatementFailed(
                    f"SQLite refused the commit ({refusal})", "nothing of it was written"
                ) from refusal
            raise bundle_refused(refusal) from refusal
        if rejected is not None:
            raise next(iter(rejected.values()), changed_back())

    async def _release(self) -> None:
        if self._has_lock:
            try:
                await self._writer.run(_roll_back)
            finally:
                self._has_lock = False
                self._lock.release()


def _begin(connection: apsw.Connection) -> None:
    with typed_writes(connection.filename):
        retry_while_locked(lambda: connection.execute("BEGIN IMMEDIATE"))


def _roll_back(connection: apsw.Connection) -> None:
    if connection.in_transaction:
        connection.execute("ROLLBACK")
