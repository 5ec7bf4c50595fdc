"""One form for graphs that say the same."""

from typing import Any

import msgspec

from perdure.core.graph import model as m

_IN_ORDER = "set"
"""The field whose entries are evaluated one after the other."""


def ordered(graph: m.Graph) -> m.Graph:
    """The graph with the entries of mappings in the order of their names, wherever their order means nothing."""
    return msgspec.structs.replace(
        graph,
        nodes=tuple(map(_ordered_node, graph.nodes)),
        input=None if graph.input is None else _sorted(graph.input),
        output=None if graph.output is None else _sorted(graph.output),
    )


def _ordered_node(node: m.AnyNode) -> m.AnyNode:
    fields = {field: getattr(node, field) for field in node.__struct_fields__ if field != _IN_ORDER}
    maps = {field: _sorted(value) for field, value in fields.items() if isinstance(value, dict)}
    again: m.AnyNode = msgspec.structs.replace(node, **maps)
    return again


def _sorted(entries: dict[str, Any]) -> dict[str, Any]:
    return dict(sorted(entries.items()))
