"""Awaits: each becomes a node, wherever it stands, in the order in which Python would come to it.

An await inside a larger expression is made first, and its result kept in a variable. What Python evaluates before it,
and may fail, is evaluated before it here.
"""

import ast
from copy import copy

from perdure.authoring import concurrency, verbs
from perdure.authoring.graphs.compiler.calls import called
from perdure.authoring.graphs.compiler.durations import seconds
from perdure.authoring.graphs.compiler.gathering import gathered
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
    made = copy(node)
    _refuse_conditional(unit, node)
    places = _places(made)
    values = settled_in_order(unit, [_read(made, place) for place in places])
    for place, value in zip(places, values, strict=True):
        _write(made, place, value)
    return made


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
        return ast.copy_location(ast.Constant(None), node)
    values = settled_in_order(unit, list(found.arguments.values()))
    given = dict(zip(found.arguments, map(unit.expressions.text, values), strict=True))
    result = ast.Name(into, ast.Load()) if into else unit.names.temporary(f"{_plain(found.name)}_result")
    name = unit.drawing.name(found.name)
    unit.drawing.add(found.node(name, given, {result.id: "result"}))
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
    unit.drawing.add(hook)
    if limit is not None:
        _raise_when_late(unit, hook.name, signal.name, limit)
    return ast.copy_location(result, call)


def _raise_when_late(unit: Unit, hook: str, signal: str, limit: ast.expr) -> None:
    in_time = unit.drawing.open
    said = ast.parse(f"f'within {{seconds:g}} s'", mode="eval").body
    assert isinstance(said, ast.JoinedStr)
    said.values[0] = ast.Constant(f"no signal {signal!r} within ")
    shown = said.values[1]
    assert isinstance(shown, ast.FormattedValue)
    shown.value = limit
    unit.drawing.open = [unit.drawing.stub(hook, on=m.TIMEOUT)]
    error = m.Raise(
        name=unit.drawing.name("late"),
        error="builtins:TimeoutError",
        message=unit.expressions.text(ast.copy_location(said, limit)),
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


Place = tuple[str, int | None]
"""A field of a node, and the index in it if it is a list."""


def _places(node: ast.expr) -> list[Place]:
    """What is always evaluated, in order: the parts of `node` that an await may be in."""
    if isinstance(node, ast.BinOp):
        return [("left", None), ("right", None)]
    if isinstance(node, ast.Compare):
        return [("left", None), ("comparators", 0)]
    if isinstance(node, ast.BoolOp):
        return [("values", 0)]
    if isinstance(node, ast.IfExp):
        return [("test", None)]
    if isinstance(node, ast.Call):
        return _places_of_call(node)
    if isinstance(node, ast.Dict):
        pairs = [(("keys", i), ("values", i)) for i in range(len(node.values))]
        return [place for pair in pairs for place in pair if _read(node, place) is not None]
    if isinstance(node, ast.List | ast.Tuple | ast.Set):
        return [("elts", index) for index in range(len(node.elts))]
    if isinstance(node, ast.JoinedStr):
        return [("values", index) for index in range(len(node.values))]
    if isinstance(node, ast.Slice):
        bounds = ("lower", "upper", "step")
        return [(bound, None) for bound in bounds if getattr(node, bound) is not None]
    return [(field, None) for field in ("value", "operand", "slice") if hasattr(node, field)]


def _places_of_call(node: ast.Call) -> list[Place]:
    node.keywords = [copy(each) for each in node.keywords]
    owner: list[Place] = [("func", None)] if isinstance(node.func, ast.Attribute) else []
    arguments: list[Place] = [("args", index) for index in range(len(node.args))]
    return owner + arguments + [("keywords", index) for index in range(len(node.keywords))]


def _read(node: ast.AST, place: Place) -> ast.expr:
    field, index = place
    found = getattr(node, field) if index is None else getattr(node, field)[index]
    if isinstance(found, ast.keyword | ast.Starred | ast.FormattedValue):
        return found.value
    return found.value if field == "func" else found  # the object that a method belongs to


def _write(node: ast.AST, place: Place, value: ast.expr) -> None:
    field, index = place
    found = getattr(node, field) if index is None else getattr(node, field)[index]
    if isinstance(found, ast.keyword | ast.Starred | ast.FormattedValue) or field == "func":
        value, inner = copy(found), value
        value.value = inner
    if index is None:
        setattr(node, field, value)
    else:
        changed = list(getattr(node, field))
        changed[index] = value
        setattr(node, field, changed)


def _refuse_conditional(unit: Unit, node: ast.expr) -> None:
    """Awaits that Python comes to only sometimes, or more than once."""
    parts: list[ast.expr] = []
    what = "inside `and` or `or`"
    if isinstance(node, ast.BoolOp):
        parts = node.values[1:]
    elif isinstance(node, ast.Compare):
        parts, what = node.comparators[1:], "in a chain of comparisons"
    elif isinstance(node, ast.IfExp):
        parts, what = [node.body, node.orelse], "inside `... if ... else ...`"
    elif isinstance(node, _Comprehension | ast.Lambda):
        parts, what = [node], "inside a comprehension or a lambda"
    for part in parts:
        if has_await(part):
            instead = _TOGETHER if isinstance(part, _Comprehension) else _APART
            unit.problems.add(part, f"an await {what}", instead)
