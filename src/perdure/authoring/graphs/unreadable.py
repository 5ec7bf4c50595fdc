"""The parts of a document that could not be read."""

from dataclasses import dataclass, field
from typing import Final

from perdure.core.graph.fields import VARIABLE_MAPS, VARIABLES
from perdure.core.graph.gaps import Gaps

_SETTING: Final = VARIABLE_MAPS | VARIABLES


@dataclass(slots=True)
class Unreadable:
    """Collects the unreadable parts of a graph while its document is read."""

    unread: set[str] = field(default_factory=set)
    _partial: set[str] = field(default_factory=set)
    _setting: set[str] = field(default_factory=set)
    _bound: set[str] = field(default_factory=set)
    _has_all_nodes: bool = True
    _has_all_edges: bool = True

    def mark_nodes_missing(self) -> None:
        """Nodes may be missing, and with them their edges."""
        self._has_all_nodes = self._has_all_edges = False

    def mark_edge_missing(self, binds: str | None = None) -> None:
        """One or more edges are missing. `binds` is the variable that the edge sets, ANYTHING if unknown."""
        self._has_all_edges = False
        if binds is not None:
            self._bound.add(binds)

    def mark_node_unread(self, name: str) -> None:
        """Only the name of the node is known."""
        self.unread.add(name)
        self.mark_duplicate_node(name)

    def mark_duplicate_node(self, name: str) -> None:
        """There is another node of that name, which was not read."""
        self._partial.add(name)
        self._setting.add(name)

    def mark_fields_missing(
        self, name: str, fields: set[str], returns_to: str | None = None
    ) -> None:
        """Fields of a node are missing. The input of a cycle sets variables at the node `returns_to`."""
        if fields:
            self._partial.add(name)
        if fields & _SETTING:
            self._setting.add(name)
        if "input" in fields and returns_to is not None:
            self._setting.add(returns_to)

    def mark_edge_fields_missing(self, edge: str, fields: set[str]) -> None:
        if fields:
            self._partial.add(edge)
        if "bind" in fields:
            self._setting.add(edge)

    def gaps(self) -> Gaps:
        return Gaps(
            frozenset(self.unread),
            frozenset(self._partial),
            frozenset(self._setting),
            frozenset(self._bound),
            self._has_all_nodes,
            self._has_all_edges,
        )
