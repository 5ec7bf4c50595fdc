"""Start keys whose run failed or was cancelled: returned, run again, or refused. And how a run is found by its key."""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

import perdure
from perdure import (
    Engine,
    Handle,
    InputError,
    KeyReused,
    KeySpent,
    RunStatus,
    Signal,
    SyncEngine,
    task,
    workflow,
)
from perdure.core.journal import events as e
from perdure.testing.explorer import Killed, World, explore
from tests.client.engines import assert_cancelled, opened, until_status
from tests.store.builders import HOST, Driven

proceed = Signal("keys.proceed", bool)


class Refused(Exception):
    pass


troubles: list[str] = []


@task(name="keys.work")
async def work(number: int) -> int:
    if troubles:
        raise Refused(number)
    return number + 1


@workflow(name="keys.job")
async def job(number: int, links: int = 0) -> int:
    if links:
        await perdure.continue_as_new(job(number, links - 1))
    return await work(number)


@workflow(name="keys.waiting")
async def waiting() -> bool:
    return await proceed.receive()


@perdure.graph(name="keys.drawn", version="1")
async def drawn(number: int) -> int:
    return await work(number)


@pytest.fixture(autouse=True)
def is_fixed() -> Callable[[], None]:
    """Lets tests fix the cause of the task's failure."""
    troubles[:] = ["broken"]
    return troubles.clear


async def failed(engine: Engine, number: int = 1, links: int = 0, key: str = "k") -> Handle[int]:
    run = await engine.start(job(number, links), key=key)
    with pytest.raises(Refused):
        await run.result(60)
    return run


