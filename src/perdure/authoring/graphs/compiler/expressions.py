"""Compiles expressions of a function to graph expressions: renames variables, inserts constants, refuses the rest."""

import ast
import builtins
from collections.abc import Iterator
from contextlib import contextmanager
from copy import copy
from typing import Any

from perdure.authoring.definition import Definition
from perdure.authoring.graphs.compiler.constants import is_plain, literal
from perdure.authoring.graphs.compiler.names import MISSING, UNKNOWN, Names
from perdure.authoring.graphs.compiler.problems import Problems
from perdure.core.errors import ExpressionProblem
from perdure.core.expressions import from_ast
from perdure.core.expressions.functions import FUNCTIONS
from perdure.core.graph.model import Graph
from perdure.core.syntax import parse_expression

_Comprehension = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp

_USE_TEXT = "an error is its type and its text here: use `str({0})`"


class ExpressionCompiler:
    """Compiles the expressions of one function. Tracks the names of errors that are being handled."""

    def __init__(self, names: Names, problems: Problems) -> None:
        self._names = names
        self._problems = problems
        self._errors: dict[str, str] = {}

    def text(self, node: ast.expr) -> str:
        """The graph expression. Adds a problem if there is none."""
        try:
            return from_ast(
                _ExpressionTransformer(self, self._names, self._problems).visit(node)
            ).text
        except ExpressionProblem as problem:
            self._problems.add(problem, problem.what, problem.remedy)
            return UNKNOWN

    @contextmanager
    def handling(self, name: str | None, variable: str | None) -> Iterator[None]:
        """Inside this context `name` refers to the error in `variable`."""
        before = dict(self._errors)
        if name is not None and variable is not None:
            self._errors[name] = variable
        yield
        self._errors = before

    def error(self, node: ast.AST) -> str | None:
        """The variable that holds the error, if `node` names a handled error."""
        return self._errors.get(node.id) if isinstance(node, ast.Name) else None


