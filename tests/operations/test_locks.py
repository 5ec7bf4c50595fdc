"""Locks held too long: a waiting participant gets an error, and a paused holder loses its lock."""

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import apsw
import asyncpg
import pytest

from perdure.core.errors import StoreUnavailable
from perdure.core.operations import transitions as t
from perdure.core.operations.data import LedgerData, Participant, wall_time
from perdure.core.operations.transitions import Decide, LedgerChange, NewCall
from perdure.operations import Ledger, LedgerSettings
from perdure.store.opening import open_store
from perdure.store.postgres import operations, writing

IMPATIENT = LedgerSettings(auto_heartbeat=False, lock_timeout=0.3)
HOLD = "SELECT 1 FROM perdure.operation WHERE id = $1 FOR UPDATE"
AT = wall_time(0)
ME = Participant("cli", 1, "s")


@pytest.fixture
async def holder(emptied_postgres: str) -> AsyncIterator["asyncpg.Connection[Any]"]:
    connection = await asyncpg.connect(emptied_postgres)
    yield connection
    await connection.close()


@pytest.mark.postgres
async def test_locked_row_is_reported_after_the_timeout(
    emptied_postgres: str, holder: "asyncpg.Connection[Any]"
) -> None:
    async with Ledger(store=emptied_postgres, participant_id="cli", settings=IMPATIENT) as ledger:
        operation = await ledger.create_operation()
        held = holder.transaction()
        await held.start()
        await holder.execute(HOLD, operation.operation_id)
        async with asyncio.timeout(60):
            with pytest.raises(StoreUnavailable, match=r"locked (since|for) 0\.3 seconds") as error:
                await operation.log("waits")
        assert operation.operation_id in error.value.what
        await held.rollback()
        await operation.log("continues")
        await operation.complete()


@pytest.mark.postgres
@pytest.mark.parametrize("lock_timeout_s", [0, 0.2])
async def test_locked_row_is_reported_by_the_move_to_the_backups(
    emptied_postgres: str, holder: "asyncpg.Connection[Any]", lock_timeout_s: float
) -> None:
    store = await open_store(emptied_postgres)
    table = store.operations(lock_timeout_s)
    assert await table.create(t.create("op", ME, None, AT))
    held = holder.transaction()
    await held.start()
    await holder.execute(HOLD, "op")
    async with asyncio.timeout(60):
        with pytest.raises(StoreUnavailable, match=r"'op'.* locked"):
            await table.back_up("op", 1)
    await held.rollback()
    await table.back_up("op", 1)
    assert await table.ids(backups=True) == ["op"]
    await store.close()


async def test_locked_sqlite_file_is_reported_after_the_timeout(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/store.db"
    async with Ledger(store=url, participant_id="cli", settings=IMPATIENT) as ledger:
        operation = await ledger.create_operation()
        other = apsw.Connection(f"{tmp_path}/store.db")
        other.execute("BEGIN IMMEDIATE")
        began = time.monotonic()
        with pytest.raises(StoreUnavailable, match=r"locked (since|for) 0\.3 seconds"):
            await operation.log("waits")
        assert time.monotonic() - began < 60
        other.execute("ROLLBACK")
        await operation.log("continues")
        await operation.complete()


@pytest.mark.postgres
async def test_participant_paused_during_a_change_does_not_block_the_others(
    emptied_postgres: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server ends an idle transaction. The paused participant repeats its change when it resumes."""
    monkeypatch.setattr(writing, "MAX_PAUSE_MS", 300)
    store = await open_store(emptied_postgres)
    table = store.operations(20)
    assert await table.create(t.create("op", ME, None, AT))
    is_paused, is_awake = asyncio.Event(), asyncio.Event()
    append = operations._append

    async def pause_once(*args: Any) -> None:
        if not is_paused.is_set():
            is_paused.set()
            await is_awake.wait()
        await append(*args)

    monkeypatch.setattr(operations, "_append", pause_once)
    async with asyncio.timeout(60):
        late = asyncio.ensure_future(table.change("op", start("call_1")))
        await is_paused.wait()
        quick = await table.change("op", start("call_2"))
        is_awake.set()
        changed = await late
    assert quick is not None
    assert [frame.call_id for frame in quick.after.stack] == ["call_2"]
    assert changed is not None
    assert [frame.call_id for frame in changed.after.stack] == ["call_2", "call_1"]
    assert await table.load("op", backups=False) == changed.after
    assert len(await table.lines("op", debug=True)) == 3
    await store.close()


def start(call_id: str) -> Decide:
    def decide(data: LedgerData) -> LedgerChange:
        return t.start_call(data, ME, (), NewCall(call_id), AT)

    return decide
