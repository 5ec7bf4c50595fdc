"""Compiles changes in place of local lists and dicts, `xs.append(x)` and `d[k] = v`, as new values of the variable.

In Python all references to the list see the change. So it compiles only if the variable is the only one: its values are
made in the function, and are never stored under another name or in another value.
"""

import ast
from collections.abc import Iterator
from typing import Final

from perdure.authoring.graphs.compiler.names import parameters_of

_LISTS: Final = (ast.List, ast.ListComp)
_DICTS: Final = (ast.Dict, ast.DictComp)

_READERS: Final = frozenset(("len", "sum", "sorted", "any", "all", "list", "dict", "set", "str"))
"""Functions that keep no reference to their only argument."""

_METHODS: Final = frozenset(("append", "copy", "count", "get", "index"))
_VIEWS: Final = frozenset(("items", "keys", "values"))


def changed_list(statement: ast.expr) -> ast.Name | None:
    """The list that `xs.append(x)` changes."""
    if isinstance(statement, ast.Call) and isinstance(statement.func, ast.Attribute):
        owner = statement.func.value
        is_plain = len(statement.args) == 1 and not statement.keywords
        if statement.func.attr == "append" and is_plain and isinstance(owner, ast.Name):
            return None if isinstance(statement.args[0], ast.Starred) else owner
    return None


def changed_dict(target: ast.expr) -> ast.Name | None:
    """The dict that `d[k] = v` changes."""
    if isinstance(target, ast.Subscript) and isinstance(target.value, ast.Name):
        return None if isinstance(target.slice, ast.Slice) else target.value
    return None


def own_containers(tree: ast.AsyncFunctionDef) -> dict[str, type]:
    """The variables that alone hold their lists or dicts, with `list` or `dict`."""
    parents = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
    kinds: dict[str, set[type | None]] = {each.arg: {None} for each in parameters_of(tree.args)}
    for node in ast.walk(tree):
        if isinstance(node, ast.ExceptHandler) and node.name:
            kinds.setdefault(node.name, set()).add(None)
        if isinstance(node, ast.Name):
            found = kinds.setdefault(node.id, set())
            if isinstance(node.ctx, ast.Load):
                if not _only_reads(node, parents):
                    found.add(None)
            else:
                found.add(_kind_given(node, parents[node]))
    own = {name: next(iter(found)) for name, found in kinds.items() if len(found) == 1}
    looped = set(_changed_while_iterated(tree))
    return {name: kind for name, kind in own.items() if kind is not None and name not in looped}


def _kind_given(name: ast.Name, parent: ast.AST) -> type | None:
    """What a new list or dict the variable is given here; `None` for any other value."""
    value: ast.AST | None = None
    if isinstance(parent, ast.AnnAssign) or (
        isinstance(parent, ast.Assign) and parent.targets == [name]
    ):
        value = parent.value
    if isinstance(value, _LISTS):
        return list
    return dict if isinstance(value, _DICTS) else None


def _only_reads(name: ast.Name, parents: dict[ast.AST, ast.AST]) -> bool:
    """Whether no reference to the variable's value remains after this use."""
    parent = parents[name]
    is_read = False
    match parent:
        case ast.Return() | ast.Compare() | ast.BinOp() | ast.FormattedValue() | ast.Starred():
            is_read = True
        case ast.Subscript():
            is_read = parent.value is name
        case ast.comprehension() | ast.For():
            is_read = parent.iter is name
        case ast.If(test=test) | ast.While(test=test) | ast.IfExp(test=test):
            is_read = test is name
        case ast.Attribute(attr=method) if method in _METHODS:
            is_read = True
        case ast.Attribute(attr=method) if method in _VIEWS:  # a view shows later changes
            is_read = _is_used_at_once(parents[parent], parents)
        case ast.List() | ast.Tuple() | ast.Dict():
            is_read = _is_returned(parent, parents)
        case ast.Call(func=ast.Name(id=called), args=[_], keywords=[]) if called in _READERS:
            is_read = True
        case ast.Call() | ast.keyword():  # a step: its arguments are stored before it begins
            call = parents[parent] if isinstance(parent, ast.keyword) else parent
            is_read = isinstance(parents.get(call), ast.Await)
        case _:
            pass
    return is_read


def _is_used_at_once(call: ast.AST, parents: dict[ast.AST, ast.AST]) -> bool:
    """Whether a loop or a function that keeps no reference takes the result of the call."""
    match parents[call]:
        case ast.For() | ast.comprehension():
            return True
        case ast.Call(func=ast.Name(id=called), args=[_], keywords=[]):
            return called in _READERS
        case _:
            return False


def _is_returned(value: ast.AST, parents: dict[ast.AST, ast.AST]) -> bool:
    """Whether the function ends with this value, or with one that it is part of."""
    while isinstance(value, ast.List | ast.Tuple | ast.Dict):
        value = parents[value]
    return isinstance(value, ast.Return)


def _changed_while_iterated(tree: ast.AST) -> Iterator[str]:
    """Variables that a `for` loop over them changes: in Python the loop would see the change."""
    for loop in ast.walk(tree):
        if isinstance(loop, ast.For):
            read = {each.id for each in ast.walk(loop.iter) if isinstance(each, ast.Name)}
            for node in (each for part in loop.body for each in ast.walk(part)):
                changed = changed_list(node) if isinstance(node, ast.expr) else None
                if isinstance(node, ast.Assign):
                    changed = changed_dict(node.targets[0])
                if changed is not None and changed.id in read:
                    yield changed.id
