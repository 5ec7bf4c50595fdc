"""Operator acts through a handle: pause and resume, parked steps, authority, verdicts."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest

import perdure
from perdure import (
    Act,
    ActedRun,
    Actor,
    Decision,
    Denied,
    Engine,
    Handle,
    InputError,
    Retry,
    Roles,
    RunStatus,
    Settings,
    Signal,
    TooManyActs,
    task,
    workflow,
)
from perdure.core.journal import events as e
from perdure.core.replay.identity import child_run_id
from perdure.core.runs.acts import ACTS_PER_MINUTE, MAX_ACT_BYTES
from perdure.store.commit.bundle import Bundle
from tests.client.engines import (
    assert_cancelled,
    opened,
    recorded,
    store_of,
    until,
    until_recorded,
    until_status,
)
from tests.store.builders import raw

WAIT = timedelta(seconds=60)

word = Signal("acts.word", str)
done: list[object] = []


class Gate:
    """Holds up attempts until a test opens it."""

    is_open = False

    async def wait(self) -> None:
        while not self.is_open:  # noqa: ASYNC110 - each test has an event loop of its own
            await asyncio.sleep(0.005)


gate = Gate()


@pytest.fixture(autouse=True)
def _nothing_done() -> None:
    gate.is_open = False
    done.clear()


@task(name="acts.gated")
async def gated(n: int) -> int:
    done.append(f"began {n}")
    await gate.wait()
    return n


@task(name="acts.quick")
async def quick(n: int) -> int:
    done.append(n)
    return n


@task(name="acts.hopeless", retry=Retry(attempts=2, first=0.01), on_failure="park")
async def hopeless(n: int) -> int:
    done.append((perdure.info().logical_attempt, perdure.info().attempt, perdure.key()))
    if perdure.info().logical_attempt < n:
        raise ValueError(f"order {n} is wrong")
    return n


@task(name="acts.hopeless_by_default")
async def hopeless_by_default() -> None:
    raise ValueError("wrong")


@task(name="acts.queued", queue="acts")
async def queued(n: int) -> int:
    done.append(n)
    return n


@workflow(name="acts.gating")
async def gating() -> list[int]:
    return [await gated(1), await quick(2)]


@workflow(name="acts.listening")
async def listening() -> str:
    return await word.receive()


@workflow(name="acts.queueing")
async def queueing() -> int:
    await word.receive()
    return await queued(1)


@workflow(name="acts.sending")
async def sending() -> list[int]:
    return [*await perdure.gather(gated(0), queued(1))]


@workflow(name="acts.failing")
async def failing(n: int) -> list[int]:
    return [*await perdure.gather(hopeless(n), quick(7))]


@workflow(name="acts.defaulting")
async def defaulting() -> None:
    await hopeless_by_default()


@workflow(name="acts.family")
async def family() -> str:
    return await listening()


@workflow(name="acts.tidy")
async def tidy() -> None:
    try:
        await word.receive()
    finally:
        await quick(9)


async def accepted(receipt: perdure.Receipt) -> Decision:
    decision = await receipt.decision(WAIT)
    assert decision.accepted, decision
    return decision


async def rejected(receipt: perdure.Receipt) -> str:
    decision = await receipt.decision(WAIT)
    assert not decision.accepted
    return decision.code


async def until_parked(engine: Engine, run: Handle[Any], count: int = 1) -> str:
    """Wait until a step is parked, for the n-th time."""
    found: list[e.InvokeRetrying] = []
    while len(found) < count:
        await until_recorded(engine, run, e.InvokeRetrying)
        found = [event for event in await recorded(engine, run, e.InvokeRetrying) if event.parks]
        await asyncio.sleep(0.005)
    return found[-1].promise_id


async def test_attempt_ends_in_a_pause_and_the_program_continues_after_it(engine: Engine) -> None:
    run = await engine.start(gating())
    await until(lambda: done == ["began 1"])
    decision = await accepted(await run.pause("lunch", by=Actor("ada", "operator")))
    assert await run.status() is RunStatus.PAUSED
    gate.is_open = True
    await until_recorded(engine, run, e.InvokeCompleted)
    assert done == ["began 1"]
    assert decision.reason == "lunch"
    (entry,) = await recorded(engine, run, e.SignalAccepted)
    assert (entry.by, entry.role, entry.reason) == ("ada", "operator", "lunch")
    await accepted(await run.resume())
    assert await run.result(60) == [1, 2]


async def test_signals_wait_for_the_end_of_a_pause(engine: Engine) -> None:
    run = await engine.start(listening())
    await accepted(await run.pause())
    await run.signal(word, "hello")
    assert await rejected(await run.pause()) == "RUN_PAUSED"  # acts come after the signal
    assert not await recorded(engine, run, e.SignalDelivered)
    await accepted(await run.resume())
    assert await run.result(60) == "hello"


async def test_pause_outlives_its_host(shared_url: str) -> None:
    async with opened(shared_url) as engine:
        run = await engine.start(listening())
        await accepted(await run.pause())
    async with opened(shared_url) as engine:
        run = engine.handle(run.run_id)
        await run.signal(word, "hello")
        assert await run.status() is RunStatus.PAUSED
        await accepted(await run.resume())
        assert await run.result(60) == "hello"


async def test_queued_work_of_a_paused_run_is_not_claimed(shared_url: str) -> None:
    async with opened(shared_url) as engine:
        run = await engine.start(sending())
        await until(lambda: "began 0" in done)
        await accepted(await run.pause())
        async with opened(shared_url, queues=("acts",)) as other:
            marker = await other.start(queued_alone())
            assert await marker.result(60) == 5
            assert 1 not in done
            await accepted(await run.resume())
            gate.is_open = True
            assert await run.result(60) == [0, 1]


@workflow(name="acts.queued_alone")
async def queued_alone() -> int:
    return await queued(5)


async def test_cancel_works_while_paused(engine: Engine) -> None:
    run = await engine.start(tidy())
    await accepted(await run.pause())
    await accepted(await run.cancel("enough", by=Actor("ada")))
    await assert_cancelled(run)
    assert done == [9]


async def test_emergency_stop_skips_the_clean_up(engine: Engine) -> None:
    run = await engine.start(tidy())
    await accepted(await run.emergency_stop("fire"))
    await assert_cancelled(run)
    assert done == []


async def test_pause_descends_to_children_only_if_asked(engine: Engine) -> None:
    run = await engine.start(family())
    event = await until_recorded(engine, run, e.InvokeStarted)
    child = engine.handle(child_run_id(run.run_id, event.promise_id))
    await accepted(await run.pause())
    assert await child.status() is not RunStatus.PAUSED
    await accepted(await run.resume())
    await accepted(await run.pause(descends=True))
    await until_status(child, RunStatus.PAUSED)
    await accepted(await run.resume(descends=True))
    await child.signal(word, "hello")
    assert await run.result(60) == "hello"


async def test_retried_step_has_new_budgets_and_a_new_key(engine: Engine) -> None:
    run = await engine.start(failing(2))
    step = await until_parked(engine, run)
    await accepted(await run.retry_step(step))
    assert await run.result(60) == [2, 7]
    tries = [each for each in done if isinstance(each, tuple)]
    assert [each[:2] for each in tries] == [(1, 1), (1, 2), (2, 3)]
    keys = [each[2] for each in tries]
    assert keys[0] == keys[1] != keys[2]


async def test_step_may_park_again_at_each_logical_attempt(engine: Engine) -> None:
    run = await engine.start(failing(3))
    step = await until_parked(engine, run)
    await accepted(await run.retry_step(step))
    assert await until_parked(engine, run, 2) == step
    await accepted(await run.retry_step(step))
    assert await run.result(60) == [3, 7]
    assert [each[:2] for each in done if isinstance(each, tuple)] == [
        *((1, 1), (1, 2)),
        *((2, 3), (2, 4)),
        (3, 5),
    ]


async def test_skipped_step_has_the_operators_value(engine: Engine) -> None:
    run = await engine.start(failing(9))
    step = await until_parked(engine, run)
    assert await rejected(await run.skip_step(step, value="many")) == "VALUE_MISFIT"
    assert await rejected(await run.skip_step(step)) == "VALUE_MISFIT"
    await accepted(await run.skip_step(step, "known bug", value=4))
    assert await run.result(60) == [4, 7]
    (skipped,) = await recorded(engine, run, e.StepSkipped)
    assert skipped.reason == "known bug"


async def test_parked_step_is_a_row_while_it_waits(engine: Engine) -> None:
    run = await engine.start(failing(9))
    step = await until_parked(engine, run)
    (row,) = await parked_rows(engine)
    assert row[:3] == (run.run_id, step, "acts.hopeless")
    await accepted(await run.skip_step(step, value=4))
    await run.result(60)
    assert not await parked_rows(engine)


async def parked_rows(engine: Engine) -> list[tuple[object, ...]]:
    return await raw(store_of(engine), "SELECT run_id, step, task, error FROM {}parked_step")


async def test_description_shows_the_pause_and_the_parked_step(engine: Engine) -> None:
    run = await engine.start(failing(9))
    step = await until_parked(engine, run)
    await accepted(await run.pause("lunch"))
    described = await run.describe()
    assert described.pause_reason == "lunch"
    (wait,) = (await run.waits()).parked
    assert (wait.step, wait.attempt, wait.logical_attempt) == (step, 2, 1)
    assert wait.error.endswith("order 9 is wrong")
    assert "waits for an operator" in str(described)
    assert "paused: lunch" in str(described)


async def test_cancelled_run_leaves_no_parked_step(engine: Engine) -> None:
    run = await engine.start(failing(9))
    await until_parked(engine, run)
    await run.cancel()
    await assert_cancelled(run)
    assert not await parked_rows(engine)


async def test_engine_parks_failures_by_default_if_it_says_so(shared_url: str) -> None:
    async with opened(shared_url, Settings(on_failure="park")) as engine:
        run = await engine.start(defaulting())
        step = await until_parked(engine, run)
        await accepted(await run.skip_step(step))
        await run.result(60)


async def test_acts_that_do_not_apply_are_rejected_with_a_code(engine: Engine) -> None:
    run = await engine.start(listening())
    assert await rejected(await run.resume()) == "RUN_NOT_PAUSED"
    await accepted(await run.pause())
    assert await rejected(await run.pause()) == "RUN_PAUSED"
    assert await rejected(await run.retry_step("root.0")) == "STEP_NOT_TERMINAL"
    assert await rejected(await run.retry_step("root.9")) == "STEP_UNKNOWN"
    assert await rejected(await run.approve()) == "RUN_NOT_PENDING"
    await accepted(await run.resume())
    await run.signal(word, "bye")
    await run.result(60)
    late = await (await run.pause()).decision(WAIT)
    assert (late.accepted, late.code, late.seq) == (False, "RUN_TERMINAL", None)


async def test_act_with_the_same_id_is_one_act(engine: Engine) -> None:
    run = await engine.start(listening())
    first = await accepted(await run.pause(id="p1"))
    await accepted(await run.resume(id="r1"))
    again = await accepted(await run.pause(id="p1"))
    assert first == again
    assert await run.status() is RunStatus.BLOCKED
    assert len(await recorded(engine, run, e.RunPaused)) == 1


async def test_another_act_with_the_same_id_is_not_taken_for_the_first(engine: Engine) -> None:
    run = await engine.start(listening())
    await accepted(await run.pause(id="p1"))
    decision = await (await run.cancel(by=Actor("ann"), id="p1")).decision(WAIT)
    assert (decision.accepted, decision.code) == (False, "ID_TAKEN")
    assert "PAUSE" in decision.reason
    assert await run.status() is RunStatus.PAUSED


async def test_a_denied_act_leaves_its_id_to_others(shared_url: str) -> None:
    async with Engine(shared_url, authorizer=Roles()) as engine:
        run = await engine.start(listening())
        with pytest.raises(Denied):
            await run.pause(by=Actor("eve", "viewer"), id="p1")
        await accepted(await run.pause(by=Actor("bob", "operator"), id="p1"))
        with pytest.raises(Denied):
            await run.pause(by=Actor("eve", "viewer"), id="p1")
        assert await run.status() is RunStatus.PAUSED
        assert len(await recorded(engine, run, e.SignalRejected)) == 1


async def test_denied_act_is_recorded_and_has_no_effect(shared_url: str) -> None:
    async with Engine(shared_url, authorizer=Roles()) as engine:
        run = await engine.start(listening())
        with pytest.raises(Denied, match="AUTHZ_DENIED") as caught:
            await run.pause("mischief", by=Actor("eve", "viewer"))
        assert caught.value.reason_code == "AUTHZ_DENIED"
        with pytest.raises(Denied, match="AUTHZ_DENIED"):
            await run.cancel()  # without an actor there is no role
        with pytest.raises(Denied, match="AUTHZ_REASON_REQUIRED"):
            await run.emergency_stop(by=Actor("root", "admin"))
        await until_recorded(engine, run, e.SignalRejected, 3)
        refused = await recorded(engine, run, e.SignalRejected)
        assert {(each.by, each.code) for each in refused} == {
            ("eve", "AUTHZ_DENIED"),
            ("", "AUTHZ_DENIED"),
            ("root", "AUTHZ_REASON_REQUIRED"),
        }
        assert await run.status() is RunStatus.BLOCKED
        await accepted(await run.pause(by=Actor("ada", "operator")))
        await accepted(await run.emergency_stop("fire", by=Actor("root", "admin")))


async def test_authorizer_of_your_own_sees_act_actor_and_run() -> None:
    seen: list[tuple[str, str, str]] = []

    class OnlyMine:
        async def decide(self, act: Act, actor: Actor, run: ActedRun, reason: str) -> str | None:
            seen.append((act.type, actor.name, run.program))
            return None if reason else "NO_REASON"

    async with Engine("sqlite:///:memory:", authorizer=OnlyMine()) as engine:
        run = await engine.start(listening())
        with pytest.raises(Denied, match="NO_REASON"):
            await run.pause(by=Actor("ada"))
        await accepted(await run.pause("lunch", by=Actor("ada")))
    assert seen == [("PAUSE", "ada", "acts.listening")] * 2


async def test_run_journals_so_many_acts_a_minute() -> None:
    async with opened("sqlite:///:memory:") as engine:
        run = await engine.start(listening())
        for _ in range(ACTS_PER_MINUTE):
            assert await rejected(await run.resume()) == "RUN_NOT_PAUSED"
        assert await rejected(await run.resume()) == "RATE_LIMITED"
        assert len(await recorded(engine, run, e.SignalRejected)) == ACTS_PER_MINUTE
        await accepted(await run.emergency_stop("fire"))


async def test_sender_refuses_acts_while_too_many_wait(shared_url: str) -> None:
    async with Engine(shared_url) as engine:
        run = await engine.start(listening())
    async with Engine(shared_url, hosts=False) as sender:
        handle = sender.handle(run.run_id)
        for _ in range(ACTS_PER_MINUTE):
            await handle.pause()
        with pytest.raises(TooManyActs, match="60 acts wait"):
            await handle.pause()


async def test_large_act_is_refused() -> None:
    async with opened("sqlite:///:memory:") as engine:
        run = await engine.start(listening())
        with pytest.raises(InputError):
            await run.pause("x" * MAX_ACT_BYTES)
        with pytest.raises(InputError):
            await run.skip_step("root.0", value="x" * MAX_ACT_BYTES)
        assert await run.status() is RunStatus.BLOCKED


def test_sync_handle_has_the_same_acts() -> None:
    with perdure.SyncEngine("sqlite:///:memory:") as engine:
        run = engine.start(listening())
        receipt = run.pause("lunch")
        assert receipt.decision(WAIT).accepted
        assert run.status() is RunStatus.PAUSED
        assert run.resume().decision(WAIT).accepted
        run.signal(word, "hello")
        assert run.result(60) == "hello"


@task(name="acts.hopeless_elsewhere", queue="acts", on_failure="park")
async def hopeless_elsewhere(n: int) -> int:
    return await hopeless(n)


@workflow(name="acts.failing_elsewhere")
async def failing_elsewhere(n: int) -> int:
    return await hopeless_elsewhere(n)


@pytest.mark.parametrize("program", [failing, failing_elsewhere])
async def test_step_that_is_retried_in_a_pause_begins_after_it(
    program: perdure.Workflow[[int], Any], shared_url: str
) -> None:
    async with opened(shared_url, queues=("acts",)) as engine:
        run = await engine.start(program(2))
        step = await until_parked(engine, run)
        await accepted(await run.pause())
        await accepted(await run.retry_step(step))
        marker = await engine.start(queued_alone())
        assert await marker.result(60) == 5
        assert len([each for each in done if isinstance(each, tuple)]) == program_tries(program)
        await accepted(await run.resume())
        await run.result(60)
        assert [each[0] for each in done if isinstance(each, tuple)][-1] == 2


def program_tries(program: object) -> int:
    """Attempts before the step is parked."""
    return 2 if program is failing else 1


async def test_step_that_is_skipped_in_a_pause_is_heard_of_after_it(engine: Engine) -> None:
    run = await engine.start(failing(9))
    step = await until_parked(engine, run)
    await accepted(await run.pause())
    await accepted(await run.skip_step(step, value=4))
    assert await rejected(await run.skip_step(step, value=5)) == "STEP_SETTLED"
    assert await run.status() is RunStatus.PAUSED
    await accepted(await run.resume())
    assert await run.result(60) == [4, 7]


@pytest.fixture
def _poison(monkeypatch: pytest.MonkeyPatch) -> None:
    """A defect that no check foresees: what is published as `poison` can't be put in a bundle."""
    publish = Bundle.publish

    def refuse(bundle: Bundle, run_id: Any, name: str, *value: Any, **options: Any) -> None:
        if name == "poison":
            raise ValueError("a defect")
        publish(bundle, run_id, name, *value, **options)

    monkeypatch.setattr(Bundle, "publish", refuse)


