"""Where a run begins, if nobody said so."""

from typing import Final

import msgspec

from perdure.core.graph.model import Edge, Graph, Trigger

START: Final = "start"


def started(graph: Graph) -> Graph:
    """The graph; if it has no trigger, with one that leads to every node that nothing leads to."""
    names = {node.name for node in graph.nodes}
    targets = {edge.target for edge in graph.edges}
    first = [node.name for node in graph.nodes if node.name not in targets]
    if START in names or not first or any(isinstance(node, Trigger) for node in graph.nodes):
        return graph
    return msgspec.structs.replace(
        graph,
        nodes=(Trigger(name=START), *graph.nodes),
        edges=(*graph.edges, *(Edge(START, name) for name in first)),
    )
