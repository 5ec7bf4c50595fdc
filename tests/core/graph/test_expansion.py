import pytest

from perdure.core.errors import GraphInvalid
from perdure.core.graph import model as m
from perdure.core.graph.checking import problems_of
from perdure.core.graph.expansion import MAX_NESTING, expand, with_names

WHOLE = m.FieldType("int")

PRICE = m.Graph(
    "price",
    (
        m.TriggerNode(name="start", job={"asked": "amount"}, keys={"a": "amount"}),
        m.WorkerNode(name="quote", task="quote", input={"amount": "amount", "all": "input"}),
        m.WorkerNode(name="note", task="note"),
        m.BranchNode(name="way"),
        m.OutputNode(name="cheap", value="quote"),
        m.OutputNode(name="dear", value="[quote * rate for quote in [quote]][0]"),
    ),
    (
        m.Edge("start", "quote"),
        m.Edge("quote", "way"),
        m.Edge("quote", "note", when="result"),
        m.Edge("way", "cheap", when="quote < 3"),
        m.Edge("way", "dear"),
    ),
    input={"amount": WHOLE, "rate": m.FieldType("int", required=False, default=2)},
)


def calling(call: m.CallNode, *edges: m.Edge, name: str = "shop") -> m.Graph:
    nodes = (
        m.TriggerNode(name="start"),
        call,
        m.WorkerNode(name="oops", task="oops"),
        m.OutputNode(name="end", value="input"),
    )
    edges = (m.Edge("start", call.name), m.Edge(call.name, "end"), *edges)
    return m.Graph(name, nodes, (*edges, m.Edge("start", "oops")), input={"n": WHOLE})


def expanded(graph: m.Graph, *known: m.Graph) -> m.Graph:
    by_name = {each.name: each for each in known}
    found = expand(graph, by_name.get, by_name)
    assert not any(isinstance(node, m.CallNode) for node in found.nodes)
    assert [str(problem) for problem in problems_of(found)] == []
    return found


def refused(graph: m.Graph, *known: m.Graph) -> list[str]:
    by_name = {each.name: each for each in known}
    with pytest.raises(GraphInvalid) as caught:
        expand(graph, by_name.get, by_name)
    return [str(problem) for problem in caught.value.problems]


def test_a_call_becomes_the_nodes_of_its_graph() -> None:
    call = m.CallNode(name="p", graph="price", input={"amount": "n"}, output={"cost": "result + 1"})
    graph = expanded(calling(call, m.Edge("p", "oops", when="result > 9")), PRICE)
    nodes = {node.name: node for node in graph.nodes}
    assert nodes["p/start"] == m.AssignNode(
        name="p/start",
        set={
            "p__amount": "n",
            "p__rate": "2",
            "p__input": "{'amount': p__amount, 'rate': p__rate}",
        },
        job={"asked": "p__amount"},
    )
    assert nodes["p/quote"] == m.WorkerNode(
        name="p/quote",
        task="quote",
        input={"amount": "p__amount", "all": "p__input"},
        output={"p__quote": "result"},
    )
    assert nodes["p/cheap"] == m.AssignNode(name="p/cheap", set={"p__result": "p__quote"})
    assert nodes["p/dear"] == m.AssignNode(
        name="p/dear", set={"p__result": "[quote * p__rate for quote in [p__quote]][0]"}
    )
    assert nodes["p"] == m.AssignNode(name="p", set={"cost": "p__result + 1"})
    assert set(graph.edges) == {
        m.Edge("start", "p/start"),
        m.Edge("p", "end"),
        m.Edge("p", "oops", when="p__result > 9"),
        m.Edge("start", "oops"),
        m.Edge("p/start", "p/quote"),
        m.Edge("p/quote", "p/way"),
        m.Edge("p/quote", "p/note", when="result"),
        m.Edge("p/way", "p/cheap", when="p__quote < 3"),
        m.Edge("p/way", "p/dear"),
        m.Edge("p/cheap", "p"),
        m.Edge("p/dear", "p"),
    }


