"""The YAML syntax of each kind of node: the key that names the kind, and the fields."""

from typing import Final, NamedTuple

from perdure.core.graph import model as m


class NodeSyntax(NamedTuple):
    """The syntax of one kind of node. The value of its key is the field `main` of the node, read by the method `reads`
    of `FieldReader`.

    `fields` maps the other YAML fields to their name in the model and the method that reads them.
    """

    node: type[m.AnyNode]
    main: str | None
    reads: str
    is_bare: bool
    """Whether the key may have no value."""
    fields: dict[str, tuple[str, str]]
    required: tuple[str, ...] = ()


def _fields(*names: str, **others: str) -> dict[str, tuple[str, str]]:
    """`names` are fields with mappings; `others` gives the reading method of each field."""
    return {name: (name, "maps") for name in names} | {n: (n, read) for n, read in others.items()}


NODE_SYNTAX: Final[dict[str, NodeSyntax]] = {
    "trigger": NodeSyntax(
        m.TriggerNode, None, "", True, _fields("keys", "job", emit="expression", persist="flag")
    ),
    "worker": NodeSyntax(
        m.WorkerNode,
        "task",
        "name",
        False,
        _fields(
            *("input", "output", "job"),
            retry="retry",
            timeout="number",
            pending="flag",
            on_failure="text",
        ),
    ),
    "await": NodeSyntax(
        m.AwaitNode,
        "program",
        "name",
        False,
        _fields("input", "output", "job", wait="flag", retry="retry"),
    ),
    "hook": NodeSyntax(
        m.HookNode,
        "topic",
        "name",
        True,
        {"timeout": ("sleep", "expression")}
        | _fields("output", "job", key="expression", cycle="flag", pending="flag"),
    ),
    "sleep": NodeSyntax(m.HookNode, "sleep", "expression", False, _fields("output", "job")),
    "signal": NodeSyntax(
        m.SignalNode,
        "topic",
        "name",
        False,
        _fields(
            "job",
            data="expression",
            key="expression",
            run="expression",
            all="text",
            scrub="flag",
            code="whole",
        ),
    ),
    "cycle": NodeSyntax(m.CycleNode, "to", "text", False, _fields("input")),
    "interrupt": NodeSyntax(
        m.InterruptNode,
        "target",
        "expression",
        True,
        _fields("job", reason="expression", throw="flag", code="whole", descend="flag"),
    ),
    "aggregate": NodeSyntax(
        m.AggregateNode,
        "of",
        "text",
        False,
        _fields("job", collect="expression", into="text"),
        ("collect", "into"),
    ),
    "assign": NodeSyntax(m.AssignNode, "set", "maps", False, _fields("job")),
    "branch": NodeSyntax(m.BranchNode, None, "", True, {}),
    "spread": NodeSyntax(
        m.SpreadNode, "items", "expression", False, _fields(item="text", index="text"), ("item",)
    ),
    "raise": NodeSyntax(
        m.RaiseNode,
        "error",
        "text",
        True,
        _fields(message="expression", again="text", bases="names"),
    ),
    "call": NodeSyntax(m.CallNode, "graph", "text", False, _fields("input", "output")),
    "output": NodeSyntax(m.OutputNode, "value", "expression", False, {}),
}
"""By key. A key may also be a field of another kind: then the other kind's key decides."""
