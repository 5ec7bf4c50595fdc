"""Compiles `raise` and `assert`: errors with the name of their type and a message."""

import ast
from typing import Any

from perdure.authoring.graphs.compiler.awaits import compile_awaits
from perdure.authoring.graphs.compiler.names import MISSING
from perdure.authoring.graphs.compiler.unit import Unit
from perdure.authoring.modules import type_name
from perdure.core.graph import model as m

_SIMPLE = "raise an exception whose text is its only argument, such as ValueError"
_PROBE = "a text"


def error_name(kind: type[BaseException]) -> str:
    """The name of an exception type in edges."""
    return type_name(kind)


def is_error(found: Any) -> bool:
    """Whether it is an exception type that every process can import by name."""
    return (
        isinstance(found, type) and issubclass(found, Exception) and "<" not in found.__qualname__
    )


def compile_raise(unit: Unit, node: ast.Raise) -> None:
    if node.exc is None or unit.expressions.error(node.exc) is not None:
        _raise_again(unit, node)
        return
    kind, arguments = _made(node.exc)
    found = unit.names.find(kind)
    if not is_error(found):
        what = f"`raise {ast.unparse(node.exc)}`"
        unknown = "define it above the graph" if found is MISSING else _SIMPLE
        unit.problems.add(node, what, f"raise an exception that is defined in a module; {unknown}")
    elif len(arguments) > 1 or not _says_its_argument(found, bool(arguments)):
        unit.problems.add(node, f"`raise {ast.unparse(node.exc)}`", _SIMPLE)
    else:
        message = _text(compile_awaits(unit, arguments[0])) if arguments else ast.Constant("")
        add_raise(unit, found, ast.copy_location(message, node))
        return
    add_raise(unit, Exception, ast.copy_location(ast.Constant(""), node))


def compile_assert(unit: Unit, node: ast.Assert) -> None:
    holds, fails = unit.branch(compile_awaits(unit, node.test))
    unit.writer.open = fails
    message = _text(compile_awaits(unit, node.msg)) if node.msg is not None else ast.Constant("")
    add_raise(unit, AssertionError, ast.copy_location(message, node))
    unit.writer.open = holds


def add_raise(unit: Unit, kind: type[Exception], message: ast.expr) -> None:
    """Add a raise node. No path continues after it."""
    unit.writer.put(
        m.RaiseNode(
            name=unit.writer.name("raise"),
            error=error_name(kind),
            message=unit.expressions.text(message),
            bases=_bases(kind),
        )
    )


def _bases(kind: type[Exception]) -> tuple[str, ...]:
    """The base types of a user's exception. Those of builtin exceptions are known everywhere."""
    if kind.__module__ == "builtins":
        return ()
    above = [each for each in kind.__mro__[1:] if issubclass(each, Exception)]
    return tuple(error_name(each) for each in above if each is not Exception)


def _raise_again(unit: Unit, node: ast.Raise) -> None:
    again = unit.caught[-1] if unit.caught else None
    if node.exc is not None:
        again = unit.expressions.error(node.exc)
    if again is None:
        unit.problems.add(node, "`raise` outside of `except`", "name the exception to raise")
        add_raise(unit, Exception, ast.copy_location(ast.Constant(""), node))
        return
    unit.writer.put(m.RaiseNode(name=unit.writer.name("raise"), again=again))


def _made(node: ast.expr) -> tuple[ast.expr, list[ast.expr]]:
    """The type, and what it is given."""
    if not isinstance(node, ast.Call):
        return node, []
    return node.func, [*node.args, *(each.value for each in node.keywords)] + (
        [node] if node.keywords else []  # a second one: only the text by its place is simple
    )


def _says_its_argument(kind: type[Exception], given: bool) -> bool:
    """Whether the text of the exception is its only argument."""
    try:
        return str(kind(_PROBE)) == _PROBE if given else str(kind()) == ""
    except Exception:  # the user's code may raise anything
        return False


def _text(node: ast.expr) -> ast.expr:
    """The text of an exception with this argument."""
    if isinstance(node, ast.JoinedStr) or (
        isinstance(node, ast.Constant) and isinstance(node.value, str)
    ):
        return node
    made = ast.JoinedStr([ast.FormattedValue(node, conversion=-1)])
    return ast.fix_missing_locations(ast.copy_location(made, node))