def test_without_output_the_result_has_the_name_of_the_call() -> None:
    graph = expanded(calling(m.CallNode(name="p", graph="price", input={"amount": "n"})), PRICE)
    assert m.AssignNode(name="p", set={"p": "p__result"}) in graph.nodes


def test_outputs_of_a_call_are_mapped_all_at_once() -> None:
    call = m.CallNode(
        name="p", graph="price", input={"amount": "n"}, output={"n": "result", "m": "n"}
    )
    graph = expanded(calling(call), PRICE)
    assert (
        m.AssignNode(
            name="p",
            set={"p__out_n": "p__result", "p__out_m": "n", "n": "p__out_n", "m": "p__out_m"},
        )
        in graph.nodes
    )


def test_unhandled_errors_of_a_called_graph_follow_the_calls_error_edges() -> None:
    inner = m.Graph(
        "inner",
        (
            m.TriggerNode(name="start"),
            m.WorkerNode(name="risky", task="t"),
            m.WorkerNode(name="safe", task="t"),
            m.WorkerNode(name="mend", task="t", input={"e": "e"}),
            m.OutputNode(name="end", value="1"),
        ),
        (
            m.Edge("start", "risky"),
            m.Edge("risky", "safe"),
            m.Edge("safe", "end"),
            m.Edge("risky", "mend", on="error", errors=("ValueError",), bind="e"),
            m.Edge("safe", "mend", on="error", bind="e"),
            m.Edge("mend", "end"),
        ),
        input={},
    )
    call = m.CallNode(name="c", graph="inner")
    graph = expanded(calling(call, m.Edge("c", "oops", on="error", bind="problem")), inner)
    caught = [edge for edge in graph.edges if edge.target == "oops" and edge.on == "error"]
    assert {edge.source for edge in caught} == {"c", "c/start", "c/risky", "c/mend", "c/end"}
    assert {edge.bind for edge in caught} == {"problem"}
    own = [edge for edge in graph.edges if edge.source == "c/risky" and edge.on == "error"]
    assert [(edge.errors, edge.bind) for edge in own] == [
        (("ValueError",), "c__e"),
        ((), "problem"),
    ]


def test_the_result_of_a_graph_without_outputs_is_its_job_data() -> None:
    inner = m.Graph(
        "inner",
        (m.TriggerNode(name="start"), m.WorkerNode(name="w", task="t", job={"x": "result"})),
        (m.Edge("start", "w"),),
    )
    graph = expanded(calling(m.CallNode(name="c", graph="inner")), inner)
    assert m.Edge("c/w", "c") in graph.edges
    assert m.AssignNode(name="c", set={"c__result": "job or None", "c": "c__result"}) in graph.nodes


def test_nested_calls_get_distinct_names() -> None:
    middle = calling(m.CallNode(name="p", graph="price", input={"amount": "n"}), name="middle")
    graph = expanded(calling(m.CallNode(name="m", graph="middle", input={"n": "n"})), middle, PRICE)
    nodes = {node.name: node for node in graph.nodes}
    assert isinstance(nodes["m/p/quote"], m.WorkerNode)
    assert nodes["m/p/quote"].input["amount"] == "m__p__amount"


def test_similar_variables_around_a_call_are_not_renamed() -> None:
    call = m.CallNode(
        name="p", graph="price", input={"amount": "n"}, output={"p__amount": "result"}
    )
    graph = expanded(calling(call), PRICE)
    assert m.AssignNode(name="p", set={"p__amount": "p___result"}) in graph.nodes


