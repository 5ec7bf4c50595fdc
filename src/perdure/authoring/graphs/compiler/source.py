"""Parses the source of a function, with line numbers of the file."""

import ast
import inspect
from types import FunctionType

from perdure.core.errors import InputError
from perdure.core.syntax import parse_module


def function_tree(fn: FunctionType) -> ast.AsyncFunctionDef:
    """The syntax tree of `fn`, which must be a plain `async def`."""
    if hasattr(fn, "__wrapped__"):
        raise InputError(
            f"{fn.__qualname__} is wrapped by another decorator",
            "put @graph on the function itself, and leave the other out",
        )
    if inspect.isasyncgenfunction(fn) or inspect.isgeneratorfunction(fn):
        raise InputError(f"{fn.__qualname__} is a generator", "return the values as a list")
    if not inspect.iscoroutinefunction(fn):
        raise InputError(f"{fn.__qualname__} is not async", f"write `async def {fn.__name__}(...)`")
    try:
        lines, first = inspect.getsourcelines(fn)
    except (OSError, TypeError) as error:
        raise InputError(
            f"the source of {fn.__qualname__} can't be read ({error})",
            "define it in a file, or write the graph with the builder",
        ) from error
    # Wrap an indented definition in a block: dedenting would change multi-line strings.
    text = "".join(lines)
    is_indented = text[:1].isspace()
    module = parse_module("if True:\n" + text if is_indented else text)
    ast.increment_lineno(module, first - 1 - is_indented)
    for node in ast.walk(module):
        if isinstance(node, ast.AsyncFunctionDef) and node.name == fn.__name__:
            return node
    raise InputError(
        f"the source of {fn.__qualname__} is not where it should be",
        "import it again: its file has changed since",
    )
