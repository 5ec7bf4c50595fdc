"""Queued tasks: executed by whichever engine serves the queue, one outcome each."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

import perdure
from perdure import Engine, Retry, Settings, task, workflow
from perdure.authoring import registry
from perdure.core.errors import CorruptJournal
from perdure.core.journal import events as e
from perdure.core.messages import Work
from perdure.engine.runs.work_payload import WorkPayload, unpack_work
from perdure.host.tasks import queues
from perdure.testing.probe import Probe
from tests.client.engines import (
    assert_cancelled,
    journal,
    opened,
    recorded,
    store_of,
    until,
    until_recorded,
    until_store,
)
from tests.store.builders import raw

SHORT_LEASE = Settings(lease=0.2)
SELDOM = Settings(heartbeat=100, stale_after=400)
"""A host that polls so seldom that no test waits for its next poll."""
LEASE_S = 1.5
"""The lease of a running task. The host renews it three times as often, so that a busy machine may miss one."""


class Unlucky(Exception):
    pass


@task(name="queues.post", queue="mail")
async def post(letter: str) -> str:
    return f"posted {letter}"


@workflow(name="queues.posting")
async def posting(letter: str) -> str:
    return await post(letter)


async def test_a_queued_task_is_executed_by_an_engine_that_serves_its_queue(
    engine_url: str,
) -> None:
    async with opened(engine_url, queues=("mail",)) as engine:
        assert await (await engine.start(posting("a"))).result(60) == "posted a"


async def test_an_engine_that_does_not_serve_the_queue_leaves_its_tasks_alone(
    engine_url: str,
) -> None:
    async with opened(engine_url, queues=("other",)) as engine:
        run = await engine.start(posting("a"))
        with pytest.raises(TimeoutError):
            await run.result(0.2)
        assert await recorded(engine, run, e.InvokeStarted) == []


async def test_a_long_backlog_of_a_queue_does_not_starve_another_queue(engine_url: str) -> None:
    order: list[str] = []

    @task(queue="long")
    async def bulk() -> None:
        order.append("bulk")

    @task(queue="short")
    async def urgent() -> None:
        order.append("urgent")

    @workflow
    async def mixing() -> None:
        await perdure.gather(*(bulk() for _ in range(30)), *(urgent() for _ in range(3)))

    settings = replace(SELDOM, concurrency=1)
    async with opened(engine_url, settings, ("long", "short")) as engine:
        await (await engine.start(mixing())).result(60)
    assert order.count("urgent") == 3
    assert "urgent" not in order[8:]


async def test_a_host_keeps_no_more_sync_tasks_than_it_has_threads(shared_url: str) -> None:
    """It gives those that it can't start back unstarted, so that another host may have them."""
    release = threading.Event()
    running: list[int] = []

    @task(queue="mail")
    def blocks(number: int) -> int:
        running.append(number)
        assert release.wait(60)
        return number

    @workflow
    async def many() -> list[int]:
        return list(await perdure.gather(*(blocks(number) for number in range(12))))

    async with opened(shared_url, Settings(threads=2), ("mail",)) as engine:
        run = await engine.start(many())
        await until(lambda: len(running) == 2)

        async def are_claimed() -> bool:
            sql = "SELECT count(*) FROM {}work WHERE host IS NOT NULL"
            return await raw(store_of(engine), sql) == [(2,)]

        await until_store(are_claimed)
        release.set()
        assert await run.result(60) == list(range(12))
        assert await recorded(engine, run, e.Posted) == []  # no step was in doubt


