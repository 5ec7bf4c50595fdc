"""Decisions on acts: found for open and ended runs by the same verb, and by SQL."""

from datetime import timedelta
from typing import Any

import pytest

from perdure import (
    Actor,
    DecidedAct,
    Denied,
    Engine,
    Handle,
    Roles,
    RunStatus,
    Signal,
    SignalReused,
    workflow,
)
from perdure.store.sqlite.store import SqliteStore
from tests.client.engines import opened, store_of, until_store
from tests.store.builders import raw

WAIT = timedelta(seconds=60)
ADA = Actor("ada", "engineer")

go = Signal("decisions.go", int)


@workflow(name="decisions.waits")
async def waits() -> int:
    return await go.receive()


async def by_sql(engine: Engine, run: Handle[Any]) -> list[tuple[Any, ...]]:
    columns = "type, signal_id, actor, role, reason, code, seq, is_accepted"
    store = store_of(engine)
    view = "perdure_v1_decisions" if isinstance(store, SqliteStore) else "{}perdure_v1_decisions"
    found = await raw(store, f"SELECT run_id, {columns} FROM {view}")
    return [(*row[1:-1], bool(row[-1])) for row in found if row[0] == run.run_id]


async def decided(run: Handle[Any], count: int = 1) -> list[DecidedAct]:
    """The decisions, when there are that many."""

    async def are_there() -> bool:
        return len(await run.decisions()) == count

    await until_store(are_there)
    return await run.decisions()


async def test_forks_of_an_ended_run_say_who_made_them(engine_url: str) -> None:
    async with opened(engine_url) as engine:
        run = await engine.start(waits())
        await (await run.pause("lunch", by=ADA, id="p")).decision(WAIT)
        await run.resume(by=ADA, id="r")
        await run.signal(go, 1)
        await run.result()
        fork = await run.fork(reason="again", by=ADA, id="f")
        late = await run.pause("too late", by=ADA, id="late")
        assert (await late.decision(WAIT)).code == "RUN_TERMINAL"

        paused, resumed, forked, refused = await decided(run, 4)
        assert [each.signal_id for each in (paused, resumed)] == ["p", "r"]
        assert paused.seq is not None
        assert (paused.is_accepted, paused.reason) == (True, "lunch")
        assert (forked.type, forked.by, forked.role, forked.reason) == (
            *("RETRY_RUN", "ada", "engineer", "again"),
        )
        assert (forked.is_accepted, forked.seq, forked.fork) == (True, None, fork.run_id)
        assert (refused.is_accepted, refused.code, refused.fork) == (False, "RUN_TERMINAL", None)
        assert sorted(await by_sql(engine, run), key=str) == sorted(
            (
                (x.type, x.signal_id, x.by, x.role, x.reason, x.code, x.seq, x.is_accepted)
                for x in await run.decisions()
            ),
            key=str,
        )
        assert await fork.result() == 1


async def test_fork_of_an_open_run_is_in_its_journal(engine_url: str) -> None:
    async with opened(engine_url) as engine:
        run = await engine.start(waits())
        fork = await run.fork(reason="try", by=ADA, id="f")

        (forked,) = await decided(run)
        assert forked.seq is not None
        assert (forked.by, forked.fork) == ("ada", fork.run_id)
        for each in (run, fork):
            await each.signal(go, 1)
            await each.result()


async def test_denied_act_on_an_ended_run_is_recorded(engine_url: str) -> None:
    async with Engine(engine_url, authorizer=Roles()) as engine:
        run = await engine.start(waits())
        await run.signal(go, 1)
        await run.result()
        with pytest.raises(Denied):
            await run.fork(by=Actor("eve", "viewer"), reason="mischief")

        (denied,) = await decided(run)
        assert (denied.by, denied.code) == ("eve", "AUTHZ_DENIED")


@pytest.mark.parametrize("is_over", [False, True], ids=["open", "ended"])
async def test_fork_and_another_act_can_not_have_one_id(engine_url: str, is_over: bool) -> None:
    async with opened(engine_url) as engine:
        run = await engine.start(waits())
        assert (await (await run.pause(id="p")).decision(WAIT)).accepted
        await (await run.resume()).decision(WAIT)
        if is_over:
            await run.signal(go, 1)
            await run.result()
        with pytest.raises(SignalReused, match="'p'"):
            await run.fork(id="p")
        fork = await run.fork(id="f")
        assert (await run.fork(id="f")).run_id == fork.run_id
        taken = await (await run.pause(id="f")).decision(WAIT)
        assert (taken.accepted, taken.code) == (False, "ID_TAKEN")
        assert {each.signal_id for each in await run.decisions()} >= {"p", "f"}
        for each in (run, fork):
            if await each.status() is not RunStatus.COMPLETED:
                await each.signal(go, 1, id="end")
            await each.result()
