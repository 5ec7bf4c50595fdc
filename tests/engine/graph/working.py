"""Cases: triggers, workers and awaits, each in every variant."""

from typing import Any

import perdure
from perdure import workflow
from perdure.core.graph import model as m
from perdure.testing.script import After
from tests.engine.graph.building import (
    START,
    Case,
    add,
    chain,
    graph,
    json_of,
    out,
    own,
    say,
    to_run,
    to_topic,
)

# Triggers

bare = graph("bare", [START], [])
inline_only = graph("inline_only", [START, out("x + 1")], [("t", "o")], x="int")
keyed = graph(
    "keyed",
    [m.TriggerNode(name="t", keys={"color": "c"}, job={"c": "c"}, emit="[c]", persist=True)],
    [],
    c="str",
)
keyed_with_child = graph(
    "keyed_with_child",
    [
        m.TriggerNode(name="t", keys={"color": "c"}, job={"c": "c"}, emit="[c]", persist=True),
        add("a", "1", job={"sum": "result"}),
    ],
    [("t", "a")],
    c="str",
)
wide = graph(
    "wide",
    [START, add("a", "1", job={"a": "result"}), add("b", "2", job={"b": "result"})],
    [("t", "a"), ("t", "b")],
)
bad_keys = graph("bad_keys", [m.TriggerNode(name="t", keys={"k": "1 / zero"})], [], zero="int")

# Workers

worked = graph(
    "worked", [START, add("a", "x"), add("b", "a"), out("b")], chain("t", "a", "b", "o"), x="int"
)
mapped = graph(
    "mapped",
    [START, add("a", "x", output={"y": "result * 10"}, job={"y": "y"}), out("[y, job['y']]")],
    chain("t", "a", "o"),
    x="int",
)
refused = graph(
    "refused",
    [
        START,
        m.WorkerNode(name="a", task="graph_refuse", input={"x": "1"}),
        add("b", "1"),
        out("e['message']"),
    ],
    [("t", "a"), ("a", "b"), m.Edge("a", "o", on="error", errors=("ValueError",), bind="e")],
)
refuses = graph(
    "refuses", [START, m.WorkerNode(name="a", task="graph_refuse", input={"x": "1"})], [("t", "a")]
)
answered_badly = graph(
    "answered_badly",
    [
        START,
        m.WorkerNode(name="a", task="graph_answer", input={"data": "'gone'", "code": "404"}),
        out("'missing'"),
    ],
    [("t", "a"), m.Edge("a", "o", on="404")],
)
retried = graph(
    "retried",
    [
        START,
        m.WorkerNode(
            name="a",
            task="graph_third_time",
            input={"n": "3"},
            retry=m.RetryRule(attempts=3, first=5),
        ),
        out("a"),
    ],
    chain("t", "a", "o"),
)
gave_up = graph(
    "gave_up",
    [
        START,
        m.WorkerNode(
            name="a", task="graph_refuse", input={"x": "3"}, retry=m.RetryRule(attempts=2, first=5)
        ),
        out("'gave up'"),
    ],
    [("t", "a"), m.Edge("a", "o", on="error")],
)
queued = graph(
    "queued_worker",
    [START, m.WorkerNode(name="a", task="graph_elsewhere", input={"n": "1"}), out("a")],
    chain("t", "a", "o"),
)
too_slow = graph(
    "too_slow",
    [
        START,
        m.WorkerNode(name="a", task="graph_endless", timeout=0.01),
        add("b", "1"),
        out("'late'"),
    ],
    [("t", "a"), ("a", "b"), m.Edge("a", "o", on="timeout")],
)
pends = graph(
    "pends",
    [
        START,
        m.WorkerNode(
            name="w", task="graph_answer", input={"data": "1", "code": "202"}, pending=True
        ),
        add("p", "w"),
        add("d", "w", job={"done": "result"}),
    ],
    [("t", "w"), m.Edge("w", "p", on="pending"), ("w", "d")],
)
pends_plainly = graph(
    "pends_plainly",
    [
        START,
        m.WorkerNode(
            name="w", task="graph_answer", input={"data": "1", "code": "202"}, pending=True
        ),
        out("w"),
    ],
    chain("t", "w", "o"),
)

# Awaits


@workflow
async def awaited_by_graph(n: int) -> int:
    await perdure.sleep(60)
    if n < 0:
        raise LookupError(f"no {n}")
    return n + 1000


fails_inside = graph(
    "fails_inside",
    [START, m.WorkerNode(name="a", task="graph_refuse", input={"x": "7"})],
    [("t", "a")],
)


