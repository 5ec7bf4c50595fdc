"""Limits on open runs, seen by callers of an engine."""

from typing import Any

import pytest

import perdure
from perdure import (
    Actor,
    Engine,
    GraphProgram,
    InputError,
    KeyReused,
    Limit,
    LimitReached,
    Rate,
    RunCancelled,
    RunStatus,
    Settings,
    SyncEngine,
    load_graph,
    task,
    workflow,
)
from perdure.testing.probe import Probe
from tests.client.engines import assert_sound, killed, opened, until


class Gate:
    """Tasks wait until it is opened."""

    def __init__(self) -> None:
        self.is_open = False

    def set(self) -> None:
        self.is_open = True

    async def wait(self) -> None:
        await until(lambda: self.is_open)


go = Gate()
executed: list[int] = []


@pytest.fixture(autouse=True)
def closed_gate() -> None:
    go.is_open = False
    executed.clear()


@task(name="limited_work")
async def work(n: int) -> int:
    executed.append(n)
    await go.wait()
    return n


@workflow(name="limited_one", limit=Limit("one", running=1))
async def one(n: int) -> int:
    return await work(n)


@workflow(name="limited_by", limit=Limit("by", running=1, by=lambda _, customer: customer))
async def by_customer(n: int, customer: str = "acme") -> int:
    return await work(n)


@workflow(name="limited_reject", limit=Limit("reject", running=1, over="reject", retry_after=7))
async def rejecting(n: int) -> int:
    return await work(n)


@workflow(name="limited_join", limit=Limit("join", running=1, over="join"))
async def joining(n: int) -> int:
    return await work(n)


@workflow(name="limited_replace", limit=Limit("replace", running=1, over="replace"))
async def replacing(n: int) -> int:
    return await work(n)


@workflow(name="limited_short_line", limit=Limit("short", running=1, queued=1))
async def short_line(n: int) -> int:
    return await work(n)


@workflow(name="limited_parent", limit=Limit("parent", running=1))
async def parent(n: int) -> int:
    return await one(n) + await child(n)


@workflow(name="limited_child", limit=Limit("parent", running=1))
async def child(n: int) -> int:
    return n


@workflow(name="limited_chain", limit=Limit("chain", running=1))
async def chain(left: int) -> int:
    if left:
        await perdure.continue_as_new(chain(left - 1))
    return await work(left)


GRAPH = GraphProgram(
    load_graph("""
graph: limited_graph
input: {number: int}
activities:
  work: {worker: limited_work, input: {n: number}, output: {answer: result}}
  done: {output: answer}
transitions:
  - work -> done
"""),
    limit=Limit("graph", running=1, by=lambda number: number % 2),
)


async def statuses(*handles: Any) -> list[RunStatus]:
    return [await handle.status() for handle in handles]


async def begun(count: int) -> None:
    await until(lambda: len(executed) >= count)


async def test_a_start_over_the_limit_is_pending_and_begins_when_a_slot_is_free(
    engine: Engine,
) -> None:
    first, second, third = [await engine.start(one(n)) for n in range(3)]
    await begun(1)
    assert await statuses(second, third) == [RunStatus.PENDING] * 2
    go.set()
    assert [await each.result() for each in (third, second, first)] == [2, 1, 0]
    assert executed[0] == 0
    assert sorted(executed) == [0, 1, 2]


async def test_a_limit_counts_by_the_key_that_by_returns(engine: Engine) -> None:
    acme, other, later = [
        await engine.start(by_customer(n, customer))
        for n, customer in enumerate(("acme", "other", "acme"))
    ]
    await begun(2)
    assert await later.status() is RunStatus.PENDING
    (held, _) = await engine.limits.list("by")
    assert (held.key, held.holding, held.waiting, held.running) == ("acme", 1, 1, 1)
    go.set()
    assert [await each.result() for each in (acme, other, later)] == [0, 1, 2]


async def test_reject_raises_with_the_time_to_wait_and_starts_nothing(engine: Engine) -> None:
    first = await engine.start(rejecting(1), key="a")
    with pytest.raises(LimitReached) as refused:
        await engine.start(rejecting(2), key="b")
    assert refused.value.retry_after == 7
    assert (await engine.start(rejecting(1), key="a")).run_id == first.run_id
    assert await engine.find(rejecting, "b") is None
    go.set()
    await first.result()
    assert await (await engine.start(rejecting(2), key="b")).result() == 2


async def test_join_returns_the_run_that_holds_the_slot(engine: Engine) -> None:
    first, second = await engine.start(joining(1)), await engine.start(joining(2))
    assert first.run_id == second.run_id
    go.set()
    assert await second.result() == 1
    third = await engine.start(joining(3))
    assert await third.result() == 3


