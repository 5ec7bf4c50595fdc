"""Cases: hooks and signals, each in every variant."""

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
    own,
    say,
    to_run,
    to_topic,
)

# Hooks

sleeps = graph(
    "sleeps",
    [START, m.HookNode(name="h", sleep="x"), out("'slept'")],
    chain("t", "h", "o"),
    x="any",
)
passes = graph(
    "passes",
    [START, m.HookNode(name="h", job={"x": "x"}), add("a", "x")],
    chain("t", "h", "a"),
    x="int",
)
hears = graph("hears", [START, m.HookNode(name="h", topic="go"), out("h")], chain("t", "h", "o"))
hears_by_key = graph(
    "hears_by_key",
    [START, m.HookNode(name="h", topic="go", key="k", output={"got": "result"}), out("got")],
    chain("t", "h", "o"),
    k="any",
)
works_then_hears = graph(
    "works_then_hears",
    [START, add("a", "1"), m.HookNode(name="h", topic="go", key="'k'"), out("[a, h]")],
    chain("t", "a", "h", "o"),
)
works_then_listens = graph(
    "works_then_listens",
    [START, add("a", "1"), m.HookNode(name="h", topic="go"), out("[a, h]")],
    chain("t", "a", "h", "o"),
)


def patient(name: str, seconds: str, key: str | None = None) -> Any:
    """A graph that waits for a signal, but not longer than so many seconds, and works on either way."""
    return graph(
        name,
        [
            START,
            m.HookNode(name="h", topic="go", key=key, sleep=seconds),
            add("a", "h", job={"got": "result"}),
            m.HookNode(name="z", sleep="5"),
            add("b", "0", job={"late": "result"}),
        ],
        [*chain("t", "h", "a", "z"), m.Edge("h", "b", on="timeout")],
    )


patient_run = patient("patient_run", "60")
patient_key = patient("patient_key", "60", "'k'")
in_turns = graph(
    "in_turns",
    [
        START,
        m.HookNode(name="c", cycle=True),
        m.HookNode(name="h", topic="go", key="'k'", sleep="60"),
        m.CycleNode(name="again", to="c"),
        out("h"),
    ],
    [*chain("t", "c", "h", "o"), m.Edge("h", "again", on="timeout")],
)
hears_at_once = graph(
    "hears_at_once",
    [
        START,
        m.SignalNode(name="s", topic="go", key="'k'", data="7"),
        m.HookNode(name="h", topic="go", key="'k'", sleep="0"),
        out("h"),
        out("'late'", "late"),
    ],
    [*chain("t", "s", "h", "o"), m.Edge("h", "late", on="timeout")],
)
times_out = graph("times_out", [START, m.HookNode(name="h", topic="go", sleep="60")], [("t", "h")])


def lasting(name: str, key: str | None) -> Any:
    """A graph whose hook takes signals until one is final."""
    return graph(
        name,
        [
            START,
            m.HookNode(name="h", topic="go", key=key, pending=True),
            add("p", "h"),
            add("d", "h", job={"done": "result"}),
        ],
        [("t", "h"), m.Edge("h", "p", on="pending"), ("h", "d")],
    )


lasting_run = lasting("lasting_run", None)
lasting_key = lasting("lasting_key", "'k'")
two_hooks = graph(
    "two_hooks",
    [
        START,
        m.HookNode(name="g", topic="go"),
        m.HookNode(name="h", topic="go"),
        m.AssignNode(name="j", set={"both": "sorted([g, h])"}),
        out("both"),
    ],
    [("t", "g"), ("t", "h"), ("g", "j"), ("h", "j"), ("j", "o")],
)

# Signals

listens = graph(
    "listens",
    [
        m.TriggerNode(name="t", keys={"color": "c"}),
        m.HookNode(name="h", topic="go", sleep="100"),
        out("h"),
        out("'nothing'", "late"),
    ],
    [*chain("t", "h", "o"), m.Edge("h", "late", on="timeout")],
    c="str",
)


def child(name: str, program: str, wait: bool = True, **given: str) -> m.AwaitNode:
    return m.AwaitNode(name=name, program=own(program), input=given, wait=wait)


tells_topic = graph(
    "tells_topic",
    [
        START,
        child("a", "hears_by_key", k="'z'"),
        m.SignalNode(name="s", topic="go", key="'z'", data="[1]"),
        out("a"),
    ],
    [("t", "a"), ("t", "s"), ("a", "o")],
)
tells_early = graph(
    "tells_early",
    [
        START,
        m.SignalNode(name="s", topic="go", key="{'n': 1}", data="2"),
        child("a", "hears_by_key", k="{'n': 1}"),
        out("a"),
    ],
    chain("t", "s", "a", "o"),
)
tells_run = graph(
    "tells_run",
    [
        START,
        child("a", "listens", False, c="'x'"),
        m.SignalNode(name="s", topic="go", run="a", data="3"),
        out("'told'"),
    ],
    chain("t", "a", "s", "o"),
)
tells_all = graph(
    "tells_all",
    [
        START,
        m.SpreadNode(name="each", items="['red', 'blue', 'red']", item="c"),
        child("a", "listens", c="c"),
        m.AggregateNode(name="g", of="each", collect="a", into="got"),
        m.HookNode(name="h"),
        m.SignalNode(name="s", topic="go", all="color", key="'red'", data="4"),
        out("got"),
    ],
    [*chain("t", "each", "a", "g", "o"), *chain("t", "h", "s")],
)
scrubs = graph(
    "scrubs",
    [
        START,
        child("a", "listens", c="'green'"),
        m.HookNode(name="h"),
        m.SignalNode(name="s", topic="other", all="color", key="'green'", scrub=True),
        m.SignalNode(name="again", topic="go", all="color", key="'green'", data="5"),
        out("a"),
    ],
    [("t", "a"), *chain("t", "h", "s", "again"), ("a", "o")],
)
hears_once = graph(
    "hears_once",
    [
        m.TriggerNode(name="t", keys={"color": "c"}),
        m.HookNode(name="h", topic="go"),
        m.HookNode(name="k", topic="go", sleep="100"),
        out("[h, k]"),
        out("[h, 'nothing']", "late"),
    ],
    [*chain("t", "h", "k", "o"), m.Edge("k", "late", on="timeout")],
    c="str",
)
tells_all_once = graph(
    "tells_all_once",
    [
        START,
        child("a", "hears_once", c="'pink'"),
        m.HookNode(name="h"),
        m.SignalNode(name="s", topic="go", all="color", key="'pink'", data="8"),
        out("a"),
    ],
    [*chain("t", "a", "o"), *chain("t", "h", "s")],
)
tells_before = graph(
    "tells_before",
    [
        START,
        m.SignalNode(name="s", topic="go", all="color", key="'white'", data="6"),
        child("a", "listens", c="'white'"),
        out("a"),
    ],
    chain("t", "s", "a", "o"),
)

