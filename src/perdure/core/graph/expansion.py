"""Replaces calls by the graphs that they call.

Nodes of the called graph become `call/inner`, its variables `call__variable`, so that they can't collide with others.
Its trigger becomes an assign that sets the input, and its outputs become assigns of the result. These lead to an assign
with the name of the call, which maps the call's output and has the call's edges. Errors that the called graph does not
handle follow the call's error edges. Job data belongs to the run and is shared. Search keys and emitted values need a
run of their own and are dropped. The expanded graph is checked like any other; graphs that can't replace a call are
refused (`placing.py`).
"""

import ast
from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

import msgspec

from perdure.core.errors import ExpressionProblem
from perdure.core.expressions import parse
from perdure.core.graph import model as m
from perdure.core.graph.checking import MAX_EDGES, MAX_NODES, invalid, problems_of
from perdure.core.graph.fields import (
    OWN,
    SHADOWED,
    Renaming,
    ends_here,
    expressions_of,
    names_its_result,
    renamed,
    variables_of,
)
from perdure.core.graph.inference import field_clashes
from perdure.core.graph.model import Problem
from perdure.core.graph.placing import AWAIT_IT, misplaced, problems_in_place
from perdure.core.graph.scopes import Scopes, known_type
from perdure.core.graph.suggestions import did_you_mean
from perdure.core.graph.survey import Survey
from perdure.core.syntax import parse_expression

Find = Callable[[str], m.Graph | None]

MAX_NESTING: Final = 20
"""Nesting depth of calls: a longer chain is unreadable, and most likely a mistake."""

_SHARED: Final = frozenset(("job", *OWN))


def expand(graph: m.Graph, find: Find, known: Iterable[str] = ()) -> m.Graph:
    """The graph with all calls expanded. `find` gives called graphs by name; `known` are names to suggest.

    Raises `GraphInvalid` for calls of unknown graphs, wrong arguments, recursive calls, and graphs that can't replace
    a call.
    """
    expanded = _expanded(graph, _Finder(find, tuple(known), {}), (graph.name,))
    problems = [] if expanded is graph else problems_in_place(graph, expanded)
    if problems:
        raise invalid(graph.name, problems)
    return expanded


class _Finder(NamedTuple):
    find: Find
    known: tuple[str, ...]
    done: dict[str, m.Graph]
    """Called graphs that are valid and expanded, by name."""


def _expanded(graph: m.Graph, finder: _Finder, path: tuple[str, ...]) -> m.Graph:
    calls = [node for node in graph.nodes if isinstance(node, m.CallNode)]
    if not calls:
        return graph
    problems: list[Problem] = []
    survey = Survey(graph)
    scopes = Scopes(survey)
    for call in calls:
        called = finder.find(call.graph)
        problem = _refused(call, called, finder, path)
        if problem is not None or called is None:
            problems.extend([] if problem is None else [problem])
            continue
        problems.extend(_wrong_arguments(call, called))
        problems.extend(_clashes(call, called, survey, scopes))
        inner = finder.done.get(call.graph) or _expanded(called, finder, (*path, call.graph))
        finder.done[call.graph] = inner
        is_handled = any(each.edge.on == m.ERROR for each in survey.outgoing[call.name])
        problems.extend(misplaced(call, inner, is_handled=is_handled))
        if not problems:
            graph = _Expansion(graph, call, inner).graph()
    if len(graph.nodes) > MAX_NODES or len(graph.edges) > MAX_EDGES:
        what = (
            f"it has {len(graph.nodes):,} nodes and {len(graph.edges):,} edges once it is expanded"
        )
        problems.append(Problem("", "", what, f"use at most {MAX_NODES:,} and {MAX_EDGES:,}"))
    if problems:
        raise invalid(path[-1], problems)
    return graph


def _refused(
    call: m.CallNode, called: m.Graph | None, finder: _Finder, path: tuple[str, ...]
) -> Problem | None:
    if call.graph in path:
        circle = " -> ".join((*path[path.index(call.graph) :], call.graph))
        what = f"the graph calls itself: {circle}"
        return Problem(call.name, "graph", what, AWAIT_IT)
    if called is None:
        remedy = did_you_mean(call.graph, finder.known, "define it, or start it with an await")
        return Problem(call.name, "graph", f"there is no graph {call.graph!r}", remedy)
    if len(path) > MAX_NESTING:
        what = f"calls are nested more than {MAX_NESTING} deep"
        return Problem(call.name, "graph", what, AWAIT_IT)
    if called.threshold:
        what = f"the graph {call.graph!r} completes at threshold {called.threshold}: it needs a run of its own"
        return Problem(call.name, "graph", what, AWAIT_IT)
    if called.params is not None:
        what = f"the graph {call.graph!r} has parameters: it needs a run of its own"
        return Problem(call.name, "graph", what, AWAIT_IT)
    faults = [] if call.graph in finder.done else problems_of(called)
    if faults:
        what = f"the graph {call.graph!r} has problems of its own, such as: {faults[0]}"
        return Problem(call.name, "graph", what, "fix that graph first")
    return None


