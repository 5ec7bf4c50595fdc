"""Checks don't report problems that unreadable input may explain, and report all others."""

import pytest

from perdure import task
from perdure.authoring.graphs.yaml import load_graph
from perdure.core.errors import GraphInvalid


@task(name="gaps_greet")
async def greet(name: str) -> str:
    return name


BASE = """\
graph: g
version: '1'
input: {n: int}
activities:
  a: {worker: gaps_greet, input: {name: n}}
  b: {output: qq}
transitions: [a -> b]
"""
CLASH = "a.input.name: n is of type int, and 'name' is str; convert it, or pass another value"
UNKNOWN = "b.output: there is no variable 'qq'; set it before, or add it to the graph's input"


def reported(text: str) -> list[str]:
    """The problems of a document, without their places."""
    try:
        load_graph(text)
    except GraphInvalid as error:
        return [str(problem).split(": ", 1)[1] for problem in error.problems]
    return []


def activity(text: str) -> tuple[str, str]:
    return "transitions:", f"  {text}\ntransitions:"


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("version: '1'", "vresion: 3", "vresion: there is no field"),
        ("version: '1'", "colour: red", "colour: there is no field"),
        ("version: '1'", "version: [1]", "version: this is a list"),
        ("graph: g", "graph: [g]", "graph: this is a list"),
        ("{n: int}", "{n: int, m: strng}", "input.m: there is no type 'strng'"),
        ("{n: int}", "{n: int, m: {type: [1]}}", "input.m: this is a list"),
        ("{n: int}", "{n: int, m: {type: int, required: maybe}}", "input.m: this is a text"),
        ("[a -> b]", "[a -> b, a => b]", "transitions: 'a => b' is no transition"),
        (
            "[a -> b]",
            "[a -> b, {from: a, to: b, on: error, bind: e, hue: 1}]",
            "hue: there is no field",
        ),
        ("[a -> b]", "[a -> b, {to: b, bind: e}]", "from: the field 'from'"),
        (*activity("c: {assign: {x: 1}, jbo: {}}"), "c.jbo: there is no field 'jbo'"),
        (*activity("c: {assign: {x: 1}, hue: {}}"), "c.hue: there is no field 'hue'"),
        (*activity("c: {asign: {x: 1}}"), "c: the kind of activity is missing"),
        (*activity("c: {hue: 1}"), "c: the kind of activity is missing"),
        (*activity("c: interupt"), "c: 'interupt' is not a kind"),
        (*activity("c: {worker: t, timeout: x}"), "c.timeout: this is a text"),
        (*activity("c: {worker: t, output: [x]}"), "c.output: this is a list"),
    ],
)
def test_unreadable_input_elsewhere_hides_no_problem(old: str, new: str, problem: str) -> None:
    assert reported(BASE) == [CLASH, UNKNOWN]
    found = reported(BASE.replace(old, new))
    (other,) = set(found) - {CLASH, UNKNOWN}
    assert other.startswith(problem)
    assert len(found) == 3


@pytest.mark.parametrize(
    "node",
    [
        "{hue: {x: 1}}",
        "{worker: t, output: [x]}",
        "{worker: t, hue: {x: result}}",
        "{assign: {y: 1, y: 2}}",
        "{assign: [x]}",
        "{spread: '[1]', hue: x}",
        "{worker: t, assign: {x: 1}}",
        "*nowhere",
    ],
)
def test_unreadable_node_hides_problems_of_later_nodes_only(node: str) -> None:
    text = f"""\
graph: g
input: {{n: int}}
activities:
  before: {{worker: gaps_greet, input: {{name: n}}, output: {{}}}}
  early: {{assign: {{z: x}}}}
  c: {node}
  late: {{assign: {{z: x}}}}
  behind: {{worker: gaps_greet, input: {{name: n}}}}
transitions: [before -> early -> c -> late -> behind]
"""
    found = reported(text)
    assert [each for each in found if each.startswith(("before", "early", "late", "behind"))] == [
        "before.input.name: n is of type int, and 'name' is str; convert it, or pass another value",
        "early.assign.z: there is no variable 'x'; set it before, or add it to the graph's input",
    ]
    assert len(found) > 2


@pytest.mark.parametrize(
    "lost", ["a => b", "{from: a, to: [[b]]}", "{to: b}", "{from: [[a]], to: b, bind: e}"]
)
def test_missing_transition_hides_only_problems_of_variables_it_may_bind(lost: str) -> None:
    text = f"""\
graph: g
input: {{n: int}}
activities:
  start: trigger
  a: {{assign: {{x: 1, n: "'a'"}}}}
  w: {{worker: t}}
  b: {{worker: gaps_greet, input: {{name: n}}, output: {{y: x}}}}
  way: branch
transitions: [start -> a, start -> w -> b -> way, {lost}]
"""
    assert len(reported(text)) == 1


def test_unset_variable_is_reported_without_transitions() -> None:
    found = reported(BASE.replace("[a -> b]", "a -> b"))
    lost = "transitions: this is a text; write a list, such as `- charge -> ship`"
    assert found == [CLASH, UNKNOWN, lost]


@pytest.mark.parametrize(
    ("activities", "transitions", "problem"),
    [
        ("{hue: 1}", "[a -> b]", "a: the kind of activity is missing"),
        (
            "{spread: '[1]', item: x}, all: {hue: x}",
            "[a -> all -> b]",
            "all: the kind of activity is missing",
        ),
        ("{hook: , cycle: maybe}, c: {cycle: a}", "[a -> c, a -> b]", "a.cycle: this is a text"),
        ("{worker: t, pending: maybe}", "[{from: a, to: b, on: pending}]", "a.pending: this is"),
        ("{signal: t, kind: 1}", "[a -> b]", "a.kind: there is no field"),
        ("{worker: gaps_greet, input: [1]}", "[a -> b]", "a.input: this is a list"),
        ("{worker: gaps_greet, input: {name: *x}}", "[a -> b]", "there is nothing that &x"),
        ("{worker: t}", "[{from: a, to: b, on: [error], bind: e}]", "on: this is a list"),
        ("branch, c: {worker: t}", "[{from: a, to: b, hue: n}, a -> c]", "hue: there is no field"),
    ],
)
def test_unreadable_input_causes_no_further_problems(
    activities: str, transitions: str, problem: str
) -> None:
    text = (
        f"graph: g\ninput: {{n: int}}\nactivities: {{a: {activities}, b: {{worker: t}}}}\n"
        f"transitions: {transitions}\n"
    )
    (found,) = reported(text)
    assert found.startswith(problem)


def test_unreadable_activities_hide_problems_of_their_transitions() -> None:
    text = BASE.replace("activities:\n", "activities:\n  ? [c]\n  : branch\n")
    found = reported(text.replace("[a -> b]", "[a -> b -> c]"))
    assert [each for each in found if "'c'" in each] == []
    assert found[0] == "a list is no key; use a word as the key"


def test_edges_of_unreadable_nodes_are_checked() -> None:
    text = BASE.replace(
        "transitions: [a -> b]", "  lost: {hue: 1}\ntransitions:\n  - a -> lots -> b"
    )
    found = reported(f"{text}  - {{from: a, to: lost, when: mm, bind: e}}\n")
    assert [each for each in found if each.startswith("edge")] == [
        "edge 0: there is no node 'lots'; did you mean 'lost'?",
        "edge 1: there is no node 'lots'; did you mean 'lost'?",
        "edge 2.when: there is no variable 'mm'; set it before, or add it to the graph's input",
        "edge 2.bind: a -> lost is not for errors; set on='error'",
    ]
