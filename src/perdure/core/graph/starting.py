"""Where a run begins, if nobody said so."""

from collections.abc import Iterable
from typing import Final

import msgspec

from perdure.core.graph.model import Edge, Graph, Trigger
from perdure.core.graph.reaching import reached

START: Final = "start"


def started(graph: Graph) -> Graph:
    """The graph; if it has no trigger, with one that leads to every node that a run may begin with."""
    names = {node.name for node in graph.nodes}
    if START in names or not names or any(isinstance(node, Trigger) for node in graph.nodes):
        return graph
    first = beginnings(graph)
    return msgspec.structs.replace(
        graph,
        nodes=(Trigger(name=START), *graph.nodes),
        edges=(*graph.edges, *(Edge(START, name) for name in first)),
    )


def beginnings(graph: Graph) -> tuple[str, ...]:
    """The nodes that nothing leads to; of a circle that nothing leads into, its first, so that it is seen."""
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
