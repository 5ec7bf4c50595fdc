"""Cycles: edges that form one, cycle activities, and the planes that they and repeated responses open."""

from collections.abc import Iterator
from typing import Final

from perdure.core.graph import model as m
from perdure.core.graph.fields import node_kind, opens_planes
from perdure.core.graph.model import Problem
from perdure.core.graph.suggestions import did_you_mean
from perdure.core.graph.survey import Survey
from perdure.core.limits import MAX_STEP_BYTES

_PLANE_DIGITS: Final = 8
"""Digits of a plane's number, beside the first."""

TOO_MUCH: Final = "move some into a graph of their own, and start that with an await"


def problems(survey: Survey) -> Iterator[Problem]:
    for numbered in survey.returning:
        source, target = numbered.edge.source, numbered.edge.target
        if isinstance(survey.nodes[target], m.TriggerNode):
            continue  # another rule reports edges to the trigger
        yield Problem(
            numbered.place,
            "target",
            f"{source} -> {target} leads back, and edges form no circle",
            f"lead {source!r} to a cycle activity, which returns to a hook with cycle: true before",
        )
    for node in survey.of_kind(m.CycleNode):
        yield from _cycle(survey, node)
    if survey.gaps.has_all_edges:
        yield from _strays(survey)
    yield from too_deep(survey)


def _cycle(survey: Survey, node: m.CycleNode) -> Iterator[Problem]:
    hook = survey.nodes.get(node.to)
    hooks = [h.name for h in survey.of_kind(m.HookNode) if h.cycle]
    if hook is None:
        if survey.gaps.has_all_nodes:
            remedy = did_you_mean(node.to, hooks, "name a hook with cycle: true")
            yield Problem(node.name, "to", f"there is no node {node.to!r}", remedy)
    elif not isinstance(hook, m.HookNode):
        yield Problem(
            node.name,
            "to",
            f"{node.to!r} is no hook, but of kind {node_kind(hook)}",
            "put a hook with cycle: true before it, and return to that",
        )
    elif not hook.cycle and node.to not in survey.gaps.partial:
        yield Problem(
            node.name,
            "to",
            f"the hook {node.to!r} is not made to be returned to",
            f"set cycle: true on {node.to!r}, which must wait for nothing",
        )
    elif (
        survey.gaps.has_all_edges
        and node.name in survey.reached
        and not survey.is_before(node.to, node.name)
    ):
        yield Problem(
            node.name,
            "to",
            f"the hook {node.to!r} does not come before it",
            "return to a hook that the path has come by",
        )


def _strays(survey: Survey) -> Iterator[Problem]:
    """Joins of a repeated path with one that runs once: they would wait for ever. Each is reported once."""
    shape, names = survey.shape, survey.names
    reported: set[int] = set()
    for opener in survey.in_order():
        if not opens_planes(survey.nodes[opener]):
            continue
        place = survey.number[opener]
        inside = {each for each in shape.descendants(place) if shape.dominates(place, each)}
        inside.add(place)
        for join in sorted(shape.descendants(place) - inside - reported):
            ways = shape.before[join]
            within = [names[way] for way in ways if way in inside]
            outside = [names[way] for way in ways if way not in inside]
            if within and outside:
                reported.add(join)
                yield _stray(names[join], opener, within[0], outside[0])


def _stray(join: str, opener: str, within: str, outside: str) -> Problem:
    return Problem(
        join,
        "",
        f"it joins {within!r}, which may come many times because of {opener!r}, with {outside!r}, "
        f"which does not come by {opener!r}: it would wait for one of them for ever",
        f"let {outside!r} lead to {opener!r}, or to a node of its own instead",
    )


def too_deep(survey: Survey) -> Iterator[Problem]:
    """The first node with a step id that may be too long: the id has a number for each activity on the path."""
    depths: dict[str, int] = {}
    planes: dict[str, int] = {}
    for name in survey.in_order():
        node = survey.nodes[name]
        before = survey.before(name)
        is_placed = not isinstance(node, m.INLINE) or isinstance(node, m.SpreadNode)
        depths[name] = max((depths[each] for each in before), default=0) + is_placed
        planes[name] = max((planes[each] for each in before), default=0) + (
            opens_planes(node) or isinstance(node, m.SpreadNode)
        )
        size = len(name.encode()) + 2 * (depths[name] + 1) + _PLANE_DIGITS * planes[name]
        if size > MAX_STEP_BYTES:
            yield Problem(
                name,
                "",
                f"it is activity {depths[name]} on its path, and the id of its step may take {size:,} bytes,"
                f" of {MAX_STEP_BYTES:,}",
                TOO_MUCH,
            )
            return
