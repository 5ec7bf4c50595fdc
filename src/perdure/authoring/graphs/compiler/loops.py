"""Loops: a hook to come back to, and cycles that do."""

import ast

from perdure.authoring.graphs.compiler.awaits import settled
from perdure.authoring.graphs.compiler.drawing import Stub
from perdure.authoring.graphs.compiler.handlers import Block
from perdure.authoring.graphs.compiler.unit import Loop, Unit
from perdure.authoring.graphs.compiler.unpacking import give, listed
from perdure.core.graph import model as m
from perdure.core.syntax import parse_expression


def compile_while(unit: Unit, node: ast.While, block: Block) -> None:
    hook = _begin(unit, node, "while")
    ends: list[Stub] = []
    if not (isinstance(node.test, ast.Constant) and node.test.value):
        unit.drawing.open, ends = unit.branch(settled(unit, node.test))
    _turn(unit, node.body, hook, block)
    unit.drawing.open += ends
    unit.forget(*node.orelse)


def compile_for(unit: Unit, node: ast.For, block: Block) -> None:
    """The items are evaluated once; then it is counted through them."""
    given = settled(unit, node.iter)
    items, index = unit.names.temporary("items"), unit.names.temporary("index")
    unit.assign({items.id: listed(given), index.id: ast.Constant(0)}, "items")
    hook = _begin(unit, node, "for")
    more = f"{index.id} < len({items.id})"
    unit.drawing.open, ends = unit.drawing.branch(more, can_fail=False)
    item = parse_expression(f"{items.id}[{index.id}]")
    if not isinstance(node.target, ast.Name):
        item = unit.keep(ast.copy_location(item, node), "item")
    give(unit, node.target, ast.copy_location(item, node), _length_of_items(unit, node.iter))
    unit.drawing.assign({index.id: f"{index.id} + 1"}, "next", can_fail=False)
    _turn(unit, node.body, hook, block)
    unit.drawing.open += ends
    unit.forget(*node.orelse)


def compile_break(unit: Unit) -> None:
    unit.loops[-1].breaks += unit.drawing.open
    unit.drawing.open = []


def compile_continue(unit: Unit) -> None:
    _again(unit, unit.loops[-1].hook)


def _begin(unit: Unit, node: ast.While | ast.For, wanted: str) -> str:
    if node.orelse:
        instead = "set a variable before `break`, and test it behind the loop"
        unit.problems.add(node.orelse[0], "`else` of a loop", instead)
    name = unit.drawing.name(wanted)
    unit.drawing.add(m.Hook(name=name, cycle=True), can_fail=False)
    return name


def _turn(unit: Unit, body: list[ast.stmt], hook: str, block: Block) -> None:
    """The body, and the way back to the hook. Open is afterwards what `break` left."""
    loop = Loop(hook)
    unit.loops.append(loop)
    block(unit, body)
    unit.loops.pop()
    if unit.drawing.open:
        _again(unit, hook)
    unit.drawing.open = loop.breaks


def _again(unit: Unit, hook: str) -> None:
    again = m.Cycle(name=unit.drawing.name(f"again_{hook}"), to=hook)
    unit.drawing.put(again, can_fail=False)


def _length_of_items(unit: Unit, node: ast.expr) -> int | None:
    """How many parts each item has, where the function that makes them tells."""
    if not isinstance(node, ast.Call):
        return None
    made = unit.names.find(node.func)
    if made is enumerate:
        return 2
    if made is zip and not any(isinstance(each, ast.Starred) for each in node.args):
        return len(node.args)
    is_method = isinstance(node.func, ast.Attribute) and node.func.attr == "items"
    return 2 if is_method and not node.args else None
