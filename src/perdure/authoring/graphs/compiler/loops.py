"""Compiles loops to a hook and the cycles that return to it."""

import ast

from perdure.authoring.graphs.compiler.awaits import compile_awaits
from perdure.authoring.graphs.compiler.graph_writer import OpenEnd
from perdure.authoring.graphs.compiler.handlers import Block
from perdure.authoring.graphs.compiler.unit import EnclosingLoop, Unit
from perdure.authoring.graphs.compiler.unpacking import as_list, give
from perdure.core.graph import model as m
from perdure.core.syntax import parse_expression


def compile_while(unit: Unit, node: ast.While, block: Block) -> None:
    hook = _begin(unit, node, "while")
    ends: list[OpenEnd] = []
    if not (isinstance(node.test, ast.Constant) and node.test.value):
        unit.writer.open, ends = unit.branch(compile_awaits(unit, node.test))
    _compile_body(unit, node.body, hook, block)
    unit.writer.open += ends
    unit.forget(*node.orelse)


def compile_for(unit: Unit, node: ast.For, block: Block) -> None:
    """Evaluate the items once, then iterate by index."""
    given = compile_awaits(unit, node.iter)
    items, index = unit.names.temporary("items"), unit.names.temporary("index")
    unit.assign({items.id: as_list(given), index.id: ast.Constant(0)}, "items")
    hook = _begin(unit, node, "for")
    more = f"{index.id} < len({items.id})"
    unit.writer.open, ends = unit.writer.branch(more, can_fail=False)
    item = parse_expression(f"{items.id}[{index.id}]")
    if not isinstance(node.target, ast.Name):
        item = unit.keep(ast.copy_location(item, node), "item")
    give(unit, node.target, ast.copy_location(item, node), _length_of_items(unit, node.iter))
    unit.writer.assign({index.id: f"{index.id} + 1"}, "next", can_fail=False)
    _compile_body(unit, node.body, hook, block)
    unit.writer.open += ends
    unit.forget(*node.orelse)


def compile_break(unit: Unit) -> None:
    unit.loops[-1].breaks += unit.writer.open
    unit.writer.open = []


def compile_continue(unit: Unit) -> None:
    _again(unit, unit.loops[-1].hook)


def _begin(unit: Unit, node: ast.While | ast.For, wanted: str) -> str:
    if node.orelse:
        instead = "set a variable before `break`, and test it after the loop"
        unit.problems.add(node.orelse[0], "`else` of a loop", instead)
    name = unit.writer.name(wanted)
    unit.writer.add(m.HookNode(name=name, cycle=True), can_fail=False)
    return name


def _compile_body(unit: Unit, body: list[ast.stmt], hook: str, block: Block) -> None:
    """Compile the body and the cycle to the hook. Afterwards only the edges of `break` are open."""
    loop = EnclosingLoop(hook)
    unit.loops.append(loop)
    block(unit, body)
    unit.loops.pop()
    if unit.writer.open:
        _again(unit, hook)
    unit.writer.open = loop.breaks


def _again(unit: Unit, hook: str) -> None:
    again = m.CycleNode(name=unit.writer.name(f"again_{hook}"), to=hook)
    unit.writer.put(again, can_fail=False)


def _length_of_items(unit: Unit, node: ast.expr) -> int | None:
    """The number of parts of each item, if the iterated function determines it."""
    if not isinstance(node, ast.Call):
        return None
    made = unit.names.find(node.func)
    if made is enumerate:
        return 2
    if made is zip and not any(isinstance(each, ast.Starred) for each in node.args):
        return len(node.args)
    is_method = isinstance(node.func, ast.Attribute) and node.func.attr == "items"
    return 2 if is_method and not node.args else None
