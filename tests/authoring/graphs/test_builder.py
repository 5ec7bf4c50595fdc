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
            m.Trigger(name="start"),
            m.Worker(
                name="charge",
                task="charge_for_builder",
                input={"order": "order_id", "amount": "amount"},
                timeout=30.0,
            ),
            m.Hook(name="approval", topic="approved_by_builder", key="order_id", sleep="3600"),
            m.Output(name="done", value="{'receipt': charge}"),
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


def test_everything_is_told_that_is_wrong() -> None:
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


def test_the_builder_makes_what_yaml_does() -> None:
    built, written = everything().build(), load_graph(EVERYTHING)
    raised = m.Raise(name="oops", error="builtins:ValueError", message="'none'")
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
        m.Call(name="c", graph="other"),
        m.Await(name="w", program="audit_for_builder", input={"order": "'x'"}),
    )


def test_fields_of_the_input_are_known_by_name() -> None:
    assert dir(order().input) == ["amount", "order_id"]
    with pytest.raises(AttributeError, match="no field 'order_ids': did you mean 'order_id'"):
        _ = order().input.order_ids


@pytest.mark.parametrize("spec", [set, "integer", 3])
def test_a_type_that_graphs_do_not_have_is_refused(spec: Any) -> None:
    with pytest.raises(InputError, match=r"is no type for input\.n"):
        GraphBuilder("a", input={"n": spec})


def test_what_has_no_name_is_refused() -> None:
    thing: Any = 3
    with pytest.raises(InputError, match="3 has no name"):
        GraphBuilder("a").worker("w", thing)
