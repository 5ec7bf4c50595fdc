"""Adds a trigger to graphs without one."""

from collections.abc import Iterable
from typing import Final

import msgspec

from perdure.core.graph.model import Edge, Graph, TriggerNode
from perdure.core.graph.reaching import reached

START: Final = "start"


def with_trigger(graph: Graph) -> Graph:
    """The graph; if it has no trigger, with one that leads to every start node."""
    names = {node.name for node in graph.nodes}
    if START in names or not names or any(isinstance(node, TriggerNode) for node in graph.nodes):
        return graph
    first = beginnings(graph)
    return msgspec.structs.replace(
        graph,
        nodes=(TriggerNode(name=START), *graph.nodes),
        edges=(*graph.edges, *(Edge(START, name) for name in first)),
    )


def beginnings(graph: Graph) -> tuple[str, ...]:
    """Nodes without incoming edges; of an unreachable cycle its first node, so that checks see it."""
    targets: dict[str, list[str]] = {node.name: [] for node in graph.nodes}
    for edge in graph.edges:
        targets.setdefault(edge.source, []).append(edge.target)

    def after(name: str) -> Iterable[str]:
        return targets.get(name, ())

    led_to = {edge.target for edge in graph.edges}
    names = tuple(dict.fromkeys(node.name for node in graph.nodes))
    found = [name for name in names if name not in led_to]
    covered = reached(set(targets) - led_to, after)
    for name in names:
        if name not in covered:
            found.append(name)
            covered |= reached((name,), after)
    return tuple(found)
