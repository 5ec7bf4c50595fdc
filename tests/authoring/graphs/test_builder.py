import enum
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from perdure import Signal, task, workflow
from perdure.authoring.graphs.builder import GraphBuilder
from perdure.authoring.graphs.yaml import load_graph
from perdure.core.errors import GraphInvalid, InputError
from perdure.core.graph import model as m
from tests.authoring.graphs.test_yaml import EVERYTHING

approved = Signal("approved_by_builder", bool)


@task
def charge_for_builder(order: str, amount: float) -> str:
    return f"{order}: {amount}"


@workflow
async def audit_for_builder(order: str) -> None:
    del order


def order() -> GraphBuilder:
    builder = GraphBuilder(
        "order", version="1", input={"order_id": str, "amount": float}, output={"receipt": "str"}
    )
    builder.worker(
        "charge",
        charge_for_builder,
        input={"order": builder.input.order_id, "amount": builder.input.amount},
        timeout=30,
    )
    builder.hook("approval", approved, key="order_id", timeout=3600)
    builder.output("done", "{'receipt': charge}")
    return builder


def test_a_graph_is_built() -> None:
    builder = order()
    builder.chain("charge", "approval")
    builder.edge("approval", "done", when="result")
    assert builder.build() == m.Graph(
        "order",
        (
            m.TriggerNode(name="start"),
            m.WorkerNode(
                name="charge",
                task="charge_for_builder",
                input={"order": "order_id", "amount": "amount"},
                timeout=30.0,
            ),
            m.HookNode(name="approval", topic="approved_by_builder", key="order_id", sleep="3600"),
            m.OutputNode(name="done", value="{'receipt': charge}"),
        ),
        (
            m.Edge("charge", "approval"),
            m.Edge("approval", "done", when="result"),
            m.Edge("start", "charge"),
        ),
        version="1",
        input={"order_id": m.FieldType("str"), "amount": m.FieldType("float")},
        output={"receipt": m.FieldType("str")},
    )


def test_all_problems_are_reported() -> None:
    builder = order()
    builder.chain("charge", "approval", "aproval")
    builder.edge("approval", "done", when="resutl")
    with pytest.raises(GraphInvalid) as caught:
        builder.build()
    assert [str(problem) for problem in caught.value.problems] == [
        "edge 1.target: there is no node 'aproval'; did you mean 'approval'?",
        "edge 2.when: there is no variable 'resutl'; did you mean 'result'?",
    ]


def everything() -> GraphBuilder:
    """The graph of tests/authoring/graphs/test_yaml.py, by the builder."""
    b = GraphBuilder("everything", input={"orders": list, "customer": str}, source="<text>:1:1")
    b.trigger("start", keys={"customer": "customer"}, job={"seen": 0}, emit="'begun'", persist=True)
    b.hook("again", cycle=True, job={"seen": "job.seen + 1"})
    b.spread("each", "orders", item="order", index="number")
    b.worker("charge", "charge_them", input={"order": "order"}, output={"paid": "result"})
    b.aggregate(
        "all",
        of="each",
        collect="{'order': order, 'paid': paid}",
        into="receipts",
        job={"n": "len(receipts)"},
    )
    b.assign("set", {"first": "receipts[0]", "second": "first"}, job={"first": "first"})
    b.branch("way")
    b.wait_for("child", "audit", input={"receipts": "receipts"}, wait=False, output={})
    b.sleep("pause", 0.5)
    b.hook("answer", "answered", output={"said": "result"}, pending=True)
    b.signal(
        "tell",
        "told",
        all="customer",
        key="customer",
        data="[(1), (said)]",
        scrub=True,
        code=202,
    )
    b.interrupt("stop_other", target="said", reason="'no'", throw=False, code=499, descend=True)
    b.call("price", "pricing", input={"n": 1}, output={"cost": "result"})
    b.cycle("turn", "again", input={"orders": "orders[1:]"})
    b.interrupt("stop")
    b.fail("oops", ValueError, message="'none'")
    b.output(
        "result_of_all", "{'cost': (cost), 'flag': (True), 'none': (None), 'list': [(1), (2.5)]}"
    )
    b.chain("start", "again", "each", "charge", "all", "set", "way")
    b.edge("way", "turn", when="len(orders) > 1")
    b.edge("way", "oops", when="not receipts")
    b.edge("way", "child")
    b.edge("oops", "stop", on="error", errors=["ValueError", "lib.errors:Bad"], bind="problem")
    b.chain("child", "pause", "answer")
    b.edge("answer", "tell", on=200)
    b.edge("answer", "stop_other", on="200")
    b.edge("tell", "price")
    b.edge("stop_other", "price")
    b.edge("price", "result_of_all")
    return b


def test_the_builder_makes_the_same_graph_as_yaml() -> None:
    built, written = everything().build(), load_graph(EVERYTHING)
    raised = m.RaiseNode(name="oops", error="builtins:ValueError", message="'none'")
    for one, other in zip(built.nodes, written.nodes, strict=True):
        assert one == (raised if other.name == "oops" else other)
    assert built.edges == written.edges
    assert (built.input, built.source) == (written.input, written.source)


