"""Rules for graphs that YAML can't express; tests/authoring/graphs checks the other rules through YAML."""

from itertools import pairwise

import pytest

from perdure.core.graph import model as m
from perdure.core.graph.checking import MAX_EDGES, MAX_NODES, invalid, problems_of


def said(graph: m.Graph) -> list[str]:
    return [str(problem) for problem in problems_of(graph)]


def chain(*nodes: m.AnyNode, **more: object) -> m.Graph:
    names = ["start", *(node.name for node in nodes)]
    edges = tuple(m.Edge(one, two) for one, two in pairwise(names))
    return m.Graph("chain", (m.TriggerNode(name="start"), *nodes), edges, **more)  # type: ignore[arg-type]


def workers(count: int) -> list[m.AnyNode]:
    return [m.WorkerNode(name=f"w{number}", task="t", output={}) for number in range(count)]


def test_two_nodes_of_one_name_are_refused() -> None:
    twins = (m.TriggerNode(name="a"), m.BranchNode(name="a"))
    assert said(m.Graph("twins", twins, ())) == [
        "a: has the name of another node; give it a name of its own"
    ]


def test_an_empty_graph_has_no_trigger() -> None:
    assert said(m.Graph("empty", (), ())) == ["there is no trigger; add one, where the run begins"]


def test_a_path_has_at_most_as_many_activities_as_addresses_hold() -> None:
    assert said(chain(*workers(500))) == []
    assert said(chain(*workers(600))) == [
        "w508: it is activity 510 on its path, and the id of its step may take 1,026 bytes, of 1,024; "
        "move some into a graph of their own, and start that with an await"
    ]


def test_inline_nodes_do_not_count_for_addresses() -> None:
    assigns = [m.AssignNode(name=f"a{number}", set={"x": "1"}) for number in range(200)]
    assert said(chain(*assigns)) == []


def test_a_graph_that_is_too_large_gets_no_further_checks() -> None:
    many = tuple(m.BranchNode(name=f"b{number}") for number in range(MAX_NODES + 1))
    edges = (m.Edge("b0", "b1"),) * (MAX_EDGES + 1)
    assert said(m.Graph("large", many, edges)) == [
        "the graph has 1,001 nodes, and 1,000 is the most; "
        "move some into a graph of their own, and start that with an await",
        "the graph has 5,001 edges, and 5,000 is the most; "
        "move some into a graph of their own, and start that with an await",
    ]


def test_the_largest_graph_is_checked_in_time() -> None:
    wide: list[m.AnyNode] = [
        m.WorkerNode(name=f"w{number}", task="t") for number in range(MAX_NODES - 2)
    ]
    edges = [m.Edge("start", node.name) for node in wide]
    edges += [m.Edge(node.name, "join") for node in wide]
    nodes = (m.TriggerNode(name="start"), *wide, m.AssignNode(name="join", set={"x": "w1"}))
    assert said(m.Graph("wide", nodes, tuple(edges))) == []


def test_problems_come_in_the_order_of_nodes_and_edges() -> None:
    graph = chain(
        m.AssignNode(name="b", set={"x": "1 +"}), m.AssignNode(name="a", set={"y": "1 +"})
    )
    nodes = [problem.node for problem in problems_of(graph)]
    assert nodes == ["b", "a"]


def test_without_a_declared_input_any_name_may_be_a_variable() -> None:
    node = m.AssignNode(name="a", set={"x": "unheard_of"})
    assert said(chain(node)) == []
    assert said(chain(node, input={})) == [
        "a.set.x: there is no variable 'unheard_of'; set it before, or add it to the graph's input"
    ]


def test_a_variable_that_only_some_paths_set_is_left_to_the_run() -> None:
    graph = m.Graph(
        "paths",
        (
            m.TriggerNode(name="start"),
            m.BranchNode(name="way"),
            m.AssignNode(name="one", set={"x": "1"}),
            m.AssignNode(name="other", set={"y": "2"}),
            m.OutputNode(name="end", value="x + y"),
        ),
        (
            m.Edge("start", "way"),
            m.Edge("way", "one", when="input"),
            m.Edge("way", "other"),
            m.Edge("one", "end"),
            m.Edge("other", "end"),
        ),
        input={},
    )
    assert said(graph) == []