def _wrong_arguments(call: m.CallNode, called: m.Graph) -> Iterator[Problem]:
    fields = called.input
    if fields is None:
        return
    for name in call.input:
        if name not in fields:
            what = f"the graph {call.graph!r} has no input {name!r}"
            remedy = did_you_mean(name, fields, f"it has {', '.join(fields) or 'none'}")
            yield Problem(call.name, f"input.{name}", what, remedy)
    for name, field in fields.items():
        if field.required and name not in call.input:
            what = f"the input {name!r} of the graph {call.graph!r} is missing"
            yield Problem(call.name, "input", what, f"add {name!r} to the call's input")


def _clashes(
    call: m.CallNode, called: m.Graph, survey: Survey, scopes: Scopes
) -> Iterator[Problem]:
    """Arguments whose type is certainly wrong."""
    scope = scopes.before.get(call.name, {})
    for name, field in (called.input or {}).items():
        text = call.input.get(name)
        if text is None:
            continue
        given = known_type(survey, text, scope)
        if field_clashes(given, field):
            what = f"{text} is of type {given}, and {name!r} of the graph {call.graph!r} is {field.type}"
            yield Problem(call.name, f"input.{name}", what, "convert it, or pass another value")


class _Expansion:
    """One call, and the expanded graph that replaces it."""

    def __init__(self, outer: m.Graph, call: m.CallNode, inner: m.Graph) -> None:
        self._outer = outer
        self._call = call
        self._inner = inner
        self._prefix = _prefix(call.name, outer)
        self._result = f"{self._prefix}result"
        self._renaming = Renaming(self._node, self._variable, self._expression)
        self._catching = [
            edge for edge in outer.edges if edge.source == call.name and edge.on == m.ERROR
        ]

    def graph(self) -> m.Graph:
        nodes: list[m.AnyNode] = []
        edges = [*map(self._outer_edge, self._outer.edges), *self._inner_edges()]
        for node in self._outer.nodes:
            if node is self._call:
                nodes.extend(self._inner_node(each) for each in self._inner.nodes)
                nodes.append(self._mapped())
            else:
                nodes.append(node)
        return msgspec.structs.replace(self._outer, nodes=tuple(nodes), edges=tuple(edges))

    # Names

    def _node(self, name: str) -> str:
        return f"{self._call.name}/{name}"

    def _variable(self, name: str) -> str:
        return self._prefix + name

    def _expression(self, text: str) -> str:
        return with_names(text, lambda name: name if name in _SHARED else self._variable(name))

    def _with_result(self, text: str) -> str:
        return with_names(text, lambda name: self._result if name == "result" else name)

    # Nodes

    def _inner_node(self, node: m.AnyNode) -> m.AnyNode:
        name = self._node(node.name)
        if isinstance(node, m.TriggerNode):
            job = {key: self._expression(text) for key, text in node.job.items()}
            return m.AssignNode(name=name, set=self._inputs(), job=job)
        if isinstance(node, m.OutputNode):
            return m.AssignNode(name=name, set={self._result: self._expression(node.value)})
        return renamed(node, self._renaming)

    def _inputs(self) -> m.Maps:
        """The call's arguments as variables, and all together as `input`. Defaults fill in missing ones."""
        given = dict(self._call.input)
        for name, field in (self._inner.input or {}).items():
            given.setdefault(name, repr(field.default))
        variables = {
            self._variable(name): text for name, text in given.items() if name not in SHADOWED
        }
        whole = ", ".join(
            f"{name!r}: {f'({text})' if name in SHADOWED else self._variable(name)}"
            for name, text in given.items()
        )
        return variables | {self._variable("input"): f"{{{whole}}}"}

    def _mapped(self) -> m.AssignNode:
        call = self._call
        maps = {call.name: "result"} if names_its_result(call) else call.output or {}
        if names_its_result(call) and not call.name.isidentifier():
            maps = {}
        # Outputs are mapped at once, but an assign sets its variables one by one.
        texts = {name: self._with_result(text) for name, text in maps.items()}
        if not any(name in _reads(text) for name in texts for text in texts.values()):
            return m.AssignNode(name=call.name, set=self._own_result() | texts)
        early = {f"{self._prefix}out_{name}": text for name, text in texts.items()}
        late = {name: f"{self._prefix}out_{name}" for name in texts}
        return m.AssignNode(name=call.name, set=self._own_result() | early | late)

    def _own_result(self) -> m.Maps:
        """The result of a graph without outputs: its job data, or None."""
        has_output = any(isinstance(node, m.OutputNode) for node in self._inner.nodes)
        return {} if has_output else {self._result: "job or None"}

    # Edges

    def _outer_edge(self, edge: m.Edge) -> m.Edge:
        call = self._call.name
        if edge.target == call:
            trigger = next(node for node in self._inner.nodes if isinstance(node, m.TriggerNode))
            edge = msgspec.structs.replace(edge, target=self._node(trigger.name))
        if edge.source == call and edge.when is not None and edge.on != m.ERROR:
            edge = msgspec.structs.replace(edge, when=self._with_result(edge.when))
        return edge

    def _inner_edges(self) -> Iterator[m.Edge]:
        for edge in self._inner.edges:
            yield msgspec.structs.replace(
                edge,
                source=self._node(edge.source),
                target=self._node(edge.target),
                when=None if edge.when is None else self._expression(edge.when),
                bind=None if edge.bind is None else self._variable(edge.bind),
            )
        for node in self._inner.nodes:
            name = self._node(node.name)
            if self._leads_out(node):
                yield m.Edge(name, self._call.name)
            if _may_fail(node) and not self._catches_all(node.name):
                yield from (msgspec.structs.replace(edge, source=name) for edge in self._catching)

    def _leads_out(self, node: m.AnyNode) -> bool:
        if isinstance(node, m.OutputNode):
            return True
        if ends_here(node) or isinstance(node, m.RaiseNode) or not self._own_result():
            return False
        return not any(edge.source == node.name for edge in self._inner.edges)

    def _catches_all(self, name: str) -> bool:
        return any(
            edge.source == name and edge.on == m.ERROR and not (edge.errors or edge.when)
            for edge in self._inner.edges
        )


