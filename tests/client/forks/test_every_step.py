"""A fork at any step of any program, with nothing changed, ends as the run that was forked."""

import pytest

from perdure.testing.script import After
from tests.client.forks.forking import Script, assert_forks_end_alike, forked
from tests.engine.graph import flowing, staying, waiting, working
from tests.engine.workflow.programs import PROGRAMS

GRAPHS = working.CASES | waiting.CASES | staying.CASES | flowing.CASES

WITHOUT = {"tidies_up"}
"""Cancelled by its script: a fork before the cancel waits for ever."""

SOME_GRAPHS = [
    "worker: retried",
    "worker: queued",
    "await a workflow",
    "spread: in order",
    "spread: nested",
    "threshold: what waits is given up",
]
"""Those that together have every kind of outcome that a fork carries over."""


def script_of(name: str) -> Script | None:
    script = GRAPHS[name].script
    return None if isinstance(script, After) else script


@pytest.mark.parametrize("name", [name for name in PROGRAMS if name not in WITHOUT])
async def test_forks_of_a_workflow_end_alike(name: str) -> None:
    program = PROGRAMS[name]
    async with forked(program.call(), program.script) as found:
        assert await assert_forks_end_alike(found)


@pytest.mark.parametrize("name", SOME_GRAPHS)
async def test_forks_of_a_graph_end_alike(name: str) -> None:
    async with forked(GRAPHS[name].call(), script_of(name)) as found:
        assert await assert_forks_end_alike(found)


@pytest.mark.deep
@pytest.mark.parametrize(
    "name",
    [name for name, case in GRAPHS.items() if not (case.is_race or isinstance(case.script, After))],
)
async def test_forks_of_any_graph_end_alike(name: str) -> None:
    async with forked(GRAPHS[name].call(), script_of(name)) as found:
        await assert_forks_end_alike(found)
