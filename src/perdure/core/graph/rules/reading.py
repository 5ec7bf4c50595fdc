"""Expressions: each is valid, and reads only variables that may exist where it is evaluated."""

from collections.abc import Iterable, Iterator

from perdure.core.expressions import ExpressionProblem
from perdure.core.graph import model as m
from perdure.core.graph.fields import OWN, PARAMS, expressions_of, response_names, variables_of
from perdure.core.graph.gaps import ANYTHING
from perdure.core.graph.inference import attributes_of
from perdure.core.graph.model import Problem
from perdure.core.graph.scopes import Scopes
from perdure.core.graph.suggestions import did_you_mean
from perdure.core.graph.survey import NumberedEdge, Survey

_ALWAYS = frozenset(("input", "job"))


def problems(survey: Survey, scopes: Scopes) -> Iterator[Problem]:
    for node in survey.nodes.values():
        for reading in expressions_of(node):
            yield from _syntax(survey, node.name, reading.field, reading.text)
        if node.name in survey.reached:
            yield from _node(survey, scopes, node)
    for numbered in survey.edges:
        when = numbered.edge.when
        if when is not None:
            yield from _syntax(survey, numbered.place, "when", when)
            if numbered.edge.source in survey.reached:
                yield from _condition(survey, scopes, numbered, when)


def _syntax(survey: Survey, place: str, field: str, text: str) -> Iterator[Problem]:
    found = survey.parsed(text)
    if isinstance(found, ExpressionProblem):
        yield Problem(place, field, found.what, found.remedy)
    elif survey.graph.params is not None and PARAMS in found.names:
        yield from _parameters(survey.graph.params, place, field, text)


def _parameters(
    params: dict[str, m.FieldType], place: str, field: str, text: str
) -> Iterator[Problem]:
    """The expression reads `params.name` of declared parameters only."""
    for name in attributes_of(PARAMS, text):
        if name not in params:
            known = f"the parameters are {', '.join(params)}"
            what = f"there is no parameter {name!r}"
            yield Problem(place, field, what, did_you_mean(name, params, known))


def _node(survey: Survey, scopes: Scopes, node: m.AnyNode) -> Iterator[Problem]:
    own = response_names(node)
    before, after = scopes.before[node.name], scopes.after[node.name]
    known = set(before)
    for reading in expressions_of(node):
        part, _, name = reading.field.partition(".")
        names: Iterable[str] = known
        if part == "job":
            names = after
        elif part == "collect":
            names = scopes.inside.get(node.name, {})
        if reading.is_after:
            names = own.union(names)
        yield from _unknown(survey, (node.name, reading.field), survey.reads(reading.text), names)
        if part == "set":
            known.add(name)  # an assign sets variables one by one
    if isinstance(node, m.RaiseNode) and node.again is not None:
        yield from _unknown(survey, (node.name, "again"), {node.again}, before)
    if isinstance(node, m.CycleNode):
        yield from _returned(survey, scopes, node)


def _returned(survey: Survey, scopes: Scopes, node: m.CycleNode) -> Iterator[Problem]:
    """A cycle may change variables that exist at its hook, or that are set behind it."""
    hook = survey.nodes.get(node.to)
    known = set(scopes.before.get(node.to, ()))
    if survey.graph.input is None or hook is None or ANYTHING in known:
        return
    for name in survey.reach((node.to,)):
        if name in survey.gaps.setting:
            return
        known.update(variable for _, variable in variables_of(survey.nodes[name]))
        known.update(each.edge.bind for each in survey.incoming[name] if each.edge.bind)
    for name in node.input:
        if name not in known:
            yield Problem(
                node.name,
                f"input.{name}",
                f"there is no variable {name!r} for the next iteration",
                did_you_mean(name, known, f"set it before the hook {node.to!r}"),
            )


def _condition(
    survey: Survey, scopes: Scopes, numbered: NumberedEdge, when: str
) -> Iterator[Problem]:
    edge = numbered.edge
    names = _readable_response(survey.nodes[edge.source], edge.on).union(scopes.after[edge.source])
    yield from _unknown(survey, (numbered.place, "when"), survey.reads(when), names)


def _readable_response(node: m.AnyNode, on: str) -> frozenset[str]:
    """The names of the node's response that an edge's condition can read."""
    if on == m.ERROR:
        return response_names(node) - {"result"} | {"error"}
    if on == m.TIMEOUT:
        return response_names(node) - {"result", "error"}
    return response_names(node) if on.isdigit() else response_names(node) - {"error"}


def _unknown(
    survey: Survey, place: tuple[str, str], reads: Iterable[str], names: Iterable[str]
) -> Iterator[Problem]:
    known = set(names) | _ALWAYS
    if survey.graph.params is not None:
        known.add(PARAMS)
    for name in sorted(set(reads) - known):
        if name in OWN:
            remedy = (
                "it is in the output, the job and the fitting edges of a node that responds: "
                "map it to a variable there"
            )
            if name in (survey.graph.input or ()):
                remedy = f"read the input's field as `input.{name}`"
            yield Problem(*place, f"{name!r} is not known here", remedy, variable=name)
        elif survey.graph.input is not None and ANYTHING not in known:
            remedy = _remedy(survey, name, known)
            yield Problem(*place, f"there is no variable {name!r}", remedy, variable=name)


def _remedy(survey: Survey, name: str, known: set[str]) -> str:
    setters = survey.setters.get(name, [])
    for aggregate in survey.of_kind(m.AggregateNode):
        between = {aggregate.of} if aggregate.of in survey.nodes else set()
        between |= survey.reach(between, without=aggregate.name)
        if between.intersection(setters):
            return f"it belongs to an item: let the aggregate {aggregate.name!r} collect it"
    if setters:
        return f"{setters[0]!r} sets it, and does not come before: change the order"
    return did_you_mean(name, known, "set it before, or add it to the graph's input")
