"""Parameters of graphs: how they are declared, and what is wrong with them."""

import pytest

from perdure import GraphBuilder, GraphInvalid, GraphProgram, load_graph
from perdure.core.graph import model as m
from perdure.core.graph.drawing import text


def problems(params: str, value: str = "params.batch", more: str = "") -> list[str]:
    yaml = f"""
graph: tuned
input: {{n: int}}
params: {params}
activities:
  wait: {{hook: go}}
{more}
  done: {{output: {value}}}
transitions:
  - wait -> done
"""
    try:
        load_graph(yaml)
    except GraphInvalid as invalid:
        return str(invalid).splitlines()[1:]
    return []


@pytest.mark.parametrize(
    ("params", "value", "what"),
    [
        ("{batch: int}", "params.batch", "'batch' has no default"),
        ("{batch: {type: int, default: x}}", "params.batch", "the default 'x' is not of type int"),
        ("{batch: {type: int, default: 1}}", "params.batsh", "did you mean 'batch'?"),
        ("{batch: {type: int, default: 1}}", "parms.batch", "there is no variable 'parms'"),
        ("{class: {type: int, default: 1}}", "n", "no name for a variable"),
    ],
)
def test_wrong_declarations_and_readings_are_problems(params: str, value: str, what: str) -> None:
    found = problems(params, value)
    assert any(what in line for line in found), found


def test_right_declaration_has_no_problem() -> None:
    assert problems("{batch: {type: int, default: 1}, label: {type: str, default: a}}") == []


@pytest.mark.parametrize("params", ["5", "[batch]", "{batch: {type: nit, default: 1}}"])
def test_what_can_not_be_read_is_reported_once(params: str) -> None:
    assert len(problems(params)) == 1


def test_nothing_else_is_named_params() -> None:
    assert any(
        "'params' can't be set" in line
        for line in problems(
            "{batch: {type: int, default: 1}}",
            more="  params: {hook: other}\n  x: {assign: {params: n}}",
        )
    )


def test_graph_without_parameters_may_have_a_variable_of_that_name() -> None:
    load_graph(
        """
graph: free
input: {n: int}
activities:
  set: {assign: {params: "{'batch': n}"}}
  done: {output: params.batch}
transitions:
  - set -> done
"""
    )


def test_graph_with_parameters_is_not_called_in_place() -> None:
    GraphProgram(
        load_graph(
            """
graph: inner_tuned
params: {batch: {type: int, default: 1}}
activities:
  done: {output: params.batch}
"""
        )
    )
    with pytest.raises(GraphInvalid, match="has parameters: it needs a run of its own"):
        GraphProgram(
            load_graph(
                """
graph: outer_tuned
activities:
  inner: {call: inner_tuned}
  done: {output: inner}
transitions:
  - inner -> done
"""
            )
        )


def test_builder_declares_them_and_the_drawing_shows_them() -> None:
    build = GraphBuilder("built", params={"batch": m.FieldType("int", required=False, default=3)})
    build.output("done", "params.batch")
    graph = build.build()
    assert "params: batch: int" in text(graph)
    again = GraphBuilder("built")
    again.output("done", "1")
    assert GraphProgram(graph).digest != GraphProgram(again.build(), is_registered=False).digest
