"""Small graphs, lowered, and walks through them without an engine."""

from typing import Any

from perdure.core.codec import JsonCodec
from perdure.core.graph import model as m
from perdure.core.graph.lowering import lower
from perdure.core.graph.state import GraphState, VariableScope
from perdure.core.graph.transition import PASSED, StartingStep, StepResponse
from perdure.core.graph.vertex import Arrow, Lowered, Plane, Vertex
from perdure.core.graph.walk import Walk

BEGIN = m.TriggerNode(name="begin")


def graph(*parts: m.AnyNode | m.Edge | tuple[str, str]) -> Lowered:
    """A graph of nodes and edges, with its trigger."""
    nodes = [part for part in parts if isinstance(part, m.Node)]
    edges = [m.Edge(*part) if isinstance(part, tuple) else part for part in parts]
    known: Any = (BEGIN, *nodes)
    return lower(m.Graph("walked", known, tuple(e for e in edges if isinstance(e, m.Edge))))


def worker(name: str, **more: Any) -> m.WorkerNode:
    return m.WorkerNode(name=name, task="whatever", **more)


class Run:
    """A run in memory: the test answers its steps."""

    def __init__(self, lowered: Lowered, **given: Any) -> None:
        self._lowered = lowered
        self.state = GraphState()
        self.begun: dict[str, StartingStep] = {}
        self.skipped: list[str] = []
        self.walk = self.leave(lowered.trigger, (), given, PASSED)

    def vertex(self, name: str) -> Vertex:
        return vertex_of(self._lowered, name)

    def leave(
        self, vertex: Vertex, plane: Plane, scope: VariableScope, answer: StepResponse
    ) -> Walk:
        self.walk = Walk(self.state, JsonCodec())
        self.walk.leave(vertex, plane, scope, answer)
        self.walk.advance()
        self.begun.update({each.vertex.step(each.plane): each for each in self.walk.begun})
        self.skipped.extend(self.walk.skipped)
        return self.walk

    def answer(self, step: str, result: Any = None, **more: Any) -> Walk:
        """The step has its answer."""
        begun = self.begun.pop(step)
        plane = (*begun.plane, 0) if begun.vertex.opens_planes else begun.plane
        return self.leave(begun.vertex, plane, begun.scope, StepResponse(result, **more))

    def turn(self, step: str, number: int) -> Walk:
        """The cycle activity goes back, for the so-manieth time."""
        begun = self.begun.pop(step)
        hook = begun.vertex.returns_to
        assert hook is not None
        outer = begun.plane[: len(hook.positions)]
        return self.leave(hook, (*outer, number), {**begun.scope, **begun.arguments}, PASSED)


def vertex_of(lowered: Lowered, name: str) -> Vertex:
    found = lowered.find(name)
    assert found is not None
    return found


def arrow_of(lowered: Lowered, source: str, target: str) -> Arrow:
    arrows = vertex_of(lowered, source).arrows
    return next(arrow for arrow in arrows if arrow.target.name == target)
