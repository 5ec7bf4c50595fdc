"""A change whose connection is lost at its commit: nobody knows whether it came about, until it is asked."""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TypeVar

import asyncpg
import pytest

from perdure.core.operations import transitions as t
from perdure.core.operations.data import LedgerData, Participant, wall_time
from perdure.core.operations.transitions import Change, NewCall
from perdure.store.opening import open_store
from perdure.store.postgres.operations import PostgresOperations
from perdure.store.postgres.writing import Connection

pytestmark = pytest.mark.postgres

T = TypeVar("T")
ME = Participant("cli", 1, "s")
AT = wall_time(0)


@pytest.fixture
async def connection(fresh_postgres: str) -> AsyncIterator[Connection]:
    await (await open_store(fresh_postgres)).close()
    opened: Connection = await asyncpg.connect(fresh_postgres)
    yield opened
    await opened.close()


def start(data: LedgerData) -> Change:
    return t.start_call(data, ME, (), NewCall("call_1"), AT)


@pytest.mark.parametrize("is_committed", [True, False])
async def test_a_change_is_made_once(connection: Connection, is_committed: bool) -> None:
    async def lost_once(job: Callable[[Connection], Awaitable[T]]) -> T:
        around = connection.transaction()
        await around.start()
        await job(connection)
        await (around.commit() if is_committed else around.rollback())
        return await job(connection)

    operations = PostgresOperations(lost_once)
    assert await operations.create(t.create("op", ME, None, AT))
    changed = await operations.change("op", start)
    assert changed is not None
    assert (len(changed.before.stack), len(changed.after.stack)) == (0, 1)

    def plainly(job: Callable[[Connection], Awaitable[T]]) -> Awaitable[T]:
        return job(connection)

    stored = PostgresOperations(plainly)
    data = await stored.load("op", backups=False)
    assert data == changed.after
    assert len(await stored.lines("op", debug=True)) == 2
