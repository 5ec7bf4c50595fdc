"""Resolves names in a function: its own variables, or objects from enclosing scopes, globals and builtins."""

import ast
import builtins
from collections.abc import Iterator
from types import FunctionType, ModuleType
from typing import Any, Final

from perdure.core.expressions.functions import FUNCTIONS

RESERVED: Final = frozenset(("input", "job", "result", "code", "error"))
"""Names with a fixed meaning in graph expressions."""

MISSING: Final = object()
"""Returned where nothing was found; None is a possible value."""

UNKNOWN: Final = "input"
"""A valid expression that stands for a refused one. The graph is refused anyway."""

_SCOPES = (
    *(ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.Lambda),
    *(ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef),
)


class Names:
    """The variables of one function, and their names in the graph."""

    def __init__(self, fn: FunctionType, tree: ast.AsyncFunctionDef) -> None:
        self.own_name = tree.name
        self._fn = fn
        cells = fn.__closure__ or ()
        self._cells = dict(zip(fn.__code__.co_freevars, cells, strict=True))
        self._assigned = frozenset(_assigned(tree))
        self._locals = self._assigned | {
            node.name
            for node in _in_scope(tree)
            if isinstance(node, ast.ExceptHandler) and node.name
        }
        self._taken = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
        self._taken |= self._locals | set(_bound_anywhere(tree))
        awkward = sorted(filter(is_awkward, self._locals | set(_bound_anywhere(tree))))
        self._spelled = {name: self.fresh(f"{name.strip('_') or 'it'}_") for name in awkward}
        self._users = {spelled: name for name, spelled in self._spelled.items()}

    def is_variable(self, name: str) -> bool:
        return name in self._locals

    def is_assigned(self, name: str) -> bool:
        """Whether the function assigns the name, other than by `except ... as name`."""
        return name in self._assigned

    def graph_name(self, name: str) -> str:
        """The variable's name in the graph."""
        return self._spelled.get(name, name)

    def source_name(self, spelled: str) -> str:
        """The name in the source of a variable of the graph."""
        return self._users.get(spelled, spelled)

    def fresh(self, wanted: str) -> str:
        """An unused variable name, derived from `wanted`."""
        name, count = wanted, 1
        while name in self._taken or is_awkward(name):
            count += 1
            name = f"{wanted}{count}" if wanted.endswith("_") else f"{wanted}_{count}"
        self._taken.add(name)
        return name

    def temporary(self, wanted: str) -> ast.Name:
        """A fresh variable, as an expression."""
        name = self.fresh(wanted)
        self._locals |= {name}
        return ast.Name(name, ast.Load())

    def find(self, node: ast.AST, inner: frozenset[str] = frozenset()) -> Any:
        """The object that a dotted name refers to; `MISSING` if it begins with a variable or is not found.

        `inner` are names that comprehensions and lambdas bind at this point.
        """
        if isinstance(node, ast.Name):
            return MISSING if node.id in self._locals | inner else self._outer(node.id)
        if isinstance(node, ast.Attribute):
            owner = self.find(node.value, inner)
            if isinstance(owner, ModuleType | type):
                return getattr(owner, node.attr, MISSING)
        return MISSING

    def _outer(self, name: str) -> Any:
        if name in self._cells:
            try:
                return self._cells[name].cell_contents
            except ValueError:  # not assigned yet
                return MISSING
        for namespace in (self._fn.__globals__, vars(builtins)):
            if name in namespace:
                return namespace[name]
        return MISSING


def parameters_of(arguments: ast.arguments) -> Iterator[ast.arg]:
    """All parameters, including `*args` and `**kwargs`."""
    yield from (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)
    yield from filter(None, (arguments.vararg, arguments.kwarg))


def is_awkward(name: str) -> bool:
    """Whether a variable of a graph can't have that name."""
    return name in RESERVED or name in FUNCTIONS or name.startswith("_")


def _assigned(tree: ast.AsyncFunctionDef) -> Iterator[str]:
    """The parameters, and the names that the function assigns in its own scope."""
    for each in parameters_of(tree.args):
        yield each.arg
    for node in _in_scope(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id


def _bound_anywhere(tree: ast.AsyncFunctionDef) -> Iterator[str]:
    """Names bound by the function, or by comprehensions and lambdas in it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id


def _in_scope(tree: ast.AsyncFunctionDef) -> Iterator[ast.AST]:
    todo: list[ast.AST] = [*tree.body]
    while todo:
        node = todo.pop()
        yield node
        if not isinstance(node, _SCOPES):
            todo.extend(ast.iter_child_nodes(node))
