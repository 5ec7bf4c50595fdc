"""Finds the position of a name in an expression."""

import ast
from collections.abc import Iterator

from perdure.authoring.graphs.yaml_values import YamlList, YamlMapping, YamlScalar, YamlValue
from perdure.core.graph.model import SourceLocation
from perdure.core.syntax import parse_expression


def position_of_name(name: str, value: YamlValue) -> SourceLocation | None:
    """The first position where the value reads the variable; None if it does not read it.

    If the text spans lines or contains escapes, the position is the start of the text.
    """
    for scalar in _scalars(value):
        offset = _offset(name, scalar.text)
        if offset is not None:
            return scalar.place_at(offset)
    return None


def _scalars(value: YamlValue) -> Iterator[YamlScalar]:
    if isinstance(value, YamlScalar):
        yield value
    elif isinstance(value, YamlList | YamlMapping):
        inner = value.items if isinstance(value, YamlList) else value.values.values()
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
    # Python 3.11 counts columns in f-strings differently; for other lines, use the start of the text.
    return offset if line == 1 and text.startswith(name, offset) else 0
