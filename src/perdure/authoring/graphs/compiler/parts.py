"""The parts of an expression that Python always evaluates, once, in the order in which it does."""

import ast
from collections.abc import Callable
from copy import copy
from typing import Any, Final

Place = tuple[str, int | None]
"""A field of a node, and the index in it if it is a list."""

_HOLDERS: Final[dict[type, str]] = {
    ast.Attribute: "value",
    ast.FormattedValue: "value",
    ast.Starred: "value",
    ast.comprehension: "iter",
    ast.keyword: "value",
}
"""What stands around a part, and where in it the part is. Of a method, it is the object that has it."""


def parts_of(node: ast.expr) -> list[ast.expr]:
    """The parts, in order. What is evaluated only sometimes, or often, is not among them."""
    return [_read(node, place) for place in _places(node)]


def with_parts(node: ast.expr, parts: list[ast.expr]) -> ast.expr:
    """The same expression with other parts."""
    made = copy(node)
    for place, part in zip(_places(node), parts, strict=True):
        _write(made, place, part)
    return made


def _all(field: str, node: ast.AST) -> list[Place]:
    return [(field, index) for index in range(len(getattr(node, field)))]


def _of_call(node: ast.Call) -> list[Place]:
    owner: list[Place] = [("func", None)] if isinstance(node.func, ast.Attribute) else []
    return owner + _all("args", node) + _all("keywords", node)


def _of_dict(node: ast.Dict) -> list[Place]:
    pairs = zip(_all("keys", node), _all("values", node), strict=True)
    every: list[Place] = [place for pair in pairs for place in pair]
    return [(field, index) for field, index in every if getattr(node, field)[index] is not None]


def _of_slice(node: ast.Slice) -> list[Place]:
    bounds = ("lower", "upper", "step")
    return [(bound, None) for bound in bounds if getattr(node, bound) is not None]


_PLACES: Final[dict[type[ast.expr], Callable[[Any], list[Place]]]] = {
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


def _places(node: ast.expr) -> list[Place]:
    places = _PLACES.get(type(node))
    return [] if places is None else places(node)


def _found(node: ast.AST, place: Place) -> Any:
    field, index = place
    found = getattr(node, field)
    return found if index is None else found[index]


def _read(node: ast.AST, place: Place) -> ast.expr:
    found = _found(node, place)
    holding = _holding(found, place)
    part: ast.expr = found if holding is None else getattr(found, holding)
    return part


def _write(node: ast.AST, place: Place, part: ast.expr) -> None:
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


def _holding(found: object, place: Place) -> str | None:
    """Where in what was found the part is, if it is not the part itself."""
    if isinstance(found, ast.Attribute) and place[0] != "func":
        return None
    return _HOLDERS.get(type(found))