async def test_replace_cancels_what_holds_the_slot_and_what_waits(engine: Engine) -> None:
    runs = [await engine.start(replacing(n)) for n in range(3)]
    for replaced in runs[:-1]:
        with pytest.raises(RunCancelled, match="replaced"):
            await replaced.result()
    go.set()
    assert await runs[-1].result() == 2
    assert 1 not in executed


async def test_a_full_line_rejects(engine: Engine) -> None:
    runs = [await engine.start(short_line(n)) for n in range(2)]
    with pytest.raises(LimitReached):
        await engine.start(short_line(2))
    go.set()
    assert [await run.result() for run in runs] == [0, 1]


async def test_child_runs_pass_the_limits_of_runs(engine: Engine) -> None:
    go.set()
    assert await (await engine.start(parent(3))).result() == 6


async def test_a_chain_holds_its_slot_until_its_last_run_has_ended(engine: Engine) -> None:
    first, second = await engine.start(chain(2)), await engine.start(chain(0))
    await begun(1)
    assert await second.status() is RunStatus.PENDING
    go.set()
    assert [await first.result(), await second.result()] == [0, 0]


async def test_graphs_have_limits(engine: Engine) -> None:
    runs = [await engine.start(GRAPH(number=n)) for n in (1, 2, 3)]
    await begun(2)
    assert await runs[2].status() is RunStatus.PENDING
    await runs[2].cancel("changed my mind")
    with pytest.raises(RunCancelled):
        await runs[2].result()
    go.set()
    assert [await run.result() for run in runs[:2]] == [1, 2]
    assert 3 not in executed


@pytest.mark.parametrize("by_act", [False, True])
async def test_a_cancelled_pending_run_ends_at_once_and_executes_nothing(
    engine: Engine, by_act: bool
) -> None:
    first, second = await engine.start(one(0)), await engine.start(one(1), key="k")
    receipt = await second.cancel("no", by=Actor("ann") if by_act else None)
    assert (await receipt.decision(20)).accepted
    with pytest.raises(RunCancelled, match="no"):
        await second.result()
    kinds = [type(entry.event).__name__ async for entry in second.events()]
    assert kinds[0] == "ExecutionStarted"
    assert kinds[-2:] == ["CancelRequested", "ExecutionCancelled"]
    go.set()
    assert await first.result() == 0
    assert executed == [0]
    again = await engine.start(one(1), key="k", if_ended="rerun")
    assert await again.result() == 1


async def test_a_pending_run_holds_its_key_and_its_arguments(engine: Engine) -> None:
    await engine.start(one(0))
    pending = await engine.start(one(1), key="k")
    assert (await engine.start(one(1), key="k")).run_id == pending.run_id
    with pytest.raises(KeyReused):
        await engine.start(one(2), key="k")
    found = await engine.find(one, "k")
    assert found is not None
    assert found.run_id == pending.run_id
    go.set()
    assert await pending.result() == 1


async def test_signals_to_a_pending_run_wait_for_it(engine: Engine) -> None:
    answer = perdure.Signal("limited_answer", int)

    @workflow(name="limited_waits", limit=Limit("waits", running=1))
    async def waits() -> int:
        return await answer.receive()

    first, second = await engine.start(waits()), await engine.start(waits())
    await second.signal(answer, 2)
    assert await second.status() is RunStatus.PENDING
    await first.signal(answer, 1)
    assert [await first.result(), await second.result()] == [1, 2]


async def test_forks_hold_no_slot_and_pending_runs_have_nothing_to_fork(engine: Engine) -> None:
    first, second = await engine.start(one(0)), await engine.start(one(1))
    with pytest.raises(InputError, match="not begun"):
        await second.fork()
    await begun(1)
    forked = await first.fork()
    await begun(2)
    go.set()
    assert [await each.result() for each in (first, second, forked)] == [0, 1, 0]


async def test_scopes_have_limits_of_their_own_unless_a_limit_spans_them(engine: Engine) -> None:
    @workflow(name="limited_spanning", limit=Limit("span", running=1, spans_scopes=True))
    async def spanning(n: int) -> int:
        return await work(n)

    own = [await engine.start(one(n), scope=scope) for n, scope in enumerate(("a", "b"))]
    await begun(2)
    shared = [await engine.start(spanning(n), scope=scope) for n, scope in ((2, "a"), (3, "b"))]
    await begun(3)
    assert await shared[1].status() is RunStatus.PENDING
    scopes = {each.scope for each in await engine.limits.list()}
    assert scopes == {"a", "b", None}
    go.set()
    assert [await run.result() for run in (*own, *shared)] == [0, 1, 2, 3]


@pytest.mark.parametrize("scope", ['b"]', 'a","x', "a/b", "a\\", "null"])
async def test_no_scope_and_no_key_reaches_the_slots_of_another(engine: Engine, scope: str) -> None:
    first = await engine.start(by_customer(0, "x"), scope="a")
    others = [
        await engine.start(by_customer(1, "x"), scope=scope),
        await engine.start(by_customer(2, f'x",{scope}'), scope="a"),
        await engine.start(by_customer(3, "x")),
    ]
    await begun(4)
    go.set()
    assert [await run.result() for run in (first, *others)] == [0, 1, 2, 3]


