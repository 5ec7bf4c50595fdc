"""A full disk: what is logged and raised, and that runs resume when there is space."""

import asyncio
import logging
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from perdure import Engine, Transaction, task, workflow
from perdure.core.errors import StoreUnavailable
from perdure.store.sqlite.store import SqliteStore
from perdure.testing.probe import Probe
from tests.client.engines import opened, store_of, until
from tests.store.builders import raw

pytestmark = pytest.mark.asyncio

go = asyncio.Event()


@task
async def fill(size: int) -> str:
    await go.wait()
    return "x" * size


@workflow
async def filling(size: int, count: int) -> int:
    for _ in range(count):
        await fill(size)
    return count


@task(transactional=True)
async def insert(tx: Transaction, size: int) -> int:
    await tx.execute("INSERT INTO notes VALUES ($1)", "x" * size)
    return size


@workflow
async def inserting(size: int) -> int:
    return await insert(size)


@pytest.fixture(autouse=True)
def _stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[__name__], "go", asyncio.Event())


Restore = Callable[[], Awaitable[object]]


async def fill_disk(engine: Engine, table: str = "{}event") -> Restore:
    """Make the store's disk full; returns what makes space."""
    store = store_of(engine)
    if isinstance(store, SqliteStore):
        ((pages,),) = await raw(store, "PRAGMA page_count")
        await raw(store, f"PRAGMA max_page_count = {pages}")
        return lambda: raw(store, "PRAGMA max_page_count = 1000000")
    await raw(
        store,
        "CREATE FUNCTION public.no_space() RETURNS trigger LANGUAGE plpgsql AS "
        "$$BEGIN RAISE EXCEPTION 'could not extend file' USING ERRCODE = '53100'; END$$",
    )
    await raw(
        store,
        f"CREATE TRIGGER full_disk BEFORE INSERT ON {table} EXECUTE FUNCTION public.no_space()",
    )
    return lambda: raw(store, "DROP FUNCTION public.no_space() CASCADE")


def reports(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if "full" in r.getMessage()]


async def test_outage_is_reported_once_and_runs_resume_when_there_is_space(
    shared_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "perdure.host")
    async with opened(shared_url) as engine:
        runs = [await engine.start(filling(100_000, 2)) for _ in range(5)]
        make_space = await fill_disk(engine)
        go.set()
        await until(lambda: Probe(engine).host.context.outage.attempts >= 12)
        (report,) = reports(caplog)
        name = shared_url.rpartition("/")[2]
        assert name in report
        assert "disk" in report
        assert "resume by themselves" in report
        await make_space()
        assert [await run.result(60) for run in runs] == [2] * 5
        await until(lambda: "works again" in caplog.text)


async def start_many(engine: Engine) -> None:
    for number in range(1000):
        await engine.start(filling(number, 0))


async def test_start_on_a_full_disk_raises_with_a_remedy(shared_url: str) -> None:
    async with opened(shared_url) as engine:
        make_space = await fill_disk(engine)
        with pytest.raises(StoreUnavailable, match="free space"):
            await start_many(engine)
        await make_space()
        await (await engine.start(filling(1, 0), key="after")).result(60)


async def test_a_transaction_on_a_full_disk_begins_again(
    shared_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with opened(shared_url) as engine:
        async with engine.transaction() as tx:
            await tx.execute("CREATE TABLE notes (text TEXT)")
        make_space = await fill_disk(engine, "notes")
        run = await engine.start(inserting(500_000))
        await until(lambda: len(reports(caplog)) > 0)
        await make_space()
        assert await run.result(60) == 500_000
        async with engine.transaction() as tx:
            assert await tx.fetch_value("SELECT count(*) FROM notes") == 1


LIMITED = """
import asyncio, logging, resource, sys
logging.basicConfig(level=logging.WARNING)
from perdure import Engine, task, workflow
from perdure.testing.probe import Probe

@task
async def fill(size: int) -> str:
    return "x" * size

@workflow
async def filling(count: int) -> int:
    for _ in range(count):
        await fill(100_000)
    return count

async def main(url: str) -> None:
    async with Engine(url) as engine:
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, hard))
        runs = [await engine.start(filling(10)) for _ in range(3)]
        while Probe(engine).host.context.outage.attempts < 9:
            await asyncio.sleep(0.01)
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        print(sum([await run.result(60) for run in runs]))
        for report in (await engine.audit(), await engine.verify()):
            assert report.is_clean, str(report)

asyncio.run(main(sys.argv[1]))
"""


async def test_a_file_that_may_not_grow_is_reported_once_and_written_again_later(
    tmp_path: Path,
) -> None:
    """The limit is the operating system's."""
    command = [sys.executable, "-c", LIMITED, f"sqlite:///{tmp_path}/limited.db"]
    ended = await asyncio.to_thread(
        subprocess.run, command, capture_output=True, text=True, timeout=300, check=False
    )
    assert ended.stdout.strip() == "30", ended.stderr
    warnings = [line for line in ended.stderr.splitlines() if "perdure.host" in line]
    assert sum("can't be written" in line for line in warnings) == 1
    assert "limited.db" in warnings[0]