def awaits(name: str, program: str, argument: str = "", value: str = "child", **fields: Any) -> Any:
    """A graph that awaits another program."""
    given = {argument: "x"} if argument else {}
    return graph(
        name,
        [
            START,
            m.AwaitNode(name="child", program=program, input=given, **fields),
            out(value),
            out("e['type']", "caught"),
        ],
        [*chain("t", "child", "o"), m.Edge("child", "caught", on="error", bind="e")],
        x="int",
    )


awaits_graph = awaits("awaits_graph", own("worked"), "x")
awaits_workflow = awaits("awaits_workflow", "awaited_by_graph", "n")
awaits_no_hook = awaits("awaits_no_hook", "awaited_by_graph", "n", "child[:2]", wait=False)
awaits_failure = awaits("awaits_failure", own("fails_inside"))
awaits_uncaught = graph(
    "awaits_uncaught",
    [START, m.AwaitNode(name="child", program=own("fails_inside"))],
    [("t", "child")],
)

impatient = graph(
    "impatient",
    [START, m.HookNode(name="h", topic="go", key="'retried'", sleep="60"), out("h")],
    chain("t", "h", "o"),
)
awaits_next_try = graph(
    "awaits_next_try",
    [
        START,
        m.AwaitNode(
            name="child", program=own("impatient"), retry=m.RetryRule(attempts=9, first=2.0)
        ),
        out("child"),
    ],
    chain("t", "child", "o"),
)
awaits_too_few_tries = graph(
    "awaits_too_few_tries",
    [
        START,
        m.AwaitNode(
            name="child", program=own("fails_inside"), retry=m.RetryRule(attempts=2, first=2.0)
        ),
        out("'failed'"),
    ],
    [("t", "child"), m.Edge("child", "o", on="error")],
)
fails_beside_retry = graph(
    "fails_beside_retry",
    [
        START,
        m.AwaitNode(
            name="child",
            program=own("fails_inside"),
            retry=m.RetryRule(attempts=9, first=500.0, ceiling=500.0),
        ),
        m.HookNode(name="h", sleep="300"),
        m.RaiseNode(name="r", error="ValueError", message="'enough'"),
    ],
    [("t", "child"), *chain("t", "h", "r")],
)

later = say(to_run("respond", 5, 202, "w,0,0"), to_run("respond", 7, 200, "w,0,0"))

CASES = {
    "trigger without children": Case(bare, "null"),
    "trigger with an output": Case(lambda: inline_only(x=1), "2"),
    "trigger with keys": Case(lambda: keyed(c="red"), json_of({"c": "red"})),
    "trigger with keys and a child": Case(
        lambda: keyed_with_child(c="red"), json_of({"c": "red", "sum": 2})
    ),
    "trigger with two children": Case(wide, json_of({"a": 2, "b": 3})),
    "trigger whose keys fail": Case(lambda: bad_keys(zero=0), status="failed"),
    "worker": Case(lambda: worked(x=1), "3"),
    "worker with maps": Case(lambda: mapped(x=1), "[20,20]"),
    "worker: error edge": Case(refused, '"no 1"'),
    "worker: error fails the run": Case(refuses, status="failed"),
    "worker: edge of a code": Case(answered_badly, '"missing"'),
    "worker: retried": Case(retried, "3"),
    "worker: gave up": Case(gave_up, '"gave up"'),
    "worker: queued": Case(queued, "101"),
    "worker: timeout edge": Case(too_slow, '"late"'),
    "worker: 202, 202, 200": Case(pends, json_of({"done": 8}), script=later, is_race=True),
    "worker: 202 and early responses": Case(
        pends, json_of({"done": 8}), script=After(1, later), is_race=True
    ),
    "worker: 202 without an edge": Case(
        pends_plainly, "7", script=say(to_run("respond", 7, 200, "w,0,0"))
    ),
    "worker: 202, then an error": Case(
        pends_plainly, status="failed", script=say(to_run("respond", "bad", 500, "w,0,0"))
    ),
    "await a graph": Case(lambda: awaits_graph(x=1), "3"),
    "await a workflow": Case(lambda: awaits_workflow(x=1), "1001"),
    "await no hook": Case(lambda: awaits_no_hook(x=1), '"r_"'),
    "await: error edge of a graph": Case(lambda: awaits_failure(x=1), '"ValueError"'),
    "await: error edge of a workflow": Case(lambda: awaits_workflow(x=-1), '"LookupError"'),
    "await: retried until it is done": Case(
        awaits_next_try, "7", script=to_topic("go", "retried", 7, after_s=90), is_race=True
    ),
    "await: all tries fail": Case(awaits_too_few_tries, '"failed"'),
    "await: its run fails while a retry is due": Case(fails_beside_retry, status="failed"),
    "await: error fails the run": Case(awaits_uncaught, status="failed"),
}
