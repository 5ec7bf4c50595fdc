"""A host that runs while a newer Perdure migrates its store stops with the reason."""

import asyncio
import logging

import pytest

from perdure import Engine, Settings, Signal, task, workflow
from perdure.core.errors import SchemaTooNew
from tests.client.engines import opened, store_of, until
from tests.store.builders import raw

QUICK = Settings(heartbeat=0.1, stale_after=2, transaction_timeout=1)
go = Signal("go", str)
BEGUN: list[str] = []


@task(name="outgrown.long")
async def long() -> str:
    BEGUN.append("begun")
    if len(BEGUN) == 1:
        await asyncio.Event().wait()
    return "done"


@workflow(name="outgrown.waiting")
async def waiting() -> str:
    await go.receive()
    return await long()


async def shift_schema(engine: Engine, by: int) -> None:
    change = f"CAST(CAST(value AS integer) + ({by}) AS text) WHERE key = 'schema_version'"
    await raw(store_of(engine), f"UPDATE {{}}meta SET value = {change}")


async def test_a_host_stops_when_its_store_is_brought_up_to_a_newer_schema(
    shared_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    BEGUN.clear()
    old = Engine(shared_url, settings=QUICK)
    await old.open()
    run = await old.start(waiting())
    await run.signal(go, "now")
    await until(lambda: bool(BEGUN))
    result = asyncio.ensure_future(run.result())
    await shift_schema(old, 1)
    with pytest.raises(SchemaTooNew, match="upgrade Perdure"):
        async with asyncio.timeout(60):
            await old.wait_failed()
    with pytest.raises(SchemaTooNew):
        await result
    with pytest.raises(SchemaTooNew):
        await old.start(waiting())
    assert [r.levelno for r in caplog.records if "this host stops" in r.getMessage()] == [
        logging.ERROR
    ]
    head = await store_of(old).run(run.run_id)
    with pytest.raises(SchemaTooNew):
        await Engine(shared_url).open()
    await shift_schema(old, -1)
    assert await store_of(old).run(run.run_id) == head
    await old.close()
    async with opened(shared_url, QUICK) as new:
        assert await new.handle(run.run_id).result(60) == "done"
    assert len(BEGUN) == 2
