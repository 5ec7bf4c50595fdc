import xml.etree.ElementTree as ET

import pytest

from perdure.core.graph import model as m
from perdure.core.graph.drawing import mermaid, svg, text

EVIL = "</svg><script>alert(\"x\" && 'y')</script>\n]} --> end %%"

GRAPH = m.Graph(
    "order",
    (
        m.TriggerNode(name="start"),
        m.HookNode(name="again", cycle=True),
        m.WorkerNode(name="charge", task="charge_card"),
        m.HookNode(name="approval", topic="approved", key="n", sleep="60"),
        m.CycleNode(name="turn", to="again"),
        m.OutputNode(name="done", value=repr(EVIL)),
    ),
    (
        m.Edge("start", "again"),
        m.Edge("again", "charge"),
        m.Edge("charge", "approval"),
        m.Edge("approval", "done", when=f"result == {EVIL!r}"),
        m.Edge("approval", "turn", on="timeout"),
        m.Edge("charge", "done", on="error", errors=("ValueError",), bind="e"),
    ),
    version="2",
    input={"n": m.FieldType("int")},
    output={},
)

BROKEN = m.Graph(
    "broken",
    (
        m.BranchNode(name="a"),
        m.BranchNode(name="b"),
        m.BranchNode(name="a"),
        m.CycleNode(name="c", to="nowhere"),
    ),
    (m.Edge("a", "b"), m.Edge("b", "a"), m.Edge("b", "x"), m.Edge("a", "a")),
)


def test_text_has_a_line_for_each_node_and_edge() -> None:
    lines = text(GRAPH).split("\n")
    assert lines[:3] == ["order 2", "input: n: int", "output: nothing"]
    assert "charge: worker charge_card" in lines
    assert "approval: hook approved, key n, up to 60 s" in lines
    assert "  -> turn  on timeout" in lines
    assert "  -> done  on error ValueError as e" in lines
    assert "  => again  again" in lines


def test_mermaid_has_a_line_for_each_node_and_edge() -> None:
    lines = mermaid(GRAPH).split("\n")
    assert lines[0] == "flowchart TD"
    assert '    n2["charge<br/>worker charge_card"]' in lines
    assert '    n3 -->|"on timeout"| n4' in lines
    assert '    n4 -.->|"again"| n1' in lines
    assert len(lines) == 1 + 6 + 7 + 1


def test_mermaid_escapes_special_characters() -> None:
    for line in mermaid(GRAPH).split("\n"):
        assert line.count('"') in {0, 2}
        assert "<script" not in line
        assert "%%" not in line


def test_svg_is_well_formed_and_holds_nothing_but_text() -> None:
    root = ET.fromstring(svg(GRAPH))
    space = "{http://www.w3.org/2000/svg}"
    assert {each.tag.removeprefix(space) for each in root.iter()} == {
        *("svg", "title", "style", "defs", "marker", "path", "g", "rect", "text")
    }
    assert len(root.findall(f"{space}g")) == len(GRAPH.nodes)
    assert len(root.findall(f"{space}path")) == len(GRAPH.edges) + 1
    shown = [each.text for each in root.iter(f"{space}text")]
    assert "charge" in shown
    assert "on timeout" in shown


def test_boxes_of_a_drawing_do_not_overlap() -> None:
    space = "{http://www.w3.org/2000/svg}"
    root = ET.fromstring(svg(GRAPH))
    boxes = [
        [float(rect.attrib[name]) for name in ("x", "y", "width", "height")]
        for rect in root.iter(f"{space}rect")
    ]
    for index, (x, y, width, height) in enumerate(boxes):
        assert x >= 0
        assert x + width <= float(root.attrib["width"])
        assert y + height <= float(root.attrib["height"])
        for other_x, other_y, other_width, other_height in boxes[index + 1 :]:
            assert (
                x + width <= other_x
                or other_x + other_width <= x
                or y + height <= other_y
                or other_y + other_height <= y
            )


def test_a_node_is_drawn_below_its_predecessors() -> None:
    space = "{http://www.w3.org/2000/svg}"
    groups = ET.fromstring(svg(GRAPH)).findall(f"{space}g")
    heights = {
        str(group.findall(f"{space}text")[0].text): float(group.find(f"{space}rect").attrib["y"])  # type: ignore[union-attr]
        for group in groups
    }
    for edge in GRAPH.edges:
        assert heights[edge.source] < heights[edge.target]


@pytest.mark.parametrize("graph", [BROKEN, m.Graph("empty", (), ())])
def test_an_invalid_graph_is_drawn_nevertheless(graph: m.Graph) -> None:
    ET.fromstring(svg(graph))
    assert mermaid(graph).startswith("flowchart TD\n")
    assert text(graph).startswith(graph.name)


def test_a_large_graph_is_drawn() -> None:
    nodes = tuple(m.BranchNode(name=f"b{n}") for n in range(1000))
    chain = [m.Edge(f"b{n}", f"b{n + 1}") for n in range(999)]
    jumps = [m.Edge("b0", f"b{n}", when="1") for n in range(2, 1000)]
    ET.fromstring(svg(m.Graph("large", nodes, (*chain, *jumps))))
