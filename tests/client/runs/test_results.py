"""Results that contradict their annotation: the attempt fails, or the error names the task or run."""

from typing import Any

import pytest

import perdure
from perdure import Engine, Transaction, task, workflow
from perdure.core.errors import NotDecodable, NotEncodable
from perdure.core.journal import events as e
from tests.client.engines import recorded


@task(name="results.wrong")
async def wrong() -> int:
    anything: Any = "seven"
    return anything  # type: ignore[no-any-return]


@task(name="results.wrong-inside")
async def wrong_inside() -> list[int]:
    anything: Any = ["seven"]
    return anything  # type: ignore[no-any-return]


@task(name="results.wrong-rows", transactional=True)
async def wrong_rows(tx: Transaction) -> int:
    await tx.execute("INSERT INTO results VALUES (1)")
    anything: Any = None
    return anything  # type: ignore[no-any-return]


@workflow(name="results.of-a-task")
async def result_of_a_task(which: str) -> object:
    tasks: dict[str, Any] = {"wrong": wrong, "inside": wrong_inside, "rows": wrong_rows}
    return await tasks[which]()


@workflow(name="results.of-a-workflow")
async def result_of_a_workflow() -> list[str]:
    await perdure.sleep(0)
    anything: Any = None
    return anything  # type: ignore[no-any-return]


@workflow(name="results.of-a-workflow-inside")
async def result_inside_of_a_workflow() -> list[str]:
    anything: Any = [7]
    return anything  # type: ignore[no-any-return]


@workflow(name="results.of-a-child")
async def result_of_a_child() -> object:
    return await result_inside_of_a_workflow()


async def test_a_result_of_another_type_fails_the_attempt(engine: Engine) -> None:
    run = await engine.start(result_of_a_task("wrong"))
    with pytest.raises(NotEncodable) as caught:
        await run.result(60)
    said = (
        f"the result of task 'results.wrong' (step root.0 of run {run.run_id!r}) is of type 'str',"
        " and its annotation says 'int'"
    )
    assert caught.value.what == said
    assert [each.ok for each in await recorded(engine, run, e.InvokeCompleted)] == [False]


async def test_rows_of_a_task_whose_result_is_of_another_type_are_rolled_back(
    engine: Engine,
) -> None:
    async with engine.transaction() as tx:
        await tx.execute("CREATE TABLE results (number INTEGER)")
    run = await engine.start(result_of_a_task("rows"))
    with pytest.raises(NotEncodable, match="type 'NoneType', and its annotation says 'int'"):
        await run.result(60)
    async with engine.transaction() as tx:
        assert await tx.fetch_value("SELECT count(*) FROM results") == 0


async def test_a_result_of_another_type_fails_its_run(engine: Engine) -> None:
    run = await engine.start(result_of_a_workflow())
    with pytest.raises(NotEncodable, match=r"workflow 'results.of-a-workflow' .*list\[str\]"):
        await run.result(60)
    assert await run.status() == "failed"


async def test_unreadable_result_names_the_task_or_run_that_returned_it(engine: Engine) -> None:
    run = await engine.start(result_of_a_task("inside"))
    with pytest.raises(
        NotDecodable, match=r"result of task 'results.wrong-inside' \(step root.0\)"
    ):
        await run.result(60)
    child = await engine.start(result_of_a_child())
    with pytest.raises(NotDecodable, match=r"run 'results.of-a-workflow-inside' \(step root.0\)"):
        await child.result(60)
    alone = await engine.start(result_inside_of_a_workflow())
    whose = f"run '{alone.run_id}' of 'results.of-a-workflow-inside'"
    with pytest.raises(NotDecodable, match=whose):
        await alone.result(60)


async def test_a_group_reaches_the_workflow_and_the_client_as_a_group(engine: Engine) -> None:
    @task
    async def fail_twice() -> None:
        raise ExceptionGroup("both", [KeyError("a"), ExceptionGroup("in", [ValueError("b")])])

    @workflow
    async def handling_a_group() -> list[str]:
        handled: list[str] = []
        try:
            await fail_twice()
        except* ValueError as group:
            handled.append(repr(group))
        except* KeyError as group:
            handled.append(repr(group))
        return handled

    @workflow
    async def raising_a_group() -> None:
        await fail_twice()

    assert await (await engine.start(handling_a_group())).result(60) == [
        "ExceptionGroup('both', [ExceptionGroup('in', [ValueError('b')])])",
        "ExceptionGroup('both', [KeyError('a')])",
    ]
    run = await engine.start(raising_a_group())
    with pytest.raises(ExceptionGroup) as caught:
        await run.result(60)
    assert repr(caught.value) == (
        "ExceptionGroup('both', [KeyError('a'), ExceptionGroup('in', [ValueError('b')])])"
    )
