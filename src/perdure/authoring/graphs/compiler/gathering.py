"""Compiles `perdure.gather`: parallel steps. After all have ended, the first failure in their order is raised."""

import ast
from collections.abc import Callable

from perdure.authoring.graphs.compiler.calls import ResolvedCall, resolve_call
from perdure.authoring.graphs.compiler.unit import Unit, is_stable
from perdure.authoring.graphs.compiler.unpacking import as_list
from perdure.core.graph import model as m
from perdure.core.syntax import parse_expression

InOrder = Callable[[Unit, list[ast.expr]], list[ast.expr]]
"""Compiles the awaits in expressions, in evaluation order."""

_BEFORE = "await it before, or in a graph of its own that is gathered"
_MEMBERS = "give it calls of tasks, workflows and graphs, or one `*[f(x) for x in xs]`"


def compile_gather(unit: Unit, call: ast.Call, into: str | None, in_order: InOrder) -> ast.expr:
    """The results, in the variable `into` or as an expression."""
    starred = [each for each in call.args if isinstance(each, ast.Starred)]
    if call.keywords:
        what = f"gather with {call.keywords[0].arg}="
        unit.problems.add(
            call, what, "put a `try` around what may fail, in a graph or a task of its own"
        )
    elif starred and len(call.args) > 1:
        unit.problems.add(call, "gather of a list and more", "gather the list on its own")
    elif starred:
        return _spread(unit, starred[0], into, in_order) or unit.unknown(call)
    else:
        return _side_by_side(unit, call, into, in_order) or unit.unknown(call)
    return unit.unknown(call)


def _side_by_side(
    unit: Unit, call: ast.Call, into: str | None, in_order: InOrder
) -> ast.expr | None:
    members = [resolve_call(unit, each) for each in call.args]
    found = [each for each in members if each is not None]
    if len(found) < len(members):
        return None
    if not found:
        return _result(unit, ast.List([], ast.Load()), call, into)
    given = _arguments_now(unit, found, in_order)
    writer = unit.writer
    results: list[ast.Name] = []
    failures: list[str] = []
    ends = []
    starts = writer.fork(len(found))
    for member, maps, start, written in zip(found, given, starts, call.args, strict=True):
        name = writer.name(member.name)
        writer.wrote(name, written, member.fields)
        result = unit.names.temporary(f"{name}_result")
        failure = unit.names.temporary(f"{name}_error")
        writer.open = start
        outputs = {result.id: "result", failure.id: "None"}
        writer.add(member.node_apart(name, maps, outputs), can_fail=False)
        ends += [*writer.open, writer.caught(name, failure.id)]
        results.append(result)
        failures.append(failure.id)
    writer.open = ends
    join = _raise_first(unit, failures)
    writer.joins[join] = frozenset(failures).union(each.id for each in results)
    return _result(unit, ast.List([*results], ast.Load()), call, into)


def _arguments_now(unit: Unit, members: list[ResolvedCall], in_order: InOrder) -> list[m.Maps]:
    """Evaluate the arguments of all members before the first one begins."""
    values = in_order(unit, [each for member in members for each in member.arguments.values()])
    names = [name for member in members for name in member.arguments]
    kept = {}
    for index, (name, value) in enumerate(zip(names, values, strict=True)):
        if not is_stable(value):
            variable = unit.names.temporary(name)
            kept[variable.id] = value
            values[index] = variable
    if kept:
        unit.assign(kept, "arguments")
    texts = iter([unit.expressions.text(value) for value in values])
    return [{name: next(texts) for name in member.arguments} for member in members]


def _raise_first(unit: Unit, failures: list[str]) -> str:
    """Raise the first failure that is not None. Returns the name of the node that tests the failures."""
    writer = unit.writer
    failed = m.BranchNode(name=writer.name("failed"))
    writer.put(failed, can_fail=False)
    for failure in failures:
        writer.open = [writer.open_end(failed.name, when=f"{failure} is not None")]
        writer.put(m.RaiseNode(name=writer.name("raise"), again=failure))
    writer.open = [writer.open_end(failed.name)]
    return failed.name


