"""Runs that continue as new ones: chains, from inside and from outside."""

import asyncio
import gc
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure import (
    Engine,
    Handle,
    InputError,
    RunClosed,
    RunStatus,
    Settings,
    Signal,
    SyncEngine,
    task,
    workflow,
)
from perdure.core.errors import NeverAwaited, NotEncodable, OutsideRun
from perdure.core.ids import RunId
from perdure.core.journal import events as e
from perdure.core.messages import Message
from perdure.core.replay.identity import cancel_guid, next_run_id, signal_guid
from perdure.store.commit.bundle import Bundle
from perdure.testing.probe import Probe
from tests.client.engines import (
    assert_cancelled,
    opened,
    store_of,
    until,
    until_recorded,
    until_status,
    until_store,
)

tick = Signal("continuing.tick", int)
stop = Signal("continuing.stop", str)


@task(name="continuing.add")
async def add(a: int, b: int) -> int:
    return a + b


@workflow(name="continuing.counting")
async def counting(n: int, upto: int) -> int:
    n = await add(n, 1)
    if n < upto:
        await perdure.continue_as_new(counting(n, upto))
    return n


@workflow(name="continuing.spinning")
async def spinning(n: int, upto: int) -> int:
    if n < upto:
        await perdure.continue_as_new(spinning(n + 1, upto))
    return n


@workflow(name="continuing.collecting")
async def collecting(heard: list[int], upto: int, at_once: int = 2) -> list[int]:
    """Continues after that many signals, even with others buffered."""
    for _ in range(at_once):
        heard.append(await tick.receive())
        if len(heard) == upto:
            return heard
    return await perdure.continue_as_new(collecting(heard, upto, at_once))


@workflow(name="continuing.listening")
async def listening(turn: int) -> str:
    """Continues as a new run at each tick, and ends at the word `stop`."""
    perdure.publish("turn", turn)
    if turn == 0:
        perdure.publish("first", "was here")
    heard = await perdure.first(stop.receive(), tick.receive())
    if isinstance(heard, str):
        return f"{heard} in turn {turn}"
    return await perdure.continue_as_new(listening(turn + 1))


async def until_chain(handle: Handle[Any], length: int) -> None:
    """Wait until the chain has that many runs."""

    async def ask() -> bool:
        return len(await handle.runs()) >= length

    await until_store(ask)


async def send_to(engine: Engine, run_id: RunId, value: int, sender: str) -> None:
    """A tick to this run of the chain, even if it is over."""
    now = Probe(engine).now_ms
    guid = signal_guid(run_id, tick.name, sender)
    payload = str(value).encode()
    bundle = Bundle()
    bundle.enqueue(Message(run_id, guid, f"signal:{tick.name}", now, now, payload=payload))
    await store_of(engine).commit(bundle)


async def test_run_continues_as_a_new_run(engine: Engine) -> None:
    run = await engine.start(counting(0, 3))
    assert await run.result(60) == 3
    assert await run.status() is RunStatus.COMPLETED
    runs = await run.runs()
    first = run.run_id
    second = next_run_id(first)
    assert list(runs) == [first, second, next_run_id(second)]
    assert list(runs.values()) == [RunStatus.CONTINUED, RunStatus.CONTINUED, RunStatus.COMPLETED]


async def test_each_run_has_a_journal_of_its_own(engine: Engine) -> None:
    run = await engine.start(counting(0, 2))
    await run.result(60)
    store = store_of(engine)
    first = [entry.event for entry in await store.entries(run.run_id)]
    second = [entry.event for entry in await store.entries(next_run_id(run.run_id))]
    assert first[-1] == e.RunContinued(next_run_id(run.run_id), released=1)
    started = second[0]
    assert isinstance(started, e.ExecutionStarted)
    assert (started.continues, started.inherited) == (run.run_id, 0)
    assert isinstance(second[-1], e.ExecutionCompleted)


