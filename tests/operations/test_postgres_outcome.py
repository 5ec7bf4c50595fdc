"""A connection lost during the commit of a change: the store looks up whether it committed."""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeVar, cast

import asyncpg
import pytest

from perdure.core.operations import transitions as t
from perdure.core.operations.data import LedgerData, Participant, wall_time
from perdure.core.operations.transitions import LedgerChange, NewCall
from perdure.store.opening import open_store
from perdure.store.postgres.operations import PostgresOperations
from perdure.store.postgres.writing import Connection

pytestmark = pytest.mark.postgres

T = TypeVar("T")
ME = Participant("cli", 1, "s")
AT = wall_time(0)
LOCK_S = 10


@pytest.fixture
async def connect(emptied_postgres: str) -> AsyncIterator[Callable[[], Awaitable[Connection]]]:
    await (await open_store(emptied_postgres)).close()
    opened: list[Connection] = []

    async def connect() -> Connection:
        opened.append(await asyncpg.connect(emptied_postgres))
        return opened[-1]

    yield connect
    for connection in opened:
        await connection.close()


class LostAt:
    """A connection that is lost at a statement: before the server gets it, or after it has done it."""

    def __init__(self, real: Connection, statement: str, is_done: bool) -> None:
        self._real = real
        self._statement = statement
        self._is_done = is_done

    async def execute(self, sql: str, *args: Any) -> str:
        if not sql.startswith(self._statement):
            return await self._real.execute(sql, *args)
        if self._is_done:
            await self._real.execute(sql, *args)
        await self._real.close()
        raise asyncpg.ConnectionDoesNotExistError("lost")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


def start(data: LedgerData) -> LedgerChange:
    return t.start_call(data, ME, (), NewCall("call_1"), AT)


@pytest.mark.parametrize("is_done", [True, False])
@pytest.mark.parametrize("statement", ["COMMIT", "DELETE FROM perdure.outcome"])
async def test_a_change_is_made_once(
    connect: Callable[[], Awaitable[Connection]], statement: str, is_done: bool
) -> None:
    other = await connect()

    async def lost_once(job: Callable[[Connection], Awaitable[T]]) -> T:
        lost = cast("Connection", LostAt(await connect(), statement, is_done))
        try:
            return await job(lost)
        except asyncpg.ConnectionDoesNotExistError:
            return await job(other)

    operations = PostgresOperations(lost_once, LOCK_S)
    assert await operations.create(t.create("op", ME, None, AT))
    changed = await operations.change("op", start)
    assert changed is not None
    assert (len(changed.before.stack), len(changed.after.stack)) == (0, 1)

    def plainly(job: Callable[[Connection], Awaitable[T]]) -> Awaitable[T]:
        return job(other)

    stored = PostgresOperations(plainly, LOCK_S)
    data = await stored.load("op", backups=False)
    assert data == changed.after
    assert len(await stored.lines("op", debug=True)) == 2
    left = await other.fetchval("SELECT count(*) FROM perdure.outcome")
    assert left == (0 if statement == "COMMIT" or is_done else 2)


async def test_known_outcome_leaves_no_marker(
    connect: Callable[[], Awaitable[Connection]],
) -> None:
    connection = await connect()

    def plainly(job: Callable[[Connection], Awaitable[T]]) -> Awaitable[T]:
        return job(connection)

    operations = PostgresOperations(plainly, LOCK_S)
    await operations.create(t.create("op", ME, None, AT))
    await operations.change("op", start)
    assert await connection.fetch("SELECT * FROM perdure.outcome") == []
