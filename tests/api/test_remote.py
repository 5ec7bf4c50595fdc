import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta

import httpx2
import pytest

import perdure
from perdure import (
    Denied,
    Engine,
    InputError,
    KeyReused,
    LimitReached,
    RemoteEngine,
    RunCancelled,
    RunClosed,
    RunFailed,
    RunStatus,
    Signal,
    UnknownRun,
)
from perdure.api.app import ApiApp
from perdure.core.errors import StoreUnavailable
from tests.api import programs
from tests.api.conftest import LOCAL, served
from tests.api.servers import serving
from tests.api.test_doors import made
from tests.cli import orders
from tests.client.engines import until_store

HAT = programs.Item("hat", 42)


@pytest.fixture
async def remote(store_url: str) -> AsyncIterator[RemoteEngine]:
    async with served(Engine(store_url)) as client, perdure.connect(LOCAL, client=client) as engine:
        yield engine


async def until_waiting(run: perdure.RemoteHandle[int]) -> None:
    async def waits() -> bool:
        causes = (await run.explain()).causes
        return any(cause.kind == "signal" for cause in causes)

    await until_store(waits)


async def test_a_run_is_started_answered_and_read_over_http(remote: RemoteEngine) -> None:
    run = await remote.start(programs.decide(HAT), key="hat", tags={"kind": "test"})
    again = await remote.start(programs.decide(HAT), key="hat")
    assert (run.is_new, again.is_new, again.run_id) == (True, False, run.run_id)
    await until_waiting(run)
    await run.signal(programs.decision, True)
    assert await run.result(60) == 42
    assert await run.status() is RunStatus.COMPLETED
    events = [event async for event in run.history()]
    followed = [event async for event in run.follow(2)]
    assert followed == events[2:]
    assert (await run.view()).is_over
    listed = await remote.runs({"tag.kind": "test"})
    assert [each.run_id for each in listed.runs] == [run.run_id]
    assert (await remote.count({"status": "completed"})).runs == 1
    with pytest.raises(KeyReused) as reused:
        await remote.start(programs.decide(programs.Item("hat", 1)), key="hat")
    assert reused.value.run_id == run.run_id
    with pytest.raises(RunClosed):
        await run.signal(programs.decision, True)


async def test_a_start_over_a_limit_says_how_long_to_wait(
    remote: RemoteEngine,
) -> None:
    run = await remote.start(programs.alone(1))
    with pytest.raises(LimitReached) as refused:
        await remote.start(programs.alone(2))
    assert refused.value.retry_after == 7
    await run.signal(programs.decision, True)
    assert await run.result(60)


async def test_a_start_may_wait_for_a_time(remote: RemoteEngine) -> None:
    run = await remote.start(programs.paced(3), delay=timedelta(hours=1))
    assert await run.status() is RunStatus.PENDING
    with pytest.raises(InputError, match="debounce"):
        await remote.start(programs.paced(3), debounce=5)


async def test_a_start_has_first_values_of_parameters(remote: RemoteEngine) -> None:
    run = await remote.start(programs.paced(3).with_params({"batch": 5}))
    assert await run.result(60) == 15
    assert await (await remote.start(programs.paced(3))).result(60) == 6


async def test_integers_of_any_size_stay_integers(remote: RemoteEngine) -> None:
    run = await remote.start(programs.big(2**70))
    assert (await run.result(60))["number"] == 2**70
    named = await remote.start_named("api.big", {"number": 2**62})
    assert (await named.result(60))["number"] == 2**62


async def test_acts_have_the_decision_of_the_owner(remote: RemoteEngine) -> None:
    run = await remote.start(programs.decide(HAT))
    await until_waiting(run)
    assert (await (await run.pause("lunch", id="p")).decision(60)).accepted
    assert (await (await run.pause("lunch", id="q")).decision(60)).code == "RUN_PAUSED"
    assert (await (await run.resume()).decision(60)).accepted
    assert (await (await run.cancel("no more hats")).decision(60)).accepted
    with pytest.raises(RunCancelled, match="no more hats"):
        await run.result(60)
    preview = await run.preview_fork("api.price", id="f")
    fork = await run.fork("api.price", id="f")
    assert fork.run_id == preview.fork
    await until_waiting(fork)
    await fork.signal(programs.decision, True)
    assert await fork.result(60) == 42


