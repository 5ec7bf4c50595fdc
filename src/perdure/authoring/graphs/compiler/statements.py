"""Compiles statements, and refuses unsupported kinds with an alternative."""

import ast
from collections.abc import Callable
from typing import Any, Final

from perdure.authoring.graphs.compiler.awaits import (
    compile_await,
    compile_awaits,
    compile_awaits_in_order,
    compile_discarded_await,
)
from perdure.authoring.graphs.compiler.changes import changed_dict, changed_list
from perdure.authoring.graphs.compiler.handlers import compile_try
from perdure.authoring.graphs.compiler.loops import (
    compile_break,
    compile_continue,
    compile_for,
    compile_while,
)
from perdure.authoring.graphs.compiler.raising import compile_assert, compile_raise
from perdure.authoring.graphs.compiler.unit import Unit, is_stable
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
"""Methods that change their object, and expressions that build a new value instead."""


def compile_block(unit: Unit, statements: list[ast.stmt]) -> None:
    """Compile statements in order, up to where no path continues."""
    for statement in statements:
        if not unit.writer.open:
            return
        unit.writer.at = statement
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
    elif len(node.targets) == 1 and _is_own(unit, changed_dict(target), dict):
        _set_item(unit, target, node.value)
    else:
        store(unit, node.targets, compile_awaits(unit, node.value))


def _assign_await(unit: Unit, target: ast.Name, value: ast.Await) -> None:
    into = unit.names.graph_name(target.id)
    result = compile_await(unit, value, into)
    if not (isinstance(result, ast.Name) and result.id == into):
        give(unit, target, result)


def _annotated(unit: Unit, node: ast.AnnAssign) -> None:
    if not isinstance(node.target, ast.Name):
        refuse_target(unit, node.target)
    elif isinstance(node.value, ast.Await):
        _assign_await(unit, node.target, node.value)
    elif node.value is not None:
        give(unit, node.target, compile_awaits(unit, node.value))


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
    give(unit, node.target, compile_awaits(unit, made))


def _expression(unit: Unit, node: ast.Expr) -> None:
    value = node.value
    if isinstance(value, ast.Constant):
        return
    if isinstance(value, ast.Await):
        compile_discarded_await(unit, value)
        return
    owner_of_list = changed_list(value)
    if owner_of_list is not None and _is_own(unit, owner_of_list, list):
        assert isinstance(value, ast.Call)  # noqa: S101 - for the type checker
        _append(unit, owner_of_list, value.args[0])
        return
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute):
        instead = _IN_PLACE.get(value.func.attr)
        if instead is not None:
            owner, given = ast.unparse(value.func.value), ", ".join(map(ast.unparse, value.args))
            what = f"`{owner}.{value.func.attr}({given})` changes a value in place"
            unit.problems.add(value, what, f"build a new one: `{instead.format(owner, given)}`")
            return
    unit.keep(compile_awaits(unit, value), "value")


def _is_own(unit: Unit, name: ast.Name | None, kind: type) -> bool:
    return name is not None and unit.own.get(name.id) is kind


def _append(unit: Unit, name: ast.Name, item: ast.expr) -> None:
    """`xs.append(x)` on a list that no other reference sees: `xs = [*xs, x]`."""
    value = compile_awaits(unit, item)
    made = ast.List([ast.Starred(ast.Name(name.id, ast.Load()), ast.Load()), value], ast.Load())
    _give_made(unit, name, made)


def _set_item(unit: Unit, target: ast.expr, value: ast.expr) -> None:
    """`d[k] = v` on a dict that no other reference sees: `d = {**d, k: v}`, with `v` evaluated before `k`."""
    name = changed_dict(target)
    assert name is not None and isinstance(target, ast.Subscript)  # noqa: S101, PT018 - the caller has asked
    item, key = compile_awaits_in_order(unit, [value, target.slice])
    if not is_stable(item) and not is_stable(key):
        item = unit.keep(item, "value")
    _give_made(unit, name, ast.Dict([None, key], [ast.Name(name.id, ast.Load()), item]))


def _give_made(unit: Unit, name: ast.Name, made: ast.expr) -> None:
    target = ast.copy_location(ast.Name(name.id, ast.Store()), name)
    give(unit, target, ast.fix_missing_locations(ast.copy_location(made, name)))


def _if(unit: Unit, node: ast.If) -> None:
    yes, no = unit.branch(compile_awaits(unit, node.test))
    ends = []
    for way, body in ((yes, node.body), (no, node.orelse)):
        unit.writer.open = way
        compile_block(unit, body)
        ends += unit.writer.open
    unit.writer.open = ends


def _return(unit: Unit, node: ast.Return) -> None:
    value = compile_awaits(unit, node.value or ast.copy_location(ast.Constant(None), node))
    if not is_stable(value):
        value = unit.keep(value, "returned")
    finish(unit, value)


def finish(unit: Unit, value: ast.expr) -> None:
    """End the run with the value as its result."""
    text = unit.expressions.text(value)
    unit.writer.put(m.OutputNode(name=unit.writer.name("return"), value=text), can_fail=False)


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
