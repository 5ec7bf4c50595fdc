"""What tasks publish counts while their attempt does: not after it, not from a host that lost the run."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

import perdure
from perdure import Engine, Retry, RunCancelled, Settings, Signal, task, workflow
from perdure.core.errors import OutsideRun
from perdure.core.ids import HostId
from tests.client.engines import AT_ONCE, opened, store_of, until, until_store

end = Signal("publishing.end", int)


def heard_from(say: Callable[[], None]) -> str:
    """What is said, or why not."""
    try:
        say()
    except OutsideRun as error:
        return str(error)
    return "published"


async def test_a_thread_whose_attempt_has_timed_out_publishes_nothing(engine: Engine) -> None:
    over, heard = threading.Event(), []

    @task(timeout=0.2, retry=Retry(attempts=2, first=0.01))
    def slow() -> None:
        attempt = perdure.info().attempt
        perdure.publish("progress", attempt)
        if attempt == 1:
            assert over.wait(10)
            heard.append(heard_from(lambda: perdure.publish("progress", "too late")))

    @workflow
    async def publishing_from_a_thread() -> None:
        await slow()
        await end.receive()

    run = await engine.start(publishing_from_a_thread())
    await until_store(lambda: is_published(run, {"progress": 2}))
    over.set()
    await until(lambda: bool(heard))
    assert "'progress' is published when attempt 1 of task" in heard[0]
    await run.signal(end, 1)
    await run.result(10)
    assert await run.published() == {"progress": 2}


async def is_published(run: perdure.Handle[Any], values: dict[str, Any]) -> bool:
    return await run.published() == values


@pytest.mark.parametrize("is_transactional", [False, True])
async def test_what_a_task_leaves_behind_publishes_nothing(
    engine: Engine, is_transactional: bool
) -> None:
    left: list[asyncio.Task[str]] = []
    returned = asyncio.Event()

    async def late() -> str:
        await returned.wait()
        return heard_from(lambda: perdure.publish("progress", "too late"))

    def leave() -> None:
        perdure.publish("progress", "in time")
        left.append(asyncio.get_running_loop().create_task(late()))

    @task
    async def leaving() -> None:
        leave()

    @task(transactional=True)
    async def leaving_rows(tx: perdure.Transaction) -> None:
        await tx.fetch("SELECT 1")
        leave()

    @workflow
    async def publishing_from_what_is_left() -> None:
        await (leaving_rows() if is_transactional else leaving())
        await end.receive()

    run = await engine.start(publishing_from_what_is_left())
    await until_store(lambda: is_published(run, {"progress": "in time"}))
    returned.set()
    assert "is over" in await left[0]
    await run.signal(end, 1)
    await run.result(10)
    assert await run.published() == {"progress": "in time"}


async def test_a_host_that_has_lost_a_run_publishes_nothing_of_it(shared_url: str) -> None:
    began, lost = asyncio.Event(), asyncio.Event()

    @task
    async def unaware() -> None:
        perdure.publish("owner", "first")
        began.set()
        await lost.wait()
        perdure.publish("owner", "the host that lost it")

    @workflow
    async def taken_away() -> None:
        await unaware()

    async with opened(shared_url, AT_ONCE) as engine:
        run = await engine.start(taken_away())
        await began.wait()
        await until_store(lambda: is_published(run, {"owner": "first"}))
        assert engine._hosting is not None
        host, store = engine._hosting.host, store_of(engine)
        assert await store.take_over(host.host_id, HostId("another"), 10)
        lost.set()
        # The outcome comes behind what was published, and tells that the run is lost.
        await host._quiet(10)
        assert host.residents.get(run.run_id) is None
        assert await run.published() == {"owner": "first"}
        assert await store.take_over(HostId("another"), host.host_id, 10)
    async with opened(shared_url) as engine:
        await engine.handle(run.run_id).result(10)
        assert await run_values(engine, run.run_id) == {"owner": "the host that lost it"}


async def run_values(engine: Engine, run_id: str) -> dict[str, Any]:
    return await engine.handle(run_id).published()


async def test_a_queued_task_publishes_while_its_run_wants_it(shared_url: str) -> None:
    began, cancelled = asyncio.Event(), asyncio.Event()
    said: list[str] = []

    @task(queue="publishing")
    async def far_away() -> None:
        perdure.publish("progress", "first")
        began.set()
        await cancelled.wait()
        said.append(heard_from(lambda: perdure.publish("progress", "of a run that is over")))

    @workflow
    async def sending_far_away() -> None:
        await far_away()

    async with (
        opened(shared_url) as engine,
        opened(shared_url, Settings(grace=0), ("publishing",)) as worker,
    ):
        run = await engine.start(sending_far_away())
        await began.wait()
        await until_store(lambda: is_published(run, {"progress": "first"}))
        await run.cancel()
        with pytest.raises(RunCancelled):
            await run.result(10)
        cancelled.set()
        await until(lambda: not worker._hosting.bodies.tasks)  # type: ignore[union-attr]
        # Its host does not know yet: the store does.
        assert said == ["published"]
        assert await run.published() == {"progress": "first"}
