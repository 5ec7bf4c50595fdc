"""An engine with `hosts=False` reads and sends; another engine executes."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

import perdure
from perdure import (
    Engine,
    InputError,
    RunCancelled,
    RunStatus,
    Settings,
    Signal,
    SyncEngine,
    task,
    workflow,
)
from tests.client.engines import assert_sound, opened, store_of
from tests.store.builders import raw

QUICK = Settings(heartbeat=0.1)
go = Signal("go", str)


@task(name="onlooker.work", queue="onlooker")
async def work(text: str) -> str:
    perdure.publish("said", text)
    return f"done: {text}"


@workflow(name="onlooker.waiting")
async def waiting(number: int) -> str:
    perdure.stream("words").append(f"word {number}")
    return await work(await go.receive())


@asynccontextmanager
async def front_end(url: str) -> AsyncIterator[Engine]:
    async with Engine(url, hosts=False, settings=QUICK) as front:
        yield front
        await assert_sound(front)


async def test_a_front_end_starts_signals_and_follows_runs_that_a_worker_executes(
    shared_url: str,
) -> None:
    async with front_end(shared_url) as front:
        run = await front.start(waiting(1), key="one")
        assert (await front.start(waiting(1), key="one")).run_id == run.run_id
        others = await front.start_many([waiting(2), waiting(3)], keys=["two", "three"])
        row = await store_of(front).run(run.run_id)
        assert row is not None
        assert row.owner is None
        assert await raw(store_of(front), "SELECT id FROM {}host") == []
        async with opened(shared_url, QUICK, ("onlooker",)):
            await run.signal(go, "now")
            assert await run.result(60) == "done: now"
            assert await run.status() is RunStatus.COMPLETED
            words = run.stream("words", of=str, completed_only=True)
            assert [chunk.value async for chunk in words] == ["word 1"]
            numbers = [entry.seq async for entry in run.events()]
            assert numbers == list(range(len(numbers)))
            assert await run.published() == {"said": "now"}
            assert len(await raw(store_of(front), "SELECT id FROM {}host")) == 1
            await others[0].cancel("not wanted")
            with pytest.raises(RunCancelled, match="not wanted"):
                await others[0].result(60)
            await others[1].signal(go, "later")
            assert await others[1].result(60) == "done: later"


async def test_what_a_front_end_starts_in_a_transaction_is_there_with_its_commit(
    shared_url: str,
) -> None:
    async with front_end(shared_url) as front, opened(shared_url, QUICK, ("onlooker",)):
        async with front.transaction() as tx:
            await tx.execute("CREATE TABLE orders (number integer)")
            run = await front.start(waiting(1), key="one")
            await run.signal(go, "both")
        assert await run.result(60) == "done: both"
        with pytest.raises(ZeroDivisionError):
            await fail_in_transaction(front)
        assert await store_of(front).run_by_key("", "onlooker.waiting", "two") is None


async def fail_in_transaction(front: Engine) -> None:
    async with front.transaction():
        await front.start(waiting(2), key="two")
        raise ZeroDivisionError


async def test_a_front_end_takes_nothing_up_and_leaves_nothing_behind(shared_url: str) -> None:
    async with front_end(shared_url) as front:
        run = await front.start(waiting(1))
        await run.signal(go, "now")
        await asyncio.sleep(0.3)
        row = await store_of(front).run(run.run_id)
        assert row is not None
        assert (row.owner, row.seq) == (None, 1)
    async with opened(shared_url, QUICK, ("onlooker",)) as worker:
        assert await worker.handle(run.run_id).result(60) == "done: now"


def test_a_sync_front_end_waits_for_a_result(tmp_path: object) -> None:
    url = f"sqlite:///{tmp_path}/engine.db"
    with (
        SyncEngine(url, hosts=False, settings=QUICK) as front,
        SyncEngine(url, settings=QUICK, queues=["onlooker"]),
    ):
        run = front.start(waiting(1))
        run.signal(go, "now")
        assert run.result(60) == "done: now"


async def test_what_makes_no_sense_for_a_front_end_is_refused() -> None:
    with pytest.raises(InputError, match="executes nothing"):
        Engine("sqlite:///x.db", hosts=False, queues=["onlooker"])
    with pytest.raises(InputError, match="True or False"):
        Engine("sqlite:///x.db", hosts="no")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="run a worker"):
        await Engine("sqlite:///:memory:", hosts=False).open()
