"""Checks a graph, and reports all problems at once."""

from collections.abc import Iterable
from typing import Final

from perdure.core.errors import GraphInvalid
from perdure.core.graph.gaps import NO_GAPS, Gaps
from perdure.core.graph.model import Graph, Problem
from perdure.core.graph.rules import naming, options, reading, results, returns, spreads, wiring
from perdure.core.graph.rules.returns import TOO_MUCH
from perdure.core.graph.scopes import Scopes
from perdure.core.graph.survey import Survey

MAX_NODES: Final = 1_000
MAX_EDGES: Final = 5_000


def problems_of(graph: Graph, gaps: Gaps = NO_GAPS) -> list[Problem]:
    """All problems: of the graph itself, then of its nodes and edges, in their order.

    Calls are not expanded here; the expanded graph is checked again. For a graph with `gaps`, only problems that the
    unreadable parts can't explain.
    """
    found = _too_large(graph)
    if found:
        return found
    survey = Survey(graph, gaps)
    scopes = Scopes(survey)
    found = [
        *naming.problems(survey),
        *options.problems(survey),
        *wiring.problems(survey),
        *returns.problems(survey),
        *spreads.problems(survey),
        *reading.problems(survey, scopes),
        *results.problems(survey, scopes),
    ]
    places = {"": 0} | {node.name: number for number, node in enumerate(graph.nodes, 1)}
    for number in range(len(graph.edges)):
        places.setdefault(f"edge {number}", len(graph.nodes) + 1 + number)
    return sorted(dict.fromkeys(found), key=lambda problem: places[problem.node])


def problems_of_parts(graph: Graph) -> list[Problem]:
    """Problems of single fields and nodes, for a graph that is still incomplete."""
    survey = Survey(graph)
    found = [*naming.problems(survey), *options.problems(survey), *returns.too_deep(survey)]
    return _too_large(graph) or list(dict.fromkeys(found))


def _too_large(graph: Graph) -> list[Problem]:
    counts = (("nodes", len(graph.nodes), MAX_NODES), ("edges", len(graph.edges), MAX_EDGES))
    return [
        Problem(
            "",
            "",
            f"the graph has {count:,} {what}, and {most:,} is the most",
            TOO_MUCH,
        )
        for what, count, most in counts
        if count > most
    ]


def invalid(name: str, problems: Iterable[Problem]) -> GraphInvalid:
    """The error with all problems."""
    found = tuple(problems)
    count = "1 problem" if len(found) == 1 else f"{len(found)} problems"
    lines = "".join(f"\n  {problem}" for problem in found)
    return GraphInvalid(f"graph {name!r} has {count}", lines, found)
