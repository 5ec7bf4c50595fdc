"""The unreadable parts of a graph. Rules don't report problems that unreadable input may explain."""

from typing import Final, NamedTuple

ANYTHING: Final = "*"
"""In a scope, instead of a name: any variable may exist."""


class Gaps(NamedTuple):
    """Parts of a graph document that could not be read. Edges have the names that problems use (`edge 3`)."""

    unread: frozenset[str] = frozenset()
    """Nodes with only a readable name."""
    partial: frozenset[str] = frozenset()
    """Nodes and edges with an unreadable field."""
    setting: frozenset[str] = frozenset()
    """Nodes and edges that may set any variable."""
    bound: frozenset[str] = frozenset()
    """Variables that unreadable edges bind; ANYTHING if a name is unreadable."""
    has_all_nodes: bool = True
    has_all_edges: bool = True

    @property
    def has_all_kinds(self) -> bool:
        """Whether every node was read."""
        return self.has_all_nodes and not self.unread


NO_GAPS: Final = Gaps()