async def test_parked_steps_are_skipped_over_http(remote: RemoteEngine) -> None:
    run = await remote.start(programs.parks(1))

    async def is_parked() -> bool:
        return any(step.is_parked for step in (await run.view()).steps)

    await until_store(is_parked)
    assert (await (await run.skip_step("root.0", "known", value=8)).decision(60)).accepted
    assert await run.result(60) == 8


async def test_failures_keep_their_type_and_message_as_text(remote: RemoteEngine) -> None:
    run = await remote.start(orders.refuse("B"))
    with pytest.raises(RunFailed, match="no receipt for B") as failed:
        await run.result(60)
    assert failed.value.type_name == "ValueError"
    assert "refuse" in failed.value.traceback


async def test_a_result_that_is_not_there_in_time_is_a_timeout(remote: RemoteEngine) -> None:
    run = await remote.start(programs.decide(HAT))
    with pytest.raises(TimeoutError):
        await run.result(1)
    with pytest.raises(UnknownRun):
        await remote.handle("r_" + "0" * 32).status()
    with pytest.raises(InputError):
        await run.signal(Signal("decision", str), "yes")


async def test_the_token_says_who_acts(sqlite_url: str) -> None:
    engine = Engine(sqlite_url)
    async with served(engine) as client:
        operator, viewer = await made(engine, "operator"), await made(engine, "viewer")
        async with perdure.connect(LOCAL, token=operator, client=client) as remote:
            run = await remote.start(programs.decide(HAT))
            await until_waiting(run)
        async with perdure.connect(LOCAL, token=viewer, client=client) as remote:
            seen = remote.handle(run.run_id)
            assert await seen.status() is RunStatus.BLOCKED
            with pytest.raises(Denied) as denied:
                await seen.pause()
            assert denied.value.reason_code == "AUTHZ_DENIED"
        async with perdure.connect(LOCAL, client=client) as remote:
            with pytest.raises(perdure.PerdureError) as refused:
                await remote.runs()
            assert refused.value.code == "unauthorized"


async def test_a_server_that_is_not_there_is_named() -> None:
    async with perdure.connect("http://127.0.0.1:9") as remote:
        with pytest.raises(StoreUnavailable, match=r"127\.0\.0\.1:9"):
            await remote.runs()
    with pytest.raises(InputError):
        perdure.connect("sqlite:///orders.db")


async def test_a_connection_of_its_own_speaks_to_a_real_server(sqlite_url: str) -> None:
    with serving(sqlite_url) as address:
        async with perdure.connect(address) as remote:
            run = await remote.start(programs.decide(HAT))
            following = asyncio.create_task(followed(run))
            await until_waiting(run)
            await run.signal(programs.decision, True)
            assert await run.result(60) == 42
            assert (await following)[-1].type == "RunCompleted"


async def followed(run: perdure.RemoteHandle[int]) -> list[perdure.ContractEvent]:
    return [event async for event in run.follow()]


async def test_the_api_mounts_below_a_path_and_beside_other_programs(sqlite_url: str) -> None:
    engine = Engine(sqlite_url)
    api = ApiApp(engine, prefix="/durable")
    await api.open()
    try:
        transport = httpx2.ASGITransport(api)
        async with httpx2.AsyncClient(transport=transport, base_url=LOCAL) as client:
            started = await client.post(
                "/durable/v1/programs/api.big/runs", json={"input": {"number": 1}}
            )
            assert started.headers["location"].startswith("/durable/v1/runs/")
            assert (await client.get(started.headers["location"])).status_code == 200
            async with perdure.connect(f"{LOCAL}/durable", client=client) as remote:
                assert (await remote.count()).runs == 1
    finally:
        await api.close()