async def test_start_returns_a_failed_run_with_a_warning(
    engine: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    run = await failed(engine)
    assert run.is_new
    assert "perdure.client" not in {each.name for each in caplog.records}
    with caplog.at_level(logging.WARNING, "perdure.client"):
        again = await engine.start(job(1), key="k")
    assert (again.run_id, again.is_new) == (run.run_id, False)
    (record,) = [each for each in caplog.records if each.name == "perdure.client"]
    assert "key 'k' of workflow 'keys.job' is held by run" in record.getMessage()
    assert "which failed" in record.getMessage()
    with pytest.raises(KeyReused):
        await engine.start(job(2), key="k")


@pytest.mark.parametrize("links", [0, 2])
async def test_rerun_starts_a_new_run_under_the_key_of_a_failed_one(
    engine: Engine, is_fixed: Callable[[], None], links: int
) -> None:
    """The last run of a chain decides, and the first holds the key."""
    run = await failed(engine, links=links)
    is_fixed()
    again = await engine.start(job(5), key="k", if_ended="rerun")
    assert again.is_new
    assert again.run_id != run.run_id
    assert await again.result(60) == 6
    found = await engine.find(job, "k")
    assert found is not None
    assert found.run_id == again.run_id
    assert await run.status() is RunStatus.FAILED
    third = await engine.start(job(5), key="k", if_ended="rerun")
    assert (third.run_id, third.is_new) == (again.run_id, False)


async def test_run_can_be_rerun_as_often_as_it_fails(
    engine: Engine, is_fixed: Callable[[], None]
) -> None:
    runs = {(await failed(engine)).run_id}
    for _ in range(2):
        again = await engine.start(job(1), key="k", if_ended="rerun")
        with pytest.raises(Refused):
            await again.result(60)
        runs.add(again.run_id)
    is_fixed()
    last = await engine.start(job(1), key="k", if_ended="rerun")
    assert await last.result(60) == 2
    assert len({*runs, last.run_id}) == 4


async def test_raise_refuses_the_key_of_an_unsuccessful_run(engine: Engine) -> None:
    run = await failed(engine)
    with pytest.raises(KeySpent, match=r"'keys\.job' is held by run .* which failed") as refused:
        await engine.start(job(1), key="k", if_ended="raise")
    assert (refused.value.run_id, refused.value.status) == (run.run_id, "failed")
    assert (await engine.audit()).runs == 1


async def test_cancelled_run_is_rerun_and_an_open_one_is_not(engine: Engine) -> None:
    run = await engine.start(waiting(), key="k")
    for policy in ("return", "rerun", "raise"):
        same = await engine.start(waiting(), key="k", if_ended=policy)
        assert same.run_id == run.run_id
    await run.cancel()
    await assert_cancelled(run)
    with pytest.raises(KeySpent, match="which was cancelled"):
        await engine.start(waiting(), key="k", if_ended="raise")
    again = await engine.start(waiting(), key="k", if_ended="rerun")
    await again.signal(proceed, True)
    assert await again.result(60) is True
    done = await engine.start(waiting(), key="k", if_ended="raise")
    assert done.run_id == again.run_id


async def test_starts_that_rerun_at_once_give_one_run(
    engine: Engine, is_fixed: Callable[[], None]
) -> None:
    run = await failed(engine)
    is_fixed()
    starts = [engine.start(job(1), key="k", if_ended="rerun") for _ in range(10)]
    runs = await asyncio.gather(*starts)
    (run_id,) = {each.run_id for each in runs}
    assert run_id != run.run_id
    assert [each.is_new for each in runs].count(True) == 1
    assert {await each.result(60) for each in runs} == {2}
    assert (await engine.audit()).runs == 2


async def test_engines_that_rerun_at_once_give_one_run(
    shared_url: str, is_fixed: Callable[[], None]
) -> None:
    async with opened(shared_url) as one, opened(shared_url) as other:
        keys = [f"k{number}" for number in range(10)]
        for key in keys:
            await failed(one, key=key)
        is_fixed()
        calls = [
            engine.start_many([job(1) for _ in keys], keys=order, if_ended="rerun")
            for engine, order in ((one, keys), (other, keys[::-1]))
        ]
        ours, theirs = await asyncio.gather(*calls)
        assert {run.run_id for run in ours} == {run.run_id for run in theirs}
        assert [await run.result(60) for run in ours] == [2] * len(keys)
        assert [run.is_new for run in [*ours, *theirs]].count(True) == len(keys)
        assert (await one.audit()).runs == 2 * len(keys)


async def test_start_many_reruns_what_failed_and_returns_what_did_not(
    engine: Engine, is_fixed: Callable[[], None]
) -> None:
    run = await failed(engine, key="a")
    is_fixed()
    done = await engine.start(job(3), key="b")
    await done.result(60)
    runs = await engine.start_many([job(1), job(3)], keys=["a", "b"], if_ended="rerun")
    assert [each.is_new for each in runs] == [True, False]
    assert runs[0].run_id != run.run_id
    assert runs[1].run_id == done.run_id
    assert [await each.result(60) for each in runs] == [2, 4]


async def test_rerun_joins_a_transaction_or_never_happens(
    engine: Engine, is_fixed: Callable[[], None]
) -> None:
    run = await failed(engine)
    is_fixed()
    with suppress(ZeroDivisionError):
        async with engine.transaction():
            lost = await engine.start(job(1), key="k", if_ended="rerun")
            assert lost.run_id != run.run_id
            raise ZeroDivisionError
    held = await engine.find(job, "k")
    assert held is not None
    assert held.run_id == run.run_id
    async with engine.transaction():
        again = await engine.start(job(1), key="k", if_ended="rerun")
        same = await engine.start(job(1), key="k", if_ended="rerun")
        assert same.run_id == again.run_id
        inside = await engine.find(job, "k")
        assert inside is not None
        assert inside.run_id == again.run_id
    assert await again.result(60) == 2


async def test_graph_is_rerun_under_its_key(engine: Engine, is_fixed: Callable[[], None]) -> None:
    run = await engine.start(drawn(1), key="k")
    with pytest.raises(Refused):
        await run.result(60)
    is_fixed()
    again = await engine.start(drawn(1), key="k", if_ended="rerun")
    assert await again.result(60) == 2
    await engine.deploy(drawn)
    await engine.activate("keys.drawn", "1")
    deployed = await engine.start_graph("keys.drawn", {"number": 1}, key="k", if_ended="raise")
    assert deployed.run_id == again.run_id


async def test_find_gives_the_run_of_a_key_in_its_scope_or_none(engine: Engine) -> None:
    run = await engine.start(waiting(), key="k", scope="mine")
    assert await engine.find(waiting, "k") is None
    assert await engine.find(job, "k", scope="mine") is None
    for program in (waiting, "keys.waiting"):
        found = await engine.find(program, "k", scope="mine")
        assert found is not None
        assert (found.run_id, found.is_new) == (run.run_id, False)
    await run.signal(proceed, True)
    await until_status(run, RunStatus.COMPLETED)
    assert await engine.find(waiting, "k", scope="mine") is not None


@pytest.mark.parametrize("wrong", ["again", None, 1])
async def test_other_policies_and_programs_are_refused(wrong: Any) -> None:
    async with Engine("sqlite:///:memory:") as engine:
        with pytest.raises(
            InputError, match=r"if_ended is .* use one of 'return', 'rerun', 'raise'"
        ):
            await engine.start(job(1), key="k", if_ended=wrong)
        with pytest.raises(InputError, match="if_ended"):
            await engine.start_many([job(1)], keys=["k"], if_ended=wrong)
        with pytest.raises(InputError, match="is not a program"):
            await engine.find(work, "k")  # type: ignore[arg-type]
        with pytest.raises(InputError, match="a key"):
            await engine.find(job, "")
        assert (await engine.audit()).runs == 0


def test_sync_engine_reruns_and_finds(is_fixed: Callable[[], None]) -> None:
    with SyncEngine("sqlite:///:memory:") as engine:
        run = engine.start(job(1), key="k")
        with pytest.raises(Refused):
            run.result(60)
        is_fixed()
        again = engine.start(job(1), key="k", if_ended="rerun")
        assert (again.is_new, again.result(60)) == (True, 2)
        found = engine.find(job, "k")
        assert found is not None
        assert found.run_id == again.run_id
        assert engine.find(job, "other") is None


async def hand_over(world: World) -> None:
    """A host dies while it replaces a failed run; the next one reads the key's holder and completes the replacement."""
    old = Driven(key="k")
    await world.store.commit(old.start())
    await world.store.commit(old.appending(e.ExecutionFailed(released=1, payload=b"{}")))
    made = []
    while True:
        holder = await world.store.run_by_key("", "checkout", "k")
        assert holder is not None, "no run holds the key"
        if holder.run_id != old.run_id:
            break
        new = Driven(key="k", owner=HOST)
        made.append(new.run_id)
        try:
            await world.host_store().commit(new.start(replaces=old.run_id))
        except Killed:
            continue
    assert holder.run_id == made[-1]
    rows = [await world.store.run(run_id) for run_id in [old.run_id, *made]]
    assert [row.run_id for row in rows if row is not None] == [old.run_id, made[-1]]


async def test_key_is_handed_over_once_wherever_the_host_dies() -> None:
    explored = await explore(hand_over, max_faults=2)
    assert {"commit 1: crash before", "commit 1: crash after"} <= explored.faults
