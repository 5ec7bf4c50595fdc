"""Constants outside of the function: the compiler writes their current values into the graph."""

import ast
import math
from typing import Any, Final

from perdure.core.syntax import parse_expression

_PLAIN: Final = (bool, int, str, type(None))


def is_plain(value: Any) -> bool:
    """Whether an expression can hold the value as a literal."""
    if type(value) is float:
        return math.isfinite(value)
    if type(value) in (list, tuple):
        return all(map(is_plain, value))
    if type(value) is dict:
        return all(type(key) in _PLAIN and is_plain(item) for key, item in value.items())
    return type(value) in _PLAIN


def literal(value: Any, place: ast.AST) -> ast.expr:
    """Plain data as a literal expression, located at `place`."""
    made = parse_expression(repr(value))
    for node in ast.walk(made):
        if isinstance(node, ast.expr):
            ast.copy_location(node, place)
    return made
