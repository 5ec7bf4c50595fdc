"""Rewrites loops whose exit joins paths that bypass the loop.

Each iteration of a loop opens a new plane at the loop's hook. A node after the loop that another path also leads to
would wait for that path in every plane. Such loops return to one hook at the start of the graph instead, and jump from
there to their next iteration: no path bypasses the start.
"""

from dataclasses import dataclass, field

import msgspec

from perdure.authoring.graphs.compiler.names import Names
from perdure.core.graph import model as m
from perdure.core.graph.survey import Survey

replace = msgspec.structs.replace


@dataclass
class Planes:
    """Nodes and edges. If there is a `hook` at the start, the branch `resume` after it selects the loop to resume, by
    the value of `variable`."""

    nodes: dict[str, m.AnyNode]
    edges: list[m.Edge]
    resume_nodes: dict[str, str] = field(default_factory=dict)
    """The node where each cycle resumes."""
    hook: str = ""
    resume: str = ""
    variable: str = ""

    @property
    def resuming(self) -> list[m.Edge]:
        """The edges by which loops resume from the start of the graph."""
        return [edge for edge in self.edges if edge.source == self.resume][1:]

    def separate(self, names: Names) -> None:
        """Give every loop a hook that dominates all nodes after it."""
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
            if isinstance(node, m.CycleNode):
                self.resume_nodes.setdefault(node.name, node.to)

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
        return [n.name for n in self.nodes.values() if isinstance(n, m.HookNode) and n.cycle]

    def _drop_idle_hooks(self) -> None:
        """Remove the hooks of loops that never repeat."""
        used = {node.to for node in self.nodes.values() if isinstance(node, m.CycleNode)}
        for name in self._hooks():
            if name not in used:
                self._bypass(name)

    def _bypass(self, name: str) -> str:
        """Remove a hook, and connect its predecessors to its successor."""
        (target,) = (edge.target for edge in self.edges if edge.source == name)
        self.edges = [
            replace(edge, target=target) if edge.target == name else edge
            for edge in self.edges
            if edge.source != name
        ]
        self.resume_nodes = {
            cycle: target if to == name else to for cycle, to in self.resume_nodes.items()
        }
        del self.nodes[name]
        return target

    def _open(self, names: Names) -> None:
        """Add the hook at the start and the branch that selects the loop."""
        self.variable = names.fresh("turn")
        first, self.hook, self.resume = (self._fresh(w) for w in ("first", "again", "resume"))
        (begin,) = (node.name for node in self.nodes.values() if isinstance(node, m.TriggerNode))
        entry = self._only_entry(begin)
        self.nodes = {
            begin: self.nodes.pop(begin),
            first: m.AssignNode(name=first, set={self.variable: "0"}),
            self.hook: m.HookNode(name=self.hook, cycle=True),
            self.resume: m.BranchNode(name=self.resume),
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
        """The node after the trigger. Inserts one if several parallel nodes follow it."""
        targets = [edge.target for edge in self.edges if edge.source == begin]
        if len(targets) == 1:
            return targets[0]
        fork = self._fresh("fork")
        self.nodes[fork] = m.AssignNode(name=fork, set={})
        self.edges = [
            replace(edge, source=fork) if edge.source == begin else edge for edge in self.edges
        ]
        return fork

    def _move(self, name: str) -> None:
        number = len(self.resuming) + 1
        entry = self._bypass(name)
        self.edges.append(m.Edge(self.resume, entry, when=f"{self.variable} == {number}"))
        for node in list(self.nodes.values()):
            if isinstance(node, m.CycleNode) and node.to == name:
                given = {self.variable: str(number)}
                self.nodes[node.name] = m.CycleNode(name=node.name, to=self.hook, input=given)
                self.resume_nodes[node.name] = entry

    def _fresh(self, wanted: str) -> str:
        count = 1
        name = wanted
        while name in self.nodes:
            count += 1
            name = f"{wanted}_{count}"
        return name