def test_loops_and_spreads_are_renamed_too() -> None:
    inner = m.Graph(
        "inner",
        (
            m.TriggerNode(name="start"),
            m.AssignNode(name="zero", set={"n": "0"}),
            m.HookNode(name="again", cycle=True),
            m.SpreadNode(name="each", items="range(n)", item="x", index="i"),
            m.AggregateNode(name="all", of="each", collect="x + i", into="xs"),
            m.BranchNode(name="way"),
            m.CycleNode(name="turn", to="again", input={"n": "n + 1"}),
            m.OutputNode(name="end", value="xs"),
        ),
        (
            m.Edge("start", "zero"),
            m.Edge("zero", "again"),
            m.Edge("again", "each"),
            m.Edge("each", "all"),
            m.Edge("all", "way"),
            m.Edge("way", "turn", when="n < 3"),
            m.Edge("way", "end"),
        ),
        input={},
    )
    graph = expanded(calling(m.CallNode(name="c", graph="inner")), inner)
    nodes = {node.name: node for node in graph.nodes}
    assert nodes["c/turn"] == m.CycleNode(name="c/turn", to="c/again", input={"c__n": "c__n + 1"})
    assert nodes["c/all"] == m.AggregateNode(
        name="c/all", of="c/each", collect="c__x + c__i", into="c__xs"
    )


def test_an_unknown_graph_is_refused() -> None:
    assert refused(calling(m.CallNode(name="p", graph="prize")), PRICE) == [
        "p.graph: there is no graph 'prize'; did you mean 'price'?"
    ]


def test_wrong_arguments_are_refused_all_at_once() -> None:
    call = m.CallNode(name="p", graph="price", input={"amuont": "n"})
    assert refused(calling(call), PRICE) == [
        "p.input.amuont: the graph 'price' has no input 'amuont'; did you mean 'amount'?",
        "p.input: the input 'amount' of the graph 'price' is missing; "
        "add 'amount' to the call's input",
    ]


def test_a_graph_that_calls_itself_is_refused() -> None:
    graph = calling(m.CallNode(name="c", graph="shop", input={"n": "n"}))
    assert refused(graph, graph) == [
        "c.graph: the graph calls itself: shop -> shop; start it with an await, as a run of its own"
    ]


def test_graphs_that_call_each_other_are_refused() -> None:
    one = calling(m.CallNode(name="c", graph="two", input={"n": "n"}), name="one")
    two = calling(m.CallNode(name="d", graph="one", input={"n": "n"}), name="two")
    assert refused(one, one, two) == [
        "d.graph: the graph calls itself: one -> two -> one; "
        "start it with an await, as a run of its own"
    ]


def test_nesting_and_growth_are_bounded() -> None:
    deep = [
        calling(m.CallNode(name="c", graph=f"g{n + 1}", input={"n": "n"}), name=f"g{n}")
        for n in range(MAX_NESTING + 2)
    ]
    assert refused(deep[0], *deep) == [
        "c.graph: calls are nested more than 20 deep; start it with an await, as a run of its own"
    ]
    levels = []
    for n in range(12):
        calls = tuple(m.CallNode(name=f"c{i}", graph=f"g{n + 1}") for i in range(3))
        edges = tuple(m.Edge("start", call.name) for call in calls)
        levels.append(m.Graph(f"g{n}", (m.TriggerNode(name="start"), *calls), edges))
    last = m.Graph("g12", (m.TriggerNode(name="start"),), ())
    (said,) = refused(levels[0], *levels, last)
    assert "once it is expanded; use at most 1,000 and 5,000" in said


def test_a_called_graph_with_problems_is_refused() -> None:
    bad = m.Graph("bad", (m.BranchNode(name="b"),), ())
    (said,) = refused(calling(m.CallNode(name="c", graph="bad")), bad)
    assert said.startswith("c.graph: the graph 'bad' has problems of its own, such as: ")


def looping(*more: m.Edge) -> m.Graph:
    nodes = (
        m.TriggerNode(name="start"),
        m.HookNode(name="turn", cycle=True),
        m.BranchNode(name="way"),
        m.CycleNode(name="again", to="turn"),
        m.OutputNode(name="end", value="1"),
    )
    edges = (
        m.Edge("start", "turn"),
        m.Edge("turn", "way"),
        m.Edge("way", "again", when="job"),
        m.Edge("way", "end"),
    )
    return m.Graph("looping", nodes, (*edges, *more), input={})