@pytest.mark.usefixtures("_poison")
async def test_run_that_no_code_can_continue_takes_only_the_acts_that_end_it(
    shared_url: str,
) -> None:
    async with opened(shared_url) as engine:
        run = await engine.start(unwritable())
        await run.signal(word, "go")
        await until_status(run, RunStatus.PARKED)
        assert await rejected(await run.pause()) == "RUN_PARKED"
        assert await rejected(await run.retry_step("root.0")) == "RUN_PARKED"
        await accepted(await run.cancel("give up", by=Actor("ada", "operator")))
        assert await run.status() is RunStatus.CANCELLED
        (asked,) = await recorded(engine, run, e.CancelRequested)
        assert asked.signal_id is not None


@workflow(name="acts.unwritable")
async def unwritable() -> None:
    """What it decides after the signal can't be written: see the fixture."""
    await word.receive()
    perdure.publish("poison", 1)
    await perdure.sleep(1)


async def test_acts_follow_a_chain(engine: Engine) -> None:
    run = await engine.start(continuing(0))
    await until_recorded(engine, run, e.RunContinued)
    await accepted(await run.pause("in the next run"))
    assert await run.status() is RunStatus.PAUSED
    await accepted(await run.resume())
    await run.signal(word, "done")
    assert await run.result(60) == "done"


@workflow(name="acts.continuing")
async def continuing(turn: int) -> str:
    if turn == 0:
        return await perdure.continue_as_new(continuing(1))
    return await word.receive()


async def test_acts_by_what_is_no_actor_are_refused() -> None:
    async with opened("sqlite:///:memory:") as engine:
        run = await engine.start(listening())
        with pytest.raises(InputError, match=r"pass perdure\.Actor"):
            await run.pause(by="ada")  # type: ignore[arg-type]
        with pytest.raises(InputError, match="the id of an act"):
            await run.pause(id="")
        with pytest.raises(InputError, match="descends is 'yes'"):
            await run.pause(descends="yes")  # type: ignore[arg-type]
        assert not await recorded(engine, run, e.SignalAccepted)


@pytest.mark.parametrize("wrong", [Roles, "admin", 7])
def test_authorizer_that_can_not_decide_is_refused(wrong: Any) -> None:
    with pytest.raises(InputError, match="authorizer is"):
        Engine("sqlite:///:memory:", authorizer=wrong)
