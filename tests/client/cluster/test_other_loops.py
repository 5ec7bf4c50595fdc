"""An engine belongs to the event loop that opened it: calls on another loop begin nothing and raise."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from perdure import (
    Engine,
    Every,
    Handle,
    InputError,
    Request,
    Retry,
    RunStatus,
    Signal,
    task,
    workflow,
)
from tests.client.engines import opened

word = Signal("other_loop.word", str)

ELSEWHERE = r"in another event loop than the one that opened the engine.*run_coroutine_threadsafe"

IN_USE: list[Engine] = []


@workflow(name="other_loop.listening")
async def listening() -> str:
    return await word.receive()


@task(name="other_loop.starts", retry=Retry(attempts=3, first=0.01))
def starts() -> str:
    async def begin() -> str:
        return (await IN_USE[0].start(listening())).run_id

    return asyncio.run(begin())


@workflow(name="other_loop.starting")
async def starting() -> str:
    return await starts()


@workflow(name="other_loop.returning")
async def returning() -> str:
    return "here"


@pytest.fixture
def in_use(engine: Engine) -> Iterator[Engine]:
    IN_USE[:] = [engine]
    yield engine
    IN_USE.clear()


async def test_sync_task_that_starts_runs_in_its_own_loop_is_refused(
    in_use: Engine,
) -> None:
    run = await in_use.start(starting())
    with pytest.raises(InputError, match=ELSEWHERE):
        await run.result(timeout=60)
    assert (await in_use.audit()).runs == 1


async def _enter(context: Any) -> None:
    await context.__aenter__()


async def _read(items: Any) -> None:
    await anext(items)


SYNC = {"open", "handle", "replace", "warm_memory", "alerts", "schedule_handle"}
"""Methods that may be called from any thread."""

OF_ENGINES: dict[str, Callable[[Engine], Awaitable[Any]]] = {
    "activate": lambda engine: engine.activate("none", "1"),
    "audit": lambda engine: engine.audit(),
    "close": lambda engine: engine.close(),
    "count": lambda engine: engine.count(),
    "deploy": lambda engine: engine.deploy(None),  # type: ignore[arg-type]
    "diff": lambda engine: engine.diff("r_" + "0" * 32, "r_" + "1" * 32),
    "find": lambda engine: engine.find(listening, "key"),
    "graphs": lambda engine: engine.graphs(),
    "iterate_runs": lambda engine: _read(engine.iterate_runs()),
    "preflight": lambda engine: engine.preflight(),
    "runs": lambda engine: engine.runs(),
    "schedule": lambda engine: engine.schedule("none", listening(), Every(60)),
    "schedules": lambda engine: engine.schedules(),
    "send": lambda engine: engine.send("topic", "key"),
    "sql": lambda engine: engine.sql("SELECT 1"),
    "start": lambda engine: engine.start(listening()),
    "start_graph": lambda engine: engine.start_graph("none"),
    "start_many": lambda engine: engine.start_many([listening(), listening()]),
    "statistics": lambda engine: engine.statistics("graph", "key"),
    "transaction": lambda engine: _enter(engine.transaction()),
    "verify": lambda engine: engine.verify(),
    "wait_failed": lambda engine: engine.wait_failed(),
}

question = Request("question", int, int)

OF_HANDLES: dict[str, Callable[[Handle[Any]], Awaitable[Any]]] = {
    "approve": lambda run: run.approve(),
    "ask": lambda run: run.ask(question, 1),
    "cancel": lambda run: run.cancel(),
    "decisions": lambda run: run.decisions(),
    "describe": lambda run: run.describe(),
    "emergency_stop": lambda run: run.emergency_stop(),
    "events": lambda run: _read(run.events()),
    "explain": lambda run: run.explain(),
    "follow": lambda run: _read(run.follow()),
    "fork": lambda run: run.fork(),
    "history": lambda run: _read(run.history()),
    "ledger": lambda run: run.ledger(),
    "params": lambda run: run.params(),
    "pause": lambda run: run.pause(),
    "preview_fork": lambda run: run.preview_fork(),
    "published": lambda run: run.published(),
    "respond": lambda run: run.respond("step"),
    "result": lambda run: run.result(),
    "resume": lambda run: run.resume(),
    "retry": lambda run: run.retry(),
    "retry_step": lambda run: run.retry_step("step"),
    "runs": lambda run: run.runs(),
    "signal": lambda run: run.signal(word, "no"),
    "skip_step": lambda run: run.skip_step("step"),
    "status": lambda run: run.status(),
    "stream": lambda run: _read(run.stream("name")),
    "trace": lambda run: run.trace(),
    "update_params": lambda run: run.update_params({"limit": 1}),
    "view": lambda run: run.view(),
    "waits": lambda run: run.waits(),
    "watch": lambda run: _read(run.watch()),
}


@pytest.mark.parametrize("method", OF_ENGINES)
async def test_an_engine_refuses_on_another_loop(method: str) -> None:
    async with opened("sqlite:///:memory:") as engine:

        async def use() -> None:
            await OF_ENGINES[method](engine)

        with pytest.raises(InputError, match=ELSEWHERE):
            await asyncio.to_thread(lambda: asyncio.run(use()))
        assert (await engine.audit()).runs == 0
        assert await (await engine.start(returning())).result(timeout=60) == "here"


@pytest.mark.parametrize("method", OF_HANDLES)
async def test_a_handle_refuses_on_another_loop(method: str) -> None:
    async with opened("sqlite:///:memory:") as engine:
        run = await engine.start(listening())

        async def use() -> None:
            await OF_HANDLES[method](run)

        with pytest.raises(InputError, match=ELSEWHERE):
            await asyncio.to_thread(lambda: asyncio.run(use()))
        assert await run.status() is RunStatus.BLOCKED
        await run.signal(word, "yes")
        assert await run.result(timeout=60) == "yes"


@pytest.mark.parametrize(("kind", "tried"), [(Engine, OF_ENGINES), (Handle, OF_HANDLES)])
def test_every_method_that_is_awaited_was_tried(kind: type, tried: dict[str, Any]) -> None:
    found = {
        name
        for name, method in inspect.getmembers(kind, inspect.isfunction)
        if not name.startswith("_") and name not in SYNC
    }
    assert found == set(tried)


async def test_a_thread_uses_an_engine_through_the_loop_that_opened_it() -> None:
    async with opened("sqlite:///:memory:") as engine:
        loop = asyncio.get_running_loop()

        def start() -> str:
            begun = asyncio.run_coroutine_threadsafe(engine.start(returning()), loop)
            return asyncio.run_coroutine_threadsafe(begun.result().result(60), loop).result(60)

        assert await asyncio.to_thread(start) == "here"
