"""What the checks of every graph say of one that a function was compiled to, in the words of the function."""

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


class Judge:
    """`places` are what the nodes, `node.field` of them, and `.input.name` of the graph were compiled from; `whole` is
    the function."""

    def __init__(self, graph: m.Graph, places: Mapping[str, ast.AST], whole: ast.AST) -> None:
        self._graph = graph
        self._nodes = {node.name: node for node in graph.nodes}
        self._places = places
        self._whole = whole

    def report(self, problems: Problems) -> None:
        """Note what is wrong with the graph. One that has problems already is not whole: only its parts are judged."""
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
        """Nodes of a graph that is called are `call/inner`; the place of an edge is that of its source."""
        node = problem.node.partition("/")[0]
        if node.startswith("edge "):
            node = self._graph.edges[int(node[5:])].source
        named = self._places.get(f"{node}.{problem.field}")
        return named or self._places.get(node, self._whole)

    def _what(self, problem: m.Problem) -> str:
        """An argument is called as it is written in the function."""
        written = self._places.get(f"{problem.node}.{problem.field}")
        part, _, name = problem.field.partition(".")
        if part == "input" and isinstance(written, ast.expr):
            text = getattr(self._nodes[problem.node], part)[name]
            if problem.what.startswith(f"{text} is "):
                return ast.unparse(written) + problem.what.removeprefix(text)
        return problem.what.replace("it is activity", "this is step")


def _remedy(problem: m.Problem) -> str:
    """A graph that is awaited may take the place of the await: it would make this one no smaller."""
    is_too_much = problem.remedy == TOO_MUCH
    return "await some of it in a loop, or in a workflow" if is_too_much else problem.remedy
