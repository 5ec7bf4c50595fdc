"""What the fields of a node are: expressions, names of variables, names of other nodes.

The kinds of nodes use one name for one meaning, so the names of the fields tell. Whoever checks, rewrites or
draws nodes asks here.
"""

from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

import msgspec

from perdure.core.graph import model as m

RESERVED: Final = ("input", "job", "result", "code", "error")
"""Names that every scope has, or that are there for a while: no variable has one of them."""

OWN: Final = ("result", "code", "error")
"""What is known of a node once it has responded, and only in its own fields and edges."""

# The names of fields, by what they hold.
EXPRESSIONS: Final = frozenset(
    ("emit", "sleep", "key", "data", "run", "target", "reason", "collect", "items", "value")
) | {"message"}
ARGUMENTS: Final = frozenset(("keys", "job", "input"))
VARIABLE_MAPS: Final = frozenset(("output", "set"))
VARIABLES: Final = frozenset(("into", "item", "index"))
_AFTER: Final = frozenset(("output", "job"))
_REFERENCES: Final = frozenset(("to", "of"))


class Reading(NamedTuple):
    """An expression of a node. `is_after`: it is evaluated when the node has responded, else before it begins."""

    field: str
    text: str
    is_after: bool


def kind_of(node: m.Node) -> str:
    """The word for its kind, as people write it."""
    return str(type(node).__struct_config__.tag)


def responds(node: m.Node) -> bool:
    """Whether it has a result of its own."""
    if isinstance(node, m.Hook):
        return node.topic is not None
    return isinstance(node, m.Worker | m.Await | m.Call)


def told_by(node: m.Node) -> frozenset[str]:
    """What is known of a node, in its own fields, when it has responded."""
    if isinstance(node, m.Call):
        return frozenset(("result",))
    return frozenset(OWN) if responds(node) else frozenset()


def names_its_result(node: m.Node) -> bool:
    """Whether its result becomes a variable of the node's own name, for want of an `output`."""
    return responds(node) and getattr(node, "output", None) is None


def ends_here(node: m.Node) -> bool:
    """Whether no path goes on from it."""
    if isinstance(node, m.Interrupt):
        return node.target is None
    return isinstance(node, m.Output | m.Cycle)


def opens_planes(node: m.Node) -> bool:
    """Whether what follows it may happen more than once. (Spreads are closed by their aggregates.)"""
    if isinstance(node, m.Hook):
        return node.cycle or node.pending
    return isinstance(node, m.Worker) and node.pending


def is_for_errors(on: str) -> bool:
    """Whether what an edge is taken on is trouble of its source."""
    return on in {m.ERROR, m.TIMEOUT} or (on.isdigit() and on[0] in "45")


def expressions_of(node: m.Node) -> Iterator[Reading]:
    """Every expression of a node, with its field: `when`, or `input.amount` for one of a mapping."""
    for field in node.__struct_fields__:
        value = getattr(node, field)
        if field in EXPRESSIONS and value is not None:
            yield Reading(field, value, False)
        elif field in ARGUMENTS or _names_variables(node, field):
            for name, text in (value or {}).items():
                yield Reading(f"{field}.{name}", text, field in _AFTER)


def variables_of(node: m.Node) -> Iterator[tuple[str, str]]:
    """The variables that passing the node may set, each with the field that says so."""
    for field in node.__struct_fields__:
        value = getattr(node, field)
        if field in VARIABLES and value is not None:
            yield field, value
        elif _names_variables(node, field) and not isinstance(node, m.Cycle):
            yield from ((f"{field}.{name}", name) for name in value or {})
    if names_its_result(node) and node.name.isidentifier():
        yield "", node.name


def _names_variables(node: m.Node, field: str) -> bool:
    """Whether the names in a mapping are variables; else they are arguments, or the run's."""
    return field in VARIABLE_MAPS or (field == "input" and isinstance(node, m.Cycle))


class Renaming(NamedTuple):
    """How to write a node's names anew: of nodes, of variables, and in expressions."""

    node: Callable[[str], str]
    variable: Callable[[str], str]
    expression: Callable[[str], str]


def renamed(node: m.AnyNode, renaming: Renaming) -> m.AnyNode:
    """The same node with other names. A result that the node's name named gets an `output` that says so."""
    changed: dict[str, Any] = {"name": renaming.node(node.name)}
    for field in node.__struct_fields__:
        value = getattr(node, field)
        if value is None:
            continue
        if field in EXPRESSIONS:
            changed[field] = renaming.expression(value)
        elif field in VARIABLES or field == "again":
            changed[field] = renaming.variable(value)
        elif field in _REFERENCES:
            changed[field] = renaming.node(value)
        elif _names_variables(node, field):
            changed[field] = {
                renaming.variable(name): renaming.expression(text) for name, text in value.items()
            }
        elif field in ARGUMENTS:
            changed[field] = {name: renaming.expression(text) for name, text in value.items()}
    if names_its_result(node):
        changed["output"] = {renaming.variable(node.name): "result"}
    again: m.AnyNode = msgspec.structs.replace(node, **changed)
    return again
