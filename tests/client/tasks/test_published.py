"""Published values are accepted while their attempt is valid: not after it, not from a host that lost the run."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

import perdure
from perdure import Engine, Retry, Settings, Signal, task, workflow
from perdure.core.errors import OutsideRun
from perdure.core.ids import HostId
from perdure.core.journal import events as e
from perdure.host.tasks.attempt import Attempt
from perdure.host.tasks.published import Publisher
from perdure.testing.probe import Probe
from tests.client.engines import (
    AT_ONCE,
    assert_cancelled,
    opened,
    recorded,
    store_of,
    until,
    until_published,
)

end = Signal("publishing.end", int)

FAR_MS = 2**45


def heard_from(say: Callable[[], None]) -> str:
    """The result of the call, or its error."""
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
    await until_published(run, progress=2)
    over.set()
    await until(lambda: bool(heard))
    assert "'progress' is published when attempt 1 of task" in heard[0]
    await run.signal(end, 1)
    await run.result(60)
    assert await run.published() == {"progress": 2}


async def until_sent(engine: Engine, run: perdure.Handle[Any]) -> None:
    """Wait until the store has accepted or refused all values published so far."""
    if (sent := Probe(engine).host.publisher.settle(run.run_id)) is not None:
        await sent


@pytest.mark.parametrize("is_transactional", [False, True])
async def test_leftover_coroutine_of_a_task_publishes_nothing(
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
    await until_published(run, progress="in time")
    returned.set()
    assert "is over" in await left[0]
    await run.signal(end, 1)
    await run.result(60)
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
        await until_published(run, owner="first")
        probe, store = Probe(engine), store_of(engine)
        assert await store.take_over(probe.host_id, HostId("another"), 10)
        lost.set()
        # The outcome comes behind what was published, and tells that the run is lost.
        async with asyncio.timeout(10):
            await probe.host.dispatcher.quiesce()
        assert run.run_id not in probe.warm_runs
        assert await run.published() == {"owner": "first"}
        assert await store.take_over(HostId("another"), probe.host_id, 10)
    async with opened(shared_url) as engine:
        await engine.handle(run.run_id).result(60)
        assert await run_values(engine, run.run_id) == {"owner": "the host that lost it"}


async def test_value_published_while_the_run_is_lost_comes_with_the_accepted_outcome(
    shared_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    began, lost = asyncio.Event(), asyncio.Event()

    @task
    async def unaware() -> str:
        perdure.publish("progress", "had")
        began.set()
        await lost.wait()
        perdure.publish("progress", "lost")
        return "done"

    @workflow
    async def taken_and_given_back() -> str:
        return await unaware()

    async with opened(shared_url) as engine:
        run = await engine.start(taken_and_given_back())
        await began.wait()
        await until_published(run, progress="had")
        host, store = Probe(engine).host_id, store_of(engine)
        load, seen = store.load_all, []

        async def give_back_and_load(run_ids: Any) -> Any:
            # The outcome was rejected, and so what came before it was passed over: the run is looked at again.
            seen.append(await run.published())
            await store.take_over(HostId("another"), host, 10)
            return await load(run_ids)

        monkeypatch.setattr(store, "load_all", give_back_and_load)
        assert await store.take_over(host, HostId("another"), 10)
        lost.set()
        assert await run.result(60) == "done"
        assert seen[0] == {"progress": "had"}
        assert await run.published() == {"progress": "lost"}
        assert len(await recorded(engine, run, e.InvokeStarted)) == 1


async def test_value_published_while_the_host_changes_its_id_is_published_again(
    shared_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    began, nameless, said = asyncio.Event(), asyncio.Event(), asyncio.Event()
    had_back, enough = asyncio.Event(), asyncio.Event()

    @task
    async def working_on() -> None:
        perdure.publish("progress", "before")
        began.set()
        await nameless.wait()
        perdure.publish("progress", "meanwhile")
        said.set()
        await enough.wait()

    @workflow
    async def kept() -> None:
        await working_on()

    async with opened(shared_url, Settings(heartbeat=0.05)) as engine:
        run = await engine.start(kept())
        await began.wait()
        await until_published(run, progress="before")
        store = store_of(engine)
        take_over = store.take_over

        async def wait_and_take_over(*wanted: Any) -> Any:
            nameless.set()
            await had_back.wait()
            return await take_over(*wanted)

        monkeypatch.setattr(store, "take_over", wait_and_take_over)
        await store.remove_host(Probe(engine).host_id)
        await said.wait()
        await until_sent(engine, run)
        assert await run.published() == {"progress": "before"}
        had_back.set()
        await until_published(run, progress="meanwhile")
        enough.set()
        await run.result(60)
        assert await run.published() == {"progress": "meanwhile"}
        assert len(await recorded(engine, run, e.InvokeStarted)) == 1


@pytest.mark.parametrize("is_said_at_once", [True, False])
async def test_value_published_while_work_is_lost_is_accepted_with_the_outcome(
    shared_url: str, is_said_at_once: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    began, lost, said = asyncio.Event(), asyncio.Event(), asyncio.Event()
    had_back = asyncio.Event()

    @task(queue="publishing")
    async def far_away() -> None:
        perdure.publish("progress", "had")
        began.set()
        await lost.wait()
        perdure.publish("progress", "lost")
        said.set()
        await had_back.wait()

    @workflow
    async def sending_and_losing() -> None:
        await far_away()

    returned: list[Attempt] = []
    publish_again = Publisher.publish_again

    def note(publisher: Publisher, attempt: Attempt) -> None:
        returned.append(attempt)
        if is_said_at_once:
            publish_again(publisher, attempt)

    monkeypatch.setattr(Publisher, "publish_again", note)
    settings = Settings(heartbeat=0.05, lease=120)
    async with (
        opened(shared_url) as engine,
        opened(shared_url, settings, ("publishing",)) as worker,
    ):
        run = await engine.start(sending_and_losing())
        await began.wait()
        await until_published(run, progress="had")
        store, other = store_of(worker), HostId("another")
        # Due long after the test: so that no other host claims it.
        assert await store.return_work(Probe(worker).host_id, FAR_MS) == 1
        assert await store.claim_work(other, ["publishing"], "token", FAR_MS, 1000, 1)
        lost.set()
        await said.wait()
        await until_sent(worker, run)
        assert await run.published() == {"progress": "had"}
        assert await store.return_work(other, 0) == 1
        await until(lambda: bool(returned))
        if is_said_at_once:
            await until_published(run, progress="lost")
        had_back.set()
        await run.result(60)
        assert await run.published() == {"progress": "lost"}


async def run_values(engine: Engine, run_id: str) -> dict[str, Any]:
    return await engine.handle(run_id).published()


async def test_queued_task_publishes_while_its_run_awaits_it(shared_url: str) -> None:
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
        await until_published(run, progress="first")
        await run.cancel()
        await assert_cancelled(run)
        cancelled.set()
        await until(lambda: not Probe(worker).is_executing)
        # Its host does not know yet: the store does.
        assert said == ["published"]
        assert await run.published() == {"progress": "first"}
