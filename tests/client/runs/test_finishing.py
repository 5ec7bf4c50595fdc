"""Cancellation with work that runs to its end: tasks with `on_cancel="finish"`, and shielded branches."""

import asyncio
from typing import Any

import pytest

import perdure
from perdure import (
    Cancelled,
    Engine,
    GraphBuilder,
    GraphProgram,
    InputError,
    Retry,
    RunCancelled,
    RunInterrupted,
    RunStatus,
    Signal,
    task,
    workflow,
)
from perdure.core.errors import OutsideRun
from perdure.core.journal import events as e
from tests.client.engines import recorded, until, until_recorded

done: list[str] = []
gates: dict[str, asyncio.Event] = {}


@pytest.fixture(autouse=True)
def _nothing_done() -> None:
    done.clear()
    gates.clear()


async def work(name: str) -> str:
    """Says that it has begun, waits to be let through, and says that it has ended."""
    gate = gates.setdefault(name, asyncio.Event())
    done.append(f"{name} begins")
    try:
        await asyncio.wait_for(gate.wait(), 30)
    except asyncio.CancelledError:
        done.append(f"{name} is stopped")
        raise
    done.append(f"{name} ends")
    return name


@task(name="finishing.ship", on_cancel="finish", retry=Retry(attempts=3, first=0.01))
async def ship(name: str) -> str:
    result = await work(name)
    if name == "broken":
        raise ConnectionError(name)
    return result


@task(name="finishing.ship_elsewhere", on_cancel="finish", queue="finishing")
async def ship_elsewhere(name: str) -> str:
    return await work(name)


@task(name="finishing.plain")
async def plain(name: str) -> str:
    return await work(name)


@task(name="finishing.note")
async def note(what: str) -> None:
    done.append(what)


async def cancelled_while(
    engine: Engine, run: perdure.Handle[Any], *names: str, stopped: str | None = None
) -> None:
    """Cancel the run when these are under way, and let all but one through when it is cancelling."""
    begun = names if stopped is None else (*names, stopped)
    await until(lambda: all(f"{name} begins" in done for name in begun))
    await run.cancel("enough")
    await until_recorded(engine, run, e.CancelRequested)
    for name in names:
        gates[name].set()


@workflow(name="finishing.order")
async def order(name: str) -> None:
    sent = None
    try:
        sent = await ship(name)
        await note("next")
    except Cancelled:
        await note("refund" if sent is None else "no refund")
        raise


async def test_running_attempt_finishes_before_the_clean_up(engine: Engine) -> None:
    run = await engine.start(order("parcel"))
    await cancelled_while(engine, run, "parcel")
    with pytest.raises(RunCancelled, match="enough"):
        await run.result(30)
    assert done == ["parcel begins", "parcel ends", "no refund"]


async def test_last_attempt_is_not_retried_and_its_failure_reaches_the_await(
    engine: Engine,
) -> None:
    @workflow
    async def failing() -> str:
        try:
            await ship("broken")
        except ConnectionError as error:
            try:
                await note("next")
            except Cancelled:
                return f"cancelled after {error}"
        return "not cancelled"

    run = await engine.start(failing())
    await cancelled_while(engine, run, "broken")
    assert await run.result(30) == "cancelled after broken"
    assert done == ["broken begins", "broken ends"]


async def test_run_that_awaits_nothing_more_completes(engine: Engine) -> None:
    @workflow
    async def last() -> str:
        return await ship("parcel")

    run = await engine.start(last())
    await cancelled_while(engine, run, "parcel")
    assert await run.result(30) == "parcel"
    assert await run.status() is RunStatus.COMPLETED


async def test_queued_attempt_finishes(shared_url: str) -> None:
    @workflow
    async def queued() -> str:
        sent = await ship_elsewhere("parcel")
        try:
            await perdure.sleep(3600)
        except Cancelled:
            return f"{sent} sent"
        return ""

    async with Engine(shared_url, queues=["finishing"]) as engine:
        run = await engine.start(queued())
        await cancelled_while(engine, run, "parcel")
        assert await run.result(30) == "parcel sent"
        assert done == ["parcel begins", "parcel ends"]
        assert (await engine.audit()).is_clean
        assert (await engine.verify()).is_clean


async def test_coroutine_that_waits_for_other_things_is_cancelled_when_the_attempt_has_ended(
    engine: Engine,
) -> None:
    @workflow
    async def gathering() -> str:
        try:
            await perdure.gather(ship("parcel"), plain("letter"))
        except Cancelled:
            await note("cleaned up")
            raise
        return ""

    run = await engine.start(gathering())
    await cancelled_while(engine, run, "parcel", stopped="letter")
    with pytest.raises(RunCancelled):
        await run.result(30)
    assert done.index("parcel ends") < done.index("cleaned up")
    assert "letter is stopped" in done


async def test_loser_of_a_race_finishes_before_the_winner_returns(engine: Engine) -> None:
    @workflow
    async def race() -> str:
        winner = await perdure.first(ship("parcel"), plain("letter"))
        await note("after the race")
        return winner

    run = await engine.start(race())
    await until(lambda: {"parcel begins", "letter begins"} <= set(done))
    gates["letter"].set()
    await until(lambda: "letter ends" in done)
    gates["parcel"].set()
    assert await run.result(30) == "letter"
    assert done.index("parcel ends") < done.index("after the race")


async def test_shielded_coroutine_runs_to_its_end_with_all_its_steps(engine: Engine) -> None:
    async def move() -> str:
        first = await plain("one")
        await perdure.sleep(0.01)
        return first + await plain("two")

    @workflow
    async def shielding() -> str:
        moved = await perdure.shield(move())
        try:
            await note("next")
        except Cancelled:
            return f"cancelled after {moved}"
        return "not cancelled"

    run = await engine.start(shielding())
    await cancelled_while(engine, run, "one")
    await until(lambda: "two begins" in done)
    gates["two"].set()
    assert await run.result(30) == "cancelled after onetwo"
    assert done == ["one begins", "one ends", "two begins", "two ends"]