def test_an_assign_reads_variables_that_it_set_before_and_an_output_map_does_not() -> None:
    assert said(chain(m.AssignNode(name="a", set={"x": "1", "y": "x"}), input={})) == []
    worker = m.WorkerNode(
        name="w", task="t", output={"x": "result", "y": "x"}, job={"z": "x + code"}
    )
    assert said(chain(worker, input={})) == [
        "w.output.y: there is no variable 'x'; 'w' sets it, and does not come before: change the order"
    ]


@pytest.mark.parametrize("on", ["error", "timeout", "404", "500"])
def test_an_edge_for_errors_may_bind_the_error(on: str) -> None:
    worker, output = (
        m.WorkerNode(name="w", task="t"),
        m.OutputNode(name="o", value="problem['message']"),
    )
    edges = (m.Edge("start", "w"), m.Edge("w", "o", on, bind="problem"))
    assert said(m.Graph("binding", (m.TriggerNode(name="start"), worker, output), edges)) == []


@pytest.mark.parametrize("on", ["done", "201"])
def test_an_edge_that_is_not_for_errors_can_not_bind(on: str) -> None:
    worker, output = m.WorkerNode(name="w", task="t"), m.OutputNode(name="o", value="1")
    edges = (m.Edge("start", "w"), m.Edge("w", "o", on, bind="problem"))
    assert said(m.Graph("binding", (m.TriggerNode(name="start"), worker, output), edges)) == [
        "edge 1.bind: w -> o is not for errors; set on='error'"
    ]


def test_the_result_of_a_node_without_output_has_its_name() -> None:
    nodes = (
        m.WorkerNode(name="w", task="t"),
        m.HookNode(name="z", sleep="w"),
        m.OutputNode(name="o", value="z"),
    )
    assert said(chain(*nodes, input={})) == [
        "o.value: there is no variable 'z'; set it before, or add it to the graph's input"
    ]


def test_nested_spreads_are_valid() -> None:
    nodes = (
        m.SpreadNode(name="rows", items="[[1]]", item="row"),
        m.SpreadNode(name="cells", items="row", item="cell", index="i"),
        m.WorkerNode(name="w", task="t", input={"c": "cell", "i": "i"}),
        m.AggregateNode(name="row_done", of="cells", collect="w", into="done"),
        m.AggregateNode(name="all_done", of="rows", collect="[row, done]", into="table"),
        m.OutputNode(name="o", value="table"),
    )
    assert said(chain(*nodes, input={})) == []


def test_a_loop_entered_through_its_hook_is_valid() -> None:
    graph = m.Graph(
        "loop",
        (
            m.TriggerNode(name="start"),
            m.AssignNode(name="zero", set={"n": "0"}),
            m.HookNode(name="again", cycle=True),
            m.WorkerNode(name="w", task="t", input={"n": "n"}),
            m.BranchNode(name="more"),
            m.CycleNode(name="turn", to="again", input={"n": "n + 1", "w": "w"}),
            m.OutputNode(name="end", value="w"),
        ),
        (
            m.Edge("start", "zero"),
            m.Edge("zero", "again"),
            m.Edge("again", "w"),
            m.Edge("w", "more"),
            m.Edge("more", "turn", when="n < 3"),
            m.Edge("more", "end"),
        ),
        input={},
    )
    assert said(graph) == []


@pytest.mark.parametrize("count", [1, 2])
def test_the_error_lists_all_problems(count: int) -> None:
    problems = [m.Problem("w", f"f{n}", "wrong", "mend it") for n in range(count)]
    error = invalid("g", problems)
    assert error.problems == tuple(problems)
    assert str(error).startswith(f"graph 'g' has {count} problem")
    assert all(str(problem) in str(error) for problem in problems)


def test_a_run_is_interrupted_with_the_code_of_an_error() -> None:
    for code, is_fine in ((200, False), (399, False), (400, True), (599, True), (600, False)):
        problems = said(chain(m.InterruptNode(name="stop", code=code)))
        assert (problems == []) is is_fine, problems
