"""Walks without an engine: activities that begin, steps that are skipped, joins that wait."""

from typing import Any

import pytest

from perdure.core.codec import JsonCodec
from perdure.core.errors import ReadinessOverflow
from perdure.core.graph import model as m
from perdure.core.graph.state import NO_OUTPUT, GraphState
from perdure.core.graph.step_error import named_step_error
from perdure.core.graph.transition import PASSED
from perdure.core.graph.vertex import Lowered
from perdure.core.graph.walk import Walk
from tests.core.graph.lowered import Run, graph, worker


def failed(error: str = "ValueError", message: str = "no") -> dict[str, Any]:
    return {"error": named_step_error(error, message)}


# Ways


def test_inline_nodes_are_evaluated_in_one_walk() -> None:
    run = Run(
        graph(
            m.AssignNode(name="set", set={"a": "x + 1", "b": "a * 2"}),
            m.BranchNode(name="which"),
            worker("low", input={"p": "b"}),
            worker("high"),
            *(("begin", "set"), ("set", "which")),
            m.Edge("which", "low", when="b < 10"),
            ("which", "high"),
        ),
        x=1,
    )
    assert run.begun["low,0,0"].arguments == {"p": 4}
    assert run.skipped == ["high,0,0"]


def test_a_skip_propagates_to_nodes_with_no_other_predecessor() -> None:
    run = Run(
        graph(
            *map(worker, ("a", "b", "c")),
            m.Edge("begin", "a", when="False"),
            *(("a", "b"), ("b", "c"), ("begin", "c")),
        )
    )
    assert list(run.begun) == ["c,0,0,0,0"]
    assert run.skipped == ["a,0,0", "b,0,0,0"]


def test_a_walk_in_parts_gives_the_same_result() -> None:
    lowered = spreading(
        m.AssignNode(name="v1", set={"v": "i + 1"}),
        m.BranchNode(name="way"),
        m.WorkerNode(name="w", task="task", output={"v": "result"}),
        *(("each", "v1"), ("v1", "way"), ("w", "all")),
        m.Edge("way", "w", when="i % 2"),
        m.Edge("way", "all"),
    )
    found = []
    for limit in (None, 1):
        run, walk = Run(lowered, xs=[]), Walk(GraphState(), JsonCodec())
        walk.leave(run.vertex("begin"), (), {"xs": [1, 2, 3, 4]}, PASSED)
        turns = 0
        while not walk.is_finished:
            walk.advance(limit)
            turns += 1
        assert turns == 1 or limit is not None
        begun = [(each.vertex.step(each.plane), each.scope) for each in walk.begun]
        found.append((begun, walk.skipped, walk.tracked, walk.delivered))
    assert found[0] == found[1]
    assert len(found[0][0]) == 2


def test_only_the_first_output_counts() -> None:
    run = Run(
        graph(
            m.OutputNode(name="first", value="1"),
            m.OutputNode(name="second", value="2"),
            *(("begin", "first"), ("begin", "second")),
        )
    )
    assert run.state.result == 1
    assert run.state.outcome == 1


def test_the_job_is_the_outcome_if_there_is_no_output() -> None:
    run = Run(graph(m.AssignNode(name="tell", set={}, job={"seen": "x"}), ("begin", "tell")), x=3)
    assert run.state.result is NO_OUTPUT
    assert run.state.outcome == {"seen": 3}


# Errors

CATCHING = graph(
    worker("work"),
    *map(worker, ("first", "second", "any", "fine")),
    m.Edge("work", "first", on="error", errors=("LookupError",), bind="e"),
    m.Edge("work", "second", on="error", when="error['message'] == 'second' and code == 500"),
    m.Edge("work", "any", on="error", when="x"),
    ("work", "fine"),
    ("begin", "work"),
)


@pytest.mark.parametrize(
    ("answer", "taken"),
    [
        ({}, "fine"),
        (failed("KeyError"), "first"),
        (failed("ValueError", "second"), "second"),
        (failed("ValueError", "else"), "any"),
    ],
)
def test_an_error_follows_the_first_edge_that_matches(answer: dict[str, Any], taken: str) -> None:
    run = Run(CATCHING, x=True)
    run.answer("work,0,0", **answer)
    assert list(run.begun) == [f"{taken},0,0,0"]
    assert len(run.skipped) == 3


def test_an_error_without_an_edge_fails_the_run() -> None:
    run = Run(CATCHING, x=False)
    walk = run.answer("work,0,0", **failed("ValueError", "else"))
    assert walk.error is not None
    assert walk.error.message == "else"


def test_a_condition_of_an_error_edge_that_raises_fails_the_run() -> None:
    run = Run(CATCHING)  # x does not exist
    walk = run.answer("work,0,0", **failed("ValueError", "else"))
    assert walk.error is not None
    assert walk.error.type_name == "builtins:NameError"


