"""A program whose next decision can't be written: its run is parked, keeps its progress, and does not loop."""

import asyncio
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

import perdure
from perdure import (
    Engine,
    Handle,
    RunCancelled,
    RunDiverged,
    RunStatus,
    Settings,
    Signal,
    Transaction,
    task,
    workflow,
)
from perdure.core.journal import events as e
from perdure.engine.programs.rebuilding import Rebuilding
from perdure.store.commit.bundle import Bundle
from perdure.testing.probe import Probe
from tests.client.engines import ALWAYS_REPLAY, opened, recorded, until

pytestmark = pytest.mark.asyncio

word = Signal("unwritable.word", str)

executed: Counter[str] = Counter()
gates: list[asyncio.Event] = []

MODES = [None, ALWAYS_REPLAY, Settings(warm_memory=0, stepwise=True)]


@pytest.fixture(autouse=True)
def poison(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """A defect that no check foresees: what is published as `poison` can't be put in a bundle."""
    executed.clear()
    gates.clear()
    publish = Bundle.publish

    def refuse(bundle: Bundle, run_id: Any, name: str, *value: Any, **options: Any) -> None:
        if name == "poison":
            raise ValueError("a defect \0 \ud800 that nobody foresaw")
        publish(bundle, run_id, name, *value, **options)

    with monkeypatch.context() as patch:
        patch.setattr(Bundle, "publish", refuse)
        yield patch


@task(name="unwritable.pay")
async def pay(what: str) -> str:
    executed[what] += 1
    return what


@task(name="unwritable.pay-slowly")
async def pay_slowly(what: str) -> str:
    executed[what] += 1
    gates.append(asyncio.Event())
    await gates[-1].wait()
    return what


@workflow(name="unwritable.after-a-step")
async def after_a_step() -> str:
    paid = await pay("once")
    perdure.publish("poison", 1)
    return paid


@workflow(name="unwritable.after-a-signal")
async def after_a_signal() -> str:
    heard = await word.receive()
    perdure.publish("poison", 1)
    return heard


@workflow(name="unwritable.beside-a-step")
async def beside_a_step() -> list[str]:
    paying = perdure.join_set()
    paying.submit(pay_slowly("slow"))
    paying.submit(pay("quick"))
    paid = [await paying.next()]
    perdure.publish("poison", 1)
    return [*paid, await paying.next()]


@task(name="unwritable.book", transactional=True)
async def book(tx: Transaction) -> int:
    executed["book"] += 1
    return await tx.execute("INSERT INTO unwritable_rows (id) VALUES (1)")


@workflow(name="unwritable.after-rows")
async def after_rows() -> int:
    booked = await book()
    perdure.publish("poison", 1)
    return booked


async def assert_parked(run: Handle[Any]) -> None:
    with pytest.raises(RunDiverged, match="is parked: unwritable: what 'unwritable") as why:
        await run.result(60)
    assert r"(ValueError: a defect \x00 \ud800 that nobody foresaw)" in str(why.value)
    assert await run.status() is RunStatus.PARKED


async def until_idle(engine: Engine) -> None:
    await until(lambda: not Probe(engine).is_executing)


@pytest.mark.parametrize("settings", MODES)
async def test_a_step_before_it_is_kept_and_not_executed_again(
    shared_url: str, settings: Settings | None, poison: pytest.MonkeyPatch
) -> None:
    async with opened(shared_url, settings) as engine:
        run_id = (run := await engine.start(after_a_step())).run_id
        await assert_parked(run)
        assert len(await recorded(engine, run, e.InvokeCompleted)) == 1
    for _ in range(5):  # more often than a step may be in doubt
        async with opened(shared_url, settings) as engine:
            await assert_parked(engine.handle(run_id))
    poison.undo()
    async with opened(shared_url, settings) as engine:
        assert await engine.handle(run_id).result(60) == "once"
        assert await recorded(engine, engine.handle(run_id), e.Posted) == []
    assert executed == {"once": 1}


@pytest.mark.parametrize("settings", MODES)
async def test_the_signal_before_it_is_not_lost(
    shared_url: str, settings: Settings | None, poison: pytest.MonkeyPatch
) -> None:
    async with opened(shared_url, settings) as engine:
        run_id = (run := await engine.start(after_a_signal())).run_id
        await run.signal(word, "hello")
        await assert_parked(run)
    async with opened(shared_url, settings) as engine:
        await assert_parked(engine.handle(run_id))
    poison.undo()
    async with opened(shared_url, settings) as engine:
        assert await engine.handle(run_id).result(60) == "hello"


async def test_a_step_that_runs_beside_it_is_stopped_and_in_doubt(
    shared_url: str, poison: pytest.MonkeyPatch
) -> None:
    async with opened(shared_url) as engine:
        run_id = (run := await engine.start(beside_a_step())).run_id
        await assert_parked(run)
        await until_idle(engine)
    async with opened(shared_url) as engine:
        await assert_parked(engine.handle(run_id))
    assert executed == {"quick": 1, "slow": 1}
    poison.undo()
    async with opened(shared_url) as engine:
        await until(lambda: len(gates) == 2)
        gates[1].set()
        assert await engine.handle(run_id).result(60) == ["quick", "slow"]
        doubts = await recorded(engine, engine.handle(run_id), e.Posted)
        assert [doubt.label for doubt in doubts] == ["in doubt: retry"]
    assert executed == {"quick": 1, "slow": 2}


async def test_rows_before_it_are_committed_with_their_step_once(
    shared_url: str, poison: pytest.MonkeyPatch
) -> None:
    async with opened(shared_url) as engine:
        async with engine.transaction() as tx:
            await tx.execute("CREATE TABLE unwritable_rows (id integer)")
        run_id = (run := await engine.start(after_rows())).run_id
        await assert_parked(run)
    for _ in range(2):
        async with opened(shared_url) as engine:
            await assert_parked(engine.handle(run_id))
    poison.undo()
    async with opened(shared_url) as engine:
        assert await engine.handle(run_id).result(60) == 1
        async with engine.transaction() as tx:
            assert await tx.fetch_value("SELECT count(*) FROM unwritable_rows") == 1
            await tx.execute("DROP TABLE unwritable_rows")
    assert executed == {"book": 1}


async def test_it_is_cancelled_as_it_stands(shared_url: str) -> None:
    async with opened(shared_url) as engine:
        run = await engine.start(beside_a_step())
        await assert_parked(run)
        await run.cancel("enough")
        with pytest.raises(RunCancelled, match="was cancelled: enough"):
            await run.result(60)
        await until_idle(engine)


async def test_its_engine_leaves_it_alone(shared_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with opened(shared_url) as engine:
        run = await engine.start(after_a_signal())
        await run.signal(word, "hello")
        await assert_parked(run)
        await run.signal(word, "again")
        tried = 0

        def count(*_: object) -> None:
            nonlocal tried
            tried += 1
            raise AssertionError

        monkeypatch.setattr(Rebuilding, "advance", count)
        await asyncio.sleep(1.3)  # a census, and with it all messages that are due
        await assert_parked(run)
    assert tried == 0


async def test_a_run_that_can_not_begin_is_not_started(engine: Engine) -> None:
    @workflow(name="unwritable.at-once")
    async def at_once() -> None:
        perdure.publish("poison", 1)
        await word.receive()

    with pytest.raises(ValueError, match="a defect"):
        await engine.start(at_once())


async def test_a_row_that_the_database_refuses_parks_its_run_alone(
    shared_url: str, poison: pytest.MonkeyPatch
) -> None:
    poison.undo()
    publish = Bundle.publish

    def spoil(
        bundle: Bundle, run_id: Any, name: str, payload: Any, at_ms: int, *, again: bool
    ) -> None:
        publish(bundle, run_id, name, payload, at_ms, again=again)
        bundle.published = [(run_id, name, None, at_ms, None, again)]  # type: ignore[list-item]

    poison.setattr(Bundle, "publish", spoil)
    async with opened(shared_url) as engine:
        run_id = (run := await engine.start(after_a_step())).run_id
        with pytest.raises(RunDiverged, match="BundleRefused: the database refused a row"):
            await run.result(60)
        assert len(await recorded(engine, run, e.InvokeCompleted)) == 1
    poison.undo()
    async with opened(shared_url) as engine:
        assert await engine.handle(run_id).result(60) == "once"
    assert executed == {"once": 1}