async def test_run_may_continue_as_another_workflow(engine: Engine) -> None:
    @workflow
    async def newer(state: str) -> str:
        return f"newer with {state} as {perdure.info().program}"

    @workflow
    async def older(n: int) -> str:
        await perdure.continue_as_new(newer(f"{await add(n, 1)}"))

    assert await (await engine.start(older(1))).result(60) == "newer with 2 as newer"


async def test_a_key_belongs_to_the_whole_chain(shared_url: str) -> None:
    @workflow
    async def keyed(n: int) -> str | None:
        if n < 2:
            await perdure.continue_as_new(keyed(n + 1))
        await tick.receive()
        return perdure.info().key

    async with opened(shared_url) as engine:
        run = await engine.start(keyed(0), key="the-loop", scope="tenant")
        await until_status(run, RunStatus.BLOCKED)
        again = await engine.start(keyed(0), key="the-loop", scope="tenant")
        assert again.run_id == run.run_id
        last = list(await run.runs())[-1]
        row = await store_of(engine).run(last)
        assert (row.scope, row.key, row.chain) == ("tenant", None, run.run_id)
    async with opened(shared_url, Settings(warm_memory=0)) as engine:
        run = await engine.start(keyed(0), key="the-loop", scope="tenant")
        await run.signal(tick, 1)
        assert await run.result(60) == "the-loop"


# Refusals: the same run continues


async def refusal(engine: Engine, call: perdure.ProgramCall[str]) -> str:
    run = await engine.start(call)
    said = await run.result(60)
    assert list((await run.runs()).values()) == [RunStatus.COMPLETED]
    return said


async def test_continue_as_new_is_refused_with_open_tasks_timers_or_branches(
    engine: Engine,
) -> None:
    @workflow
    async def hasty() -> str:
        async def branch() -> None:
            await perdure.sleep(60)

        members: perdure.JoinSet[Any] = perdure.join_set()
        members.submit(add(1, 2))
        members.submit(branch())
        try:
            await perdure.continue_as_new(hasty())
        except InputError as error:
            return str(error)

    said = await refusal(engine, hasty())
    assert "can't continue as new while it has open steps: root.1 (continuing.add)" in said
    assert "branch" in said
    assert "await or cancel them first" in said


async def test_an_open_child_refuses_it_even_a_detached_one(engine: Engine) -> None:
    @workflow
    async def parting() -> str:
        child = await perdure.start(listening(7))
        try:
            await perdure.continue_as_new(parting())
        except InputError as error:
            said = str(error)
        child.signal(stop, "enough")
        await child.result()
        return said

    assert "root.0 (continuing.listening)" in await refusal(engine, parting())


async def test_a_branch_can_not_continue_the_run(engine: Engine) -> None:
    @workflow
    async def branching() -> str:
        async def branch() -> None:
            await perdure.continue_as_new(branching())

        try:
            await perdure.gather(branch())
        except InputError as error:
            return str(error)
        return "went on"

    assert "branch root.0 of run" in await refusal(engine, branching())


async def test_continue_as_new_refuses_anything_but_a_workflow_call(engine: Engine) -> None:
    @workflow
    async def mistaken() -> list[str]:
        said = []
        for given in (add(1, 2), 7, mistaken):
            try:
                await perdure.continue_as_new(given)  # type: ignore[arg-type]
            except InputError as error:
                said.append(str(error))
        return said

    said = await (await engine.start(mistaken())).result(60)
    assert len(said) == 3
    assert all(each.endswith("pass a call of a workflow") for each in said)
    assert "was given 7" in said[1]


async def test_an_argument_that_can_not_be_stored_is_refused(engine: Engine) -> None:
    @workflow
    async def storing(value: object) -> str:
        try:
            await perdure.continue_as_new(storing(object()))
        except NotEncodable as error:
            return str(error)

    assert "an argument of workflow 'storing'" in await refusal(engine, storing(1))


