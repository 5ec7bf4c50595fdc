"""The explorer requires that a run which ends leaves no child run behind."""

from typing import Any

import pytest

import perdure
from perdure import GraphProgram, task, workflow
from perdure.core.graph import model as m
from perdure.engine.graph import ending
from perdure.testing.explorer import ScheduleFailed
from perdure.testing.workflows import explore_workflow


@task(name="children.add")
async def add() -> int:
    return 2


@workflow(name="children.sleeping")
async def sleeping() -> int:
    await perdure.sleep(60)
    return 1


def _early() -> GraphProgram[..., Any]:
    """Completes as soon as one step is open: the child, which sleeps."""
    nodes = (
        m.TriggerNode(name="t"),
        m.AwaitNode(name="child", program="children.sleeping"),
        m.WorkerNode(name="work", task="children.add"),
        m.OutputNode(name="o", value="2"),
    )
    edges = (m.Edge("t", "child"), m.Edge("t", "work"), m.Edge("work", "o"))
    return GraphProgram(m.Graph("children.early", nodes, edges, input={}, threshold=1))


early = _early()


async def test_child_of_a_run_that_ends_at_its_threshold_is_cancelled() -> None:
    await explore_workflow(early, modes=["warm", "stepwise"])


async def test_explorer_reports_a_child_that_an_ended_run_leaves_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    abandon = ending._abandon_open_steps
    monkeypatch.setattr(
        ending, "_abandon_open_steps", lambda machine, **_: abandon(machine, descends=False)
    )
    with pytest.raises(ScheduleFailed, match="is neither ended nor cancelled"):
        await explore_workflow(early, modes=["warm"])
