"""Whether a graph can take the place of a call of it. One that can't is awaited, as a run of its own."""

from collections.abc import Iterator
from typing import Final

from perdure.core.graph import model as m
from perdure.core.graph.checking import problems_of
from perdure.core.graph.fields import ends_here, is_for_errors, kind_of, opens_planes
from perdure.core.graph.model import Problem
from perdure.core.graph.survey import Survey

AWAIT_IT: Final = "start it with an await, as a run of its own"


def repeats(graph: m.Graph) -> bool:
    """Whether some of its nodes may be passed more than once, each time in a plane that edges to a handler outside
    would lead out of."""
    return _first_repeating(graph) is not None


def may_end_without_result(graph: m.Graph) -> bool:
    """Whether there is a way through it that comes to no output; or, if it has none, to no node that paths end at.

    What follows the call would be skipped then. A condition counts as one that may not hold.
    """
    survey = Survey(graph)
    leads: dict[str, bool] = {}
    for name in reversed(list(survey.in_order())):
        leads[name] = _leads_to_an_end(survey, survey.nodes[name], leads)
    return not all(leads[name] for name in survey.beginnings)


def misplaced(call: m.Call, inner: m.Graph, *, is_handled: bool) -> Iterator[Problem]:
    """Why the graph can't take the place of the call. `is_handled`: the call has error edges."""
    repeating = _first_repeating(inner) if is_handled else None
    if repeating is not None:
        what = (
            f"the call has error edges, and none can lead out of what the {kind_of(repeating)} "
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
    """What is wrong with a graph once its calls are expanded, told at the calls that it comes from."""
    found = problems_of(expanded)
    if not found:
        return []
    told = (_told(graph, expanded, problem) for problem in found)
    return problems_of(graph) or list(dict.fromkeys(told))


def _first_repeating(graph: m.Graph) -> m.AnyNode | None:
    nodes = (node for node in graph.nodes if opens_planes(node) or isinstance(node, m.Spread))
    return next(nodes, None)


def _leads_to_an_end(survey: Survey, node: m.AnyNode, leads: dict[str, bool]) -> bool:
    edges = [numbered.edge for numbered in survey.outgoing[node.name]]
    if ends_here(node):
        return True
    if not edges:
        return isinstance(node, m.Raise) or not any(survey.of_kind(m.Output))
    if isinstance(node, m.Spread):  # however many items there are, the aggregate is passed
        ends = (each.name for each in survey.of_kind(m.Aggregate) if each.of == node.name)
        return all(leads.get(end, True) for end in ends)
    handled = all(leads.get(edge.target, True) for edge in edges if is_for_errors(edge.on))
    if isinstance(node, m.Raise) or not handled:
        return handled
    ways = [edge for edge in edges if edge.on == m.DONE]
    sure = [leads.get(edge.target, True) for edge in ways if edge.when is None]
    if isinstance(node, m.Branch):
        return bool(sure) and all(leads.get(edge.target, True) for edge in ways)
    return any(sure)


def _told(graph: m.Graph, expanded: m.Graph, problem: Problem) -> Problem:
    place, ends = problem.node, [problem.node]
    if place.startswith("edge "):
        edge = expanded.edges[int(place.removeprefix("edge "))]
        place, ends = f"{edge.source} -> {edge.target}", [edge.source, edge.target]
    calls = [node for node in graph.nodes if isinstance(node, m.Call)]
    for call in calls:
        if any(f"{end}/".startswith(f"{call.name}/") for end in ends):
            what = f"the graph {call.graph!r} can't take this place ({place}: {problem.what})"
            return Problem(call.name, "graph", what, AWAIT_IT)
    # Nodes around the calls keep their names, and edges between them their numbers.
    meant = next((call for call in calls if f"{call.name}/" in problem.what), None)
    if meant is None:
        return problem
    remedy = f"start {meant.graph!r} with an await, as a run of its own, at {meant.name!r}"
    return Problem(problem.node, problem.field, problem.what, remedy)
