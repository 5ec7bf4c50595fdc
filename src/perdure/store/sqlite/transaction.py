"""A user's transaction on SQLite: a turn of the one connection that writes."""

import time
from collections.abc import Sequence
from functools import partial
from typing import Any

import apsw

from perdure.core.errors import StatementFailed
from perdure.core.transactions import Row
from perdure.store.group import Group
from perdure.store.sqlite.guard import Answer, is_foreign_key, require_values
from perdure.store.sqlite.opening import patiently
from perdure.store.sqlite.turns import Turns
from perdure.store.sqlite.writing import apply_with
from perdure.store.statement_text import require_no_name_of_ours
from perdure.store.statements import statements
from perdure.store.transaction import OpenTransaction, changed_back
from perdure.store.writer import StatementRefused, refused

_SQL = statements("sqlite")


class SqliteTransaction(OpenTransaction):
    """Has the writer's turn from its first statement to its end: groups wait for it meanwhile."""

    is_exclusive = True

    def __init__(self, turns: Turns, limit_s: float) -> None:
        super().__init__(limit_s)
        self._turns = turns
        self._writer = turns.writer
        self._has_turn = False
        self._until_s = 0.0

    def _require_values(self, args: Sequence[Any]) -> None:
        require_values(args)

    async def _begin(self) -> None:
        await self._turns.take()
        self._has_turn = True
        await self._writer.run(_begin)
        self._until_s = time.monotonic() + self._limit_s

    async def _execute(self, sql: str, args: Sequence[Any]) -> int:
        return (await self._guarded(sql, args))[1]

    async def _fetch(self, sql: str, args: Sequence[Any]) -> list[Row]:
        return (await self._guarded(sql, args))[0]

    async def _guarded(self, sql: str, args: Sequence[Any]) -> Answer:
        require_no_name_of_ours(sql)
        guard, until_s = self._turns.guard, self._until_s
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
            rejected = await self._writer.run(partial(apply_with, group=group))
        except StatementRefused as refusal:
            if is_foreign_key(refusal.__cause__):
                # Ours have none: it is a constraint of the user's that waited for the commit.
                raise StatementFailed(
                    f"SQLite refused the commit ({refusal})", "nothing of it was written"
                ) from refusal
            raise refused(refusal) from refusal
        if rejected is not None:
            raise next(iter(rejected.values()), changed_back())

    async def _let_go(self) -> None:
        if self._has_turn:
            try:
                await self._writer.run(_roll_back)
            finally:
                self._has_turn = False
                self._turns.end()


def _begin(connection: apsw.Connection) -> None:
    patiently(lambda: connection.execute("BEGIN IMMEDIATE"))


def _roll_back(connection: apsw.Connection) -> None:
    if connection.in_transaction:
        connection.execute("ROLLBACK")