SPREADING = m.Graph(
    "spreading",
    (
        m.TriggerNode(name="start"),
        m.SpreadNode(name="each", items="[1, 2]", item="x"),
        m.WorkerNode(name="w", task="t", input={"x": "x"}),
        m.AggregateNode(name="all", of="each", collect="w", into="ws"),
        m.OutputNode(name="end", value="ws"),
    ),
    (
        m.Edge("start", "each"),
        m.Edge("each", "w"),
        m.Edge("w", "all"),
        m.Edge("all", "end"),
    ),
    input={},
)
PENDING = m.Graph(
    "waiting",
    (
        m.TriggerNode(name="start"),
        m.WorkerNode(name="slow", task="t", pending=True),
        m.OutputNode(name="end", value="slow"),
    ),
    (m.Edge("start", "slow"), m.Edge("slow", "end")),
    input={},
)


@pytest.mark.parametrize(
    ("inner", "repeating"),
    [(SPREADING, "spread 'each'"), (looping(), "hook 'turn'"), (PENDING, "worker 'slow'")],
    ids=["spread", "loop", "pending"],
)
def test_error_edges_do_not_lead_out_of_repeated_nodes(inner: m.Graph, repeating: str) -> None:
    call = m.CallNode(name="c", graph=inner.name)
    expanded(calling(call), inner)
    assert refused(calling(call, m.Edge("c", "oops", on="error")), inner) == [
        f"c.graph: the call has error edges, and none can lead out of what the {repeating} of the graph "
        f"{inner.name!r} repeats; start it with an await, as a run of its own"
    ]


def test_error_edges_do_not_lead_out_of_repeated_nodes_of_nested_calls() -> None:
    middle = m.Graph(
        "middle",
        (
            m.TriggerNode(name="start"),
            m.CallNode(name="s", graph="spreading"),
            m.OutputNode(name="end", value="s"),
        ),
        (m.Edge("start", "s"), m.Edge("s", "end")),
        input={},
    )
    outer = calling(m.CallNode(name="c", graph="middle"), m.Edge("c", "oops", on="error"))
    (said,) = refused(outer, middle, SPREADING)
    assert "the spread 's/each' of the graph 'middle'" in said


def test_problems_of_an_expanded_graph_are_reported_at_the_call() -> None:
    call = m.CallNode(name="c", graph="looping")
    nodes = (
        m.TriggerNode(name="start"),
        m.SpreadNode(name="each", items="[1]", item="x"),
        call,
        m.AggregateNode(name="all", of="each", collect="c", into="cs"),
    )
    edges = (m.Edge("start", "each"), m.Edge("each", "c"), m.Edge("c", "all"))
    outer = m.Graph("outer", nodes, edges)
    assert problems_of(outer) == []
    assert refused(outer, looping())[0] == (
        "c.graph: the graph 'looping' can't take this place (c/turn: it is between the spread 'each' and its "
        "aggregate 'all', and would make items of items); start it with an await, as a run of its own"
    )


def test_a_problem_around_a_call_names_the_graph_to_await() -> None:
    outer = calling(m.CallNode(name="c", graph="looping"), m.Edge("oops", "end"))
    (said,) = refused(outer, looping())
    assert said.startswith("end: it joins 'c', which may come many times because of 'c/turn'")
    assert said.endswith("; start 'looping' with an await, as a run of its own, at 'c'")


def test_problems_of_the_caller_are_reported_unchanged() -> None:
    outer = calling(m.CallNode(name="c", graph="looping"), m.Edge("oops", "nowhere"))
    assert refused(outer, looping()) == [str(problem) for problem in problems_of(outer)]


