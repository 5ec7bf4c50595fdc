"""The only functions that parse Python source.

Python 3.11.0 to 3.11.7, 3.12.0 and 3.12.1 keep the parser depth in one global (gh-106905). If a garbage
collection runs another parse meanwhile, which formatting a traceback can cause, a valid text is refused with
`SystemError`. Parsing it again succeeds.
"""

import ast
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")

_TRIES = 5


def parse_module(text: str, filename: str = "<unknown>") -> ast.Module:
    """Parse statements; raises what `ast.parse` raises."""
    return _again(lambda: ast.parse(text, filename))


def parse_expression(text: str, filename: str = "<unknown>") -> ast.expr:
    """Parse one expression; raises what `ast.parse` raises."""
    return _again(lambda: ast.parse(text, filename, "eval")).body


def literal_value(text: str) -> Any:
    """The value of a literal; raises what `ast.literal_eval` raises."""
    return ast.literal_eval(parse_expression(text.lstrip(" \t")))


def _again(parse: Callable[[], T]) -> T:
    for _ in range(_TRIES - 1):
        try:
            return parse()
        except SystemError:
            continue
    return parse()