def _may_fail(node: m.AnyNode) -> bool:
    """Whether the node may have error edges after expansion; trigger and outputs are assigns then."""
    return isinstance(node, m.TriggerNode | m.OutputNode) or not ends_here(node)


def _prefix(name: str, graph: m.Graph) -> str:
    """A prefix for the variables of a called graph that no name in the outer graph has."""
    taken = set(graph.input or ())
    for node in graph.nodes:
        taken.update(variable for _, variable in variables_of(node))
        taken.update(read for each in expressions_of(node) for read in _reads(each.text))
    for edge in graph.edges:
        taken.update({edge.bind or ""}, _reads(edge.when or "None"))
    prefix = f"{name.replace('/', '_')}__"
    while any(each.startswith(prefix) for each in taken):
        prefix += "_"
    return prefix


def _reads(text: str) -> frozenset[str]:
    try:
        return parse(text).names
    except ExpressionProblem:
        return frozenset()


def with_names(text: str, rename: Callable[[str], str]) -> str:
    """The expression with its free variables renamed. Text that is no expression stays unchanged."""
    names = _reads(text)
    if not names:
        return text
    tree = parse_expression(text.strip())
    return ast.unparse(_Renamer(names, rename).visit(tree))


class _Renamer(ast.NodeTransformer):
    """Renames free names; loops and lambdas inside the expression bind their own."""

    def __init__(self, names: frozenset[str], rename: Callable[[str], str]) -> None:
        self._names = names
        self._rename = rename

    def visit_Name(self, node: ast.Name) -> ast.AST:
        if node.id not in self._names:
            return node
        return ast.copy_location(ast.Name(self._rename(node.id), node.ctx), node)

    def visit_Lambda(self, node: ast.Lambda) -> ast.AST:
        bound = frozenset(argument.arg for argument in node.args.args)
        node.body = self._inside(bound).visit(node.body)
        return node

    def _comprehension(self, node: ast.AST) -> ast.AST:
        generators: list[ast.comprehension] = node.generators  # type: ignore[attr-defined]
        inside = self
        for generator in generators:
            generator.iter = inside.visit(generator.iter)
            targets = ast.walk(generator.target)
            inside = inside._inside(frozenset(t.id for t in targets if isinstance(t, ast.Name)))
            generator.ifs = [inside.visit(condition) for condition in generator.ifs]
        for field in ("elt", "key", "value"):
            if hasattr(node, field):
                setattr(node, field, inside.visit(getattr(node, field)))
        return node

    visit_ListComp = visit_DictComp = visit_GeneratorExp = _comprehension  # noqa: N815

    def _inside(self, bound: frozenset[str]) -> "_Renamer":
        return _Renamer(self._names - bound, self._rename)
