"""Compiles awaits to nodes, in Python's evaluation order.

An await inside a larger expression becomes a node before it, with its result in a variable. Operands that Python
evaluates before the await, and that may fail or change, are evaluated before that node.
"""

import ast
import asyncio

from perdure.authoring import concurrency, verbs
from perdure.authoring.graphs.compiler.calls import resolve_call
from perdure.authoring.graphs.compiler.durations import seconds
from perdure.authoring.graphs.compiler.evaluation_order import parts_of, with_values
from perdure.authoring.graphs.compiler.gathering import compile_gather
from perdure.authoring.graphs.compiler.unit import Unit, is_stable
from perdure.authoring.signal import Signal
from perdure.core.graph import model as m

_APART = "await it in a statement of its own, under an `if` where it depends on something"
_TOGETHER = "write `await perdure.gather(*[f(x) for x in xs])`, or a `for` loop"

_Comprehension = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp


def has_await(node: ast.AST) -> bool:
    return any(isinstance(each, ast.Await) for each in ast.walk(node))


def compile_awaits(unit: Unit, node: ast.expr) -> ast.expr:
    """The expression with every await compiled and replaced by its result."""
    if not has_await(node):
        return node
    if isinstance(node, ast.Await):
        return compile_await(unit, node, None)
    if _refuse_conditional(unit, node):
        return unit.unknown(node)
    return with_values(node, compile_awaits_in_order(unit, parts_of(node)))


def compile_awaits_in_order(unit: Unit, nodes: list[ast.expr]) -> list[ast.expr]:
    """Compile the awaits of several expressions in evaluation order."""
    last = max((index for index, node in enumerate(nodes) if has_await(node)), default=-1)
    values = []
    for index, node in enumerate(nodes):
        value = compile_awaits(unit, node)
        if index < last and not is_stable(value):
            value = unit.keep(value, "value")
        values.append(value)
    return values


def compile_await(unit: Unit, node: ast.Await, into: str | None) -> ast.expr:
    """Compile an await to a node. Its result is the variable `into`, or a temporary variable."""
    call = node.value
    if isinstance(call, ast.Call):
        target = unit.names.find(call.func)
        if target is concurrency.gather or target is asyncio.gather:
            return compile_gather(unit, call, into, compile_awaits_in_order)
        if target is verbs.sleep or target is asyncio.sleep:
            return _slept(unit, call, "duration" if target is verbs.sleep else "delay")
        if isinstance(call.func, ast.Attribute) and call.func.attr == "receive":
            signal = unit.names.find(call.func.value)
            if isinstance(signal, Signal):
                return _received(unit, call, signal, into)
    found = resolve_call(unit, call)
    if found is None:
        return unit.unknown(node)
    values = compile_awaits_in_order(unit, list(found.arguments.values()))
    given = dict(zip(found.arguments, map(unit.expressions.text, values), strict=True))
    result = (
        ast.Name(into, ast.Load()) if into else unit.names.temporary(f"{_plain(found.name)}_result")
    )
    name = unit.writer.name(found.name)
    unit.writer.wrote(name, node, found.fields)
    is_handled = unit.writer.is_handled
    unit.writer.add(found.node(name, given, {result.id: "result"}, is_handled=is_handled))
    return ast.copy_location(result, node)


def compile_discarded_await(unit: Unit, node: ast.Await) -> None:
    """Compile an await whose result is not used."""
    compile_await(unit, node, None)


def _plain(name: str) -> str:
    return name if name.isidentifier() else "call"


def _slept(unit: Unit, call: ast.Call, parameter: str) -> ast.expr:
    duration = _only_argument(unit, call, parameter)
    if duration is not None:
        length = compile_awaits(unit, seconds(unit, duration))
        name = unit.writer.name("sleep")
        unit.writer.wrote(name, call, {"sleep": duration})
        unit.writer.add(m.HookNode(name=name, sleep=unit.expressions.text(length), output={}))
    return ast.copy_location(ast.Constant(None), call)


def _received(unit: Unit, call: ast.Call, signal: Signal[object], into: str | None) -> ast.expr:
    given = _only_argument(unit, call, "timeout") if call.args or call.keywords else None
    is_endless = given is None or (isinstance(given, ast.Constant) and given.value is None)
    limit = None
    if given is not None and not is_endless:
        limit = compile_awaits(unit, seconds(unit, given))
        limit = limit if is_stable(limit) else unit.keep(limit, "timeout")
    result = ast.Name(into, ast.Load()) if into else unit.names.temporary("received")
    hook = m.HookNode(
        name=unit.writer.name(signal.name),
        topic=signal.name,
        sleep=None if limit is None else unit.expressions.text(limit),
        output={result.id: "result"},
    )
    unit.writer.wrote(hook.name, call, {} if given is None else {"sleep": given})
    unit.writer.add(hook)
    if limit is not None:
        _raise_when_late(unit, hook.name, signal.name, limit)
    return ast.copy_location(result, call)


def _raise_when_late(unit: Unit, hook: str, signal: str, limit: ast.expr) -> None:
    in_time = unit.writer.open
    shown = ast.FormattedValue(limit, -1, ast.JoinedStr([ast.Constant("g")]))
    parts = [ast.Constant(f"no signal {signal!r} within "), shown, ast.Constant(" s")]
    said = ast.fix_missing_locations(ast.copy_location(ast.JoinedStr(list(parts)), limit))
    unit.writer.open = [unit.writer.open_end(hook, on=m.TIMEOUT)]
    error = m.RaiseNode(
        name=unit.writer.name("late"),
        error="builtins:TimeoutError",
        message=unit.expressions.text(said),
    )
    unit.writer.put(error)
    unit.writer.open = in_time


def _only_argument(unit: Unit, call: ast.Call, name: str) -> ast.expr | None:
    """The single argument of a verb, by position or by name."""
    if len(call.args) == 1 and not call.keywords and not isinstance(call.args[0], ast.Starred):
        return call.args[0]
    if not call.args and [each.arg for each in call.keywords] == [name]:
        return call.keywords[0].value
    what = f"`{ast.unparse(call)}`"
    unit.problems.add(call, what, f"write `{ast.unparse(call.func)}({name})`")
    return None


def _refuse_conditional(unit: Unit, node: ast.expr) -> bool:
    """Refuse awaits that Python evaluates conditionally or repeatedly. Returns whether there are any."""
    parts: list[ast.AST] = []
    what, instead = "inside `and` or `or`", _APART
    if isinstance(node, ast.BoolOp):
        parts += node.values[1:]
    elif isinstance(node, ast.Compare):
        parts, what = [*node.comparators[1:]], "in a chain of comparisons"
    elif isinstance(node, ast.IfExp):
        parts, what = [node.body, node.orelse], "inside `... if ... else ...`"
    elif isinstance(node, _Comprehension):
        first, *others = node.generators
        made = [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
        parts = [first.target, *first.ifs, *others, *made]
        what, instead = "inside a comprehension", _TOGETHER
    elif isinstance(node, ast.Lambda):
        parts, what = [node.body], "inside a lambda"
    elif isinstance(node, ast.JoinedStr):
        shown = [each for each in node.values if isinstance(each, ast.FormattedValue)]
        parts, what = [s for each in shown if (s := each.format_spec)], "in the format of a value"
    found = [each for part in parts for each in ast.walk(part) if isinstance(each, ast.Await)]
    for each in found:
        unit.problems.add(each, f"an await {what}", instead)
    return bool(found)