def test_an_error_of_an_expression_has_code_500() -> None:
    run = Run(
        graph(
            worker("work", input={"p": "1 // 0"}),
            worker("caught"),
            m.Edge("work", "caught", on="error", when="code == 500", bind="e"),
            ("begin", "work"),
        )
    )
    bound = run.begun["caught,0,0,0"].scope["e"]
    assert (bound["type"], bound["of"]) == ("ZeroDivisionError", "builtins:ZeroDivisionError")


@pytest.mark.parametrize(
    ("result", "code", "stays", "begun"),
    [
        (5, 202, True, "part"),
        (0, 202, False, "caught"),
        (2, 202, False, "caught"),
        (5, 200, False, "fine"),
        (0, 200, False, "caught"),
    ],
)
def test_a_step_stays_only_if_the_maps_and_conditions_of_its_answer_succeed(
    result: int, code: int, stays: bool, begun: str
) -> None:
    run = Run(
        graph(
            worker("work", pending=True, output={"q": "10 // result"}),
            *map(worker, ("part", "fine", "caught")),
            m.Edge("work", "part", on="pending", when="1 // (q - 5) or True"),
            m.Edge("work", "caught", on="error"),
            *(("work", "fine"), ("begin", "work")),
        )
    )
    walk = run.answer("work,0,0", result, code=code)
    assert walk.stays is stays
    assert [each.vertex.name for each in walk.begun] == [begun]


def test_a_caught_error_is_raised_again() -> None:
    run = Run(
        graph(
            worker("work"),
            m.RaiseNode(name="again", again="e"),
            worker("caught"),
            m.Edge("work", "again", on="error", bind="e"),
            m.Edge("again", "caught", on="error", errors=("LookupError",)),
            ("begin", "work"),
        )
    )
    run.answer("work,0,0", **failed("KeyError"))
    assert list(run.begun) == ["caught,0,0,0"]


# Joins


def joining(**outputs: dict[str, str]) -> Lowered:
    ways = [worker(name, output=output) for name, output in outputs.items()]
    edges = [edge for way in ways for edge in (("begin", way.name), (way.name, "join"))]
    return graph(*ways, worker("join", input={"v": "v"}), *edges)


def test_a_waiting_join_indexes_its_count_and_its_values() -> None:
    run = Run(joining(one={"v": "result"}, two={"w": "result"}))
    walk = run.answer("one,0,0", 5)
    assert walk.tracked == {"join,0,0,0": (2, 1)}
    assert [(each.source, each.variable, each.value) for each in walk.delivered] == [
        ("one", "v", b"5")
    ]
    walk = run.answer("two,0,0", 6)
    assert (walk.tracked, walk.ready) == ({}, ["join,0,0,0"])
    assert run.begun["join,0,0,0"].arguments == {"v": 5}
    assert run.state.joins == {}


@pytest.mark.parametrize("order", [("one", "two"), ("two", "one")])
def test_of_two_paths_that_set_the_same_variable_the_later_edge_counts(
    order: tuple[str, str],
) -> None:
    run = Run(joining(one={"v": "result"}, two={"v": "result"}), v=0)
    for name in order:
        run.answer(f"{name},0,0", name)
    assert run.begun["join,0,0,0"].arguments == {"v": "two"}


@pytest.mark.parametrize("order", [("one", "two"), ("two", "one")])
def test_a_path_that_changed_nothing_does_not_undo_the_change_of_another(
    order: tuple[str, str],
) -> None:
    run = Run(joining(one={"v": "result"}, two={"v": "v"}), v=0)
    for name in order:
        run.answer(f"{name},0,0", 1)
    assert run.begun["join,0,0,0"].arguments == {"v": 1}


def test_a_surplus_arrival_at_a_join_raises() -> None:
    run = Run(joining(one={}, two={}), v=0)
    vertex = run.vertex("one")
    run.answer("one,0,0")
    join = run.state.joins[run.vertex("join").index, ()]
    join.resolved = join.required
    with pytest.raises(ReadinessOverflow, match="another one was resolved"):
        run.leave(vertex, (), {}, PASSED)


# Spreads


def spreading(*body: m.AnyNode | m.Edge | tuple[str, str], collect: str = "v") -> Lowered:
    return graph(
        m.SpreadNode(name="each", items="xs", item="x", index="i"),
        *body,
        m.AggregateNode(name="all", of="each", collect=collect, into="got"),
        m.OutputNode(name="end", value="got"),
        *(("begin", "each"), ("all", "end")),
    )


def test_items_are_collected_in_their_order() -> None:
    lowered = spreading(
        worker("work", input={"p": "x"}, output={"v": "result"}), ("each", "work"), ("work", "all")
    )
    run = Run(lowered, xs=[7, 8, 9])
    for number in (2, 0, 1):
        run.answer(f"work,0,{number},0", number * 10)
    assert run.begun["all,0,0,0,0"].scope["got"] == [0, 10, 20]
    assert "x" not in run.begun["all,0,0,0,0"].scope


def test_skipped_items_are_left_out_and_an_empty_spread_does_not_wait() -> None:
    lowered = spreading(
        m.BranchNode(name="odd"), m.Edge("odd", "all", when="x % 2"), ("each", "odd"), collect="x"
    )
    assert Run(lowered, xs=[1, 2, 3]).begun["all,0,0,0"].scope["got"] == [1, 3]
    assert Run(lowered, xs=[]).begun["all,0,0,0"].scope["got"] == []


