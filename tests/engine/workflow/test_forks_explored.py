"""A run is forked at each of its commits, while hosts die, lose runs and deliver messages again."""

from typing import Any

import pytest

import perdure
from perdure import Handle, task, workflow
from perdure.testing.script import After
from perdure.testing.workflows import Ended, explore_workflow
from tests.engine.catching import Record


@task(name="forks_explored_add")
async def add(n: int) -> int:
    return n + 1


@workflow(name="forks_explored")
async def adds(n: int) -> int:
    one, other = await perdure.gather(add(n), add(n + 10))
    return await add(one + other)


async def fork_first_step(run: Handle[Any]) -> None:
    await run.fork("root.0", id="first")


async def set_first_step(run: Handle[Any]) -> None:
    await run.fork("root.0", id="set", set={"root.0": 5})


def ends_alike(ended: Ended) -> None:
    assert ended.status.value == "completed"
    assert (ended.payload or b"").decode() == "15"


@pytest.mark.parametrize("commits", [4, 6, 8])
async def test_a_run_that_is_forked_survives_any_one_fault(
    commits: int, record_property: Record
) -> None:
    script = After(commits, fork_first_step, at_once=True)
    explored = await explore_workflow(lambda: adds(1), script=script, check=ends_alike)
    record_property("explored", f"fork after commit {commits}: {explored}")


async def test_a_fork_with_an_outcome_survives_any_one_fault(record_property: Record) -> None:
    script = After(3, set_first_step, at_once=True)
    explored = await explore_workflow(
        lambda: adds(1), script=script, modes=["warm"], check=ends_alike
    )
    record_property("explored", f"fork with an outcome: {explored}")
