"""Constants of the program around a function: they are written into the graph as they are when it is compiled."""

import ast
import math
from typing import Any, Final

from perdure.core.syntax import parse_expression

_PLAIN: Final = (bool, int, str, type(None))


def is_plain(value: Any) -> bool:
    """Whether it is data that an expression can spell."""
    if type(value) is float:
        return math.isfinite(value)
    if type(value) in (list, tuple):
        return all(map(is_plain, value))
    if type(value) is dict:
        return all(type(key) in _PLAIN and is_plain(item) for key, item in value.items())
    return type(value) in _PLAIN


def literal(value: Any, place: ast.AST) -> ast.expr:
    """Plain data as an expression that stands at `place`."""
    made = parse_expression(repr(value))
    for node in ast.walk(made):
        if isinstance(node, ast.expr):
            ast.copy_location(node, place)
    return made
