"""Draws a graph as text, Mermaid flowchart or SVG. Invalid graphs can be drawn too."""

from collections.abc import Iterator
from html import escape
from typing import Final

from perdure.core.graph import model as m
from perdure.core.graph.fields import node_kind, waits_for_signal
from perdure.core.graph.layout import GraphLayout, Point
from perdure.core.graph.survey import Survey

_LONGEST: Final = 48
_SHAPES: Final[dict[type[m.Node], tuple[str, str]]] = {
    m.TriggerNode: ("([", "])"),
    m.OutputNode: ("([", "])"),
    m.HookNode: ("{{", "}}"),
    m.BranchNode: ("{", "}"),
    m.SpreadNode: ("[/", "\\]"),
    m.AggregateNode: ("[\\", "/]"),
    m.InterruptNode: ("[[", "]]"),
    m.RaiseNode: ("[[", "]]"),
}
_MAIN: Final[dict[type[m.Node], str]] = {
    m.WorkerNode: "task",
    m.AwaitNode: "program",
    m.SignalNode: "topic",
    m.CycleNode: "to",
    m.InterruptNode: "target",
    m.AggregateNode: "of",
    m.SpreadNode: "items",
    m.OutputNode: "value",
    m.RaiseNode: "error",
    m.CallNode: "graph",
}
_STYLE: Final = (
    "rect,polygon{fill:#fff;stroke:#334;stroke-width:1.2}"
    "path{fill:none;stroke:#556;stroke-width:1.2}"
    ".back{stroke-dasharray:5 4}"
    "text{font:12px sans-serif;text-anchor:middle;fill:#112}"
    ".kind,.edge{font-size:10px;fill:#556}"
    ".edge{paint-order:stroke;stroke:#fff;stroke-width:3px}"
)


def node_caption(node: m.Node) -> str:
    """A short caption of a node."""
    kind = node_kind(node)
    if isinstance(node, m.HookNode):
        if not waits_for_signal(node):
            return f"sleep {node.sleep}" if node.sleep is not None else kind
        keyed = "" if node.key is None else f", key {node.key}"
        limit = "" if node.sleep is None else f", up to {node.sleep} s"
        return f"hook {_named(node, 'topic')}{keyed}{limit}"
    if isinstance(node, m.AssignNode):
        return f"assign {', '.join(node.set)}"
    value = _named(node, _MAIN.get(type(node), ""))
    return f"{kind} {value}" if value else kind


def _named(node: m.Node, field: str) -> str | None:
    """A field's value; a computed name is its expression in braces."""
    text: str | None = getattr(node, f"{field}_from", None)
    return getattr(node, field, None) if text is None else f"{{{text}}}"


def condition_of(edge: m.Edge) -> str:
    """A short text for the condition of an edge; empty if it is always taken."""
    parts = []
    if edge.on != m.DONE:
        errors = " ".join(edge.errors)
        parts.append(" ".join(part for part in (f"on {edge.on}", errors) if part))
    if edge.bind is not None:
        parts.append(f"as {edge.bind}")
    if edge.when is not None:
        parts.append(f"if {edge.when}")
    return " ".join(parts)


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST - 1]}…"


def drawn_edges(graph: m.Graph) -> Iterator[tuple[str, str, str, bool]]:
    """Source, target, label of each edge and cycle, and whether it leads back."""
    for edge in graph.edges:
        yield edge.source, edge.target, condition_of(edge), False
    for node in graph.nodes:
        if isinstance(node, m.CycleNode):
            yield node.name, node.to, "again", True


def text(graph: m.Graph) -> str:
    """Every node on a line, with its edges below."""
    version = f" {graph.version}" if graph.version else ""
    lines = [f"{graph.name}{version}"]
    schemas = ("input", graph.input), ("output", graph.output), ("params", graph.params)
    for part, fields in schemas:
        if fields is not None:
            spelled = ", ".join(f"{name}: {field.type}" for name, field in fields.items())
            lines.append(f"{part}: {spelled or 'nothing'}")
    for node in graph.nodes:
        lines.extend(("", f"{node.name}: {_line(node_caption(node))}"))
        for source, target, label, is_back in drawn_edges(graph):
            if source == node.name:
                arrow = "=>" if is_back else "->"
                lines.append(f"  {arrow} {target}{'  ' if label else ''}{_line(label)}")
    return "\n".join(map(_line, lines)) + "\n"