async def test_outside_a_workflow_it_is_refused() -> None:
    with pytest.raises(OutsideRun, match=r"perdure\.continue_as_new is called outside a run"):
        await perdure.continue_as_new(counting(0, 1))


async def test_in_a_task_it_is_refused(engine: Engine) -> None:
    @task
    async def acting() -> None:
        await perdure.continue_as_new(counting(0, 1))

    @workflow
    async def asking() -> None:
        await acting()

    with pytest.raises(OutsideRun, match="in a task"):
        await (await engine.start(asking())).result(60)


async def test_a_call_that_was_never_awaited_fails_the_run(engine: Engine) -> None:
    @workflow
    async def forgetful() -> None:
        add(1, 2)  # type: ignore[unused-awaitable]
        await perdure.continue_as_new(forgetful())

    with pytest.raises(NeverAwaited, match=r"called continuing\.add and never awaited it"):
        await (await engine.start(forgetful())).result(60)


# On the way out


async def test_except_exception_does_not_catch_it_and_finally_runs(engine: Engine) -> None:
    seen: list[str] = []

    @workflow(lint="off")
    async def careful(n: int) -> int:
        try:
            try:
                if n == 0:
                    await perdure.continue_as_new(careful(1))
            except Exception:
                return -1
        finally:
            seen.append(f"left {n}")
        return n

    assert await (await engine.start(careful(0))).result(60) == 1
    assert set(seen) == {"left 0", "left 1"}


async def test_durable_steps_in_finally_belong_to_the_run_that_ends(engine: Engine) -> None:
    @workflow
    async def tidy(n: int) -> int:
        try:
            if n < 10:
                await perdure.continue_as_new(tidy(n + 10))
        finally:
            await add(n, 1)
            await perdure.sleep(0.01)
        return n

    run = await engine.start(tidy(0))
    assert await run.result(60) == 10
    for run_id in await run.runs():
        entries = await store_of(engine).entries(run_id)
        names = [type(entry.event).__name__ for entry in entries]
        assert names.count("InvokeCompleted") == names.count("TimerFired") == 1


async def test_workflow_that_swallows_continue_as_new_stays_the_same_run(engine: Engine) -> None:
    @workflow(lint="off")
    async def stubborn() -> int:
        try:
            await perdure.continue_as_new(stubborn())
        except BaseException:
            return await add(1, 1)

    run = await engine.start(stubborn())
    assert await run.result(60) == 2
    assert len(await run.runs()) == 1


async def test_a_failure_on_the_way_out_is_the_outcome(engine: Engine) -> None:
    @workflow
    async def clumsy() -> None:
        try:
            await perdure.continue_as_new(clumsy())
        finally:
            raise LookupError("on the way out")

    with pytest.raises(LookupError, match="on the way out"):
        await (await engine.start(clumsy())).result(60)


# Signals


@pytest.mark.parametrize("at_once", [1, 2, 3])
async def test_no_signal_is_lost_or_comes_twice_or_out_of_turn(
    engine: Engine, at_once: int
) -> None:
    run = await engine.start(collecting([], 12, at_once))
    for n in range(12):
        await run.signal(tick, n)
    assert await run.result(60) == list(range(12))
    assert len(await run.runs()) == (12 + at_once - 1) // at_once


async def test_buffered_signals_are_there_when_the_next_run_begins(engine: Engine) -> None:
    @workflow
    async def hoarding(n: int) -> list[object]:
        if n == 0:
            await stop.receive()
            await perdure.continue_as_new(hoarding(1))
        heard: list[object] = [await tick.receive(timeout=0), await tick.receive(timeout=0)]
        try:
            await tick.receive(timeout=0)
        except TimeoutError:
            heard.append("no more")
        return heard

    run = await engine.start(hoarding(0))
    await run.signal(tick, 1)
    await run.signal(tick, 2)
    await until_recorded(engine, run, e.SignalDelivered, 2)
    await run.signal(stop, "now")
    assert await run.result(60) == [1, 2, "no more"]
    last = [entry.event for entry in await store_of(engine).entries(list(await run.runs())[-1])]
    assert [type(event).__name__ for event in last[:3]] == [
        "ExecutionStarted",
        "SignalDelivered",
        "SignalDelivered",
    ]
    before = await store_of(engine).entries(run.run_id)
    guids = [x.event.guid for x in before if isinstance(x.event, e.SignalDelivered)]
    assert [event.guid for event in last[1:3]] == guids[:2]