def test_definitions_stand_for_their_names() -> None:
    builder = GraphBuilder("names")
    builder.call("c", m.Graph("other", (), ()))
    builder.wait_for("w", audit_for_builder, input={"order": repr("x")})
    builder.chain("c", "w")
    graph = builder.build()
    assert graph.nodes[1:] == (
        m.CallNode(name="c", graph="other"),
        m.AwaitNode(name="w", program="audit_for_builder", input={"order": "'x'"}),
    )


def test_fields_of_the_input_are_known_by_name() -> None:
    assert dir(order().input) == ["amount", "order_id"]
    with pytest.raises(AttributeError, match="no field 'order_ids': did you mean 'order_id'"):
        _ = order().input.order_ids


@pytest.mark.parametrize("spec", [set, "integer", 3])
def test_a_type_that_graphs_do_not_have_is_refused(spec: Any) -> None:
    with pytest.raises(InputError, match=r"is no type for input\.n"):
        GraphBuilder("a", input={"n": spec})


def test_object_without_name_is_refused() -> None:
    thing: Any = 3
    with pytest.raises(InputError, match="3 has no name"):
        GraphBuilder("a").worker("w", thing)


def problems_of(add: Callable[[GraphBuilder], object]) -> list[str]:
    builder = GraphBuilder("wrong", input={})
    add(builder)
    with pytest.raises(GraphInvalid) as caught:
        builder.build()
    return [str(problem) for problem in caught.value.problems]


@pytest.mark.parametrize(
    ("add", "reported"),
    [
        (lambda b: b.hook("h", "topic", timeout=-3), "h.timeout: -3 seconds; use"),
        (lambda b: b.sleep("h", -3), "h.seconds: -3 seconds; use"),
        (lambda b: b.sleep("h", None), "h.seconds: None is not a number of seconds; use"),
        (lambda b: b.assign("a", {"x": "1 +"}), "a.variables.x: this is no Python"),
    ],
)
def test_problems_use_the_names_of_the_builder(
    add: Callable[[GraphBuilder], object], reported: str
) -> None:
    (problem,) = problems_of(add)
    assert problem.startswith(reported)


@pytest.mark.parametrize(
    ("duration", "text", "number"),
    [(timedelta(minutes=2), "120", 120.0), (timedelta(0, 0.5), "0.5", 0.5)],
)
def test_durations_may_be_timedeltas(duration: timedelta, text: str, number: float) -> None:
    builder = GraphBuilder("patient")
    builder.worker("work", "some_task", timeout=duration)
    builder.hook("answer", "topic", timeout=duration)
    builder.sleep("pause", duration)
    work, answer, pause = builder.build().nodes[1:]
    assert isinstance(work, m.WorkerNode)
    assert work.timeout == number
    assert isinstance(answer, m.HookNode)
    assert isinstance(pause, m.HookNode)
    assert (answer.sleep, pause.sleep) == (text, text)


@pytest.mark.parametrize("timeout", ["30", True])
def test_timeout_that_is_no_duration_is_reported(timeout: Any) -> None:
    reported = problems_of(lambda b: b.worker("w", "some_task", timeout=timeout))
    assert reported == [
        f"w.timeout: {timeout!r} is not a number of seconds; pass a number, or a timedelta"
    ]


class Size(enum.IntEnum):
    LARGE = 3


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "None"),
        (-1.5, "-1.5"),
        (Size.LARGE, "3"),
        ([1, "n", ()], "[1, 'n', ()]"),
        ({"a": (True,), 2: {}}, "{'a': (True,), 2: {}}"),
    ],
)
def test_values_stand_for_themselves(value: Any, text: str) -> None:
    builder = GraphBuilder("plain")
    builder.output("out", value)
    assert builder.build().nodes[1] == m.OutputNode(name="out", value=text)


def doubled(times: int) -> Any:
    value: Any = 0
    for _ in range(times):
        value = [value, value]
    return value


ENDLESS: list[Any] = []
ENDLESS.append(ENDLESS)


@pytest.mark.parametrize(
    ("value", "reported"),
    [
        (float("inf"), "the number inf has no form in an expression; use a finite number"),
        ([float("nan")], "the number nan has no form in an expression; use a finite number"),
        (
            timedelta(1),
            "a value of type timedelta has no form in an expression; pass its total_sec",
        ),
        ({1, 2}, "a value of type set has no form in an expression; pass text, numbers"),
        (1 << 16_609, "the integer has 16,610 bits; use at most 4,096"),
        (["x" * 10_001], "the text has 10,001 characters; use at most 10,000"),
        (doubled(40), "the value has more than 1,000 parts; compute it in a task"),
        (ENDLESS, "the value nests too deep; make it in several steps"),
    ],
    ids=["inf", "nan", "timedelta", "set", "integer", "text", "doubled", "endless"],
)
def test_values_without_an_expression_are_reported(value: Any, reported: str) -> None:
    (argument,) = problems_of(lambda b: b.worker("w", "some_task", input={"n": value}))
    assert argument.startswith(f"w.input.n: {reported}")

    def conditional(builder: GraphBuilder) -> None:
        builder.branch("way")
        builder.output("out", 1)
        builder.edge("way", "out", when=value)

    (condition,) = problems_of(conditional)
    assert condition.startswith(f"edge 0.when: {reported}")
