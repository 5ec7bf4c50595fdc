"""What could not be read of a graph. No rule tells of it what a gap may be the reason for."""

from typing import Final, NamedTuple

ANYTHING: Final = "*"
"""In a scope, instead of a name: there may be any variable."""


class Gaps(NamedTuple):
    """The parts of a graph that are written but could not be read. Edges are named as problems name them."""

    unread: frozenset[str] = frozenset()
    """Nodes of which the name alone is known."""
    partial: frozenset[str] = frozenset()
    """Nodes and edges that lack a field which is written."""
    setting: frozenset[str] = frozenset()
    """Nodes and edges that may set any variable."""
    bound: frozenset[str] = frozenset()
    """Variables that missing edges bind; ANYTHING for one whose name is lost."""
    has_all_nodes: bool = True
    has_all_edges: bool = True

    @property
    def has_all_kinds(self) -> bool:
        """Whether each node is there and known."""
        return self.has_all_nodes and not self.unread


NO_GAPS: Final = Gaps()
