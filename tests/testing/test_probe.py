import asyncio
from pathlib import Path

import pytest

from perdure import Engine, Settings, SyncEngine, task, workflow
from perdure.core.errors import EngineClosed
from perdure.testing.probe import Probe
from tests.client.engines import until


@workflow(name="probe.idle")
async def idle() -> None:
    pass


async def test_aborted_engine_is_closed_and_keeps_its_runs(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/runs.db"
    began = asyncio.Event()

    @task
    async def hanging() -> None:
        began.set()
        await asyncio.Event().wait()

    @workflow
    async def waiting() -> None:
        await hanging()

    engine = Engine(url)
    await engine.open()
    dead = Probe(engine).host_id
    run = await engine.start(waiting())
    await began.wait()
    await Probe(engine).abort()
    assert not Probe(engine).is_open
    with pytest.raises(EngineClosed, match="probe it before it closes"):
        Probe(engine).host_id  # noqa: B018 - it raises
    async with Engine(url, hosts=False) as reader:
        row = await Probe(reader).store.run(run.run_id)
        assert row is not None
        assert row.owner == dead


async def test_figures_follow_an_attempt(tmp_path: Path) -> None:
    release = asyncio.Event()

    @task(name="probe.held")
    async def held() -> None:
        await release.wait()

    @workflow
    async def holding() -> None:
        await held()

    url = f"sqlite:///{tmp_path}/runs.db"
    async with Engine(url, settings=Settings(concurrency=2, threads=2)) as engine:
        probe = Probe(engine)
        assert probe.url == url
        assert (probe.free_slots, probe.attempts, probe.is_executing) == (2, [], False)
        run = await engine.start(holding())
        await until(lambda: [each.task.name for each in probe.attempts] == ["probe.held"])
        assert (probe.free_slots, probe.is_executing) == (1, True)
        assert probe.warm_runs == {run.run_id}
        release.set()
        await run.result(60)
        await until(lambda: not probe.is_executing)
        assert (probe.free_slots, probe.attempts, probe.warm_runs) == (2, [], set())


async def test_handle_leads_to_the_host_of_its_engine() -> None:
    async with Engine("sqlite:///:memory:") as engine:
        run = await engine.start(idle())
        assert Probe.host_of(run) is Probe(engine).host
        await run.result(60)


def test_sync_engine_can_be_probed() -> None:
    with SyncEngine("sqlite:///:memory:") as engine:
        run = engine.start(idle())
        run.result(60)
        found = engine.wait_for(Probe(engine).store.run(run.run_id))
        assert found is not None


async def test_leases_of_a_store_with_one_host_are_not_renewed_anyway() -> None:
    async with Engine("sqlite:///:memory:") as engine:
        with pytest.raises(AssertionError, match="one host only"):
            Probe(engine).stop_renewing_leases()
