"""Ways back: circles of edges, cycle activities, and the planes that they and repeated responses open."""

from collections.abc import Iterator
from typing import Final

from perdure.core.graph import model as m
from perdure.core.graph.fields import kind_of, opens_planes
from perdure.core.graph.model import Problem
from perdure.core.graph.suggestions import did_you_mean
from perdure.core.graph.survey import Survey

MAX_ADDRESS: Final = 60
"""Activities and spreads on one path: each is a number in the addresses of those behind it."""


def problems(survey: Survey) -> Iterator[Problem]:
    for numbered in survey.returning:
        source, target = numbered.edge.source, numbered.edge.target
        yield Problem(
            numbered.place,
            "target",
            f"{source} -> {target} leads back, and edges form no circle",
            f"lead {source!r} to a cycle activity, which returns to a hook with cycle: true before",
        )
    for node in survey.of_kind(m.Cycle):
        yield from _cycle(survey, node)
    for opener in survey.nodes.values():
        if opens_planes(opener) and opener.name in survey.reached:
            yield from _strays(survey, opener)
    yield from _too_deep(survey)


def _cycle(survey: Survey, node: m.Cycle) -> Iterator[Problem]:
    hook = survey.nodes.get(node.to)
    hooks = [h.name for h in survey.of_kind(m.Hook) if h.cycle]
    if hook is None:
        remedy = did_you_mean(node.to, hooks, "name a hook with cycle: true")
        yield Problem(node.name, "to", f"there is no node {node.to!r}", remedy)
    elif not isinstance(hook, m.Hook):
        yield Problem(
            node.name,
            "to",
            f"{node.to!r} is no hook, but of kind {kind_of(hook)}",
            "put a hook with cycle: true before it, and return to that",
        )
    elif not hook.cycle:
        yield Problem(
            node.name,
            "to",
            f"the hook {node.to!r} is not made to be returned to",
            f"set cycle: true on {node.to!r}, which must wait for nothing",
        )
    elif node.name in survey.reached and not survey.is_before(node.to, node.name):
        yield Problem(
            node.name,
            "to",
            f"the hook {node.to!r} does not come before it",
            "return to a hook that the path has come by",
        )


def _strays(survey: Survey, opener: m.AnyNode) -> Iterator[Problem]:
    """Joins of a path that comes many times with one that comes once: they would wait for ever."""
    inside = survey.reach((opener.name,))
    for name in survey.names:
        if name not in inside or name == opener.name or survey.dominates(opener.name, name):
            continue
        ways = survey.before(name)
        within = [w for w in ways if w in inside and survey.dominates(opener.name, w)]
        outside = [w for w in ways if w not in inside or not survey.dominates(opener.name, w)]
        if within and outside:
            yield Problem(
                name,
                "",
                f"it joins {within[0]!r}, which may come many times because of {opener.name!r}, "
                f"with {outside[0]!r}, which does not come by {opener.name!r}: "
                "it would wait for one of them for ever",
                f"let {outside[0]!r} lead to {opener.name!r}, or to a node of its own instead",
            )


def _too_deep(survey: Survey) -> Iterator[Problem]:
    depths: dict[str, int] = {}
    for name in survey.in_order():
        node = survey.nodes[name]
        above = max((depths[before] for before in survey.before(name)), default=0)
        depths[name] = above + (not isinstance(node, m.INLINE) or isinstance(node, m.Spread))
        if depths[name] > MAX_ADDRESS >= above:
            yield Problem(
                name,
                "",
                f"it is activity {depths[name]} on its path, and {MAX_ADDRESS} is the most",
                "move some into a graph of their own, and start that with an await",
            )
