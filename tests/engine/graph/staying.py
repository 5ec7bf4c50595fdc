"""Cases: answers with 202 whose maps or conditions fail, so that the step does not stay."""

from typing import Any

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
    say,
    to_run,
    to_topic,
)

TENTH = {"q": "10 // result"}


def fragile(name: str, activity: m.AnyNode, *, is_caught: bool = True, when: str = "") -> Any:
    """A graph that continues along the edges of the activity, and waits for a while before it ends."""
    nodes = [
        activity,
        add("fine", "q", job={"fine": "result"}),
        add("part", "q"),
        m.AssignNode(name="wrong", set={"q": "-1"}),
        m.HookNode(name="z", sleep="100"),
        add("end", "q", "0", job={"end": "result"}),
    ]
    edges: list[Any] = [("t", "a"), ("a", "fine"), *chain("wrong", "z", "end")]
    edges += [m.Edge("a", "part", on="pending", when=when or None)]
    if is_caught:
        edges += [m.Edge("a", "wrong", on="error", errors=("ArithmeticError",))]
    else:
        edges += [("t", "wrong")]
    return graph(name, [START, *nodes], edges)


def hook(key: str | None = None, **fields: Any) -> m.HookNode:
    return m.HookNode(name="a", topic="go", key=key, pending=True, **fields)


def worker(data: str, **fields: Any) -> m.WorkerNode:
    given = {"data": data, "code": "202"}
    return m.WorkerNode(name="a", task="graph_answer", input=given, pending=True, **fields)


heard = fragile("staying_heard", hook(output=TENTH))
heard_by_key = fragile("staying_heard_by_key", hook("'k'", sleep="60", output=TENTH))
heard_job = fragile("staying_heard_job", hook(output={"q": "1"}, job={"tenth": "10 // result"}))
heard_when = fragile("staying_heard_when", hook(output={"q": "result"}), when="10 // q")
heard_uncaught = fragile(
    "staying_heard_uncaught", hook("'k'", sleep="60", output=TENTH), is_caught=False
)
worked = fragile("staying_worked", worker("0", output=TENTH))
worked_later = fragile("staying_worked_later", worker("5", output=TENTH))
worked_uncaught = fragile("staying_worked_uncaught", worker("0", output=TENTH), is_caught=False)


def turning(name: str, key: str | None, on_error: str) -> Any:
    """A loop whose hook answers in parts; an error leads to `on_error`: on, or round again."""
    return graph(
        name,
        [
            START,
            m.AssignNode(name="n0", set={"n": "0", "q": "0"}),
            m.HookNode(name="turn", cycle=True),
            m.HookNode(name="h", topic="go", key=key, pending=True, output=TENTH),
            add("part", "q"),
            add("bad", "n", "100", job={"bad": "result"}),
            m.CycleNode(name="again", to="turn", input={"n": "n + 1"}),
            add("end", "n", "q"),
            out("end"),
        ],
        [
            *chain("t", "n0", "turn", "h"),
            m.Edge("h", "part", on="pending"),
            m.Edge("h", on_error, on="error"),
            m.Edge("h", "again" if on_error == "bad" else "bad", when="n > 5"),
            m.Edge("h", "end", when="n <= 5"),
            ("end", "o"),
        ],
    )


leaves_loop = turning("staying_leaves_loop", "'k'", "bad")
turns_loop = turning("staying_turns_loop", None, "again")


def items(name: str, activity: m.AnyNode, *, is_caught: bool = True) -> Any:
    """A spread whose activity is not said to be pending."""
    edges: list[Any] = [*chain("t", "s", "a", "w", "g", "o")]
    nodes: list[Any] = [
        m.SpreadNode(name="s", items="[0, 1]", item="i"),
        activity,
        add("w", "q"),
        m.AggregateNode(name="g", of="s", collect="w", into="got"),
        out("got"),
    ]
    if is_caught:
        nodes.append(m.AssignNode(name="wrong", set={"q": "-1"}))
        edges += [m.Edge("a", "wrong", on="error"), ("wrong", "w")]
    return graph(name, [START, *nodes], edges)


def listener(output: str) -> m.HookNode:
    return m.HookNode(name="a", topic="go", key="i", output={"q": output})


def asker(output: str) -> m.WorkerNode:
    given = {"data": "i", "code": "202"}
    return m.WorkerNode(name="a", task="graph_answer", input=given, output={"q": output})


