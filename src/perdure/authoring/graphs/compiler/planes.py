"""Loops whose way out meets paths that did not come by them.

In each turn of a loop its hook opens a new plane. A node behind the loop that a path from elsewhere leads to as well
would wait for that path in every plane. Such loops return to one hook at the beginning of the graph instead, and from
there straight to where they go on: past the beginning no path comes from elsewhere.
"""

from dataclasses import dataclass, field

import msgspec

from perdure.authoring.graphs.compiler.names import Names
from perdure.core.graph import model as m
from perdure.core.graph.survey import Survey

replace = msgspec.structs.replace


@dataclass
class Planes:
    """Nodes and edges. If there is a `hook` at the beginning, the branch `resume` behind it tells the loops apart, by a
    `variable`."""

    nodes: dict[str, m.AnyNode]
    edges: list[m.Edge]
    turns: dict[str, str] = field(default_factory=dict)
    """Of each cycle: the node where it goes on."""
    hook: str = ""
    resume: str = ""
    variable: str = ""

    @property
    def resuming(self) -> list[m.Edge]:
        """The edges by which loops go on from the beginning."""
        return [edge for edge in self.edges if edge.source == self.resume][1:]

    def separate(self, names: Names) -> None:
        """Give every loop a hook that all paths to what is behind it come by."""
        self._drop_idle_hooks()
        while True:
            strays = self._strays()
            if not strays:
                break
            if not self.hook:
                self._open(names)
            for name in strays:
                self._move(name)
        for node in self.nodes.values():
            if isinstance(node, m.Cycle):
                self.turns.setdefault(node.name, node.to)

    def _strays(self) -> list[str]:
        survey = Survey(m.Graph("", tuple(self.nodes.values()), tuple(self.edges)))
        shape, number = survey.shape, survey.number
        return [
            hook
            for hook in self._hooks()
            if not all(
                shape.dominates(number[hook], each) for each in shape.descendants(number[hook])
            )
        ]

    def _hooks(self) -> list[str]:
        return [n.name for n in self.nodes.values() if isinstance(n, m.Hook) and n.cycle]

    def _drop_idle_hooks(self) -> None:
        """Loops that are never repeated."""
        used = {node.to for node in self.nodes.values() if isinstance(node, m.Cycle)}
        for name in self._hooks():
            if name not in used:
                self._bypass(name)

    def _bypass(self, name: str) -> str:
        """Take a hook out: what led to it leads to what follows it."""
        (target,) = (edge.target for edge in self.edges if edge.source == name)
        self.edges = [
            replace(edge, target=target) if edge.target == name else edge
            for edge in self.edges
            if edge.source != name
        ]
        self.turns = {cycle: target if to == name else to for cycle, to in self.turns.items()}
        del self.nodes[name]
        return target

    def _open(self, names: Names) -> None:
        """The hook at the beginning, behind which the loops part."""
        self.variable = names.fresh("turn")
        first, self.hook, self.resume = (self._fresh(w) for w in ("first", "again", "resume"))
        (begin,) = (node.name for node in self.nodes.values() if isinstance(node, m.Trigger))
        entry = self._only_entry(begin)
        self.nodes = {
            begin: self.nodes.pop(begin),
            first: m.Assign(name=first, set={self.variable: "0"}),
            self.hook: m.Hook(name=self.hook, cycle=True),
            self.resume: m.Branch(name=self.resume),
            **self.nodes,
        }
        self.edges = [edge for edge in self.edges if edge.source != begin]
        self.edges += [
            m.Edge(begin, first),
            m.Edge(first, self.hook),
            m.Edge(self.hook, self.resume),
            m.Edge(self.resume, entry, when=f"{self.variable} == 0"),
        ]

    def _only_entry(self, begin: str) -> str:
        """What follows the trigger. If that is several nodes side by side, they get one before them."""
        targets = [edge.target for edge in self.edges if edge.source == begin]
        if len(targets) == 1:
            return targets[0]
        fork = self._fresh("fork")
        self.nodes[fork] = m.Assign(name=fork, set={})
        self.edges = [
            replace(edge, source=fork) if edge.source == begin else edge for edge in self.edges
        ]
        return fork

    def _move(self, name: str) -> None:
        number = len(self.resuming) + 1
        entry = self._bypass(name)
        self.edges.append(m.Edge(self.resume, entry, when=f"{self.variable} == {number}"))
        for node in list(self.nodes.values()):
            if isinstance(node, m.Cycle) and node.to == name:
                given = {self.variable: str(number)}
                self.nodes[node.name] = m.Cycle(name=node.name, to=self.hook, input=given)
                self.turns[node.name] = entry

    def _fresh(self, wanted: str) -> str:
        count = 1
        name = wanted
        while name in self.nodes:
            count += 1
            name = f"{wanted}_{count}"
        return name