async def test_buffered_signals_pass_through_runs_that_do_not_ask_for_them(engine: Engine) -> None:
    @workflow
    async def passing(n: int) -> int:
        if n == 0:
            await stop.receive()
        if n < 5:
            await perdure.continue_as_new(passing(n + 1))
        return await tick.receive()

    run = await engine.start(passing(0))
    await run.signal(tick, 42)
    await run.signal(stop, "now")
    assert await run.result(60) == 42


async def test_a_signal_with_an_id_is_one_for_the_whole_chain(engine: Engine) -> None:
    run = await engine.start(collecting([], 3, 1))
    await run.signal(tick, 1, id="one")
    await until_chain(run, 2)
    await run.signal(tick, 1, id="one")
    latest = engine.handle(list(await run.runs())[-1])
    await latest.signal(tick, 1, id="one")
    await latest.signal(tick, 2, id="two")
    await until_chain(run, 3)
    await run.signal(tick, 2, id="two")
    await run.signal(tick, 3)
    assert await run.result(60) == [1, 2, 3]


async def test_a_message_that_lands_in_a_continued_run_is_forwarded(engine: Engine) -> None:
    """Like a message sent while the run continued as new: addressed to the old run, and found after its end."""
    run = await engine.start(collecting([], 3, 1))
    await run.signal(tick, 1)
    await until_chain(run, 2)
    await send_to(engine, run.run_id, 2, "late")
    await until_chain(run, 3)
    await send_to(engine, run.run_id, 2, "late")
    store = store_of(engine)

    async def is_judged() -> bool:
        return [state for _, state, _ in await store.messages(run.run_id)] == ["stale"]

    await until_store(is_judged)
    await run.signal(tick, 3)
    assert await run.result(60) == [1, 2, 3]


async def test_a_message_to_a_chain_that_is_over_is_dead(engine: Engine) -> None:
    run = await engine.start(counting(0, 2))
    await run.result(60)
    await send_to(engine, run.run_id, 2, "late")
    store = store_of(engine)

    async def is_dead() -> bool:
        return any(state == "dead" for _, state, _ in await store.messages(run.run_id))

    await until_store(is_dead)
    ((_, _, reason),) = await store.messages(run.run_id)
    assert reason == "the run that continues this one is completed"
    with pytest.raises(RunClosed, match=r"is completed and can't take signal 'continuing\.tick'"):
        await run.signal(tick, 1)
    with pytest.raises(RunClosed, match="is completed and can't be cancelled"):
        await run.cancel()


# Through a handle


async def test_any_handle_reads_the_chain_as_one(engine: Engine) -> None:
    run = await engine.start(listening(0))
    for turn in (1, 2):
        await run.signal(tick, turn)
        await until_chain(run, turn + 1)
    await until_status(run, RunStatus.BLOCKED)
    handles = [engine.handle(run_id) for run_id in await run.runs()]
    assert len(handles) == 3
    for handle in handles:
        assert await handle.status() is RunStatus.BLOCKED
        assert await handle.published() == {"turn": 2, "first": "was here"}
    await handles[1].signal(stop, "enough")
    for handle in handles:
        assert await handle.result(60) == "enough in turn 2"
        assert await handle.runs() == await run.runs()


