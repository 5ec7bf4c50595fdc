"""Python source as a tree: the one way in which texts are parsed.

Python 3.11.0 to 3.11.7, 3.12.0 and 3.12.1 count the depth of a tree in one place for all threads (gh-106905). If
the garbage collector lets another parse in between, which formatting a traceback is enough for, a sound text is refused
with `SystemError`. Parsed again it is read.
"""

import ast
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")

_TRIES = 5


def parse_module(text: str, filename: str = "<unknown>") -> ast.Module:
    """Statements. Raises what `ast.parse` raises of a text that is none."""
    return _again(lambda: ast.parse(text, filename))


def parse_expression(text: str, filename: str = "<unknown>") -> ast.expr:
    """One expression. Raises what `ast.parse` raises of a text that is none."""
    return _again(lambda: ast.parse(text, filename, "eval")).body


def literal_value(text: str) -> Any:
    """What a literal stands for. Raises what `ast.literal_eval` raises of a text that is none."""
    return ast.literal_eval(parse_expression(text.lstrip(" \t")))


def _again(parse: Callable[[], T]) -> T:
    for _ in range(_TRIES - 1):
        try:
            return parse()
        except SystemError:
            continue
    return parse()
