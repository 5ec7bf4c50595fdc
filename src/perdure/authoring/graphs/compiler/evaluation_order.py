"""The operands of an expression that Python always evaluates exactly once, in evaluation order."""

import ast
from collections.abc import Callable
from copy import copy
from typing import Any, Final

ChildField = tuple[str, int | None]
"""A field of an AST node, and the index if the field is a list."""

_HOLDERS: Final[dict[type, str]] = {
    ast.Attribute: "value",
    ast.FormattedValue: "value",
    ast.Starred: "value",
    ast.comprehension: "iter",
    ast.keyword: "value",
}
"""AST nodes that wrap an operand, and the field that holds it. For a method it is the object."""


def parts_of(node: ast.expr) -> list[ast.expr]:
    """The operands in order, without those that are evaluated conditionally or repeatedly."""
    return [_read(node, place) for place in _places(node)]


def with_values(node: ast.expr, parts: list[ast.expr]) -> ast.expr:
    """A copy of the expression with other operands."""
    made = copy(node)
    for place, part in zip(_places(node), parts, strict=True):
        _write(made, place, part)
    return made


def _all(field: str, node: ast.AST) -> list[ChildField]:
    return [(field, index) for index in range(len(getattr(node, field)))]


def _of_call(node: ast.Call) -> list[ChildField]:
    owner: list[ChildField] = [("func", None)] if isinstance(node.func, ast.Attribute) else []
    return owner + _all("args", node) + _all("keywords", node)


def _of_dict(node: ast.Dict) -> list[ChildField]:
    pairs = zip(_all("keys", node), _all("values", node), strict=True)
    every: list[ChildField] = [place for pair in pairs for place in pair]
    return [(field, index) for field, index in every if getattr(node, field)[index] is not None]


def _of_slice(node: ast.Slice) -> list[ChildField]:
    bounds = ("lower", "upper", "step")
    return [(bound, None) for bound in bounds if getattr(node, bound) is not None]


_PLACES: Final[dict[type[ast.expr], Callable[[Any], list[ChildField]]]] = {
    ast.Attribute: lambda _: [("value", None)],
    ast.BinOp: lambda _: [("left", None), ("right", None)],
    ast.BoolOp: lambda _: [("values", 0)],
    ast.Call: _of_call,
    ast.Compare: lambda _: [("left", None), ("comparators", 0)],
    ast.Dict: _of_dict,
    ast.DictComp: lambda _: [("generators", 0)],
    ast.GeneratorExp: lambda _: [("generators", 0)],
    ast.IfExp: lambda _: [("test", None)],
    ast.JoinedStr: lambda node: _all("values", node),
    ast.List: lambda node: _all("elts", node),
    ast.ListComp: lambda _: [("generators", 0)],
    ast.Set: lambda node: _all("elts", node),
    ast.SetComp: lambda _: [("generators", 0)],
    ast.Slice: _of_slice,
    ast.Subscript: lambda _: [("value", None), ("slice", None)],
    ast.Tuple: lambda node: _all("elts", node),
    ast.UnaryOp: lambda _: [("operand", None)],
}


def _places(node: ast.expr) -> list[ChildField]:
    places = _PLACES.get(type(node))
    return [] if places is None else places(node)


def _found(node: ast.AST, place: ChildField) -> Any:
    field, index = place
    found = getattr(node, field)
    return found if index is None else found[index]


def _read(node: ast.AST, place: ChildField) -> ast.expr:
    found = _found(node, place)
    holding = _holding(found, place)
    part: ast.expr = found if holding is None else getattr(found, holding)
    return part


def _write(node: ast.AST, place: ChildField, part: ast.expr) -> None:
    field, index = place
    value: ast.AST = part
    found = _found(node, place)
    holding = _holding(found, place)
    if holding is not None:
        value = copy(found)
        setattr(value, holding, part)
    if index is not None:
        changed = list(getattr(node, field))
        changed[index] = value
        setattr(node, field, changed)
    else:
        setattr(node, field, value)


def _holding(found: object, place: ChildField) -> str | None:
    """The field of a wrapping node that holds the operand; None if there is no wrapper."""
    if isinstance(found, ast.Attribute) and place[0] != "func":
        return None
    return _HOLDERS.get(type(found))