class _ExpressionTransformer(ast.NodeTransformer):
    """Transforms one expression. `_inner` holds the variables of enclosing comprehensions and lambdas."""

    def __init__(self, expressions: ExpressionCompiler, names: Names, problems: Problems) -> None:
        self._expressions = expressions
        self._names = names
        self._problems = problems
        self._inner: frozenset[str] = frozenset()

    def visit(self, node: ast.AST) -> Any:
        """Transform a copy: the tree may be compiled again."""
        return super().visit(copy(node))

    def generic_visit(self, node: ast.AST) -> ast.AST:
        for field, value in ast.iter_fields(node):
            if isinstance(value, list):
                setattr(node, field, [each and self.visit(each) for each in value])
            elif isinstance(value, ast.AST):
                setattr(node, field, self.visit(value))
        return node

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if node.id in self._inner or isinstance(node.ctx, ast.Store):
            node.id = self._names.graph_name(node.id)
            return node
        if self._error(node) is not None:
            self._problems.add(node, f"the error {node.id!r} as a value", _USE_TEXT.format(node.id))
            return _unknown(node)
        if self._names.is_variable(node.id):
            node.id = self._names.graph_name(node.id)
            return node
        return self._outer(node, node.id)

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        if self._names.find(node, self._inner) is not MISSING:
            return self._outer(node, ast.unparse(node))
        if self._error(node.value) is not None:
            name = ast.unparse(node.value)
            self._problems.add(node, f"`{ast.unparse(node)}`", _USE_TEXT.format(name))
            return _unknown(node)
        return self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        text = self._text_of_error(node)
        if text is not None:
            return text
        target = self._names.find(node.func, self._inner)
        if target is MISSING and isinstance(node.func, ast.Attribute):
            return self.generic_visit(node)
        if isinstance(node.func, ast.Name) and target is not MISSING:
            if node.func.id in FUNCTIONS and target is vars(builtins)[node.func.id]:
                node.args = [self.visit(each) for each in node.args]
                node.keywords = [self.visit(each) for each in node.keywords]
                return node
        self._refuse_call(node, target)
        return _unknown(node)

    def visit_FormattedValue(self, node: ast.FormattedValue) -> ast.AST:
        variable = self._error(node.value)
        is_text = node.conversion == ord("s") or (node.conversion == -1 and not node.format_spec)
        if variable is None or not is_text:
            return self.generic_visit(node)
        if node.format_spec is not None:
            node.format_spec = self.visit(node.format_spec)
        node.value = _message(variable, node)
        return node

    def visit_Lambda(self, node: ast.Lambda) -> ast.AST:
        arguments = node.args
        bound = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
        with self._scope({each.arg for each in bound}):
            return self.generic_visit(node)

    def visit_arg(self, node: ast.arg) -> ast.AST:
        node.arg = self._names.graph_name(node.arg)
        return node

    def visit_ListComp(self, node: ast.ListComp) -> ast.AST:
        return self._comprehension(node)

    def visit_SetComp(self, node: ast.SetComp) -> ast.AST:
        return self._comprehension(node)

    def visit_DictComp(self, node: ast.DictComp) -> ast.AST:
        return self._comprehension(node)

    def visit_GeneratorExp(self, node: ast.GeneratorExp) -> ast.AST:
        return self._comprehension(node)

    def _comprehension(self, node: _Comprehension) -> ast.AST:
        """Python evaluates the first iterable outside of the comprehension's scope, everything else inside."""
        generators = [copy(each) for each in node.generators]
        first = generators[0]
        iterable = self.visit(first.iter)
        first.iter = ast.copy_location(ast.Constant(None), node)
        node.generators = generators
        bound = {
            each.id
            for generator in generators
            for each in ast.walk(generator.target)
            if isinstance(each, ast.Name)
        }
        with self._scope(bound):
            made = self.generic_visit(node)
        node.generators[0].iter = iterable
        return made

    @contextmanager
    def _scope(self, bound: set[str]) -> Iterator[None]:
        before = self._inner
        self._inner = before | bound
        yield
        self._inner = before

    def _outer(self, node: ast.expr, name: str) -> ast.expr:
        """A name from outside the function: only plain data can be inserted."""
        value = self._names.find(node, self._inner)
        if value is MISSING:
            instead = "define it above the graph, or assign it first"
            self._problems.add(node, f"the name {name!r} is not known here", instead)
        elif is_plain(value):
            return literal(value, node)
        elif isinstance(node, ast.Name) and node.id in FUNCTIONS:
            return node  # the expression language refuses it where it is not allowed
        else:
            instead = "use texts, numbers, lists and dicts, or read it in a task"
            self._problems.add(node, f"{name!r} is no plain constant", instead)
        return _unknown(node)

    def _error(self, node: ast.AST) -> str | None:
        is_inner = isinstance(node, ast.Name) and node.id in self._inner
        return None if is_inner else self._expressions.error(node)

    def _text_of_error(self, node: ast.Call) -> ast.expr | None:
        """`str(e)` is the message of the error."""
        if len(node.args) != 1 or node.keywords:
            return None
        variable = self._error(node.args[0])
        if variable is None or self._names.find(node.func, self._inner) is not str:
            return None
        return _message(variable, node)

    def _refuse_call(self, node: ast.Call, target: Any) -> None:
        name = ast.unparse(node.func)
        if isinstance(target, Definition) or isinstance(getattr(target, "model", None), Graph):
            what, instead = f"a call of {name} that is not awaited", f"write `await {name}(...)`"
        elif target is MISSING and not self._names.is_variable(name):
            what = f"a call of {name!r}, which is not known here"
            instead = "define it above the graph"
        else:
            what = f"a call of {name}"
            instead = (
                f"make it a task and write `await {name}(...)`, or use the functions of expressions"
            )
        self._problems.add(node, what, instead)


def _unknown(place: ast.AST) -> ast.expr:
    """Stands for a refused expression."""
    return ast.copy_location(ast.Name(UNKNOWN, ast.Load()), place)


def _message(variable: str, place: ast.AST) -> ast.expr:
    made = parse_expression(f"{variable}['message']")
    for node in ast.walk(made):
        if isinstance(node, ast.expr):
            ast.copy_location(node, place)
    return made