def ending(*edges: m.Edge, value: bool = True) -> m.Graph:
    """A worker `w`, and the nodes that `edges` lead to from it."""
    nodes: list[m.AnyNode] = [
        m.TriggerNode(name="start"),
        m.WorkerNode(name="w", task="t"),
        m.BranchNode(name="b"),
        m.WorkerNode(name="other", task="t"),
        m.RaiseNode(name="no", error="ValueError"),
    ]
    nodes += [m.OutputNode(name="end", value="w")] if value else []
    every = (m.Edge("start", "w"), *edges)
    reached = {"start", *(edge.target for edge in every)}
    return m.Graph("ending", tuple(n for n in nodes if n.name in reached), every, input={})


MAY_NOT_END = [
    ending(m.Edge("w", "end", when="result")),
    ending(m.Edge("w", "end"), m.Edge("w", "other", on="error")),
    ending(m.Edge("w", "end"), m.Edge("w", "other", on="timeout")),
    ending(m.Edge("w", "end", on="201"), m.Edge("w", "other")),
    ending(m.Edge("w", "b"), m.Edge("b", "end", when="w")),
    ending(m.Edge("w", "b"), m.Edge("b", "end", when="w"), m.Edge("b", "other")),
    ending(m.Edge("w", "other", when="result"), value=False),
]
ENDS = [
    ending(m.Edge("w", "end"), m.Edge("w", "other", when="result")),
    ending(m.Edge("w", "end"), m.Edge("w", "no", on="error")),
    ending(m.Edge("w", "b"), m.Edge("b", "end", when="w"), m.Edge("b", "no")),
    ending(m.Edge("w", "other"), value=False),
    ending(m.Edge("w", "b"), m.Edge("b", "other", when="w"), m.Edge("b", "no"), value=False),
]


@pytest.mark.parametrize("inner", MAY_NOT_END)
def test_a_graph_that_may_end_without_an_output_is_refused(inner: m.Graph) -> None:
    assert refused(calling(m.CallNode(name="c", graph="ending")), inner) == [
        "c.graph: the graph 'ending' may end without an output, and what follows would be skipped; "
        "give every path of 'ending' an output, or start it with an await, as a run of its own"
    ]


@pytest.mark.parametrize("inner", ENDS)
def test_a_graph_that_always_reaches_an_output_is_accepted(inner: m.Graph) -> None:
    expanded(calling(m.CallNode(name="c", graph="ending")), inner)


@pytest.mark.parametrize(("text", "kind"), [("'one'", "str"), ("[n]", "list"), ("n / 2", "float")])
def test_inputs_of_a_wrong_type_are_refused(text: str, kind: str) -> None:
    call = m.CallNode(name="p", graph="price", input={"amount": text})
    assert refused(calling(call), PRICE) == [
        f"p.input.amount: {text} is of type {kind}, and 'amount' of the graph 'price' is int; "
        "convert it, or pass another value"
    ]


def test_a_graph_without_calls_is_not_changed() -> None:
    assert expand(PRICE, lambda _: None) is PRICE


@pytest.mark.parametrize(
    ("text", "renamed"),
    [
        ("x", "p_x"),
        ("[x for x in x if y]", "[x for x in p_x if p_y]"),
        ("{k: v + z for k, v in x.items()}", "{k: v + p_z for k, v in p_x.items()}"),
        ("sorted(xs, key=lambda x: x + y)", "sorted(p_xs, key=lambda x: x + p_y)"),
        ("sum(x for xs in xss for x in xs)", "sum((x for xs in p_xss for x in xs))"),
        ("len(x.y)", "len(p_x.y)"),
        ("f'{x}'", "f'{p_x}'"),
        ("1 + 1", "1 + 1"),
        ("not an expression", "not an expression"),
    ],
)
def test_only_names_that_an_expression_reads_are_renamed(text: str, renamed: str) -> None:
    assert with_names(text, lambda name: f"p_{name}") == renamed
