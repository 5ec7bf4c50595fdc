"""The source of a function, as a tree."""

import ast
import inspect
import linecache
import warnings
from collections.abc import Callable
from functools import lru_cache
from types import FunctionType, MethodType
from typing import Any, cast

from perdure.authoring.linter.bindings import Definition, NamedDefinition
from perdure.core.syntax import parse_module


def plain(fn: object) -> FunctionType | None:
    """The function under decorators that say what they wrap, or a method's function."""
    inner = inspect.unwrap(cast(Callable[..., Any], fn))
    if isinstance(inner, MethodType):
        inner = inspect.unwrap(inner.__func__)
    return inner if isinstance(inner, FunctionType) else None


def definition_of(function: FunctionType, name: str | None = None) -> Definition | None:
    """The source of `function`, or of `name` at the top level of its file, if it can be told."""
    code = function.__code__
    linecache.checkcache(code.co_filename)
    source = "".join(linecache.getlines(code.co_filename, function.__globals__))
    place = (code.co_firstlineno, code.co_name) if name is None else (_TOP_LEVEL, name)
    found = _definitions(source).get(place, [])
    return found[0] if len(found) == 1 else None


_TOP_LEVEL = 0
"""In place of a line: wherever it is. Decorated functions are left out, they may be tasks."""


@lru_cache(maxsize=32)
def _definitions(source: str) -> dict[tuple[int, str], list[Definition]]:
    """By first line, as code objects count it, and name. A module is parsed once for all its functions."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the import has warned of the user's source already
            tree = parse_module(source)
    except (SyntaxError, ValueError, RecursionError):
        return {}
    found: dict[tuple[int, str], list[Definition]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Lambda):
            found.setdefault((node.lineno, "<lambda>"), []).append(node)
        elif isinstance(node, NamedDefinition):
            first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            found.setdefault((first, node.name), []).append(node)
    for node in tree.body:
        if isinstance(node, NamedDefinition) and not node.decorator_list:
            found.setdefault((_TOP_LEVEL, node.name), []).append(node)
    return found