tells_computed = graph(
    "tells_computed",
    [
        START,
        m.AssignNode(name="v", set={"v": "'go'"}),
        m.WorkerNode(name="w", task_from="'graph_' + 'add'", input={"a": "1", "b": "2"}),
        m.AwaitNode(name="a", program_from=f"'{own('listens_to')}'", input={"topic": "v + '!'"}),
        m.HookNode(name="h"),
        m.SignalNode(name="s", topic_from="v + '!'", key="'computed'", data="4"),
        out("[w, a]"),
    ],
    [*chain("t", "v", "w", "o"), *chain("v", "a", "o"), *chain("v", "h", "s")],
)
listens_to = graph(
    "listens_to",
    [START, m.HookNode(name="h", topic_from="topic", key="'computed'", sleep="100"), out("h")],
    chain("t", "h", "o"),
    topic="str",
)
names_nothing = graph(
    "names_nothing",
    [
        START,
        m.HookNode(name="h", topic_from="1 + 1"),
        out("e.message"),
    ],
    [("t", "h"), m.Edge("h", "o", on="error", bind="e")],
)

twice = say(to_run("go", 5, 202), to_run("go", 7))
twice_by_key = say(to_topic("go", "k", 5, 202), to_topic("go", "k", 7))
DONE = json_of({"done": 8})
EITHER = (json_of({"got": 8}), json_of({"late": 1}))

CASES = {
    "hook: sleep": Case(lambda: sleeps(x=60), '"slept"'),
    "hook: no sleep": Case(lambda: sleeps(x=0), '"slept"'),
    "hook: sleep of less than nothing": Case(lambda: sleeps(x=-5), '"slept"'),
    "hook: bad sleep": Case(lambda: sleeps(x="long"), status="failed"),
    "hook: pass-through": Case(lambda: passes(x=1), json_of({"x": 1})),
    "hook: signal to the run": Case(hears, "7", script=say(to_run("go", 7))),
    "hook: signal by key": Case(
        lambda: hears_by_key(k="k"), "7", script=say(to_topic("go", "k", 7))
    ),
    "hook: early signal to the run": Case(
        works_then_listens, "[2,7]", script=After(1, to_run("go", 7))
    ),
    "hook: early signal by key": Case(
        works_then_hears, "[2,7]", script=After(1, to_topic("go", "k", 7))
    ),
    "hook: signal before its limit": Case(
        patient_run, json_of({"got": 8}), script=say(to_run("go", 7))
    ),
    "hook: signal by key before its limit": Case(
        patient_key, json_of({"got": 8}), script=After(1, to_topic("go", "k", 7))
    ),
    "hook: early signal by key before a limit of nothing": Case(hears_at_once, "7"),
    "hook: limit": Case(patient_run, json_of({"late": 1})),
    "hook: limit of one with a key": Case(patient_key, json_of({"late": 1})),
    "hook: limit without an edge": Case(times_out, status="failed"),
    "hook: signal and limit at once": Case(
        patient_run, EITHER, script=to_run("go", 7, after_s=60), is_race=True
    ),
    "hook: signal by key and limit at once": Case(
        patient_key, EITHER, script=to_topic("go", "k", 7, after_s=60), is_race=True
    ),
    "hook: signal by key, as one limit ends and the next begins": Case(
        in_turns, "7", script=to_topic("go", "k", 7, after_s=60), is_race=True
    ),
    "hook: error signal": Case(hears, status="failed", script=say(to_run("go", "bad", 500))),
    "hook: 202, then 200": Case(lasting_run, DONE, script=twice, is_race=True),
    "hook: 202, then 200, by key": Case(lasting_key, DONE, script=twice_by_key, is_race=True),
    "hooks: two for one topic": Case(
        two_hooks, "[1,2]", script=say(to_run("go", 1), to_run("go", 2)), is_race=True
    ),
    "names that are computed": Case(tells_computed, "[3,4]"),
    "a name that is none": Case(names_nothing),
    "signal by topic and key": Case(tells_topic, "[1]"),
    "signal by topic and key, early": Case(tells_early, "2"),
    "signal to a run": Case(tells_run, '"told"'),
    "signal to all": Case(tells_all, json_of([4, "nothing", 4])),
    "signal to all, once each": Case(tells_all_once, '[8,"nothing"]'),
    "signal to all, before one is born": Case(tells_before, '"nothing"'),
    "signal to all, scrubbed": Case(scrubs, '"nothing"'),
}
