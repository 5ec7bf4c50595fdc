"""Compiles assignment to names and nested tuples of names."""

import ast

from perdure.authoring.graphs.compiler.unit import Unit, is_stable
from perdure.core.graph import model as m
from perdure.core.syntax import parse_expression

_ITEM = "build a new value: `{0} = {{**{0}, key: value}}`, or a list with a comprehension"


def store(unit: Unit, targets: list[ast.expr], value: ast.expr) -> None:
    """Assign the value to each target, from left to right."""
    if len(targets) > 1 and not is_stable(value):
        value = unit.keep(value, "value")
    for target in targets:
        give(unit, target, value)


def give(unit: Unit, target: ast.expr, value: ast.expr, length: int | None = None) -> None:
    """Assign the value to one target. `length` is the number of its items, if known."""
    if isinstance(target, ast.Name):
        name = unit.names.graph_name(target.id)
        unit.assign({name: value}, f"set_{name}")
    elif isinstance(target, ast.Tuple | ast.List):
        _unpack(unit, target, value, length)
    else:
        refuse_target(unit, target)


def refuse_target(unit: Unit, target: ast.expr) -> None:
    what = f"an assignment to `{ast.unparse(target)}`"
    if isinstance(target, ast.Subscript | ast.Attribute):
        unit.problems.add(target, what, _ITEM.format(ast.unparse(target.value)))
    else:
        unit.problems.add(target, what, "assign to a name, or to a tuple of names")


def _unpack(unit: Unit, target: ast.Tuple | ast.List, value: ast.expr, length: int | None) -> None:
    parts = target.elts
    if isinstance(value, ast.Tuple | ast.List) and _is_pairwise(parts, value.elts):
        _swap(unit, parts, value.elts)
        return
    stars = [index for index, part in enumerate(parts) if isinstance(part, ast.Starred)]
    items = unit.keep(as_list(value), "items")
    if stars or length != len(parts):
        _require_length(unit, items, len(parts) - len(stars), is_open=bool(stars))
    for part, place in zip(parts, _places(len(parts), stars), strict=True):
        inner = part.value if isinstance(part, ast.Starred) else part
        item = parse_expression(f"{items.id}[{place}]")
        give(unit, inner, ast.copy_location(item, value))


def _places(count: int, stars: list[int]) -> list[str]:
    """The index of each part of a target. Parts after a star are counted from the end."""
    if not stars:
        return [str(index) for index in range(count)]
    star = stars[0]
    behind = count - star - 1
    rest = f"{star}:-{behind}" if behind else f"{star}:"
    return [*map(str, range(star)), rest, *(str(index) for index in range(-behind, 0))]


def as_list(value: ast.expr) -> ast.expr:
    """The items of a value, as a list."""
    made = ast.List([ast.Starred(value, ast.Load())], ast.Load())
    return ast.fix_missing_locations(ast.copy_location(made, value))


def _is_pairwise(parts: list[ast.expr], values: list[ast.expr]) -> bool:
    everything = (*parts, *values)
    return len(parts) == len(values) and not any(isinstance(e, ast.Starred) for e in everything)


def _swap(unit: Unit, parts: list[ast.expr], values: list[ast.expr]) -> None:
    """`a, b = b, a`: evaluate all values before the first assignment."""
    kept: dict[str, ast.expr] = {}
    pairs: list[tuple[ast.expr, ast.expr]] = []
    for part, value in zip(parts, values, strict=True):
        if isinstance(value, ast.Constant):
            pairs.append((part, value))
        else:
            variable = unit.names.temporary("value")
            kept[variable.id] = value
            pairs.append((part, variable))
    if kept:
        unit.assign(kept, "values")
    for part, value in pairs:
        give(unit, part, value)


def _require_length(unit: Unit, items: ast.Name, wanted: int, *, is_open: bool) -> None:
    """Raise the error that Python raises if there are too few or too many items."""
    size = f"len({items.id})"
    least = "at least " if is_open else ""
    few = f"f'not enough values to unpack (expected {least}{wanted}, got {{{size}}})'"
    many = f"'too many values to unpack (expected {wanted})'"
    fits = f"{size} >= {wanted}" if is_open else f"{size} == {wanted}"
    right, wrong = unit.writer.branch(fits, can_fail=False)
    unit.writer.open = wrong
    message = few if is_open else f"{few} if {size} < {wanted} else {many}"
    name = unit.writer.name("raise")
    unit.writer.put(m.RaiseNode(name=name, error="builtins:ValueError", message=message))
    unit.writer.open = right
