"""Compiles `try`: errors of its nodes follow edges to the handlers."""

import ast
from collections.abc import Callable, Iterator

from perdure.authoring.graphs.compiler.graph_writer import Handler
from perdure.authoring.graphs.compiler.raising import error_name, is_error
from perdure.authoring.graphs.compiler.unit import Unit

Block = Callable[[Unit, list[ast.stmt]], None]
"""Compiles a block of statements."""


def compile_try(unit: Unit, node: ast.Try, block: Block) -> None:
    if node.finalbody:
        unit.problems.add(
            node.finalbody[0],
            "`finally`",
            "write it after the `try`, and in an `except Exception:` that ends with `raise`",
        )
    handlers = [_handler(unit, each) for each in node.handlers]
    with unit.writer.handled_by(handlers):
        block(unit, node.body)
    block(unit, node.orelse)
    unit.forget(*node.finalbody)
    ends = unit.writer.open
    for each, handler in zip(node.handlers, handlers, strict=True):
        unit.writer.open = handler.edges
        _compile_handler(unit, each, handler, block)
        ends = ends + unit.writer.open
    unit.writer.open = ends


def _handler(unit: Unit, node: ast.ExceptHandler) -> Handler:
    raises_again = any(isinstance(each, ast.Raise) and each.exc is None for each in ast.walk(node))
    variable = None
    if node.name is not None or raises_again:
        variable = unit.names.temporary("failure").id
    if node.name is not None and unit.names.is_assigned(node.name):
        instead = "choose another name: Python deletes an error's name after its handler"
        unit.problems.add(node, f"{node.name!r} is an error and a variable", instead)
    return Handler(tuple(_types(unit, node)), variable)


def _types(unit: Unit, node: ast.ExceptHandler) -> Iterator[str]:
    """The names of the exception types; none if the handler takes all."""
    if node.type is None:
        unit.problems.add(node, "`except:` without a type", "write `except Exception:`")
        return
    is_tuple = isinstance(node.type, ast.Tuple)
    parts = node.type.elts if isinstance(node.type, ast.Tuple) else [node.type]
    found = [unit.names.find(part) for part in parts]
    if not is_tuple and isinstance(found[0], tuple):
        found = list(found[0])
    wrong = [each for each in found if not is_error(each)]
    if wrong:
        unit.problems.add(
            node,
            f"`except {ast.unparse(node.type)}`",
            "name exceptions that are defined in modules, and are of type Exception",
        )
    elif Exception not in found:
        yield from (error_name(each) for each in found)


def _compile_handler(unit: Unit, node: ast.ExceptHandler, handler: Handler, block: Block) -> None:
    with unit.expressions.handling(node.name, handler.bind):
        unit.caught.append(handler.bind or "")
        block(unit, node.body)
        unit.caught.pop()
