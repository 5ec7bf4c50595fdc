"""Edges: where they lead, on what they are taken, and in which order."""

from collections import Counter
from collections.abc import Iterator

from perdure.core.graph import model as m
from perdure.core.graph.fields import ends_here, is_for_errors, node_kind, waits_for_signal
from perdure.core.graph.model import Problem
from perdure.core.graph.rules.errors import name_faults
from perdure.core.graph.suggestions import did_you_mean
from perdure.core.graph.survey import NumberedEdge, Survey


def problems(survey: Survey) -> Iterator[Problem]:
    yield from _triggers(survey)
    yield from _ends(survey)
    seen: set[tuple[object, ...]] = set()
    for numbered in survey.edges:
        edge = numbered.edge
        same = (edge.source, edge.target, edge.on, edge.when, edge.errors)
        if same in seen and numbered.place not in survey.gaps.partial:
            yield Problem(numbered.place, "", f"{_arrow(edge)} is there twice", "remove one")
        seen.add(same)
        yield from _edge(survey, numbered)
    for name, node in survey.nodes.items():
        yield from _alternatives(survey, node, survey.outgoing[name])
    if survey.gaps.has_all_edges:
        yield from _unreached(survey)


def _triggers(survey: Survey) -> Iterator[Problem]:
    triggers = [node for node in survey.graph.nodes if isinstance(node, m.TriggerNode)]
    if not triggers and survey.gaps.has_all_kinds:
        yield Problem("", "", "there is no trigger", "add one, where the run begins")
    for extra in triggers[1:]:
        yield Problem(
            extra.name,
            "",
            f"there is a trigger already: {triggers[0].name!r}",
            "begin in one place, and continue from there",
        )


def _ends(survey: Survey) -> Iterator[Problem]:
    if not survey.gaps.has_all_nodes:
        return
    for number, edge in enumerate(survey.graph.edges):
        for field, name in (("source", edge.source), ("target", edge.target)):
            if name not in survey.nodes:
                remedy = did_you_mean(name, survey.names, "add the node, or remove the edge")
                yield Problem(f"edge {number}", field, f"there is no node {name!r}", remedy)


def _arrow(edge: m.Edge) -> str:
    return f"{edge.source} -> {edge.target}"


def _edge(survey: Survey, numbered: NumberedEdge) -> Iterator[Problem]:
    place, edge = numbered.place, numbered.edge
    source = survey.nodes[edge.source]
    if isinstance(survey.nodes[edge.target], m.TriggerNode):
        yield Problem(
            place, "target", f"{_arrow(edge)} leads to the trigger", "begin behind the trigger"
        )
    if ends_here(source):
        yield Problem(
            place,
            "source",
            f"no path continues from {_article(node_kind(source))} {edge.source!r}",
            "remove the edge, or let it begin before",
        )
    elif edge.source not in survey.gaps.partial:
        what = _why_not_on(source, edge.on)
        if what is not None:
            remedy = did_you_mean(edge.on, _endings(source), f"use {_choices(source)}")
            yield Problem(place, "on", what, remedy)
    if edge.when is not None and isinstance(source, m.SpreadNode):
        yield Problem(
            place, "when", "every item goes the same way from a spread", "put a branch behind it"
        )
    is_whole = place not in survey.gaps.partial
    for field in () if is_for_errors(edge.on) else ("errors", "bind"):
        if is_whole and getattr(edge, field):
            yield Problem(place, field, f"{_arrow(edge)} is not for errors", f"set on={m.ERROR!r}")
    for what, remedy in name_faults(edge.errors):
        yield Problem(place, "errors", what, remedy)


def _article(word: str) -> str:
    return f"an {word}" if word[0] in "aeiou" else f"a {word}"


def _endings(node: m.Node) -> tuple[str, ...]:
    """The values of `on` that a node may end with, apart from codes."""
    if isinstance(node, m.TriggerNode | m.SpreadNode):
        return (m.DONE,)
    if isinstance(node, m.RaiseNode):
        return (m.ERROR,)
    endings = [m.DONE, m.ERROR]
    if isinstance(node, m.WorkerNode) or (
        isinstance(node, m.HookNode) and waits_for_signal(node) and node.sleep
    ):
        endings.append(m.TIMEOUT)
    if getattr(node, "pending", False):
        endings.append(m.PENDING)
    return tuple(endings)


def _takes_codes(node: m.Node) -> bool:
    if isinstance(node, m.HookNode):
        return waits_for_signal(node)
    return isinstance(node, m.WorkerNode | m.AwaitNode)


def _why_not_on(node: m.Node, on: str) -> str | None:
    if on in _endings(node):
        return None
    if on.isascii() and on.isdigit():
        return _why_no_code(node, on)
    kind = node_kind(node)
    if on == m.TIMEOUT and isinstance(node, m.HookNode):
        return "the hook has no time limit for a signal"
    if on == m.PENDING and isinstance(node, m.WorkerNode | m.HookNode):
        return f"the {kind} is not said to be pending"
    if on in {m.DONE, m.ERROR, m.TIMEOUT, m.PENDING}:
        return f"{_article(kind)} never ends with {on!r}"
    return f"nothing ends with {on!r}"


def _why_no_code(node: m.Node, on: str) -> str | None:
    kind = node_kind(node)
    if not _takes_codes(node):
        return f"{_article(kind)} responds with no codes"
    if len(on) != 3 or on[0] == "0":
        return f"{on} is no code"
    if on == "202" and not getattr(node, "pending", False):
        return f"202 is for more to come, and the {kind} is not said to be pending"
    return None


def _choices(node: m.Node) -> str:
    choices = [repr(ending) for ending in _endings(node)]
    if _takes_codes(node):
        choices.append("a code of three digits")
    return " or ".join(choices)


def _alternatives(survey: Survey, node: m.AnyNode, edges: list[NumberedEdge]) -> Iterator[Problem]:
    """No alternative edge follows one that is always taken."""
    if isinstance(node, m.BranchNode):
        ways = [edge for edge in edges if edge.edge.on == m.DONE]
        if not ways and survey.gaps.has_all_edges:
            yield Problem(node.name, "", "the branch leads nowhere", "add edges with conditions")
        yield from _hidden(survey, ways)
    yield from _hidden(survey, [edge for edge in edges if edge.edge.on == m.ERROR])


def _hidden(survey: Survey, edges: list[NumberedEdge]) -> Iterator[Problem]:
    always: m.Edge | None = None
    for numbered in edges:
        if numbered.place in survey.gaps.partial:
            continue
        if always is not None:
            yield Problem(
                numbered.place,
                "when",
                f"{_arrow(numbered.edge)} is never taken: {_arrow(always)} before it always is",
                "put the edge without a condition last",
            )
        elif numbered.edge.when is None and not numbered.edge.errors:
            always = numbered.edge


def _unreached(survey: Survey) -> Iterator[Problem]:
    """Unreachable nodes: of an unreachable path only its first node."""
    lost = [name for name in survey.names if name not in survey.reached]
    heads = [name for name in lost if not survey.incoming[name]]
    covered = survey.reach(heads)
    for name in lost:
        if name not in covered:
            heads.append(name)
            covered |= survey.reach((name,))
    count = Counter(heads)
    for name in count:
        if not isinstance(survey.nodes[name], m.TriggerNode):
            yield Problem(
                name, "", "no path leads here from the trigger", "add an edge, or remove the node"
            )
