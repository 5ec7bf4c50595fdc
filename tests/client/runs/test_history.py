"""The history of a run, as its handle reads it: contract events, view and ledger."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any, TypeVar

import pytest

import perdure
from perdure import (
    ContractEvent,
    Engine,
    EventType,
    GraphBuilder,
    GraphProgram,
    Handle,
    InputError,
    NotCommitted,
    Retry,
    RunDiverged,
    RunFailed,
    RunSnapshot,
    Signal,
    SnapshotProjector,
    SnapshotStatus,
    StepStatus,
    SyncEngine,
    task,
    workflow,
)
from perdure.core.errors import CorruptJournal, EngineClosed
from perdure.core.journal.contract import keys
from perdure.host.runs import views
from perdure.testing.probe import Probe
from tests.client.engines import opened, store_of, until
from tests.store.builders import raw

T = TypeVar("T")

go = Signal("history.go", int)


@task(name="history.double")
async def double(n: int) -> int:
    return 2 * n


@task(name="history.refuse", retry=Retry(attempts=2, first=0.001))
async def refuse(card: str) -> None:
    raise ValueError(f"card {card} is refused")


@workflow(name="history.paying")
async def paying(card: str) -> int:
    due = await double(21)
    await refuse(card)
    return due


@workflow(name="history.waiting")
async def waiting(n: int) -> int:
    return await double(n + await go.receive())


@workflow(name="history.chaining")
async def chaining(n: int) -> int:
    n = await double(n)
    if n < 8:
        await perdure.continue_as_new(chaining(n))
    return n


@workflow(name="history.reading_clocks")
async def reading_clocks(count: int) -> None:
    for _ in range(count):
        perdure.now()


def graph_program() -> GraphProgram[..., Any]:
    b = GraphBuilder("history_graph")
    b.worker("add", double, input={"n": 4}, output={"four": "result"})
    b.hook("wait", go, output={"value": "result"})
    b.output("done", "value")
    b.chain("add", "wait", "done")
    return GraphProgram[..., Any](b.build())


graph_run = graph_program()


@pytest.fixture
async def memory() -> AsyncIterator[Engine]:
    async with opened("sqlite:///:memory:") as engine:
        yield engine


async def all_of(items: AsyncIterator[T]) -> list[T]:
    return [item async for item in items]


async def assert_history_is_whole(engine: Engine, run: Handle[Any]) -> list[ContractEvent]:
    """The history has each entry of the journal, and the view is its projection."""
    entries = await store_of(engine).entries(run.run_id)
    history = await all_of(run.history())
    assert [event.seq for event in history] == [entry.seq for entry in entries]
    assert [event.emitted_at_ms for event in history] == [entry.at_ms for entry in entries]
    made = list(keys(run.run_id, history[0].engine_run_ref.version, entries))
    assert [event.idempotency_key for event in history] == made
    assert await run.view() == SnapshotProjector().project_run(run.run_id, history)
    return history


async def test_the_history_of_a_failed_run_tells_attempts_errors_and_the_root_cause(
    engine: Engine,
) -> None:
    run = await engine.start(paying("42"))
    with pytest.raises(ValueError, match="card 42"):
        await run.result(60)
    history = await assert_history_is_whole(engine, run)
    starts = [event for event in history if event.type is EventType.STEP_STARTED]
    assert [(event.step, event.engine_attempt) for event in starts] == [
        ("root.0", 1),
        ("root.1", 1),
        ("root.1", 2),
    ]
    failed = next(event for event in history if event.type is EventType.STEP_FAILED)
    assert failed.data["error"]["message"] == "card 42 is refused"
    view = await run.view()
    assert (view.status, view.failed_steps, view.is_over) == (SnapshotStatus.FAILED, 1, True)
    assert view.root_cause is not None
    assert (view.root_cause.step, view.root_cause.error.code) == ("root.1", "ValueError")
    assert view.root_cause.error.retryable
    assert [(each.name, each.status) for each in view.steps] == [
        ("history.double", StepStatus.SUCCESS),
        ("history.refuse", StepStatus.FAILED),
    ]


async def test_two_runs_that_fail_of_one_cause_have_one_fingerprint(memory: Engine) -> None:
    prints = set()
    for card in ("42", "4711"):
        run = await memory.start(paying(card))
        with pytest.raises(ValueError, match=card):
            await run.result(60)
        error = (await run.view()).error
        assert error is not None
        prints.add(error.fingerprint)
    assert len(prints) == 1


async def test_the_step_of_a_child_run_names_that_run(memory: Engine) -> None:
    @workflow
    async def paying_by_child() -> int:
        return await paying("42")

    run = await memory.start(paying_by_child())
    with pytest.raises(ValueError, match="card 42"):
        await run.result(60)
    (step,) = (await run.view()).steps
    assert (step.kind, step.name) == ("run", "history.paying")
    assert step.child_run_id is not None
    child = await memory.handle(step.child_run_id).view()
    assert child.error == (await run.view()).error
    assert child.root_cause is not None
    assert child.root_cause.step == "root.1"


async def test_a_graph_has_history_view_and_ledger_as_a_workflow_has(engine: Engine) -> None:
    run = await engine.start(graph_run())
    await run.signal(go, 5)
    assert await run.result(60) == 5
    history = await assert_history_is_whole(engine, run)
    assert history[0].data["trigger"]
    view = await run.view()
    assert view.status is SnapshotStatus.COMPLETED
    assert {each.step.partition(",")[0]: each.status for each in view.steps} == {
        "add": StepStatus.SUCCESS,
        "wait": StepStatus.SUCCESS,
    }
    texts = [str(account) for account in await run.ledger()]
    assert any(text.startswith("step:add") and "leg 1 done" in text for text in texts)


async def test_a_history_can_begin_at_any_event(memory: Engine) -> None:
    run = await memory.start(paying("42"))
    with pytest.raises(ValueError, match="card"):
        await run.result(60)
    history = await all_of(run.history())
    for first in range(len(history) + 2):
        assert await all_of(run.history(first)) == history[first:]
        assert await all_of(run.follow(first)) == history[first:]


async def test_the_histories_of_a_chain_follow_each_other(engine: Engine) -> None:
    run = await engine.start(chaining(1))
    assert await run.result(60) == 8
    history = await all_of(run.history())
    assert [event.offset for event in history] == list(range(len(history)))
    starts = [event for event in history if event.type is EventType.RUN_STARTED]
    assert [event.seq for event in starts] == [0, 0, 0]
    assert starts[1].parent_event == history[starts[1].offset - 1].event_id
    middle = engine.handle(list(await run.runs())[1])
    assert await all_of(middle.history()) == history
    for first in (1, starts[1].offset - 1, starts[1].offset, starts[2].offset, len(history) - 1):
        assert await all_of(middle.history(first)) == history[first:]
        assert await all_of(run.follow(first)) == history[first:]
    view = await middle.view()
    assert view == SnapshotProjector().project_run(run.run_id, history)
    assert (view.run_id, len(view.steps)) == (run.run_id, 3)
    assert view.current_run_id == list(await run.runs())[-1]
    assert {account.run_id for account in await run.ledger()} == set(await run.runs())


async def test_events_are_followed_as_they_become_durable(engine: Engine) -> None:
    run = await engine.start(waiting(1))
    async with aclosing(run.follow()) as following:
        seen = [await anext(following) for _ in range(2)]
        assert [event.type for event in seen] == [
            EventType.RUN_STARTED,
            EventType.EXECUTION_AWAITING,
        ]
        await run.signal(go, 20)
        seen += [event async for event in following]
    assert seen == await all_of(run.history())
    assert seen[-1].data["result"] == 42


async def test_a_run_is_followed_over_its_continuation(memory: Engine) -> None:
    run = await memory.start(chaining(1))
    followed = await asyncio.wait_for(all_of(run.follow()), 60)
    assert followed == await all_of(run.history())
    assert [event.type for event in followed].count(EventType.RUN_CONTINUED) == 2


async def test_a_run_of_another_process_is_followed_and_watched(shared_url: str) -> None:
    async with opened(shared_url) as engine, Engine(shared_url, hosts=False) as front:
        run = await engine.start(waiting(1))
        there = front.handle(run.run_id)
        async with aclosing(there.follow()) as following, aclosing(there.watch()) as watching:
            assert (await anext(following)).type is EventType.RUN_STARTED
            assert (await anext(watching)).status is SnapshotStatus.RUNNING
            await run.signal(go, 20)
            last = [event async for event in following][-1]
            views = [view async for view in watching]
        assert last.type is EventType.RUN_COMPLETED
        assert views[-1] == await run.view()


async def test_a_run_is_followed_while_another_host_takes_it_over(shared_url: str) -> None:
    first = Engine(shared_url)
    await first.open()
    run = await first.start(waiting(1))
    async with opened(shared_url) as second:
        there = second.handle(run.run_id)
        async with aclosing(there.follow()) as following, aclosing(there.watch()) as watching:
            seen = [await anext(following)]
            await anext(watching)
            await Probe(first).abort()
            await there.signal(go, 20)
            seen += [event async for event in following]
            last = [view async for view in watching][-1]
        assert seen == await all_of(there.history())
        assert last == await there.view()


async def test_a_history_of_a_damaged_row_is_refused(shared_url: str) -> None:
    async with Engine(shared_url) as engine:
        run = await engine.start(waiting(1))
        await raw(store_of(engine), "UPDATE {}run SET status = 'nonsense'")
        for read in (run.view(), run.ledger(), anext(run.history()), anext(run.follow())):
            with pytest.raises(CorruptJournal, match="is damaged: its status"):
                await read


async def test_a_view_is_watched_to_the_end_of_the_run(engine: Engine) -> None:
    run = await engine.start(waiting(1))
    async with aclosing(run.watch()) as watching:
        views: list[RunSnapshot] = [await anext(watching)]
        await run.signal(go, 20)
        views += [view async for view in watching]
    marks = [view.last_event_seq for view in views]
    assert marks == sorted(set(marks))
    assert views[-1] == await run.view()
    assert views[-1].status is SnapshotStatus.COMPLETED


async def test_an_unchanged_view_is_the_same_object_and_reads_no_entry(memory: Engine) -> None:
    run = await memory.start(waiting(1))
    await run.view()
    store = store_of(memory)
    first, read = await run.view(), store.entries
    store.entries = None
    assert await run.view() is first
    store.entries = read
    await run.signal(go, 1)
    await run.result(60)
    assert (await run.view()).last_event_seq > first.last_event_seq


async def test_views_read_at_once_are_equal(memory: Engine) -> None:
    run = await memory.start(chaining(1))
    await run.result(60)
    found = await asyncio.gather(*(run.view() for _ in range(5)))
    assert len(set(map(id, found))) == 1


async def test_views_that_left_memory_are_folded_again(
    memory: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(views, "MAX_STEPS", 0)
    run = await memory.start(chaining(1))
    await run.result(60)
    first = await run.view()
    again = await run.view()
    assert again is not first
    assert again == first


async def test_a_long_history_is_read_in_bounded_pages(memory: Engine) -> None:
    run = await memory.start(reading_clocks(3 * views.ENTRIES_PER_READ))
    await run.result(60)
    store, reads = store_of(memory), list[int]()
    entries = store.entries

    async def counted(run_id: str, first: int, end: int) -> Any:
        reads.append(end - first)
        return await entries(run_id, first, end)

    store.entries = counted
    async with aclosing(run.history()) as history:
        await anext(history)
    assert reads == [views.ENTRIES_PER_READ]
    await run.view()
    assert max(reads) == views.ENTRIES_PER_READ
    store.entries = entries


async def test_the_ledger_is_spelled_out_in_the_order_of_steps(memory: Engine) -> None:
    run = await memory.start(reading_clocks(0))
    await run.result(60)
    assert await run.ledger() == []

    @workflow
    async def eleven() -> None:
        for n in range(11):
            await double(n)

    run = await memory.start(eleven())
    await run.result(60)
    accounts = await run.ledger()
    assert [account.account for account in accounts] == [f"step:root.{n}" for n in range(11)]
    assert accounts[0].balance == 1_100_000_000_001
    assert str(accounts[0]) == (
        "step:root.0  001100000000001  active · attempt 1 · leg 1 done · 1 entry"
    )


async def test_a_parked_run_has_history_and_view_and_following_it_says_why(shared_url: str) -> None:
    @workflow(name="history.changing")
    async def changing() -> int:
        return await go.receive()

    async with opened(shared_url) as engine:
        run_id = (await engine.start(changing())).run_id

    @workflow(name="history.changing")
    async def changed() -> int:
        perdure.now()
        return await go.receive()

    async with opened(shared_url) as engine:
        run = engine.handle(run_id)
        following = run.follow()
        assert (await anext(following)).type is EventType.RUN_STARTED
        assert (await anext(following)).type is EventType.EXECUTION_AWAITING
        with pytest.raises(RunDiverged, match="is parked: run-diverged"):
            await anext(following)
        assert len(await all_of(run.history())) == 2
        assert (await run.view()).status is SnapshotStatus.RUNNING


async def test_history_is_not_read_before_the_commit(memory: Engine) -> None:
    async with memory.transaction():
        run = await memory.start(waiting(1))
        for read in (run.history, run.follow, run.watch):
            with pytest.raises(NotCommitted):
                read()
        for ask in (run.view(), run.ledger()):
            with pytest.raises(NotCommitted):
                await ask


@pytest.mark.parametrize("first", ["a", -1, 1.5, None])
async def test_a_wrong_offset_is_refused(memory: Engine, first: Any) -> None:
    run = await memory.start(waiting(1))
    for read in (run.history, run.follow):
        with pytest.raises(InputError, match="can't be an offset"):
            read(first)


async def test_a_caller_that_follows_a_run_learns_that_the_engine_was_closed() -> None:
    async with opened("sqlite:///:memory:") as engine:
        run = await engine.start(waiting(1))
        waits = [asyncio.ensure_future(all_of(items)) for items in (run.follow(), run.watch())]
        await until(lambda: len(store_watchers(engine).followed) > 0)
    for each in waits:
        with pytest.raises(EngineClosed):
            await asyncio.wait_for(each, 30)


async def test_followers_that_leave_are_forgotten(memory: Engine) -> None:
    run = await memory.start(waiting(1))
    async with aclosing(run.follow()) as following, aclosing(run.watch()) as watching:
        await anext(following)
        await anext(watching)
    assert not store_watchers(memory).followed


async def test_callers_at_the_same_place_share_one_read_of_all_that_has_grown(
    memory: Engine,
) -> None:
    runs = [await memory.start(waiting(n)) for n in range(10)]
    store, reads = store_of(memory), list[int]()
    grown = store.grown

    async def counted(parts: Any) -> Any:
        reads.append(len(parts))
        return await grown(parts)

    store.grown = counted
    following = [run.follow() for run in runs for _ in range(2)]
    await asyncio.gather(*map(anext, following))
    assert sum(reads) <= len(runs) + 1
    assert max(reads) >= len(runs) - 1
    for each in following:
        await each.aclose()


def store_watchers(engine: Engine) -> Any:
    return Probe(engine).host.context.watchers


def test_sync_code_reads_the_same_history() -> None:
    with SyncEngine("sqlite:///:memory:") as engine:
        run = engine.start(paying("42"))
        with pytest.raises((ValueError, RunFailed)):
            run.result(60)
        history = list(run.history())
        assert list(run.follow()) == history
        assert run.view() == SnapshotProjector().project_run(run.run_id, history)
        assert list(run.watch()) == [run.view()]
        assert [account.account for account in run.ledger()] == ["step:root.0", "step:root.1"]
        assert engine.alerts() == {}
