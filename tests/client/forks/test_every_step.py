"""A fork at any step of any program, with nothing changed, ends as the run that was forked."""

import pytest

from perdure.testing.script import After
from tests.client.forks.forking import (
    Script,
    assert_forks_end_alike,
    assert_set_outcomes_count,
    forked,
)
from tests.engine.graph import flowing, staying, waiting, working
from tests.engine.workflow.programs import PROGRAMS

GRAPHS = working.CASES | waiting.CASES | staying.CASES | flowing.CASES

WITHOUT = {"tidies_up"}
"""Cancelled by its script: a fork before the cancel waits for ever."""

DEPEND_ON_OTHERS = {
    "names that are computed",
    "signal by topic and key",
    "signal to all",
    "signal to all, once each",
}
"""They signal their child runs: a fork starts other ones, and does not send what its source has sent."""

DEPEND_ON_OTHERS = {
    "names that are computed",
    "signal by topic and key",
    "signal to all",
    "signal to all, once each",
    "interrupt: itself by its id",
    "202 whose output fails: hook that is not said to be pending",
}
"""They depend on other runs. A fork starts other children, does not send again what its source has sent, keeps results
that name its source, and may get a signal that waits in a mailbox."""


def script_of(name: str) -> Script | None:
    script = GRAPHS[name].script
    return None if isinstance(script, After) else script


@pytest.mark.parametrize("name", [name for name in PROGRAMS if name not in WITHOUT])
async def test_forks_of_a_workflow_end_alike(name: str) -> None:
    program = PROGRAMS[name]
    async with forked(program.call(), program.script) as found:
        await assert_forks_end_alike(found)


@pytest.mark.parametrize(
    "name",
    [
        name
        for name, case in GRAPHS.items()
        if not (case.is_race or isinstance(case.script, After) or name in DEPEND_ON_OTHERS)
    ],
)
async def test_forks_of_a_graph_end_alike(name: str) -> None:
    async with forked(GRAPHS[name].call(), script_of(name)) as found:
        await assert_forks_end_alike(found)


@pytest.mark.parametrize("name", [name for name in PROGRAMS if name not in WITHOUT])
async def test_outcomes_that_are_set_count_as_if_the_tasks_had_returned_them(name: str) -> None:
    program = PROGRAMS[name]
    async with forked(program.call(), program.script) as found:
        await assert_set_outcomes_count(found)