async def test_an_operators_numbers_hold_until_they_are_reset(engine: Engine) -> None:
    runs = [await engine.start(one(n)) for n in range(3)]
    await begun(1)
    await engine.limits.set("one", running=2, reason="a quiet night", by="ann")
    await begun(2)
    (info,) = await engine.limits.list("one")
    assert (info.running, info.is_set, info.reason) == (2, True, "a quiet night")
    assert await engine.limits.reset("one")
    assert not await engine.limits.reset("one")
    assert (await statuses(*runs)).count(RunStatus.PENDING) == 1
    go.set()
    assert [await run.result() for run in runs] == [0, 1, 2]


async def test_many_starts_share_a_limit(engine: Engine) -> None:
    go.set()
    runs = await engine.start_many([one(n) for n in range(12)])
    assert [await run.result() for run in runs] == list(range(12))


async def test_explain_says_for_what_a_pending_run_waits(engine: Engine) -> None:
    await engine.start(one(0))
    pending = await engine.start(one(1))
    explanation = await pending.explain()
    assert "waits for limit 'one': 1 of 1 runs are open" in explanation.summary
    assert "perdure limits set one --running 2" in explanation.summary
    assert "it has not begun" in str(await pending.describe())
    go.set()
    assert await pending.result() == 1


async def test_a_run_that_was_admitted_when_its_host_died_begins_elsewhere(shared_url: str) -> None:
    async with killed(shared_url) as first:
        runs = [await first.start(one(n), key=str(n)) for n in range(2)]
        await begun(1)
    go.set()
    async with opened(shared_url) as second:
        results = [await second.handle(run.run_id).result() for run in runs]
    assert results == [0, 1]


async def test_a_front_end_starts_limited_runs_for_the_hosts(shared_url: str) -> None:
    go.set()
    async with opened(shared_url), Engine(shared_url, hosts=False) as front:
        runs = [await front.start(one(n)) for n in range(3)]
        assert [await run.result() for run in runs] == [0, 1, 2]


async def test_a_limited_start_is_refused_inside_a_transaction(engine: Engine) -> None:
    with pytest.raises(InputError, match="inside a transaction"):
        async with engine.transaction():
            await engine.start(one(1))


async def test_dequeue_and_start_says_what_it_started(shared_url: str) -> None:
    async with opened(shared_url, Settings(heartbeat=60, stale_after=300)) as engine:
        await engine.start(one(0))
        pending = await engine.start(one(1))
        await begun(1)
        Probe(engine)
        await engine.limits.set("one", running=2)
        await engine.limits.dequeue_and_start()
        await begun(2)
        assert await engine.limits.dequeue_and_start() == []
        go.set()
        assert await pending.result() == 1


def test_the_sync_engine_has_limits(engine_url: str) -> None:
    @task(name="limited_sync_work")
    def at_once(n: int) -> int:
        return n

    @workflow(name="limited_sync", limit=Limit("sync", running=1))
    async def limited(n: int) -> int:
        return await at_once(n)

    with SyncEngine(engine_url) as engine:
        runs = [engine.start(limited(n), priority=n) for n in range(3)]
        assert [run.result() for run in runs] == [0, 1, 2]
        assert [each.name for each in engine.wait_for(engine.limits.list())] == ["sync"]


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"name": "", "running": 1}, "the name of a limit"),
        ({}, "limits nothing"),
        ({"running": -1}, "running is -1"),
        ({"running": True}, "running is True"),
        ({"running": 1, "over": "wait"}, "over is 'wait'"),
        ({"running": 1, "queued": "many"}, "queued is 'many'"),
        ({"running": 1, "by": 3}, "by is 3"),
        ({"rate": 5}, "rate is 5"),
        ({"running": 1, "spans_scopes": 1}, "spans_scopes is 1"),
    ],
)
def test_bad_limits_are_refused(options: dict[str, Any], what: str) -> None:
    with pytest.raises(InputError, match=what):
        Limit(**{"name": "x", **options})


def test_bad_rates_and_what_is_no_limit_are_refused() -> None:
    anything: Any = 3
    with pytest.raises(InputError, match="the count of a rate is 0"):
        Rate(0, per=1)
    with pytest.raises(InputError, match="per is 0"):
        Rate(1, per=0)
    with pytest.raises(InputError, match="limit is 3"):
        workflow(limit=anything)(one.fn)


async def test_by_must_return_a_text_or_a_whole_number(engine: Engine) -> None:
    @workflow(name="limited_badly", limit=Limit("bad", running=1, by=lambda n: [n]))
    async def badly(n: int) -> int:
        return n

    with pytest.raises(InputError, match="counts by"):
        await engine.start(badly(1))
    await assert_sound(engine)
