"""Pins the costs of workflows: commits and rows. Change a number here only deliberately."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure import Engine, Handle, Settings, task, workflow
from perdure.authoring import registry
from perdure.core.journal import events as e
from perdure.host import host as host_module
from perdure.host.host import Host
from perdure.store.commit.bundle import Bundle
from tests.client.counting_store import Till, written
from tests.client.engines import store_of, until_store
from tests.store.builders import Meter

pytestmark = pytest.mark.asyncio

STEPS = 10
RUNS = 20
CHILDREN = 200
PATIENCE_S = 60


@task
async def priced(number: int) -> int:
    return number + 1


@workflow
async def priced_chain(steps: int) -> int:
    number = 0
    for _ in range(steps):
        number = await priced(number)
    return number


@workflow
async def priced_at_once(tasks: int) -> int:
    return sum(await perdure.gather(*(priced(0) for _ in range(tasks))))


@workflow
async def priced_children(count: int) -> int:
    return sum(await perdure.gather(*(priced_chain(1) for _ in range(count))))


@task(queue="prices")
async def priced_by_others(number: int) -> int:
    return number + 1


@workflow
async def priced_elsewhere(count: int) -> int:
    return sum(await perdure.gather(*(priced_by_others(0) for _ in range(count))))


@pytest.fixture(params=["sqlite", "memory", pytest.param("postgres", marks=pytest.mark.postgres)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "postgres":
        address: str = request.getfixturevalue("emptied_postgres")
        return address
    return "sqlite:///:memory:" if request.param == "memory" else f"sqlite:///{tmp_path}/costs.db"


@pytest.fixture
async def engine(url: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Engine]:
    """An engine that does not poll its store while the test counts."""
    monkeypatch.setattr(host_module, "POLL_MS", 60_000)
    async with Engine(url) as opened:
        yield opened


async def test_a_chain_commits_once_per_step_and_once_to_begin(engine: Engine) -> None:
    till = Till(engine)
    run = await engine.start(priced_chain(STEPS))
    assert await run.result(timeout=PATIENCE_S) == STEPS
    assert len(till.bundles) == STEPS + 1


async def test_a_run_of_one_step_commits_twice(engine: Engine) -> None:
    till = Till(engine)
    meter = await Meter.of(till.store)
    run = await engine.start(priced_chain(1))
    assert await run.result(timeout=PATIENCE_S) == 1
    assert len(till.bundles) == 2
    assert meter.commits == 2


async def test_a_run_without_steps_commits_once(engine: Engine) -> None:
    till = Till(engine)
    run = await engine.start(priced_chain(0))
    assert await run.result(timeout=PATIENCE_S) == 0
    assert len(till.bundles) == 1


async def test_a_warm_step_writes_eight_rows_and_nothing_else(engine: Engine) -> None:
    till = Till(engine)
    run = await engine.start(priced_chain(STEPS))
    await run.result(timeout=PATIENCE_S)
    _, *warm, _ = till.bundles
    assert len(warm) == STEPS - 1
    assert [written(bundle) for bundle in warm] == [{"event": 5, "ledger": 2, "run": 1}] * len(warm)
    assert all(sum(written(bundle).values()) <= 8 for bundle in warm)
    rows = await till.rows()
    # Five for each step, and one more at either end.
    written_rows = {table: count for table, count in rows.items() if count}
    assert written_rows == {"run": 1, "event": 5 * STEPS + 2, "ledger": STEPS, "host": 1}


async def test_concurrent_runs_share_their_commits(engine: Engine) -> None:
    till = Till(engine)
    meter = await Meter.of(till.store)
    runs = await engine.start_many([priced_chain(STEPS) for _ in range(RUNS)])
    results = await asyncio.gather(*(run.result(timeout=PATIENCE_S) for run in runs))
    assert results == [STEPS] * RUNS
    assert len(till.bundles) == RUNS * (STEPS + 1)
    assert meter.commits < len(till.bundles) / 2


async def test_outcomes_that_come_together_are_one_bundle(engine: Engine) -> None:
    till = Till(engine)
    run = await engine.start(priced_at_once(STEPS))
    assert await run.result(timeout=PATIENCE_S) == STEPS
    assert len(till.bundles) == 2


async def test_results_of_many_children_are_few_commits_of_their_parent(engine: Engine) -> None:
    till = Till(engine)
    run = await engine.start(priced_children(CHILDREN))
    assert await run.result(timeout=PATIENCE_S) == CHILDREN
    assert len(commits_of(run, till)) <= CHILDREN / 10
    assert (await engine.audit()).is_clean


async def test_results_from_a_queue_that_wait_for_their_owner_are_one_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = f"sqlite:///{tmp_path}/queued.db"
    async with Engine(address) as first:
        run = await first.start(priced_elsewhere(CHILDREN))
    with pytest.MonkeyPatch.context() as patched:
        patched.delitem(registry._known, ("program", "priced_elsewhere"))
        async with Engine(address, queues=["prices"]) as worker:
            await until_messages(worker, run, CHILDREN)
    tills: list[Till] = []
    monkeypatch.setattr(Host, "start", counted(tills))
    async with Engine(address) as second:
        (till,) = tills
        assert await second.handle(run.run_id).result(timeout=PATIENCE_S) == CHILDREN
        assert len(commits_of(run, till)) == 1
        assert (await second.audit()).is_clean


async def until_messages(engine: Engine, run: Handle[Any], count: int) -> None:
    async def ask() -> bool:
        return len(await store_of(engine).messages(run.run_id)) == count

    await until_store(ask)


def counted(tills: list[Till]) -> Callable[[Host], Awaitable[None]]:
    """The start of a host whose bundles are counted from the beginning."""
    start = Host.start

    async def start_counted(self: Host) -> None:
        tills.append(Till(self.context.store))
        await start(self)

    return start_counted


def commits_of(run: Handle[Any], till: Till) -> list[Bundle]:
    """The bundles that append to the run's journal."""
    return [
        bundle
        for bundle in till.bundles
        if any(fence.run_id == run.run_id for fence, _ in bundle.appends)
    ]


async def test_steps_that_waited_for_slots_begin_together(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host_module, "POLL_MS", 60_000)
    slots, waves = 10, 8
    async with Engine(url, settings=Settings(concurrency=slots)) as engine:
        till = Till(engine)
        run = await engine.start(priced_at_once(slots * waves))
        assert await run.result(timeout=PATIENCE_S) == slots * waves
        # The beginning; then all of a wave's results, and with them the beginnings of the next wave.
        assert len(till.bundles) == 1 + waves


async def test_a_warm_run_is_never_read(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    till = Till(engine)

    async def refuse(*_: object) -> None:
        raise AssertionError("a warm run was loaded")

    monkeypatch.setattr(till.store, "load_all", refuse)
    run = await engine.start(priced_chain(STEPS))
    assert await run.result(timeout=PATIENCE_S) == STEPS
    assert isinstance([entry.event async for entry in run.events()][-1], e.ExecutionCompleted)
