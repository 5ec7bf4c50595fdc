"""Runs the graph checks on a compiled graph, and reports problems in terms of the function's source."""

import ast
from collections.abc import Mapping

from perdure.authoring.graphs.arguments import argument_problems
from perdure.authoring.graphs.compiler.problems import Problems
from perdure.authoring.graphs.program import registered_graph
from perdure.core.errors import GraphInvalid
from perdure.core.graph import model as m
from perdure.core.graph.checking import problems_of, problems_of_parts
from perdure.core.graph.expansion import expand
from perdure.core.graph.rules.returns import TOO_MUCH


class CompiledGraphCheck:
    """`places` maps nodes, `node.field` and `.input.name` to the source they were compiled from; `whole` is the whole
    function."""

    def __init__(self, graph: m.Graph, places: Mapping[str, ast.AST], whole: ast.AST) -> None:
        self._graph = graph
        self._nodes = {node.name: node for node in graph.nodes}
        self._places = places
        self._whole = whole

    def report(self, problems: Problems) -> None:
        """Add the problems of the graph. If there are some already, checks only single nodes."""
        is_whole = not problems
        found = problems_of(self._graph) if is_whole else problems_of_parts(self._graph)
        found += [each for each in argument_problems(self._graph) if each.field != "task"]
        if not found:
            found = [each for each in self._of_calls() if is_whole or each.field[:5] == "input"]
        for each in found:
            problems.add(self._place(each), self._what(each), _remedy(each))

    def _of_calls(self) -> list[m.Problem]:
        try:
            expand(self._graph, registered_graph)
        except GraphInvalid as error:
            return list(error.problems)
        return []

    def _place(self, problem: m.Problem) -> ast.AST:
        """The source of a problem. Nodes of a called graph are `call/inner`; an edge has the place of its source."""
        node = problem.node.partition("/")[0]
        if node.startswith("edge "):
            node = self._graph.edges[int(node[5:])].source
        named = self._places.get(f"{node}.{problem.field}")
        return named or self._places.get(node, self._whole)

    def _what(self, problem: m.Problem) -> str:
        """The problem, with arguments shown as written in the function."""
        written = self._places.get(f"{problem.node}.{problem.field}")
        part, _, name = problem.field.partition(".")
        if part == "input" and isinstance(written, ast.expr):
            text = getattr(self._nodes[problem.node], part)[name]
            if problem.what.startswith(f"{text} is "):
                return ast.unparse(written) + problem.what.removeprefix(text)
        return problem.what.replace("it is activity", "this is step")


def _remedy(problem: m.Problem) -> str:
    """The remedy. If a graph is too large, another graph does not help: it may be expanded in place."""
    is_too_much = problem.remedy == TOO_MUCH
    return "await some of it in a loop, or in a workflow" if is_too_much else problem.remedy
