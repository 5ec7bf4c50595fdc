"""What the fields of a node hold: expressions, names of variables, names of other nodes.

All kinds of nodes use a field name for one meaning, so the name is enough. Code that checks, rewrites or draws nodes
uses this module.
"""

from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

import msgspec

from perdure.core.graph import model as m

RESERVED: Final = ("input", "job", "result", "code", "error")
"""Names that every scope has, at least for some expressions: no variable may have one."""

PARAMS: Final = "params"
"""Reserved, too, in a graph that declares parameters."""

SHADOWED: Final = frozenset(RESERVED) - {"input"}
"""Reserved names that an input field may have. It is no variable then: expressions read `input.code`."""

OWN: Final = ("result", "code", "error")
"""Names that exist once a node has responded, in its own fields and edges only."""

# The names of fields, by what they hold.
EXPRESSIONS: Final = frozenset(
    ("emit", "sleep", "key", "data", "run", "target", "reason", "collect", "items", "value")
) | {"message", "task_from", "program_from", "topic_from"}
ARGUMENTS: Final = frozenset(("keys", "job", "input"))
VARIABLE_MAPS: Final = frozenset(("output", "set"))
VARIABLES: Final = frozenset(("into", "item", "index"))
_AFTER: Final = frozenset(("output", "job"))
_REFERENCES: Final = frozenset(("to", "of"))


class NodeExpression(NamedTuple):
    """An expression of a node. `is_after`: evaluated after the node has responded, else before it begins."""

    field: str
    text: str
    is_after: bool


def node_kind(node: m.Node) -> str:
    """The kind of a node, as graphs spell it."""
    return str(type(node).__struct_config__.tag)


def waits_for_signal(hook: m.HookNode) -> bool:
    return hook.topic is not None or hook.topic_from is not None


def responds(node: m.Node) -> bool:
    """Whether the node has a result."""
    if isinstance(node, m.HookNode):
        return waits_for_signal(node)
    return isinstance(node, m.WorkerNode | m.AwaitNode | m.CallNode)


def response_names(node: m.Node) -> frozenset[str]:
    """The names that a node's own expressions can read after its response."""
    if isinstance(node, m.CallNode):
        return frozenset(("result",))
    return frozenset(OWN) if responds(node) else frozenset()


def names_its_result(node: m.Node) -> bool:
    """Whether the result becomes a variable with the node's name, because there is no `output`."""
    return responds(node) and getattr(node, "output", None) is None


def ends_here(node: m.Node) -> bool:
    """Whether paths end at the node."""
    if isinstance(node, m.InterruptNode):
        return node.target is None
    return isinstance(node, m.OutputNode | m.CycleNode)


def opens_planes(node: m.Node) -> bool:
    """Whether the nodes behind it may run more than once. Spreads don't count: their aggregates close them."""
    if isinstance(node, m.HookNode):
        return node.cycle or node.pending
    return isinstance(node, m.WorkerNode) and node.pending


def is_for_errors(on: str) -> bool:
    """Whether an edge with this `on` handles errors of its source."""
    return on in {m.ERROR, m.TIMEOUT} or (on.isdigit() and on[0] in "45")


def expressions_of(node: m.Node) -> Iterator[NodeExpression]:
    """Every expression of a node, with its field: `when`, or `input.amount` for one of a mapping."""
    for field in node.__struct_fields__:
        value = getattr(node, field)
        if field in EXPRESSIONS and value is not None:
            yield NodeExpression(field, value, False)
        elif field in ARGUMENTS or _names_variables(node, field):
            for name, text in (value or {}).items():
                yield NodeExpression(f"{field}.{name}", text, field in _AFTER)


def variables_of(node: m.Node) -> Iterator[tuple[str, str]]:
    """The variables that a node may set, each with the field that names it."""
    for field in node.__struct_fields__:
        value = getattr(node, field)
        if field in VARIABLES and value is not None:
            yield field, value
        elif _names_variables(node, field) and not isinstance(node, m.CycleNode):
            yield from ((f"{field}.{name}", name) for name in value or {})
    if names_its_result(node) and node.name.isidentifier():
        yield "", node.name


def _names_variables(node: m.Node, field: str) -> bool:
    """Whether the keys of a mapping are variables; else they are arguments or job data."""
    return field in VARIABLE_MAPS or (field == "input" and isinstance(node, m.CycleNode))


class Renaming(NamedTuple):
    """Functions that rename nodes, variables, and names in expressions."""

    node: Callable[[str], str]
    variable: Callable[[str], str]
    expression: Callable[[str], str]


def renamed(node: m.AnyNode, renaming: Renaming) -> m.AnyNode:
    """The node with new names. A result that was named after the node gets an explicit `output`."""
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
