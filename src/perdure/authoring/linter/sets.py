"""Finds code whose result depends on the iteration order of a set, which differs between processes."""

import ast
from collections.abc import Iterator

from perdure.authoring.linter.bindings import SET_OPERATORS, Comprehension
from perdure.authoring.linter.symbols import Symbol

ITERATION = "iteration over a set"
POP = "builtins.set.pop"

A_SET = Symbol("builtins.set")
_SETS = (A_SET, Symbol("builtins.frozenset"))

_METHODS = ["union", "intersection", "difference", "symmetric_difference", "copy"]
_MAKERS = {set_.name for set_ in _SETS}
_MAKERS |= {f"{set_}.{method}" for set_ in _MAKERS for method in _METHODS}

_DISPLAYS = ast.List | ast.Tuple
_LISTS = ast.Call | ast.List | ast.ListComp

_LOSE_ORDER = {
    f"builtins.{name}"
    for name in ["sorted", "set", "frozenset", "len", "sum", "min", "max", "any", "all"]
}
_LOSE_ORDER |= {"math.fsum", "math.prod"}
"""Functions whose result does not depend on the order of their argument. Nor do methods of sets."""

_KEEP_ORDER = {f"builtins.{name}" for name in ["list", "tuple", "iter", "map", "filter"]}
_TELL_ORDER = {f"builtins.{name}" for name in ["enumerate", "zip", "dict.fromkeys"]}
"""Functions that put the order into the items: sorting the result does not help."""


def is_set(symbol: Symbol | None) -> bool:
    """Whether it is a set, and not the type `set`, which has a target."""
    return symbol in _SETS


def makes_set(maker: Symbol | None) -> bool:
    return maker is not None and maker.name in _MAKERS


def combines_sets(operator: ast.operator) -> bool:
    return isinstance(operator, SET_OPERATORS)


ORDERED = {
    ast.For,
    ast.YieldFrom,
    ast.Starred,
    ast.Set,
    ast.List,
    ast.Tuple,
    ast.Assign,
    ast.AnnAssign,
}
"""The nodes to pass to `SetIteration`, besides calls and comprehensions."""


class SetIteration:
    """Finds the iterables of a function whose order matters."""

    def __init__(self) -> None:
        self._lost: set[ast.AST] = set()
        """Expressions whose consumer ignores their order."""
        self._bodies: list[ast.AST] = []

    def enter(self, body: list[ast.AST]) -> None:
        self._bodies += body

    def _is_sorted_in_place(self, target: ast.expr) -> bool:
        names = (
            node.value.id
            for node in (part for statement in self._bodies for part in ast.walk(statement))
            if isinstance(node, ast.Attribute) and node.attr == "sort"
            if isinstance(node.value, ast.Name)
        )
        return isinstance(target, ast.Name) and target.id in names

    def iterated(self, node: ast.AST, called: Symbol | None = None) -> Iterator[ast.expr]:
        """The iterables of `node` whose order matters. Call it for a node before its parts; `called` is the callee."""
        name = "" if called is None else called.name
        self._lost.update(self._losing(node, name))
        if isinstance(node, ast.For):
            yield node.iter
        elif isinstance(node, ast.YieldFrom):
            yield node.value
        elif isinstance(node, ast.Assign):
            yield from [node.value] if any(map(_is_unpacking, node.targets)) else ()
        elif isinstance(node, Comprehension):
            if _acts(node) or not (isinstance(node, ast.SetComp) or node in self._lost):
                yield from (generator.iter for generator in node.generators)
        elif isinstance(node, ast.Starred):
            if isinstance(node.ctx, ast.Load) and node not in self._lost:
                yield node.value
        elif isinstance(node, ast.Call):
            is_let_out = name in _KEEP_ORDER and node not in self._lost
            is_joined = isinstance(node.func, ast.Attribute) and node.func.attr == "join"
            yield from node.args if is_let_out or is_joined or name in _TELL_ORDER else ()

    def _losing(self, node: ast.AST, name: str) -> Iterator[ast.expr]:
        """The parts of `node` whose order does not matter."""
        if isinstance(node, ast.Call):
            is_lost = name in _LOSE_ORDER or name.rpartition(".")[0] in _MAKERS
            yield from node.args if is_lost or (name in _KEEP_ORDER and node in self._lost) else ()
        elif isinstance(node, ast.Set) or (isinstance(node, _DISPLAYS) and node in self._lost):
            yield from (item for item in node.elts if isinstance(item, ast.Starred))
        elif isinstance(node, ast.Starred) and node in self._lost:
            yield node.value
        elif isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(node.value, _LISTS):
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            if self._is_sorted_in_place(target):
                yield node.value


def _is_unpacking(target: ast.expr) -> bool:
    """Whether the target names several items, or all in a list: `a, b = ...`, `[*rest] = ...`."""
    if not isinstance(target, _DISPLAYS):
        return False
    return len(target.elts) > 1 or any(isinstance(each, ast.Starred) for each in target.elts)


def _acts(node: Comprehension) -> bool:
    """Whether it awaits for each item: the order of steps matters even if their results are unordered."""
    once = set(ast.walk(node.generators[0].iter))
    return any(isinstance(part, ast.Await) and part not in once for part in ast.walk(node))
