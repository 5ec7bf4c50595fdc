"""Statements: each kind that can be compiled, and what to write instead of the others."""

import ast
from collections.abc import Callable
from typing import Any, Final

from perdure.authoring.graphs.compiler.awaits import dropped, perform, settled
from perdure.authoring.graphs.compiler.handlers import compile_try
from perdure.authoring.graphs.compiler.loops import (
    compile_break,
    compile_continue,
    compile_for,
    compile_while,
)
from perdure.authoring.graphs.compiler.raising import compile_assert, compile_raise
from perdure.authoring.graphs.compiler.unit import Unit, is_timeless
from perdure.authoring.graphs.compiler.unpacking import give, refuse_target, store
from perdure.core.graph import model as m

_TASK = "do it in a task"

REFUSED: Final[dict[str, tuple[str, str]]] = {
    "With": ("`with`", _TASK),
    "AsyncWith": ("`async with`", _TASK),
    "AsyncFor": ("`async for`", "make the list in a task, and write `for`"),
    "FunctionDef": ("a function inside a graph", "make it a task outside"),
    "AsyncFunctionDef": ("a function inside a graph", "make it a task or a graph outside"),
    "ClassDef": ("a class inside a graph", "define it outside"),
    "Import": ("an import inside a graph", "import at the top of the module"),
    "ImportFrom": ("an import inside a graph", "import at the top of the module"),
    "Global": ("`global`", "return the value, or keep it in a task"),
    "Nonlocal": ("`nonlocal`", "return the value, or keep it in a task"),
    "Delete": ("`del`", "build a new value without it: [x for x in xs if ...]"),
    "Match": ("`match`", "write `if` and `elif`"),
    "TryStar": ("`except*`", "write `except`"),
    "TypeAlias": ("a type inside a graph", "define it outside"),
}

_IN_PLACE: Final = {
    "append": "{0} = [*{0}, {1}]",
    "clear": "{0} = []",
    "extend": "{0} = [*{0}, *{1}]",
    "insert": "{0} = [*{0}[:i], item, *{0}[i:]]",
    "pop": "{0} = {0}[:-1]",
    "remove": "{0} = [x for x in {0} if x != {1}]",
    "reverse": "{0} = {0}[::-1]",
    "setdefault": "{0} = {{key: value, **{0}}}",
    "sort": "{0} = sorted({0})",
    "update": "{0} = {{**{0}, **{1}}}",
}
"""Methods that change what they are called on, and what makes a new value instead."""


def compile_block(unit: Unit, statements: list[ast.stmt]) -> None:
    """One after the other, up to where no path goes on."""
    for statement in statements:
        if not unit.drawing.open:
            return
        unit.drawing.at = statement
        compile_one = _STATEMENTS.get(type(statement))
        if compile_one is not None:
            compile_one(unit, statement)
        else:
            kind = type(statement).__name__
            unit.problems.add(statement, *REFUSED.get(kind, (f"`{kind}`", _TASK)))
            unit.forget(statement)


def _assign(unit: Unit, node: ast.Assign) -> None:
    target = node.targets[0]
    if (
        len(node.targets) == 1
        and isinstance(target, ast.Name)
        and isinstance(node.value, ast.Await)
    ):
        _assign_await(unit, target, node.value)
    else:
        store(unit, node.targets, settled(unit, node.value))


def _assign_await(unit: Unit, target: ast.Name, value: ast.Await) -> None:
    into = unit.names.spelled(target.id)
    result = perform(unit, value, into)
    if not (isinstance(result, ast.Name) and result.id == into):
        give(unit, target, result)


def _annotated(unit: Unit, node: ast.AnnAssign) -> None:
    if not isinstance(node.target, ast.Name):
        refuse_target(unit, node.target)
    elif isinstance(node.value, ast.Await):
        _assign_await(unit, node.target, node.value)
    elif node.value is not None:
        give(unit, node.target, settled(unit, node.value))


def _augmented(unit: Unit, node: ast.AugAssign) -> None:
    if not isinstance(node.target, ast.Name):
        refuse_target(unit, node.target)
        return
    name = node.target.id
    if name in unit.mutable:
        sign = ast.unparse(ast.BinOp(ast.Name("a"), node.op, ast.Name("b"))).split()[1]
        unit.problems.add(
            node,
            f"`{name} {sign}= ...` changes a list or a dict in place",
            f"build a new one: `{name} = [*{name}, ...]`",
        )
        return
    old = ast.copy_location(ast.Name(name, ast.Load()), node)
    made = ast.copy_location(ast.BinOp(old, node.op, node.value), node)
    give(unit, node.target, settled(unit, made))


def _expression(unit: Unit, node: ast.Expr) -> None:
    value = node.value
    if isinstance(value, ast.Constant):
        return
    if isinstance(value, ast.Await):
        dropped(unit, value)
        return
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute):
        instead = _IN_PLACE.get(value.func.attr)
        if instead is not None:
            owner, given = ast.unparse(value.func.value), ", ".join(map(ast.unparse, value.args))
            what = f"`{owner}.{value.func.attr}({given})` changes a value in place"
            unit.problems.add(value, what, f"build a new one: `{instead.format(owner, given)}`")
            return
    unit.keep(settled(unit, value), "value")


def _if(unit: Unit, node: ast.If) -> None:
    yes, no = unit.branch(settled(unit, node.test))
    ends = []
    for way, body in ((yes, node.body), (no, node.orelse)):
        unit.drawing.open = way
        compile_block(unit, body)
        ends += unit.drawing.open
    unit.drawing.open = ends


def _return(unit: Unit, node: ast.Return) -> None:
    value = settled(unit, node.value or ast.copy_location(ast.Constant(None), node))
    if not is_timeless(value):
        value = unit.keep(value, "returned")
    finish(unit, value)


def finish(unit: Unit, value: ast.expr) -> None:
    """The run results in the value."""
    text = unit.expressions.text(value)
    unit.drawing.put(m.Output(name=unit.drawing.name("return"), value=text), can_fail=False)


_STATEMENTS: Final[dict[type[ast.stmt], Callable[[Unit, Any], None]]] = {
    ast.AnnAssign: _annotated,
    ast.Assert: compile_assert,
    ast.Assign: _assign,
    ast.AugAssign: _augmented,
    ast.Break: lambda unit, _: compile_break(unit),
    ast.Continue: lambda unit, _: compile_continue(unit),
    ast.Expr: _expression,
    ast.For: lambda unit, node: compile_for(unit, node, compile_block),
    ast.If: _if,
    ast.Pass: lambda _unit, _node: None,
    ast.Raise: compile_raise,
    ast.Return: _return,
    ast.Try: lambda unit, node: compile_try(unit, node, compile_block),
    ast.While: lambda unit, node: compile_while(unit, node, compile_block),
}
