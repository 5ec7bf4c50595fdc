"""Leases of queued tasks: a live host keeps its tasks; its result is accepted unless another host claimed the task."""

import asyncio
import threading
import time

import perdure
from perdure import Settings, task, workflow
from perdure.core.journal import events as e
from perdure.core.replay.doubt import resolution_of
from perdure.testing.probe import Probe
from tests.client.engines import journal, opened, store_of, until, until_store
from tests.store.builders import raw

LEASE_S = 1.5
"""The host renews a lease three times as often, so that a busy machine may miss one."""

BUSY = Settings(concurrency=1, threads=1, lease=LEASE_S, heartbeat=0.5)


def serve_elsewhere(url: str, begun: threading.Event, over: threading.Event) -> None:
    """Another host with an event loop of its own, which would claim the task as soon as its lease ends."""

    async def serve() -> None:
        async with opened(url, BUSY, ("blocking",)):
            await asyncio.to_thread(over.wait, 60)

    assert begun.wait(60)
    asyncio.run(serve())


async def test_a_task_that_blocks_its_event_loop_for_longer_than_its_lease_is_executed_once(
    shared_url: str,
) -> None:
    begun, over = threading.Event(), threading.Event()
    executions: list[str] = []

    @task(queue="blocking")
    async def blocking() -> str:
        executions.append("begun")
        begun.set()
        time.sleep(2 * LEASE_S)  # noqa: ASYNC251 - this is what is tested
        return "done"

    @workflow
    async def waiting() -> str:
        return await blocking()

    async with opened(shared_url, BUSY, ("blocking",)) as engine:
        other = threading.Thread(target=serve_elsewhere, args=(shared_url, begun, over))
        other.start()
        try:
            run = await engine.start(waiting())
            assert await run.result(60) == "done"
        finally:
            begun.set()
            over.set()
            await asyncio.to_thread(other.join)
        assert await doubts(engine, run) == []
    assert executions == ["begun"]


async def test_host_considered_dead_continues_its_task_if_no_other_host_claimed_it(
    shared_url: str,
) -> None:
    executions: list[str] = []
    release = asyncio.Event()

    @task(queue="lost")
    async def long() -> str:
        executions.append("begun")
        await release.wait()
        perdure.publish("said", "after the loss")
        return "done"

    @workflow
    async def waiting() -> str:
        return await long()

    async with (
        opened(shared_url) as owner,
        opened(shared_url, Settings(concurrency=1, heartbeat=0.1), ("lost",)) as worker,
    ):
        run = await owner.start(waiting())
        await until(lambda: bool(executions))
        former = Probe(worker).host_id
        store = store_of(owner)
        assert await store.return_work(former, 0) == 1
        await store.remove_host(former)

        async def is_claimed_again() -> bool:
            rows = await raw(store, "SELECT host FROM {}work WHERE host IS NOT NULL")
            return [host for (host,) in rows] not in ([], [former])

        await until_store(is_claimed_again)
        release.set()
        assert await run.result(60) == "done"
        assert await run.published() == {"said": "after the loss"}
        assert await doubts(owner, run) == []
    assert executions == ["begun"]


async def test_result_is_accepted_after_its_task_was_returned_to_the_queue(shared_url: str) -> None:
    executions: list[str] = []
    release = asyncio.Event()

    @task(queue="lost")
    async def long() -> str:
        executions.append("begun")
        await release.wait()
        return "done"

    @workflow
    async def waiting() -> str:
        return await long()

    # The lease is renewed too rarely to matter here, and no slot is free to claim the task again.
    rarely = Settings(concurrency=1, lease=3600)
    async with opened(shared_url) as owner, opened(shared_url, rarely, ("lost",)) as worker:
        run = await owner.start(waiting())
        await until(lambda: bool(executions))
        assert await store_of(owner).return_work(Probe(worker).host_id, 0) == 1
        release.set()
        assert await run.result(60) == "done"
        assert await doubts(owner, run) == []
    assert executions == ["begun"]


async def doubts(engine: perdure.Engine, run: "perdure.Handle[str]") -> list[e.Event]:
    return [
        event
        for event in await journal(engine, run)
        if isinstance(event, e.Posted) and resolution_of(event) is not None
    ]
