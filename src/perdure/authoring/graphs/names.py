"""Where in an expression a name stands."""

import ast
from collections.abc import Iterator

from perdure.authoring.graphs.tree import Fields, Items, Scalar, Value
from perdure.core.graph.model import Place
from perdure.core.syntax import parse_expression


def place_of(name: str, value: Value) -> Place | None:
    """The first place where the value reads the variable: exactly, if its text is written as it is on one line.

    Else where the text begins. None if it does not read the variable.
    """
    for scalar in _scalars(value):
        offset = _offset(name, scalar.text)
        if offset is not None:
            return scalar.place_at(offset)
    return None


def _scalars(value: Value) -> Iterator[Scalar]:
    if isinstance(value, Scalar):
        yield value
    elif isinstance(value, Items | Fields):
        inner = value.items if isinstance(value, Items) else value.values.values()
        for item in inner:
            yield from _scalars(item)


def _offset(name: str, text: str) -> int | None:
    margin = len(text) - len(text.lstrip())
    try:
        tree = parse_expression(text.strip())
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return None
    spots = [
        (node.lineno, node.col_offset)
        for node in ast.walk(tree)
        if isinstance(node, ast.Name) and node.id == name
    ]
    if not spots:
        return None
    line, column = min(spots)
    before = text.strip().encode()[:column].decode(errors="ignore")
    offset = margin + len(before)
    # Within an f-string Python 3.11 counts otherwise; on other lines the place is the text's.
    return offset if line == 1 and text.startswith(name, offset) else 0