async def test_events_are_those_of_all_runs_in_order(engine: Engine) -> None:
    run = await engine.start(counting(0, 3))
    followed = [entry.event async for entry in run.events()]
    names = [type(event).__name__ for event in followed]
    assert names.count("ExecutionStarted") == 3
    assert names.count("RunContinued") == 2
    assert names[-1] == "ExecutionCompleted"
    assert all(
        names[place + 1] == "ExecutionStarted"
        for place, name in enumerate(names)
        if name == "RunContinued"
    )
    middle = engine.handle(list(await run.runs())[1])
    assert [entry.event async for entry in middle.events()] == followed
    for first in range(len(followed) + 2):
        assert [entry.event async for entry in run.events(first)] == followed[first:]


async def test_events_are_followed_over_the_end_of_a_run(engine: Engine) -> None:
    run = await engine.start(listening(0))
    continued = asyncio.Event()

    async def follow() -> list[str]:
        names = []
        async for entry in run.events():
            names.append(type(entry.event).__name__)
            if names[-1] == "RunContinued":
                continued.set()
        return names

    following = asyncio.create_task(follow())
    await run.signal(tick, 1)
    await asyncio.wait_for(continued.wait(), 10)
    await run.signal(stop, "enough")
    names = await asyncio.wait_for(following, 60)
    assert names.count("ExecutionStarted") == 2
    assert names[-1] == "ExecutionCompleted"


async def test_a_result_that_is_waited_for_comes_from_the_last_run(engine: Engine) -> None:
    run = await engine.start(listening(0))
    waiting = asyncio.create_task(run.result(60))
    for turn in range(3):
        await run.signal(tick, turn)
        await until_chain(run, turn + 2)
    await run.signal(stop, "enough")
    assert await waiting == "enough in turn 3"


async def test_a_result_times_out_though_the_run_is_continued(engine: Engine) -> None:
    run = await engine.start(listening(0))
    await run.signal(tick, 1)
    with pytest.raises(TimeoutError, match="is not over after"):
        await run.result(0.3)


async def test_cancel_reaches_the_last_run_of_the_chain(engine: Engine) -> None:
    run = await engine.start(listening(0))
    await run.signal(tick, 1)
    await until_chain(run, 2)
    await run.cancel("enough")
    await assert_cancelled(run)
    assert list((await run.runs()).values()) == [RunStatus.CONTINUED, RunStatus.CANCELLED]


async def test_a_cancel_that_was_sent_to_the_run_before_is_forwarded(engine: Engine) -> None:
    run = await engine.start(listening(0))
    await run.signal(tick, 1)
    await until_chain(run, 2)
    bundle = Bundle()
    now = 1
    bundle.enqueue(Message(run.run_id, cancel_guid(run.run_id), "cancel", now, now, payload=b"so"))
    await store_of(engine).commit(bundle)
    await assert_cancelled(run)


async def test_a_run_that_is_cancelled_does_not_continue(engine: Engine) -> None:
    @workflow
    async def persistent(n: int) -> None:
        try:
            await tick.receive()
        finally:
            await perdure.continue_as_new(persistent(n + 1))

    run = await engine.start(persistent(0))
    await until_status(run, RunStatus.BLOCKED)
    await run.cancel("enough")
    await assert_cancelled(run)
    assert list((await run.runs()).values()) == [RunStatus.CANCELLED]


async def test_a_cancel_on_the_way_out_is_heard(engine: Engine) -> None:
    @workflow
    async def slow_to_leave(n: int) -> None:
        try:
            await perdure.continue_as_new(slow_to_leave(n + 1))
        finally:
            await tick.receive()

    run = await engine.start(slow_to_leave(0))
    await until_status(run, RunStatus.BLOCKED)
    await run.cancel("enough")
    await assert_cancelled(run)
    assert len(await run.runs()) == 1


def test_the_sync_handle_reads_the_chain_as_one(tmp_path: Path) -> None:
    with SyncEngine(f"sqlite:///{tmp_path}/sync.db") as engine:
        run = engine.start(collecting([], 4, 1), key="sync")
        for n in range(4):
            run.signal(tick, n)
        assert run.result(60) == [0, 1, 2, 3]
        assert list(run.runs().values()) == [RunStatus.CONTINUED] * 3 + [RunStatus.COMPLETED]
        names = [type(entry.event).__name__ for entry in run.events()]
        assert names.count("ExecutionStarted") == 4
        assert engine.audit().is_clean


