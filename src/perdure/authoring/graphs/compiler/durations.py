"""Compiles a duration, in seconds or as a timedelta, to an expression in seconds."""

import ast
from datetime import timedelta
from typing import Final

from perdure.authoring.graphs.compiler.unit import Unit

_SECONDS: Final = {
    "days": 86_400,
    "seconds": 1,
    "microseconds": 1e-6,
    "milliseconds": 1e-3,
    "minutes": 60,
    "hours": 3_600,
    "weeks": 604_800,
}
"""Seconds per unit, in the order of timedelta's parameters."""


def seconds(unit: Unit, node: ast.expr) -> ast.expr:
    """An expression for the duration in seconds, still with the names of the function."""
    constant = unit.names.find(node)
    if isinstance(constant, timedelta):
        return _number(constant.total_seconds(), node)
    if not isinstance(node, ast.Call) or unit.names.find(node.func) is not timedelta:
        return node
    parts = dict(zip(_SECONDS, node.args, strict=False))
    parts |= {str(each.arg): each.value for each in node.keywords}
    if not parts.keys() <= _SECONDS.keys() or len(node.args) + len(node.keywords) != len(parts):
        unit.problems.add(node, "a timedelta of unknown parts", f"give it {', '.join(_SECONDS)}")
        return _number(0, node)
    numbers = {name: _constant(part) for name, part in parts.items()}
    known = {name: number for name, number in numbers.items() if number is not None}
    if len(known) == len(parts):
        return _number(timedelta(**known).total_seconds(), node)
    total: ast.expr | None = None
    for name, part in parts.items():
        each = ast.BinOp(part, ast.Mult(), _number(_SECONDS[name], node))
        total = each if total is None else ast.BinOp(total, ast.Add(), each)
    return ast.fix_missing_locations(ast.copy_location(total or _number(0, node), node))


def _constant(node: ast.expr) -> float | None:
    try:
        value = ast.literal_eval(node)
    except ValueError:
        return None
    return value if isinstance(value, int | float) else None


def _number(value: float, place: ast.AST) -> ast.expr:
    whole = int(value) if value == int(value) else value
    return ast.copy_location(ast.Constant(whole), place)