async def test_tasks_that_fail_in_each_way_do_not_stop_their_batch(
    shared_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One raises, one is not registered, one has a damaged row, one loses its claim: the others of the batch end."""
    begun: list[str] = []
    release = asyncio.Event()
    steps: dict[str, str] = {}
    damaged = [b'"damaged"']

    @task(queue="mail")
    async def waits(name: str) -> str:
        begun.append(name)
        steps[name] = perdure.info().step
        await release.wait()
        return name

    @task(queue="mail")
    async def raises() -> str:
        raise Unlucky

    @task(queue="mail")
    async def unknown() -> str:
        return "known"

    async def caught() -> str:
        try:
            return await raises()
        except Unlucky:
            return "caught"

    @workflow
    async def mixing() -> list[str]:
        good = [waits(name) for name in ("a", "b", "lost", "damaged")]
        return list(await perdure.gather(*good, unknown(), caught()))

    def unpack(work: Work) -> tuple[WorkPayload, bytes]:
        header, payload = unpack_work(work)
        if any(name in payload for name in damaged):
            raise CorruptJournal("its header can't be read", "restore it")
        return header, payload

    monkeypatch.setattr(queues, "unpack_work", unpack)
    monkeypatch.setattr(queues, "UNKNOWN_DELAY_MS", 100)
    monkeypatch.setattr(queues, "UNREADABLE_DELAY_MS", 100)
    async with opened(shared_url) as owner:
        run = await owner.start(mixing())
        with monkeypatch.context() as patched:
            patched.delitem(registry._known, ("task", "unknown"))
            async with opened(shared_url, queues=("mail",)) as worker:
                await until(lambda: sorted(begun) == ["a", "b", "lost"])
                work = f"WHERE run_id = '{run.run_id}' AND step = '{steps['lost']}'"
                # Another host has claimed it, and dies with it.
                await raw(
                    store_of(worker),
                    f"UPDATE {{}}work SET token = 'other', claims = 2, host = 'h' {work}",
                )
                release.set()
                await until_recorded(owner, run, e.InvokeCompleted, 3)
                assert sorted(begun) == ["a", "b", "lost"]
        damaged.clear()
        await raw(store_of(owner), f"UPDATE {{}}work SET available_at_ms = 0 {work}")
        async with opened(shared_url, queues=("mail",)):
            assert await run.result(60) == ["a", "b", "lost", "damaged", "known", "caught"]
    assert sorted(begun) == ["a", "b", "damaged", "lost", "lost"]


async def test_another_engine_executes_what_it_serves(shared_url: str) -> None:
    async with opened(shared_url) as owner, opened(shared_url, queues=("mail",)):
        run = await owner.start(posting("b"))
        assert await run.result(60) == "posted b"
        kinds = [
            type(event).__name__
            for event in await journal(owner, run)
            if isinstance(event, e.InvokeScheduled | e.InvokeStarted | e.InvokeCompleted)
        ]
        assert kinds == ["InvokeScheduled", "InvokeStarted", "InvokeCompleted"]


async def test_a_host_does_not_read_runs_of_others_to_send_their_results(
    shared_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(shared_url) as owner, opened(shared_url, queues=("mail",)) as worker:
        host, loads, sent = Probe(worker).host, list[str](), list[Any]()
        monkeypatch.setattr(host.dispatcher.loader, "load", loads.append)
        monkeypatch.setattr(host, "message_sent", _also(host.message_sent, sent))
        run = await owner.start(posting("b"))
        assert await run.result(60) == "posted b"
        await until(lambda: len(sent) == 1)
        assert [(each[0].run_id, each[1]) for each in sent] == [(run.run_id, Probe(owner).host_id)]
        assert loads == []


def _also(call: Callable[..., None], calls: list[Any]) -> Callable[..., None]:
    """The call, which also adds its arguments to a list."""

    def recorded_call(*arguments: Any) -> None:
        calls.append(arguments)
        call(*arguments)

    return recorded_call


async def test_a_queue_is_served_at_once_by_the_engine_that_fills_it(engine_url: str) -> None:
    @workflow
    async def many() -> None:
        for number in range(10):
            await post(str(number))

    async with opened(engine_url, SELDOM, ("mail",)) as engine:
        await (await engine.start(many())).result(60)


async def test_a_queue_is_served_as_quickly_as_slots_are_free(engine_url: str) -> None:
    @workflow
    async def many() -> list[str]:
        return list(await perdure.gather(*(post(str(number)) for number in range(10))))

    async with opened(engine_url, replace(SELDOM, concurrency=1), ("mail",)) as engine:
        await (await engine.start(many())).result(60)


async def test_the_most_urgent_task_is_executed_first(shared_url: str) -> None:
    order: list[str] = []

    @task(queue="urgency", priority=1)
    async def low() -> None:
        order.append("low")

    @task(queue="urgency", priority=9)
    async def high() -> None:
        order.append("high")

    @task(queue="urgency", priority=5)
    async def middle() -> None:
        order.append("middle")

    @workflow
    async def mixing() -> None:
        await perdure.gather(low(), high(), middle())

    async with opened(shared_url) as owner:
        run = await owner.start(mixing())
        async with opened(shared_url, Settings(concurrency=1), ("urgency",)):
            await run.result(60)
    assert order == ["high", "middle", "low"]


async def test_a_queued_task_that_fails_is_tried_again(engine_url: str) -> None:
    attempts: list[int] = []
    keys: set[str] = set()

    @task(queue="mail", retry=Retry(attempts=3, first=0.02, jitter=0))
    async def flaky() -> int:
        attempts.append(perdure.info().attempt)
        keys.add(perdure.key())
        if len(attempts) < 3:
            raise Unlucky
        return len(attempts)

    @workflow
    async def trying() -> int:
        return await flaky()

    async with opened(engine_url, queues=("mail",)) as engine:
        run = await engine.start(trying())
        assert await run.result(60) == 3
        assert attempts == [1, 2, 3]
        assert len(keys) == 1
        retries = await recorded(engine, run, e.InvokeRetrying)
        assert [each.failed_attempt for each in retries] == [1, 2]


async def test_a_queued_task_that_gives_up_fails_with_its_exception(engine_url: str) -> None:
    @task(queue="mail", retry=Retry(attempts=3, first=0, give_up_on=Unlucky))
    async def hopeless() -> None:
        raise Unlucky("at once")

    @workflow
    async def trying() -> None:
        await hopeless()

    async with opened(engine_url, queues=("mail",)) as engine:
        run = await engine.start(trying())
        with pytest.raises(Unlucky, match="at once"):
            await run.result(60)
        assert await recorded(engine, run, e.InvokeRetrying) == []


async def test_a_lease_is_renewed_while_the_task_runs(shared_url: str) -> None:
    begun: list[str] = []

    @task(queue="mail")
    async def long() -> str:
        begun.append("begun")
        await asyncio.sleep(2 * LEASE_S)
        return "done"

    @workflow
    async def waiting() -> str:
        return await long()

    # One slot each: the engine that runs the task can't claim it again, but the other engine would.
    single = Settings(concurrency=1, lease=LEASE_S)
    async with (
        opened(shared_url, single, ("mail",)) as engine,
        opened(shared_url, single, ("mail",)),
    ):
        run = await engine.start(waiting())
        assert await run.result(60) == "done"
    assert begun == ["begun"]


async def test_a_task_whose_engine_died_is_executed_by_another_once_its_lease_ends(
    shared_url: str,
) -> None:
    begun: list[str] = []
    never = asyncio.Event()

    @task(queue="mail")
    async def first_hangs() -> str:
        begun.append("begun")
        if len(begun) == 1:
            await never.wait()
        return "by the second"

    @workflow
    async def waiting() -> str:
        return await first_hangs()

    async with opened(shared_url) as owner:
        dying = Engine(shared_url, queues=("mail",), settings=SHORT_LEASE)
        await dying.open()
        run = await owner.start(waiting())
        await until(lambda: len(begun) == 1)
        await Probe(dying).abort()
        async with opened(shared_url, SHORT_LEASE, ("mail",)):
            assert await run.result(60) == "by the second"
    assert len(begun) == 2


async def test_claim_that_arrives_after_its_lease_begins_nothing(shared_url: str) -> None:
    """The host was paused or disconnected meanwhile; another host has done the work."""
    begun: list[str] = []
    heard = asyncio.Event()

    @task(queue="mail")
    async def brief() -> str:
        begun.append("begun")
        return "done"

    @workflow
    async def waiting() -> str:
        return await brief()

    async with opened(shared_url) as owner, opened(shared_url, SHORT_LEASE, ("mail",)) as sleepy:
        store = store_of(sleepy)
        claim_work = store.claim_work

        async def late(*arguments: Any) -> Any:
            claims = await claim_work(*arguments)
            if claims and not heard.is_set():
                await heard.wait()
            return claims

        store.claim_work = late
        run = await owner.start(waiting())
        await until_store(lambda: _is_claimed(owner))
        async with opened(shared_url, SHORT_LEASE, ("mail",)):
            assert await run.result(60) == "done"
            heard.set()
            await asyncio.sleep(0.1)
    assert begun == ["begun"]


async def _is_claimed(engine: Engine) -> bool:
    return bool(await raw(store_of(engine), "SELECT 1 FROM {}work WHERE host IS NOT NULL"))


async def test_an_outcome_that_comes_twice_completes_the_step_once(shared_url: str) -> None:
    begun: list[str] = []
    release = asyncio.Event()

    @task(queue="mail")
    async def slow() -> str:
        begun.append("begun")
        if len(begun) == 1:
            await release.wait()
        return f"by body {len(begun)}"

    @workflow
    async def waiting() -> str:
        await slow()
        await perdure.sleep(0.3)
        return "over"

    async with opened(shared_url) as owner:
        sleepy = Engine(shared_url, queues=("mail",), settings=SHORT_LEASE)
        await sleepy.open()
        run = await owner.start(waiting())
        await until(lambda: len(begun) == 1)
        Probe(sleepy).stop_renewing_leases()
        async with opened(shared_url, SHORT_LEASE, ("mail",)):
            await until_recorded(owner, run, e.InvokeCompleted)
            release.set()
            assert await run.result(60) == "over"
        await sleepy.close()
        assert len(begun) == 2
        assert len(await recorded(owner, run, e.InvokeCompleted)) == 1


async def test_a_cancelled_run_takes_its_tasks_off_their_queue(engine_url: str) -> None:
    async with opened(engine_url) as engine:
        run = await engine.start(posting("never"))
        await run.cancel()
        await assert_cancelled(run)
        assert await store_of(engine).next_work(["mail"]) is None


async def test_a_cancelled_run_stops_its_task_in_another_engine(shared_url: str) -> None:
    seen: list[str] = []

    @task(queue="mail")
    async def long() -> None:
        seen.append("began")
        try:
            await asyncio.sleep(3600)
        finally:
            seen.append("stopped")

    @workflow
    async def waiting() -> None:
        await long()

    async with opened(shared_url) as owner, opened(shared_url, SHORT_LEASE, ("mail",)):
        run = await owner.start(waiting())
        await until(lambda: seen == ["began"])
        await run.cancel()
        await assert_cancelled(run)
        await until(lambda: seen == ["began", "stopped"])


async def test_a_task_that_an_engine_does_not_have_is_left_for_others(
    engine_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(engine_url, queues=("mail",)) as engine:
        with monkeypatch.context() as patched:
            patched.delitem(registry._known, ("task", "queues.post"))
            run = await engine.start(posting("later"))
            await asyncio.sleep(0.1)
            await Probe(engine).host.worker.poll()
            assert await recorded(engine, run, e.InvokeStarted) == []
        due = await store_of(engine).next_work(["mail"])
        assert due is not None
        work = await store_of(engine).claim_work("h_other", ["mail"], "token", due, 1000, 10)
        assert [claim.work.run_id for claim in work] == [run.run_id]


async def test_a_stopped_engine_hands_its_queued_tasks_back_at_once(shared_url: str) -> None:
    begun: list[str] = []

    @task(queue="mail")
    async def first_hangs() -> str:
        begun.append("begun")
        if len(begun) == 1:
            await asyncio.sleep(3600)
        return "handed back"

    @workflow
    async def waiting() -> str:
        return await first_hangs()

    async with opened(shared_url) as owner:
        async with opened(shared_url, Settings(grace=0.05, lease=3600), ("mail",)):
            run = await owner.start(waiting())
            await until(lambda: len(begun) == 1)
        async with opened(shared_url, queues=("mail",)):
            assert await run.result(60) == "handed back"


async def test_a_lease_is_renewed_while_a_stopping_engine_lets_its_task_end(
    shared_url: str,
) -> None:
    begun: list[str] = []

    @task(queue="mail")
    async def long() -> str:
        begun.append("begun")
        await asyncio.sleep(2 * LEASE_S)
        return "ended in peace"

    @workflow
    async def waiting() -> str:
        return await long()

    async with opened(shared_url) as owner:
        stopping = Engine(shared_url, queues=("mail",), settings=Settings(grace=20, lease=LEASE_S))
        await stopping.open()
        run = await owner.start(waiting())
        await until(lambda: begun == ["begun"])
        async with opened(shared_url, SHORT_LEASE, ("mail",)):
            await stopping.close()
            assert await run.result(60) == "ended in peace"
    assert begun == ["begun"]


async def test_two_engines_share_a_queue_and_each_task_is_completed_once(
    shared_url: str,
) -> None:
    done: list[int] = []

    @task(queue="mail")
    async def count(number: int) -> int:
        await asyncio.sleep(0.005)
        done.append(number)
        return number

    @workflow
    async def many() -> int:
        return sum(await perdure.gather(*(count(number) for number in range(40))))

    few = Settings(concurrency=4)
    async with opened(shared_url, few, ("mail",)) as one, opened(shared_url, few, ("mail",)):
        run = await one.start(many())
        assert await run.result(60) == sum(range(40))
        assert len(await recorded(one, run, e.InvokeCompleted)) == 40
    assert sorted(done) == list(range(40))
