"""Finds the syntax tree of a function, and tells user code from installed code."""

import ast
import inspect
import linecache
import os.path
import sys
import sysconfig
import warnings
from collections.abc import Callable
from functools import lru_cache
from types import FunctionType, MethodType
from typing import Any, cast

from perdure.authoring.linter.bindings import FunctionNode, NamedFunctionNode
from perdure.core.syntax import parse_module


def underlying_function(fn: object) -> FunctionType | None:
    """The function under decorators that set `__wrapped__`, or under a method."""
    inner = inspect.unwrap(cast(Callable[..., Any], fn))
    if isinstance(inner, MethodType):
        inner = inspect.unwrap(inner.__func__)
    return inner if isinstance(inner, FunctionType) else None


_FOREIGN = tuple(
    dict.fromkeys(
        os.path.realpath(folder) + os.sep
        for folder in (
            *(sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")),
            os.path.dirname(os.path.dirname(os.path.dirname(__file__))),
        )
    )
)
"""Folders of code that is not the user's: the standard library, installed packages, Perdure."""


@lru_cache(maxsize=4096)
def _is_users_file(file: str) -> bool:
    path = os.path.realpath(file)
    is_installed = {"site-packages", "dist-packages"} & set(path.split(os.sep))
    return not (file.startswith("<") or is_installed or path.startswith(_FOREIGN))


def is_user_code(target: object) -> bool:
    """Whether a function or class is defined in a module of the user's."""
    if isinstance(target, FunctionType):
        return _is_users_file(target.__code__.co_filename)
    module = (
        sys.modules.get(str(vars(target).get("__module__"))) if isinstance(target, type) else None
    )
    file = None if module is None else vars(module).get("__file__")
    return isinstance(file, str) and _is_users_file(file)


def definition_of(function: FunctionType, name: str | None = None) -> FunctionNode | None:
    """The syntax tree of `function`, or of `name` at the top level of its file. None if missing or ambiguous."""
    code = function.__code__
    linecache.checkcache(code.co_filename)
    source = "".join(linecache.getlines(code.co_filename, function.__globals__))
    place = (code.co_firstlineno, code.co_name) if name is None else (_TOP_LEVEL, name)
    found = _definitions(source).get(place, [])
    return found[0] if len(found) == 1 else None


_TOP_LEVEL = 0
"""Instead of a line: top-level functions at any line. Without decorated ones, which may be tasks."""


@lru_cache(maxsize=32)
def _definitions(source: str) -> dict[tuple[int, str], list[FunctionNode]]:
    """Functions by first line, as in code objects, and name. Cached, so that a module is parsed once."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # importing the module has issued them already
            tree = parse_module(source)
    except (SyntaxError, ValueError, RecursionError):
        return {}
    found: dict[tuple[int, str], list[FunctionNode]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Lambda):
            found.setdefault((node.lineno, "<lambda>"), []).append(node)
        elif isinstance(node, NamedFunctionNode):
            first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            found.setdefault((first, node.name), []).append(node)
    for node in tree.body:
        if isinstance(node, NamedFunctionNode) and not node.decorator_list:
            found.setdefault((_TOP_LEVEL, node.name), []).append(node)
    return found
