"""Refuses iterators, ranges and views where they differ from lists: graph expressions use lists instead."""

import ast
import builtins
from typing import Final

from perdure.authoring.graphs.compiler.names import MISSING, Names
from perdure.authoring.graphs.compiler.problems import Problems
from perdure.core.expressions.functions import FUNCTIONS

_ITERATORS: Final = frozenset(("enumerate", "reversed", "zip"))
"""Functions that return one-shot iterators."""

_VIEWS: Final = frozenset(("items", "keys", "values"))

_MEMBERSHIP: Final = (ast.In, ast.NotIn)


def refuse_iterators(tree: ast.AsyncFunctionDef, names: Names, problems: Problems) -> None:
    """Add problems for iterators that are not consumed at once, and for ranges and views that differ from lists."""
    above = {below: node for node in ast.walk(tree) for below in ast.iter_child_nodes(node)}
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        made = _function(node, names)
        written = ast.unparse(node)
        if made in _ITERATORS and not _is_consumed(node, above, names):
            what = f"`{written}` as a value, which Python can iterate only once"
            problems.add(node, what, f"write `list({written})`")
        elif (made == "range" or _is_view(node, names)) and _shows(node, above[node], names):
            what = f"`{written}` where it differs from a list"
            problems.add(node, what, f"write `list({written})`")


def _function(node: ast.Call, names: Names) -> str:
    """The name of the expression function that is called; empty if it is none."""
    name = node.func.id if isinstance(node.func, ast.Name) else ""
    is_one = name in FUNCTIONS and names.find(node.func) is vars(builtins)[name]
    return name if is_one else ""


def _is_view(node: ast.Call, names: Names) -> bool:
    return (
        isinstance(node.func, ast.Attribute)
        and node.func.attr in _VIEWS
        and not (node.args or node.keywords)
        and names.find(node.func) is MISSING
    )


def _is_consumed(node: ast.expr, above: dict[ast.AST, ast.AST], names: Names) -> bool:
    """Whether the surrounding expression consumes the iterator at once, as it would consume a list."""
    user = above[node]
    if isinstance(user, ast.IfExp) and node is not user.test:
        return _is_consumed(user, above, names)
    if isinstance(user, ast.For | ast.comprehension):
        return node is user.iter
    if isinstance(user, ast.Assign):
        return len(user.targets) == 1 and isinstance(user.targets[0], ast.Tuple | ast.List)
    if isinstance(user, ast.Compare):
        return len(user.ops) == 1 and isinstance(user.ops[0], _MEMBERSHIP) and node is not user.left
    if isinstance(user, ast.Call):
        return _consumes(user, node, names)
    return isinstance(user, ast.Starred | ast.Expr)


def _consumes(user: ast.Call, node: ast.expr, names: Names) -> bool:
    """Whether a call consumes its argument completely."""
    if isinstance(user.func, ast.Attribute) and user.func.attr == "join":
        return True
    name = _function(user, names)
    if not name or not FUNCTIONS[name].consumes or node not in user.args:
        return False
    if name in {"max", "min"}:
        return len(user.args) == 1
    return name == "zip" or node is user.args[0]


def _shows(node: ast.Call, user: ast.AST, names: Names) -> bool:
    """Whether a range or view behaves differently from a list here."""
    if isinstance(user, ast.Compare):
        return node is user.left or not all(isinstance(each, _MEMBERSHIP) for each in user.ops)
    if isinstance(user, ast.Subscript):
        return node is user.value and _function(node, names) != "range"
    if isinstance(user, ast.Call):
        return _function(user, names) in {"str", "repr"}
    return isinstance(user, ast.BinOp | ast.FormattedValue)
