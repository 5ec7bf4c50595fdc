"""Arguments that contradict annotations are refused before anything is written."""

from typing import Any

import pytest

import perdure
from perdure import Engine, InputError, Signal, SyncEngine, task, workflow
from perdure.core.journal import events as e
from perdure.engine.workflow import beginning
from tests.client.engines import recorded, until_recorded

amounts = Signal("wrong_arguments.amounts", int)

TEXT: Any = "1"


@task(name="wrong_arguments.add")
async def add(number: int) -> int:
    return number + 1


@workflow(name="wrong_arguments.count")
async def count(number: int, *more: int, step: int = 1) -> int:
    return number + step + sum(more)


@workflow(name="wrong_arguments.wait")
async def wait() -> int:
    return await amounts.receive()


@workflow(name="wrong_arguments.call")
async def call(what: str) -> str:
    try:
        if what == "task":
            await add(TEXT)
        elif what == "child":
            await count(TEXT)
        elif what == "started child":
            await perdure.start(count(TEXT))
        else:
            await perdure.continue_as_new(call(1))  # type: ignore[arg-type]
    except InputError as error:
        number = await add(1)
        return f"{number}: {error.what}"
    return "nothing was refused"


async def runs_of(engine: Engine) -> int:
    return (await engine.audit()).runs


@pytest.mark.parametrize(
    "wrong", [lambda: count(TEXT), lambda: count(1, TEXT), lambda: count(1, step=TEXT)]
)
async def test_start_refuses_arguments_that_contradict_annotations_and_keeps_the_key_free(
    engine: Engine, wrong: Any
) -> None:
    with pytest.raises(InputError, match=r"workflow 'wrong_arguments\.count' can't begin"):
        await engine.start(wrong(), key="k")
    with pytest.raises(InputError, match="can't begin with these arguments"):
        await engine.start_many([count(1), wrong()], keys=["k", "l"])
    assert await runs_of(engine) == 0
    assert await (await engine.start(count(1), key="k")).result() == 2


async def test_start_in_a_transaction_refuses_arguments_and_the_rest_commits(
    engine: Engine,
) -> None:
    async with engine.transaction():
        with pytest.raises(InputError, match="can't begin with these arguments"):
            await engine.start(count(TEXT), key="k")
        run = await engine.start(count(2), key="k")
    assert await run.result() == 3
    assert await runs_of(engine) == 1


def test_sync_engine_refuses_arguments_that_contradict_annotations() -> None:
    message = r"Expected `int`, got `str` - at `\$\.number`"
    with SyncEngine("sqlite:///:memory:") as engine, pytest.raises(InputError, match=message):
        engine.start(count(TEXT))


async def test_signal_of_a_wrong_type_is_refused(engine: Engine) -> None:
    run = await engine.start(wait())
    with pytest.raises(
        InputError, match=r"signal 'wrong_arguments\.amounts' can't carry a value of type 'str'"
    ):
        await run.signal(amounts, TEXT)
    await run.signal(amounts, 3)
    assert await run.result() == 3


@pytest.mark.parametrize("what", ["task", "child", "started child", "continue"])
async def test_workflow_can_catch_the_refusal_of_its_own_call(engine: Engine, what: str) -> None:
    """Nothing of the call is journaled, so the run also replays: one of the engines keeps nothing in memory."""
    run = await engine.start(call(what))
    assert (await run.result()).startswith("2: ")
    assert len(await recorded(engine, run, e.InvokeScheduled)) == 1
    assert await runs_of(engine) == 1


async def test_run_with_a_refused_call_in_its_journal_replays(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A release without the check scheduled the step, and it failed."""

    @workflow(name="wrong_arguments.patient")
    async def patient() -> str:
        try:
            await add(TEXT)
        except InputError as error:
            amount = await amounts.receive()
            return f"{amount}: {error.code}"
        return "nothing was refused"

    with monkeypatch.context() as patched:
        patched.setattr(beginning, "_require_right_arguments", lambda *_: None)
        run = await engine.start(patient())
        await until_recorded(engine, run, e.InvokeCompleted)
    await run.signal(amounts, 5)
    assert await run.result() == "5: not-decodable"
    assert len(await recorded(engine, run, e.InvokeScheduled)) == 1
