"""Whether a graph can replace a call of it. A graph that can't must be awaited, as a run of its own."""

from collections.abc import Iterator
from typing import Final

from perdure.core.graph import model as m
from perdure.core.graph.checking import problems_of
from perdure.core.graph.fields import ends_here, is_for_errors, node_kind, opens_planes
from perdure.core.graph.model import Problem
from perdure.core.graph.survey import Survey

AWAIT_IT: Final = "start it with an await, as a run of its own"


def repeats(graph: m.Graph) -> bool:
    """Whether some nodes may run more than once, each time in a plane of its own. Error edges can't lead out of one."""
    return _first_repeating(graph) is not None


def may_end_without_result(graph: m.Graph) -> bool:
    """Whether some path reaches no output; or, in a graph without outputs, no node where paths end.

    The nodes behind the call would be skipped then. Every condition may be false.
    """
    survey = Survey(graph)
    leads: dict[str, bool] = {}
    for name in reversed(list(survey.in_order())):
        leads[name] = _leads_to_an_end(survey, survey.nodes[name], leads)
    return not all(leads[name] for name in survey.beginnings)


def misplaced(call: m.CallNode, inner: m.Graph, *, is_handled: bool) -> Iterator[Problem]:
    """Why the graph can't replace the call. `is_handled`: the call has error edges."""
    repeating = _first_repeating(inner) if is_handled else None
    if repeating is not None:
        what = (
            f"the call has error edges, and none can lead out of what the {node_kind(repeating)} "
            f"{repeating.name!r} of the graph {call.graph!r} repeats"
        )
        yield Problem(call.name, "graph", what, AWAIT_IT)
    if may_end_without_result(inner):
        what = (
            f"the graph {call.graph!r} may end without an output, and what follows would be skipped"
        )
        remedy = f"give every path of {call.graph!r} an output, or {AWAIT_IT}"
        yield Problem(call.name, "graph", what, remedy)


def problems_in_place(graph: m.Graph, expanded: m.Graph) -> list[Problem]:
    """Problems of the expanded graph, reported at the calls that cause them."""
    found = problems_of(expanded)
    if not found:
        return []
    at_calls = (_at_call(graph, expanded, problem) for problem in found)
    return problems_of(graph) or list(dict.fromkeys(at_calls))


def _first_repeating(graph: m.Graph) -> m.AnyNode | None:
    nodes = (node for node in graph.nodes if opens_planes(node) or isinstance(node, m.SpreadNode))
    return next(nodes, None)


def _leads_to_an_end(survey: Survey, node: m.AnyNode, leads: dict[str, bool]) -> bool:
    edges = [numbered.edge for numbered in survey.outgoing[node.name]]
    if ends_here(node):
        return True
    if not edges:
        return isinstance(node, m.RaiseNode) or not any(survey.of_kind(m.OutputNode))
    if isinstance(node, m.SpreadNode):  # however many items there are, the aggregate is passed
        ends = (each.name for each in survey.of_kind(m.AggregateNode) if each.of == node.name)
        return all(leads.get(end, True) for end in ends)
    handled = all(leads.get(edge.target, True) for edge in edges if is_for_errors(edge.on))
    if isinstance(node, m.RaiseNode) or not handled:
        return handled
    ways = [edge for edge in edges if edge.on == m.DONE]
    sure = [leads.get(edge.target, True) for edge in ways if edge.when is None]
    if isinstance(node, m.BranchNode):
        return bool(sure) and all(leads.get(edge.target, True) for edge in ways)
    return any(sure)


def _at_call(graph: m.Graph, expanded: m.Graph, problem: Problem) -> Problem:
    place, ends = problem.node, [problem.node]
    if place.startswith("edge "):
        edge = expanded.edges[int(place.removeprefix("edge "))]
        place, ends = f"{edge.source} -> {edge.target}", [edge.source, edge.target]
    calls = [node for node in graph.nodes if isinstance(node, m.CallNode)]
    for call in calls:
        if any(f"{end}/".startswith(f"{call.name}/") for end in ends):
            what = f"the graph {call.graph!r} can't take this place ({place}: {problem.what})"
            return Problem(call.name, "graph", what, AWAIT_IT)
    # Nodes outside the calls keep their names, and edges between them their numbers.
    meant = next((call for call in calls if f"{call.name}/" in problem.what), None)
    if meant is None:
        return problem
    remedy = f"start {meant.graph!r} with an await, as a run of its own, at {meant.name!r}"
    return Problem(problem.node, problem.field, problem.what, remedy)
