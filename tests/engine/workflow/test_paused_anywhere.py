"""A pause anywhere changes no result: every program of the corpora is paused after each of its first commits."""

from collections.abc import Callable
from typing import Any

import pytest

from perdure import Handle, ProgramCall
from perdure.testing.script import After
from perdure.testing.workflows import Check, Race, explore_workflow
from tests.engine.graph.test_explored import CASES, check
from tests.engine.workflow.acting import pause_all
from tests.engine.workflow.programs import PROGRAMS, no_script

MOMENTS = (1, 2, 4)

WORKFLOWS = {name: each for name, each in PROGRAMS.items() if each.script is no_script}
GRAPHS = {name: each for name, each in CASES.items() if each.script is None and not each.is_race}


async def resume(run: Handle[Any]) -> None:
    await run.resume(id="resume", descends=True)


async def paused_at_each_moment(
    call: Callable[[], ProgramCall[Any]], must_end: Check | Race
) -> None:
    for moment in MOMENTS:
        script = After(moment, pause_all, at_once=True, then=resume)
        await explore_workflow(
            call, script=script, queues=["elsewhere"], max_faults=0, modes=["warm"], check=must_end
        )


@pytest.mark.parametrize("name", WORKFLOWS)
async def test_workflow_ends_the_same_with_a_pause_anywhere(name: str) -> None:
    program = WORKFLOWS[name]
    await paused_at_each_moment(program.call, program.check)


@pytest.mark.parametrize("name", GRAPHS)
async def test_graph_ends_the_same_with_a_pause_anywhere(name: str) -> None:
    case = GRAPHS[name]
    await paused_at_each_moment(case.call, check(case))
