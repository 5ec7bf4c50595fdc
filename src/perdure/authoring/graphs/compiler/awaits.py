"""Awaits: each becomes a node, wherever it stands, in the order in which Python would come to it.

An await inside a larger expression is made first, and its result kept in a variable. What Python evaluates before it,
and may fail, is evaluated before it here.
"""

import ast

from perdure.authoring import concurrency, verbs
from perdure.authoring.graphs.compiler.calls import called
from perdure.authoring.graphs.compiler.durations import seconds
from perdure.authoring.graphs.compiler.gathering import gathered
from perdure.authoring.graphs.compiler.parts import parts_of, with_parts
from perdure.authoring.graphs.compiler.unit import Unit, is_timeless
from perdure.authoring.signal import Signal
from perdure.core.graph import model as m

_APART = "await it in a statement of its own, under an `if` where it depends on something"
_TOGETHER = "write `await perdure.gather(*[f(x) for x in xs])`, or a `for` loop"

_Comprehension = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp


def has_await(node: ast.AST) -> bool:
    return any(isinstance(each, ast.Await) for each in ast.walk(node))


def settled(unit: Unit, node: ast.expr) -> ast.expr:
    """The expression with every await in it made, and its result in the place of it."""
    if not has_await(node):
        return node
    if isinstance(node, ast.Await):
        return perform(unit, node, None)
    if _refuse_conditional(unit, node):
        return unit.unknown(node)
    return with_parts(node, settled_in_order(unit, parts_of(node)))


def settled_in_order(unit: Unit, nodes: list[ast.expr]) -> list[ast.expr]:
    """The same for several that are evaluated one after the other."""
    last = max((index for index, node in enumerate(nodes) if has_await(node)), default=-1)
    values = []
    for index, node in enumerate(nodes):
        value = settled(unit, node)
        if index < last and not is_timeless(value):
            value = unit.keep(value, "value")
        values.append(value)
    return values


def perform(unit: Unit, node: ast.Await, into: str | None) -> ast.expr:
    """Make the node of an await. Its result is the variable `into`, or a temporary one."""
    call = node.value
    if isinstance(call, ast.Call):
        target = unit.names.find(call.func)
        if target is concurrency.gather:
            return gathered(unit, call, into, settled_in_order)
        if target is verbs.sleep:
            return _slept(unit, call)
        if isinstance(call.func, ast.Attribute) and call.func.attr == "receive":
            signal = unit.names.find(call.func.value)
            if isinstance(signal, Signal):
                return _received(unit, call, signal, into)
    found = called(unit, call)
    if found is None:
        return unit.unknown(node)
    values = settled_in_order(unit, list(found.arguments.values()))
    given = dict(zip(found.arguments, map(unit.expressions.text, values), strict=True))
    result = (
        ast.Name(into, ast.Load()) if into else unit.names.temporary(f"{_plain(found.name)}_result")
    )
    name = unit.drawing.name(found.name)
    unit.drawing.wrote(name, node, found.fields)
    is_handled = unit.drawing.is_handled
    unit.drawing.add(found.node(name, given, {result.id: "result"}, is_handled=is_handled))
    return ast.copy_location(result, node)


def dropped(unit: Unit, node: ast.Await) -> None:
    """An await whose result nobody wants."""
    perform(unit, node, None)


def _plain(name: str) -> str:
    return name if name.isidentifier() else "call"


def _slept(unit: Unit, call: ast.Call) -> ast.expr:
    duration = _only_argument(unit, call, "duration")
    if duration is not None:
        length = settled(unit, seconds(unit, duration))
        name = unit.drawing.name("sleep")
        unit.drawing.wrote(name, call, {"sleep": duration})
        unit.drawing.add(m.Hook(name=name, sleep=unit.expressions.text(length), output={}))
    return ast.copy_location(ast.Constant(None), call)


def _received(unit: Unit, call: ast.Call, signal: Signal[object], into: str | None) -> ast.expr:
    given = _only_argument(unit, call, "timeout") if call.args or call.keywords else None
    is_endless = given is None or (isinstance(given, ast.Constant) and given.value is None)
    limit = None
    if given is not None and not is_endless:
        limit = settled(unit, seconds(unit, given))
        limit = limit if is_timeless(limit) else unit.keep(limit, "timeout")
    result = ast.Name(into, ast.Load()) if into else unit.names.temporary("received")
    hook = m.Hook(
        name=unit.drawing.name(signal.name),
        topic=signal.name,
        sleep=None if limit is None else unit.expressions.text(limit),
        output={result.id: "result"},
    )
    unit.drawing.wrote(hook.name, call, {} if given is None else {"sleep": given})
    unit.drawing.add(hook)
    if limit is not None:
        _raise_when_late(unit, hook.name, signal.name, limit)
    return ast.copy_location(result, call)


def _raise_when_late(unit: Unit, hook: str, signal: str, limit: ast.expr) -> None:
    in_time = unit.drawing.open
    shown = ast.FormattedValue(limit, -1, ast.JoinedStr([ast.Constant("g")]))
    parts = [ast.Constant(f"no signal {signal!r} within "), shown, ast.Constant(" s")]
    said = ast.fix_missing_locations(ast.copy_location(ast.JoinedStr(list(parts)), limit))
    unit.drawing.open = [unit.drawing.stub(hook, on=m.TIMEOUT)]
    error = m.Raise(
        name=unit.drawing.name("late"),
        error="builtins:TimeoutError",
        message=unit.expressions.text(said),
    )
    unit.drawing.put(error)
    unit.drawing.open = in_time


def _only_argument(unit: Unit, call: ast.Call, name: str) -> ast.expr | None:
    """The one argument that a verb takes, by place or by name."""
    if len(call.args) == 1 and not call.keywords and not isinstance(call.args[0], ast.Starred):
        return call.args[0]
    if not call.args and [each.arg for each in call.keywords] == [name]:
        return call.keywords[0].value
    what = f"`{ast.unparse(call)}`"
    unit.problems.add(call, what, f"write `{ast.unparse(call.func)}({name})`")
    return None


def _refuse_conditional(unit: Unit, node: ast.expr) -> bool:
    """Whether there are awaits that Python comes to only sometimes, or more than once: they are noted."""
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
