"""The order of a graph's vertices. Vertices are numbers; edges form no cycle."""

from functools import cached_property

from perdure.core.errors import InputError


class Shape:
    """An acyclic graph with precomputed ancestors, for a few hundred vertices and many queries."""

    def __init__(self, size: int, edges: list[tuple[int, int]]) -> None:
        self.before: list[list[int]] = [[] for _ in range(size)]
        self.after: list[list[int]] = [[] for _ in range(size)]
        for source, target in edges:
            self.before[target].append(source)
            self.after[source].append(target)
        self._ancestors: list[frozenset[int]] = [frozenset()] * size
        for index in self.order:
            found = set(self.before[index])
            for each in self.before[index]:
                found |= self._ancestors[each]
            self._ancestors[index] = frozenset(found)

    @cached_property
    def order(self) -> list[int]:
        """Topological order."""
        missing = [len(before) for before in self.before]
        ready = [index for index, count in enumerate(missing) if not count]
        for index in ready:  # grows
            for target in self.after[index]:
                missing[target] -= 1
                if not missing[target]:
                    ready.append(target)
        if len(ready) < len(missing):
            raise InputError("the edges form a cycle", "return with a cycle activity")
        return ready

    def ancestors(self, index: int) -> frozenset[int]:
        """All vertices with a path to it."""
        return self._ancestors[index]

    def descendants(self, index: int) -> frozenset[int]:
        """All vertices reachable from it."""
        return self._descendants[index]

    @cached_property
    def _descendants(self) -> list[frozenset[int]]:
        found: list[frozenset[int]] = [frozenset()] * len(self.after)
        for index in reversed(self.order):
            direct = self.after[index]
            found[index] = frozenset(direct).union(*(found[each] for each in direct))
        return found

    @cached_property
    def _dominators(self) -> list[frozenset[int]]:
        """By vertex: the vertices on every path to it, itself included."""
        found: list[frozenset[int]] = [frozenset()] * len(self.after)
        for index in self.order:
            ways = [found[each] for each in self.before[index]]
            shared = frozenset.intersection(*ways) if ways else frozenset()
            found[index] = shared | {index}
        return found

    def dominates(self, one: int, other: int) -> bool:
        """Whether every path to `other` passes `one`."""
        return one in self._dominators[other]

    def parting(self, join: int) -> int:
        """The last vertex, other than the join, on every path to it: where the paths part."""
        shared = self._dominators[join] - {join}
        return max(shared, key=lambda each: len(self._dominators[each]))

    def since_parting(self, source: int, join: int) -> frozenset[int]:
        """The vertices on paths through `source` to `join`, behind the vertex where the paths part."""
        return (self._ancestors[source] | {source}) & self.descendants(self.parting(join))
