"""What is written in a document and could not be read."""

from dataclasses import dataclass, field
from typing import Final

from perdure.core.graph.fields import VARIABLE_MAPS, VARIABLES
from perdure.core.graph.gaps import Gaps

_SETTING: Final = VARIABLE_MAPS | VARIABLES


@dataclass(slots=True)
class Losses:
    """Collects the gaps of a graph while its document is read."""

    unread: set[str] = field(default_factory=set)
    _partial: set[str] = field(default_factory=set)
    _setting: set[str] = field(default_factory=set)
    _bound: set[str] = field(default_factory=set)
    _has_all_nodes: bool = True
    _has_all_edges: bool = True

    def lose_nodes(self) -> None:
        """Some are missing altogether, and with them their edges."""
        self._has_all_nodes = self._has_all_edges = False

    def lose_edge(self, binds: str | None = None) -> None:
        """One or more are missing. `binds` is the variable for an error, ANYTHING if its name is lost."""
        self._has_all_edges = False
        if binds is not None:
            self._bound.add(binds)

    def lose_node(self, name: str) -> None:
        """Nothing is known of a node but its name."""
        self.unread.add(name)
        self.lose_another(name)

    def lose_another(self, name: str) -> None:
        """There is a second node of that name."""
        self._partial.add(name)
        self._setting.add(name)

    def lose_fields(self, name: str, fields: set[str], returns_to: str | None = None) -> None:
        """A node lacks fields. What a cycle sets is set where it returns to."""
        if fields:
            self._partial.add(name)
        if fields & _SETTING:
            self._setting.add(name)
        if "input" in fields and returns_to is not None:
            self._setting.add(returns_to)

    def lose_edge_fields(self, edge: str, fields: set[str]) -> None:
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