def _line(words: str) -> str:
    return "".join(c if c.isprintable() else " " for c in words)


def mermaid(graph: m.Graph) -> str:
    """A Mermaid flowchart."""
    survey = Survey(graph)
    lines = ["flowchart TD"]
    for name, node in survey.nodes.items():
        before, after = _SHAPES.get(type(node), ("[", "]"))
        words = f"{_entity(name)}<br/>{_entity(_short(node_caption(node)))}"
        lines.append(f'    n{survey.number[name]}{before}"{words}"{after}')
    for source, target, label, is_back in drawn_edges(graph):
        if source in survey.number and target in survey.number:
            arrow = "-.->" if is_back else "-->"
            words = f'|"{_entity(_short(label))}"|' if label else ""
            lines.append(f"    n{survey.number[source]} {arrow}{words} n{survey.number[target]}")
    return "\n".join(lines) + "\n"


def _entity(words: str) -> str:
    """Text for a label: special characters as numeric entities."""
    return "".join(c if c.isalnum() or c in " _.,-+*/=()'" else f"#{ord(c)};" for c in words)


def svg(graph: m.Graph) -> str:
    """An SVG picture: layers from the trigger downwards, edges with their conditions."""
    survey = Survey(graph)
    labels = {name: (name, _short(node_caption(node))) for name, node in survey.nodes.items()}
    widths = {name: 24 + 7 * max(map(len, label)) for name, label in labels.items()}
    layout = GraphLayout(survey, widths)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{layout.width}" height="{layout.height}" '
        f'viewBox="0 0 {layout.width} {layout.height}" role="img">',
        f"<title>{_xml(graph.name)}</title><style>{_STYLE}</style>",
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" '
        'markerHeight="8" orient="auto"><path d="M0,0 L8,4 L0,8 z" style="fill:#556"/></marker></defs>',
    ]
    words = []
    for numbered in survey.edges:
        path = layout.path(numbered)
        parts.append(_curve(path, "way"))
        label = condition_of(numbered.edge)
        if label:
            words.append(_label(path, label))
    parts.extend(
        _curve(layout.back(cycle.name, cycle.to), "back")
        for cycle in survey.of_kind(m.CycleNode)
        if cycle.to in survey.nodes
    )
    parts.extend(_box(layout, name, lines) for name, lines in labels.items())
    return "\n".join((*parts, *words, "</svg>")) + "\n"


def _box(layout: GraphLayout, name: str, label: tuple[str, str]) -> str:
    x, y = layout.centre[name]
    width, height = layout.widths[name], layout.box_height
    return (
        f'<g><rect x="{x - width / 2:g}" y="{y - height / 2:g}" width="{width:g}" '
        f'height="{height:g}" rx="5"/>'
        f'<text x="{x:g}" y="{y - 3:g}">{_xml(label[0])}</text>'
        f'<text class="kind" x="{x:g}" y="{y + 12:g}">{_xml(label[1])}</text></g>'
    )


def _curve(path: list[Point], kind: str) -> str:
    (x, y), rest = path[0], path[1:]
    steps = [f"M{x:g},{y:g}"]
    for to_x, to_y in rest:
        middle = (y + to_y) / 2
        steps.append(f"C{x:g},{middle:g} {to_x:g},{middle:g} {to_x:g},{to_y:g}")
        x, y = to_x, to_y
    return f'<path class="{kind}" d="{" ".join(steps)}" marker-end="url(#tip)"/>'


def _label(path: list[Point], label: str) -> str:
    (x, y), (to_x, to_y) = path[0], path[1]
    middle_x, middle_y = (x + to_x) / 2, (y + to_y) / 2
    return f'<text class="edge" x="{middle_x:g}" y="{middle_y:g}">{_xml(_short(label))}</text>'


def _xml(words: str) -> str:
    return escape(_line(words))