def test_the_paths_of_one_item_join_before_it_is_collected() -> None:
    lowered = spreading(
        worker("one", output={"v": "result"}),
        worker("two", output={"w": "result"}),
        *(("each", "one"), ("each", "two"), ("one", "all"), ("two", "all")),
        collect="v + w",
    )
    for order in (("one", "two"), ("two", "one")):
        run = Run(lowered, xs=[0])
        for name in order:
            run.answer(f"{name},0,0,0", 4)
        assert run.begun["all,0,0,0,0"].scope["got"] == [8]


def test_a_skipped_spread_skips_its_aggregate() -> None:
    lowered = graph(
        m.SpreadNode(name="each", items="xs", item="x"),
        worker("work"),
        m.AggregateNode(name="all", of="each", collect="x", into="got"),
        m.Edge("begin", "each", when="False"),
        *(("each", "work"), ("work", "all")),
    )
    assert Run(lowered).skipped == ["all,0,0,0,0"]


# Loops

LEAVING = graph(
    m.HookNode(name="loop", cycle=True),
    worker("work"),
    m.BranchNode(name="which"),
    m.CycleNode(name="again", to="loop"),
    worker("beside"),
    worker("after"),
    *(("begin", "loop"), ("loop", "work"), ("work", "which"), ("work", "beside")),
    m.Edge("which", "again", when="turns"),
    ("which", "after"),
    ("beside", "after"),
)
"""A path leaves the loop in each iteration, and joins one that leaves it only in the last."""


def test_steps_behind_a_loop_are_not_skipped_while_it_repeats() -> None:
    lowered = graph(
        m.HookNode(name="loop", cycle=True),
        worker("work"),
        m.BranchNode(name="which"),
        m.CycleNode(name="again", to="loop", input={"turns": "False"}),
        worker("after"),
        worker("far"),
        *(("begin", "loop"), ("loop", "work"), ("work", "which"), ("after", "far")),
        m.Edge("which", "again", when="turns"),
        ("which", "after"),
    )
    run = Run(lowered, turns=True)
    run.answer("loop,0,0")
    run.answer("work,0,0,0")
    assert list(run.begun) == ["again,0,0,0,0"]
    run.turn("again,0,0,0,0", 1)
    assert run.skipped == []
    run.answer("work,0,1,0")
    assert list(run.begun) == ["after,0,1,0,0"]
    assert run.skipped == ["again,0,1,0,0"]
    assert run.state.loops == {}


def test_a_join_behind_a_repeating_loop_gets_its_skips() -> None:
    run = Run(LEAVING, turns=True)
    run.answer("loop,0,0")
    run.answer("work,0,0,0")
    assert sorted(run.begun) == ["again,0,0,0,0", "beside,0,0,0,0"]
    assert run.walk.tracked == {}, "no report before the result is final"
    run.answer("beside,0,0,0,0")
    assert "after,0,0,0,0,0" in run.begun
    assert run.state.joins == {}
    assert run.skipped == []


def test_a_loop_that_ends_records_the_skipped_steps_behind_it() -> None:
    lowered = graph(
        m.HookNode(name="loop", cycle=True),
        worker("slow"),
        m.CycleNode(name="again", to="loop"),
        worker("after"),
        m.Edge("loop", "after", when="False"),
        *(("begin", "loop"), ("loop", "slow")),
        m.Edge("slow", "again", when="result"),
    )
    run = Run(lowered)
    run.answer("loop,0,0")
    assert run.skipped == [], "it is not decided"
    run.answer("slow,0,0,0", result=False)
    assert run.skipped == ["after,0,0,0", "again,0,0,0,0"]
    assert run.state.loops == {}


def test_an_outer_loop_is_undecided_while_an_inner_one_repeats() -> None:
    lowered = graph(
        m.HookNode(name="outer", cycle=True),
        m.HookNode(name="inner", cycle=True),
        worker("work"),
        m.CycleNode(name="next_inner", to="inner"),
        m.CycleNode(name="next_outer", to="outer"),
        worker("after"),
        *(("begin", "outer"), ("outer", "inner"), ("inner", "work")),
        m.Edge("work", "next_inner", when="result == 1"),
        m.Edge("work", "next_outer", when="result == 2"),
        m.Edge("work", "after", when="result == 3"),
    )
    run = Run(lowered)
    run.answer("outer,0,0")
    run.answer("inner,0,0,0")
    run.answer("work,0,0,0,0", 1)
    assert run.skipped == []
    run.turn("next_inner,0,0,0,0,0", 1)
    run.answer("work,0,0,1,0", 2)
    assert run.skipped == ["next_inner,0,0,1,0,0"]
    run.turn("next_outer,0,0,1,0,0", 1)
    run.answer("inner,0,1,0")
    run.answer("work,0,1,0,0", 3)
    assert list(run.begun) == ["after,0,1,0,0,0"]
    assert run.state.loops == {}