async def test_shielded_child_run_is_not_cancelled(engine: Engine) -> None:
    @workflow
    async def child() -> str:
        return await plain("child")

    @workflow
    async def parent() -> str:
        results: tuple[str, ...] = ()
        try:
            results = await perdure.gather(perdure.shield(child()), perdure.shield(plain("call")))
            await perdure.sleep(3600)
        except Cancelled:
            return " ".join(results)
        return "not cancelled"

    run = await engine.start(parent())
    await cancelled_while(engine, run, "child", "call")
    assert await run.result(30) == "child call"


async def test_shield_protects_a_child_run_that_was_started_before(engine: Engine) -> None:
    @workflow
    async def child() -> str:
        return await plain("child")

    @workflow
    async def parent() -> str:
        started = await perdure.start(child())
        result = await perdure.shield(started.result())
        try:
            await perdure.sleep(3600)
        except Cancelled:
            return f"cancelled after {result}"
        return "not cancelled"

    run = await engine.start(parent())
    await cancelled_while(engine, run, "child")
    assert await run.result(30) == "cancelled after child"


async def test_join_set_is_cancelled_at_its_next_await(engine: Engine) -> None:
    @workflow
    async def joining() -> str:
        members: perdure.JoinSet[str] = perdure.join_set()
        members.submit(plain("letter"))
        moved = await perdure.shield(plain("parcel"))
        try:
            await members.next()
        except Cancelled:
            return f"cancelled after {moved}"
        return "not cancelled"

    run = await engine.start(joining())
    await cancelled_while(engine, run, "parcel", stopped="letter")
    assert await run.result(30) == "cancelled after parcel"
    assert "letter is stopped" in done


def test_other_words_are_refused() -> None:
    with pytest.raises(InputError, match=r"on_cancel is 'wait': use 'stop' or 'finish'"):
        task(on_cancel="wait")  # type: ignore[call-overload]


async def test_shield_is_refused_outside_a_workflow() -> None:
    with pytest.raises(OutsideRun, match=r"perdure.shield is called outside a run"):
        await perdure.shield(note("x"))


async def test_graph_lets_the_attempt_of_a_worker_finish_and_begins_nothing_more(
    engine: Engine,
) -> None:
    b = GraphBuilder("finishing_graph")
    b.assign("both", {"n": "1"})
    b.worker("parcel", ship, input={"name": "'parcel'"})
    b.worker("letter", plain, input={"name": "'letter'"})
    b.worker("after", note, input={"what": "'after'"})
    b.edge("both", "parcel")
    b.edge("both", "letter")
    b.edge("parcel", "after")
    program: GraphProgram[..., object] = GraphProgram(b.build())
    run = await engine.start(program())
    await cancelled_while(engine, run, "parcel", stopped="letter")
    with pytest.raises(RunCancelled, match="enough"):
        await run.result(30)
    assert "parcel ends" in done
    assert "letter is stopped" in done
    assert "after" not in done
    (shipped,) = [event for event in await recorded(engine, run, e.InvokeCompleted) if event.ok]
    assert shipped.promise_id.startswith("parcel")


async def interrupted_while_shipping(
    engine: Engine, interrupted: perdure.Handle[Any], interrupt: Signal[None] | None
) -> None:
    """Wait until both tasks are under way, interrupt, and let the parcel through when the run is cancelling."""
    await until(lambda: {"parcel begins", "letter begins"} <= set(done))
    if interrupt is None:
        b = GraphBuilder("finishing_interrupter", input={"run": "str"})
        b.interrupt("stop", target="run", reason="'enough'")
        program: GraphProgram[..., object] = GraphProgram(b.build())
        await engine.start(program(run=interrupted.run_id))
    else:
        await interrupted.signal(interrupt, None)
    await until_recorded(engine, interrupted, e.CancelRequested)
    await until(lambda: "letter is stopped" in done)
    assert await interrupted.status() is RunStatus.CANCELLING
    gates["parcel"].set()


@pytest.mark.parametrize(("throws", "is_by_itself"), [(True, True), (False, True), (True, False)])
async def test_graph_that_is_interrupted_ends_after_the_attempt_of_a_worker(
    engine: Engine, throws: bool, is_by_itself: bool
) -> None:
    b = GraphBuilder(f"finishing_interrupted_{throws}_{is_by_itself}")
    b.assign("all", {"n": "1"})
    b.worker("parcel", ship, input={"name": "'parcel'"})
    b.worker("letter", plain, input={"name": "'letter'"})
    b.worker("after", note, input={"what": "'after'"})
    b.hook("enough", "enough")
    b.interrupt("stop", reason="'enough'", code=418, throw=throws)
    for source, target in (
        *(("all", name) for name in ("parcel", "letter", "enough")),
        *(("parcel", "after"), ("enough", "stop")),
    ):
        b.edge(source, target)
    program: GraphProgram[..., object] = GraphProgram(b.build())
    run = await engine.start(program())
    await interrupted_while_shipping(
        engine, run, Signal("enough", type(None)) if is_by_itself else None
    )
    with pytest.raises(RunInterrupted if throws else RunCancelled, match="enough"):
        await run.result(30)
    assert "parcel ends" in done
    assert "after" not in done
    (shipped,) = [event for event in await recorded(engine, run, e.InvokeCompleted) if event.ok]
    assert shipped.promise_id.startswith("parcel")
