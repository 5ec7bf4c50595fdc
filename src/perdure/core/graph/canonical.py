"""Canonical form of graphs, for comparison."""

from typing import Any

import msgspec

from perdure.core.expressions import parse
from perdure.core.graph import model as m
from perdure.core.graph.fields import Renaming, renamed

_IN_ORDER = "set"
"""The field whose entries are evaluated one after the other."""


def ordered(graph: m.Graph) -> m.Graph:
    """The graph with mappings sorted by name, wherever their order has no meaning."""
    return msgspec.structs.replace(
        graph,
        nodes=tuple(map(_ordered_node, graph.nodes)),
        input=None if graph.input is None else _sorted(graph.input),
        output=None if graph.output is None else _sorted(graph.output),
        params=None if graph.params is None else _sorted(graph.params),
    )


def canonical(graph: m.Graph) -> m.Graph:
    """The graph with every expression in canonical form and an explicit variable for each result.

    The form differs between Python releases, so it serves comparison only and is never stored.
    """
    spelling = Renaming(str, str, lambda text: parse(text).text)
    return msgspec.structs.replace(
        graph,
        nodes=tuple(renamed(node, spelling) for node in graph.nodes),
        edges=tuple(_canonical_edge(edge) for edge in graph.edges),
    )


def _canonical_edge(edge: m.Edge) -> m.Edge:
    if edge.when is None:
        return edge
    return msgspec.structs.replace(edge, when=parse(edge.when).text)


def _ordered_node(node: m.AnyNode) -> m.AnyNode:
    fields = {field: getattr(node, field) for field in node.__struct_fields__ if field != _IN_ORDER}
    maps = {field: _sorted(value) for field, value in fields.items() if isinstance(value, dict)}
    again: m.AnyNode = msgspec.structs.replace(node, **maps)
    return again


def _sorted(entries: dict[str, Any]) -> dict[str, Any]:
    return dict(sorted(entries.items()))
