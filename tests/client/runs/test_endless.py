"""Workflows that never wait are stopped; long ones that do wait are not."""

from datetime import timedelta

import pytest

import perdure
from perdure import Engine, RunStatus, task, workflow
from perdure.core.errors import TurnTooLong
from perdure.core.journal import events as e
from perdure.engine.workflow import machine
from perdure.engine.workflow import turn_limit as endless
from tests.client.engines import opened, recorded

LIMIT = 200


@pytest.fixture
def short_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """A low limit of decisions."""
    monkeypatch.setattr(machine, "MAX_DECISIONS", LIMIT)
    monkeypatch.setattr(endless, "MAX_DECISIONS", LIMIT)


@task(name="endless.undo")
async def undo() -> str:
    return "undone"


@task(name="endless.number")
async def number(given: int) -> int:
    return given


@workflow(name="endless.spins_on_the_clock")
async def spins_on_the_clock() -> None:
    deadline = perdure.now() + timedelta(hours=1)
    while perdure.now() < deadline:
        pass


@workflow(name="endless.publishes")
async def publishes() -> None:
    while True:
        perdure.publish("phase", 1)


@workflow(name="endless.starts_children")
async def starts_children() -> None:
    while True:
        await perdure.start(counts(0))


@workflow(name="endless.submits")
async def submits() -> None:
    async def nothing() -> None: ...

    everything = perdure.join_set()
    while True:
        everything.submit(nothing())


@workflow(name="endless.gathers_branches")
async def gathers_branches() -> None:
    async def nothing() -> None: ...

    while True:
        await perdure.gather(nothing(), nothing())


@workflow(name="endless.counts")
async def counts(times: int) -> int:
    for _ in range(times):
        perdure.now()
    return times


@pytest.mark.parametrize(
    ("call", "verb"),
    [
        (spins_on_the_clock, "perdure.now"),
        (publishes, "perdure.publish"),
        (starts_children, "perdure.start"),
        (submits, "perdure.JoinSet.submit"),
        (gathers_branches, "perdure.gather"),
    ],
)
@pytest.mark.usefixtures("short_turns")
async def test_workflow_that_never_waits_fails_with_the_place(
    engine: Engine, call: perdure.Workflow[[], None], verb: str
) -> None:
    run = await engine.start(call())
    with pytest.raises(TurnTooLong) as caught:
        await run.result(timeout=60)
    assert f"workflow {call.name!r} decided {LIMIT} times and never waited" in caught.value.what
    assert f"now it calls {verb} (" in caught.value.what
    assert "test_endless.py:" in caught.value.what
    assert f"in {call.fn.__name__}" in caught.value.what
    assert "perdure.sleep" in caught.value.remedy
    # The host continues.
    assert await (await engine.start(counts(2))).result(timeout=60) == 2


@workflow(name="endless.cleans_up")
async def cleans_up() -> str:
    try:
        await spin()
    except TurnTooLong:
        return await undo()
    return "never"


async def spin() -> None:
    while True:
        perdure.now()


@pytest.mark.usefixtures("short_turns")
async def test_a_workflow_that_was_stopped_cleans_up_with_durable_steps(engine: Engine) -> None:
    run = await engine.start(cleans_up())
    assert await run.result(timeout=60) == "undone"
    assert len(await recorded(engine, run, e.TimeRecorded)) == LIMIT


@workflow(name="endless.never_learns")
async def never_learns() -> str:
    reported = 0
    while reported < 5:
        try:
            perdure.now()
        except TurnTooLong:
            reported += 1
    return "learned"


@pytest.mark.usefixtures("short_turns")
async def test_endless_workflow_that_catches_its_error_decides_nothing_more(engine: Engine) -> None:
    run = await engine.start(never_learns())
    assert await run.result(timeout=60) == "learned"
    assert len(await recorded(engine, run, e.TimeRecorded)) == LIMIT + endless.CLEAN_UP


@workflow(name="endless.waits_between")
async def waits_between() -> int:
    for _ in range(3):
        for _ in range(LIMIT - 1):
            perdure.now()
        await perdure.sleep(0)
    return 3


@pytest.mark.usefixtures("short_turns")
async def test_each_turn_is_counted_by_itself(engine: Engine) -> None:
    run = await engine.start(waits_between())
    assert await run.result(timeout=60) == 3
    assert await run.status() is RunStatus.COMPLETED


@workflow(name="endless.gathers_many")
async def gathers_many(count: int) -> int:
    return sum(await perdure.gather(*map(number, range(count))))


async def test_large_turns_are_well() -> None:
    async with opened("sqlite:///:memory:") as engine:
        assert await (await engine.start(counts(20_000))).result(timeout=60) == 20_000
        found = await (await engine.start(gathers_many(10_000))).result(timeout=60)
        assert found == sum(range(10_000))