# As a child


async def test_parent_gets_the_result_of_the_last_run_of_its_child(engine: Engine) -> None:
    @workflow
    async def parent() -> tuple[int, list[int]]:
        counted = await counting(0, 4)
        child = await perdure.start(collecting([], 3, 1))
        for n in range(3):
            child.signal(tick, n)
        return counted, await child.result()

    run = await engine.start(parent())
    assert await run.result(60) == (4, [0, 1, 2])


async def test_a_failure_of_the_last_run_reaches_the_parent(engine: Engine) -> None:
    @workflow
    async def doomed(n: int) -> None:
        if n:
            raise LookupError(f"in run {n}")
        await perdure.continue_as_new(doomed(n + 1))

    @workflow
    async def parent() -> str:
        try:
            await doomed(0)
        except LookupError as error:
            return str(error)
        return ""

    assert await (await engine.start(parent())).result(60) == "in run 1"


async def test_a_parent_that_is_cancelled_cancels_what_its_child_became(engine: Engine) -> None:
    @workflow
    async def parent() -> str:
        child = await perdure.start(listening(0))
        perdure.publish("child", child.run_id)
        child.signal(tick, 1)
        return await child.result()

    run = await engine.start(parent())
    await until_status(run, RunStatus.BLOCKED)
    child = engine.handle((await run.published())["child"])
    await until_chain(child, 2)
    await run.cancel("enough")
    await assert_cancelled(run)
    await assert_cancelled(child)
    assert list((await child.runs()).values()) == [RunStatus.CONTINUED, RunStatus.CANCELLED]


# Long chains


@pytest.mark.parametrize("kind", ["counting", "spinning"])
async def test_hundreds_of_continuations(engine_url: str, kind: str) -> None:
    call = {"counting": counting, "spinning": spinning}[kind]
    count = 200 if engine_url.startswith("postgres") else 1000
    async with opened(engine_url) as engine:
        run = await engine.start(call(0, count))
        assert await run.result(120) == count
        assert len(await run.runs()) == {"counting": count, "spinning": count + 1}[kind]
        await until(lambda: not Probe(engine).host.dispatcher.tasks)
        assert Probe(engine).warm_runs == set()


async def test_memory_does_not_grow_with_the_chain(tmp_path: Path) -> None:
    async def grown(engine: Engine, count: int) -> int:
        gc.collect()
        before = tracemalloc.get_traced_memory()[0]
        assert await (await engine.start(counting(0, count))).result(60) == count
        gc.collect()
        return tracemalloc.get_traced_memory()[0] - before

    async with opened(f"sqlite:///{tmp_path}/flat.db") as engine:
        await grown_once(engine)
        tracemalloc.start()
        try:
            few, many = await grown(engine, 30), await grown(engine, 600)
        finally:
            tracemalloc.stop()
    assert many < max(few, 0) + 200_000


async def grown_once(engine: Engine) -> None:
    """What is made once, such as prepared statements, is there afterwards."""
    assert await (await engine.start(counting(0, 5))).result(60) == 5


async def test_a_loop_that_never_waits_leaves_the_host_to_others(engine: Engine) -> None:
    spin = await engine.start(spinning(0, 10**9))
    assert await (await engine.start(counting(0, 3))).result(60) == 3
    await spin.cancel()
    await assert_cancelled(spin)


async def test_a_loop_that_never_waits_is_handed_back_when_the_engine_stops(
    shared_url: str,
) -> None:
    async with opened(shared_url) as engine:
        run = await engine.start(spinning(0, 10**9))
        await until_chain(run, 3)
    async with opened(shared_url) as engine:
        again = engine.handle(run.run_id)
        before = len(await again.runs())
        await until_chain(again, before + 3)
        await again.cancel()
        await assert_cancelled(again)