def _spread(
    unit: Unit, starred: ast.Starred, into: str | None, in_order: InOrder
) -> ast.expr | None:
    made = starred.value
    if not isinstance(made, ast.ListComp | ast.GeneratorExp):
        unit.problems.add(starred, f"gather of `{ast.unparse(starred)}`", _MEMBERS)
        return None
    for part in ast.walk(made):
        if isinstance(part, ast.Await) and part not in ast.walk(made.generators[0].iter):
            unit.problems.add(part, "an await inside a list that is gathered", _BEFORE)
            return None
    member = resolve_call(unit, made.elt)
    if member is None:
        return None
    items, given = _items(unit, made, member, in_order)
    writer = unit.writer
    every_item = unit.keep(items, "items")
    item = unit.names.temporary("item")
    outcome = unit.names.temporary("outcome")
    failure = unit.names.temporary("failure")
    every = unit.names.temporary("outcomes")
    spread = m.SpreadNode(name=writer.name("spread"), items=every_item.id, item=item.id)
    writer.add(spread, can_fail=False)
    name = writer.name(member.name)
    writer.wrote(name, made.elt, {})
    maps = {key: text.format(item.id) for key, text in given.items()}
    writer.add(member.node_apart(name, maps, {outcome.id: "[result, None]"}), can_fail=False)
    ends = writer.open
    writer.open = [writer.caught(name, failure.id)]
    outcomes = {outcome.id: f"[None, {failure.id}]"}
    writer.add(m.AssignNode(name=writer.name("failure"), set=outcomes), can_fail=False)
    writer.open += ends
    together = writer.name("gather")
    gather = m.AggregateNode(name=together, of=spread.name, collect=outcome.id, into=every.id)
    writer.add(gather, can_fail=False)
    first = unit.names.temporary("failure")
    failures = f"[each[1] for each in {every.id} if each[1] is not None]"
    writer.assign({first.id: f"({failures} + [None])[0]"}, "failures", can_fail=False)
    _raise_first(unit, [first.id])
    results = parse_expression(f"[each[0] for each in {every.id}]")
    return _result(unit, results, starred, into)


def _items(
    unit: Unit, made: ast.ListComp | ast.GeneratorExp, member: ResolvedCall, in_order: InOrder
) -> tuple[ast.expr, m.Maps]:
    """The items to spread, and the arguments as texts with a placeholder for the item.

    All arguments are evaluated before the first call begins, because Python builds the list before `gather` runs.
    """
    first = made.generators[0]
    (iterable,) = in_order(unit, [first.iter])
    values = list(member.arguments.values())
    is_whole = len(made.generators) == 1 and not first.ifs and isinstance(first.target, ast.Name)
    if is_whole and len(values) == 1 and ast.dump(values[0]) == _dump_of_reading(first.target):
        return as_list(iterable), dict.fromkeys(member.arguments, "{}")
    generators = [
        ast.comprehension(first.target, iterable, first.ifs, first.is_async),
        *made.generators[1:],
    ]
    keys: list[ast.expr | None] = [ast.Constant(name) for name in member.arguments]
    items = ast.copy_location(ast.ListComp(ast.Dict(keys, values), generators), made)
    return ast.fix_missing_locations(items), {name: f"{{}}[{name!r}]" for name in member.arguments}


def _dump_of_reading(target: ast.expr) -> str:
    """The dump of an expression that reads the comprehension's variable."""
    return ast.dump(ast.Name(target.id, ast.Load())) if isinstance(target, ast.Name) else ""


def _result(unit: Unit, value: ast.expr, place: ast.AST, into: str | None) -> ast.expr:
    value = ast.fix_missing_locations(ast.copy_location(value, place))
    if into is None:
        return value
    unit.assign({into: value}, f"set_{into}")
    return ast.copy_location(ast.Name(into, ast.Load()), place)
