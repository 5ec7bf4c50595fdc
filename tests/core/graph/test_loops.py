"""Loops inside loops: what leads out of which, and what decides about whose turns."""

import pytest

from perdure.core.graph import model as m
from perdure.core.graph.lowering import lower
from perdure.core.graph.vertex import Vertex

NESTED = m.Graph(
    "nested",
    (
        m.Trigger(name="begin"),
        m.Hook(name="outer", cycle=True),
        m.Branch(name="ask"),
        m.Hook(name="inner", cycle=True),
        m.Branch(name="inner_ask"),
        m.Worker(name="work", task="any"),
        m.Cycle(name="inner_back", to="inner"),
        m.Cycle(name="back", to="outer"),
        m.Worker(name="after", task="any"),
    ),
    (
        m.Edge("begin", "outer"),
        m.Edge("outer", "ask"),
        m.Edge("ask", "inner", when="x"),
        m.Edge("ask", "after"),
        m.Edge("inner", "inner_ask"),
        m.Edge("inner_ask", "work", when="y"),
        m.Edge("inner_ask", "back"),
        m.Edge("work", "inner_back"),
    ),
)


def names(vertices: tuple[Vertex, ...]) -> set[str]:
    return {vertex.name for vertex in vertices}


@pytest.mark.parametrize(
    ("cycle", "hooks"), [("inner_back", {"inner", "outer"}), ("back", {"outer"})]
)
def test_who_goes_back_to_the_inner_loop_decides_about_the_outer_one_too(
    cycle: str, hooks: set[str]
) -> None:
    """Another turn of the inner one may end at the cycle activity of the outer one."""
    vertex = lower(NESTED).find(cycle)
    assert vertex is not None
    assert names(vertex.decides) == hooks


@pytest.mark.parametrize(
    ("source", "target", "hooks"),
    [
        ("ask", "inner", set()),
        ("ask", "after", {"outer"}),
        ("inner_ask", "work", set()),
        ("work", "inner_back", set()),
        ("inner_ask", "back", {"inner"}),
    ],
)
def test_arrows_lead_out_of_the_loops_that_they_do_not_come_back_to(
    source: str, target: str, hooks: set[str]
) -> None:
    vertex = lower(NESTED).find(source)
    assert vertex is not None
    (arrow,) = (arrow for arrow in vertex.arrows if arrow.target.name == target)
    assert names(arrow.leaves) == hooks
