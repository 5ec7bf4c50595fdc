"""Names: of the graph, its nodes, its fields and its variables."""

import re
from collections.abc import Iterable, Iterator
from keyword import iskeyword
from typing import Final

from perdure.core.errors import ExpressionProblem, InputError
from perdure.core.expressions import parse
from perdure.core.graph import model as m
from perdure.core.graph.fields import PARAMS, RESERVED, SHADOWED, names_its_result, variables_of
from perdure.core.graph.model import Problem
from perdure.core.graph.survey import Survey
from perdure.core.limits import MAX_NAME_LENGTH
from perdure.core.texts import require_storable_text

_NODE_NAME: Final = re.compile(r"[^\W\d]\w*(/\w+)*")
_NAMES: Final = ("task", "program", "topic", "graph", "all")
_KINDS: Final[dict[str, type | tuple[type, ...]]] = {
    "str": str,
    "int": int,
    "float": (int, float),
    "bool": bool,
}


def problems(survey: Survey) -> Iterator[Problem]:
    graph = survey.graph
    yield from _text("", "name", graph.name)
    if graph.version:
        yield from _text("", "version", graph.version)
    yield from _fields("input", graph.input or {})
    yield from _fields("output", graph.output or {})
    if graph.params is not None:
        yield from _fields(PARAMS, graph.params)
        yield from _parameters(survey, graph.params)
    yield from _node_names(graph.nodes)
    for node in survey.nodes.values():
        yield from _names_in(node)
    for edge in survey.edges:
        if edge.edge.bind is not None:
            yield from _variable(edge.place, "bind", edge.edge.bind)


def _parameters(survey: Survey, params: dict[str, m.FieldType]) -> Iterator[Problem]:
    """Each parameter has a default, and nothing else in the graph has the name `params`."""
    for name, field in params.items():
        if field.required:
            what = f"the parameter {name!r} has no default"
            yield Problem("", f"{PARAMS}.{name}", what, "add one: {type: int, default: 3}")
    remedy = "`params` are the graph's parameters: use another name"
    if PARAMS in (survey.graph.input or {}):
        yield Problem("", f"input.{PARAMS}", f"{PARAMS!r} can't be a field of the input", remedy)
    for node in survey.nodes.values():
        cycle = (f"input.{name}" for name in node.input) if isinstance(node, m.CycleNode) else ()
        named = [place for place, name in variables_of(node) if name == PARAMS]
        for place in (*named, *(each for each in cycle if each == f"input.{PARAMS}")):
            yield Problem(node.name, place, f"{PARAMS!r} can't be set", remedy)
    for edge in survey.edges:
        if edge.edge.bind == PARAMS:
            yield Problem(edge.place, "bind", f"{PARAMS!r} can't be set", remedy)


def _text(node: str, field: str, text: str) -> Iterator[Problem]:
    """A name that becomes part of keys: of a program, a task, a topic."""
    if not text:
        yield Problem(node, field, "is empty", f"use 1 to {MAX_NAME_LENGTH} bytes of text")
        return
    try:
        require_storable_text(f"the {field}", text, MAX_NAME_LENGTH)
    except InputError as error:
        yield Problem(node, field, error.what, error.remedy)


def _node_names(nodes: Iterable[m.AnyNode]) -> Iterator[Problem]:
    seen: set[str] = set()
    for node in nodes:
        if node.name in seen:
            yield Problem(
                node.name, "", "has the name of another node", "give it a name of its own"
            )
            continue
        seen.add(node.name)
        if not _NODE_NAME.fullmatch(node.name):
            yield Problem(
                node.name,
                "",
                f"{node.name!r} is no name for a node",
                "use letters, digits and _, beginning with a letter; parts may be joined by /",
            )
        else:
            yield from _text(node.name, "", node.name)


def _names_in(node: m.AnyNode) -> Iterator[Problem]:
    for field in _NAMES:
        value = getattr(node, field, None)
        if getattr(node, f"{field}_from", None) is not None:
            if value:
                what = f"is named, {value!r}, and computed"
                yield Problem(node.name, field, what, f"keep `{field}` or `{field}_from`")
        elif value is not None:
            yield from _text(node.name, field, value)
    for field, name in variables_of(node):
        if field:
            yield from _variable(node.name, field, name)
    if names_its_result(node) and node.name in RESERVED:
        yield Problem(
            node.name,
            "",
            f"{node.name!r} would be the variable for its result, and is taken",
            "give the node another name, or map its output",
        )
    yield from _mapped(node)


def _mapped(node: m.AnyNode) -> Iterator[Problem]:
    """The names in mappings that are not the variables that the node sets."""
    for field in ("input", "job"):
        for name in getattr(node, field, {}):
            if field == "input" and isinstance(node, m.CycleNode):
                yield from _variable(node.name, f"{field}.{name}", name)
            elif not _is_identifier(name):
                yield _no_identifier(node.name, f"{field}.{name}", name)
    if isinstance(node, m.TriggerNode):
        for name in node.keys:
            yield from _text(node.name, f"keys.{name}", name)


def _variable(node: str, field: str, name: str) -> Iterator[Problem]:
    if not _is_identifier(name):
        yield _no_identifier(node, field, name)
    elif name in RESERVED:
        yield Problem(
            node, field, f"{name!r} can't be set", f"{_quoted(RESERVED)} have their own meaning"
        )
    else:
        yield from _readable(node, field, name)


def _readable(node: str, field: str, name: str) -> Iterator[Problem]:
    """No expression reads what begins with an underscore, or has the name of a function."""
    if name.startswith("_"):
        what = f"{name!r} begins with an underscore, and such names are reserved"
        yield Problem(node, field, what, "use a name without it")
        return
    try:
        parse(name)
    except ExpressionProblem:
        yield Problem(node, field, f"{name!r} is a function of expressions", "use another name")


def _is_identifier(name: str) -> bool:
    return name.isidentifier() and not iskeyword(name)


def _no_identifier(node: str, field: str, name: str) -> Problem:
    return Problem(
        node,
        field,
        f"{name!r} is no name for a variable or an argument",
        "use letters, digits and _, beginning with a letter, and no word of Python",
    )


def _quoted(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _fields(part: str, fields: dict[str, m.FieldType]) -> Iterator[Problem]:
    for name, field in fields.items():
        place = f"{part}.{name}"
        if part == "input" and name not in SHADOWED:
            yield from _variable("", place, name)
        elif not _is_identifier(name):
            yield _no_identifier("", place, name)
        if not _fits(field):
            yield Problem(
                "",
                place,
                f"the default {field.default!r} is not of type {field.type}",
                "change the type or the default",
            )


def _fits(field: m.FieldType) -> bool:
    if field.default is None or field.type == "any":
        return True
    if isinstance(field.default, bool):
        return field.type == "bool"
    return isinstance(field.default, _KINDS.get(field.type, ()))