items_heard = items("staying_items_heard", listener("10 // result"))
items_fine = items("staying_items_fine", listener("result"))
items_uncaught = items("staying_items_uncaught", listener("10 // result"), is_caught=False)
items_worked = items("staying_items_worked", asker("10 // result"))
items_worked_uncaught = items(
    "staying_items_worked_uncaught", asker("10 // result"), is_caught=False
)
unmarked = graph(
    "staying_unmarked",
    [
        START,
        m.HookNode(name="a", topic="go", key="'k'", output=TENTH),
        m.AssignNode(name="wrong", set={"q": "-1"}),
        add("j", "q", "0"),
        out("j"),
    ],
    [*chain("t", "a", "j", "o"), m.Edge("a", "wrong", on="error"), ("wrong", "j")],
)

WRONG = json_of({"end": -1})


def respond(value: int, code: int = 200, step: str = "a,0,0", after_s: int = 0) -> Any:
    return to_run("respond", value, code, step, after_s)


CASES = {
    "202 whose output fails: hook": Case(
        heard, WRONG, script=say(to_run("go", 0, 202), to_run("go", 5, after_s=1))
    ),
    "202 whose output fails: hook by key, with a limit": Case(
        heard_by_key, WRONG, script=to_topic("go", "k", 0, 202)
    ),
    "202 whose output fails: hook by key, after a good one": Case(
        heard_by_key,
        WRONG,
        script=say(to_topic("go", "k", 5, 202), to_topic("go", "k", 0, 202)),
        is_race=True,
    ),
    "202 whose output fails: hook, no edge": Case(
        heard_uncaught, status="failed", script=to_topic("go", "k", 0, 202)
    ),
    "202 whose job fails: hook": Case(heard_job, WRONG, script=to_run("go", 0, 202)),
    "202 whose condition fails: hook": Case(heard_when, WRONG, script=to_run("go", 0, 202)),
    "202 whose output fails: worker": Case(worked, WRONG),
    "202 whose output fails: worker, with an early response": Case(
        worked, WRONG, script=After(1, respond(5)), is_race=True
    ),
    "202 whose output fails: worker, second response": Case(
        worked_later, WRONG, script=say(respond(0, 202), respond(5, after_s=1)), is_race=True
    ),
    "202 whose output fails: worker, no edge": Case(worked_uncaught, status="failed"),
    "202 whose output fails: in a loop, which is left": Case(
        leaves_loop,
        json_of({"bad": 100}),
        script=say(to_topic("go", "k", 5, 202), to_topic("go", "k", 0, 202)),
        is_race=True,
    ),
    "202 whose output fails: in a loop, which turns": Case(
        turns_loop,
        "11",
        script=say(
            to_run("go", 0, 202), to_run("go", 5, 202, after_s=1), to_run("go", 1, after_s=2)
        ),
        is_race=True,
    ),
    "202 whose output fails: hook in a spread": Case(
        items_heard,
        "[0,3]",
        script=say(
            to_topic("go", "0", 0, 202), to_topic("go", "1", 5, 202), to_topic("go", "1", 4)
        ),
        is_race=True,
    ),
    "202 whose output fails: hook in a spread, no edge": Case(
        items_uncaught, status="failed", script=to_topic("go", "0", 0, 202)
    ),
    "202 whose output fails: worker in a spread": Case(
        items_worked, "[0,6]", script=respond(2, 200, "a,0,1,0"), is_race=True
    ),
    "202 whose output fails: worker in a spread, no edge": Case(
        items_worked_uncaught, status="failed", is_race=True
    ),
    "202 whose output fails: hook that is not said to be pending": Case(
        unmarked, "-1", script=say(to_topic("go", "k", 0, 202), to_topic("go", "k", 5, after_s=1))
    ),
    "202 to a hook that is not said to be pending": Case(
        unmarked,
        "2",
        script=say(to_topic("go", "k", 1, 202), to_topic("go", "k", 5, after_s=1)),
        is_race=True,
    ),
    "202 to hooks in a spread that are not said to be pending": Case(
        items_fine,
        "[4,7]",
        script=say(
            to_topic("go", "0", 1, 202),
            to_topic("go", "1", 2, 202),
            to_topic("go", "0", 3),
            to_topic("go", "1", 6),
        ),
        is_race=True,
    ),
}
