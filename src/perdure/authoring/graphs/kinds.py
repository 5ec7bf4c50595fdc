"""How each kind of node is written in YAML: a word that says the kind, and fields."""

from typing import Final, NamedTuple

from perdure.core.graph import model as m


class Kind(NamedTuple):
    """`word` is the key that says the kind. Its value is the field `main` of the node, read as `reads` says.

    `fields` are the others: the name in YAML, the name in the model, and how it is read.
    """

    node: type[m.AnyNode]
    main: str | None
    reads: str
    is_bare: bool
    """Whether the word may stand alone."""
    fields: dict[str, tuple[str, str]]
    required: tuple[str, ...] = ()


def _fields(*names: str, **others: str) -> dict[str, tuple[str, str]]:
    """`names` are mappings, others are read as they say."""
    return {name: (name, "maps") for name in names} | {n: (n, read) for n, read in others.items()}


KINDS: Final[dict[str, Kind]] = {
    "trigger": Kind(
        m.Trigger, None, "", True, _fields("keys", "job", emit="expression", persist="flag")
    ),
    "worker": Kind(
        m.Worker,
        "task",
        "text",
        False,
        _fields("input", "output", "job", retry="retry", timeout="number", pending="flag"),
    ),
    "await": Kind(
        m.Await, "program", "text", False, _fields("input", "output", "job", wait="flag")
    ),
    "hook": Kind(
        m.Hook,
        "topic",
        "text",
        True,
        {"timeout": ("sleep", "expression")}
        | _fields("output", "job", key="expression", cycle="flag", pending="flag"),
    ),
    "sleep": Kind(m.Hook, "sleep", "expression", False, _fields("output", "job")),
    "signal": Kind(
        m.Signal,
        "topic",
        "text",
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
    "cycle": Kind(m.Cycle, "to", "text", False, _fields("input")),
    "interrupt": Kind(
        m.Interrupt,
        "target",
        "expression",
        True,
        _fields("job", reason="expression", throw="flag", code="whole", descend="flag"),
    ),
    "aggregate": Kind(
        m.Aggregate,
        "of",
        "text",
        False,
        _fields("job", collect="expression", into="text"),
        ("collect", "into"),
    ),
    "assign": Kind(m.Assign, "set", "maps", False, _fields("job")),
    "branch": Kind(m.Branch, None, "", True, {}),
    "spread": Kind(
        m.Spread, "items", "expression", False, _fields(item="text", index="text"), ("item",)
    ),
    "raise": Kind(
        m.Raise, "error", "text", True, _fields(message="expression", again="text", bases="names")
    ),
    "call": Kind(m.Call, "graph", "text", False, _fields("input", "output")),
    "output": Kind(m.Output, "value", "expression", False, {}),
}
"""By word. Where a word is also a field of another kind, that other kind comes first."""
