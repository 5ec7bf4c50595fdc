"""Cases: loops, interrupts, spreads, joins, outputs, and failures that cancel what is in flight."""

from typing import Any

from perdure.core.graph import model as m
from tests.engine.graph.building import START, Case, add, chain, graph, json_of, out
from tests.engine.graph.waiting import child

# Thresholds

early = graph(
    "early",
    [
        START,
        add("w", "1"),
        m.HookNode(name="watch", topic="never", key="'k'"),
        m.HookNode(name="doze", sleep="1000"),
        child("a", "listens", c="'early'"),
        out("w"),
    ],
    [*chain("t", "w", "o"), ("t", "watch"), ("t", "doze"), ("t", "a")],
    threshold=3,
)
early_unbegun = graph(
    "early_unbegun",
    [START, add("w", "1"), add("x", "1"), add("y", "w"), out("w")],
    [*chain("t", "w", "o"), ("w", "x"), ("w", "y")],
    threshold=2,
)
out_of_reach = graph(
    "out_of_reach", [START, add("w", "1"), out("w")], chain("t", "w", "o"), threshold=9
)

# Cycles

loops = graph(
    "loops",
    [
        START,
        m.AssignNode(name="i0", set={"i": "0"}),
        m.HookNode(name="h", cycle=True),
        m.BranchNode(name="br"),
        add("w", "i", output={"i": "result"}),
        m.CycleNode(name="c", to="h", input={"i": "i"}),
        out("i"),
    ],
    [*chain("t", "i0", "h", "br"), m.Edge("br", "w", when="i < n"), ("br", "o"), ("w", "c")],
    n="int",
)
remaps = graph(
    "remaps",
    [
        START,
        m.AssignNode(name="i0", set={"i": "0", "kept": "'kept'", "seen": "[]"}),
        m.HookNode(name="h", cycle=True),
        m.BranchNode(name="br"),
        m.AssignNode(name="lost", set={"kept": "'lost'"}),
        m.CycleNode(name="c", to="h", input={"i": "i + 1", "seen": "[*seen, kept]"}),
        out("[i, seen, kept]"),
    ],
    [*chain("t", "i0", "h", "br"), m.Edge("br", "lost", when="i < 2"), ("br", "o"), ("lost", "c")],
)
nested = graph(
    "nested",
    [
        START,
        m.AssignNode(name="i0", set={"i": "0", "total": "0"}),
        m.HookNode(name="h", cycle=True),
        m.BranchNode(name="b1"),
        m.AssignNode(name="j0", set={"j": "0"}),
        m.HookNode(name="k", cycle=True),
        m.BranchNode(name="b2"),
        add("w", "total", output={"total": "result"}),
        m.CycleNode(name="inner", to="k", input={"j": "j + 1", "total": "total"}),
        m.CycleNode(name="outer", to="h", input={"i": "i + 1", "total": "total"}),
        out("total"),
    ],
    [
        *chain("t", "i0", "h", "b1"),
        m.Edge("b1", "j0", when="i < 2"),
        ("b1", "o"),
        *chain("j0", "k", "b2"),
        m.Edge("b2", "w", when="j < 1"),
        ("b2", "outer"),
        ("w", "inner"),
    ],
)
exits = graph(
    "exits",
    [
        START,
        m.AssignNode(name="i0", set={"i": "0"}),
        m.HookNode(name="h", cycle=True),
        m.BranchNode(name="br"),
        add("w", "i", output={"i": "result"}),
        m.BranchNode(name="b2"),
        m.CycleNode(name="c", to="h", input={"i": "i"}),
        add("early", "i"),
        add("late", "i", "100"),
        add("end", "i", "0"),
        out("end"),
    ],
    [
        *chain("t", "i0", "h", "br"),
        m.Edge("br", "w", when="i < 2"),
        ("br", "late"),
        ("w", "b2"),
        m.Edge("b2", "early", when="i == n"),
        ("b2", "c"),
        ("early", "end"),
        ("late", "end"),
        ("end", "o"),
    ],
    n="int",
)
waits_in_turns = graph(
    "waits_in_turns",
    [
        START,
        m.AssignNode(name="i0", set={"i": "0"}),
        m.HookNode(name="h", cycle=True),
        m.BranchNode(name="br"),
        m.HookNode(name="z", sleep="10"),
        m.CycleNode(name="c", to="h", input={"i": "i + 1"}),
        out("i"),
    ],
    [*chain("t", "i0", "h", "br"), m.Edge("br", "z", when="i < 2"), ("br", "o"), ("z", "c")],
)

# Interrupts


def stops(name: str, *before: m.AnyNode, **fields: Any) -> Any:
    """A graph that interrupts, beside an hour of sleep."""
    interrupt = m.InterruptNode(name="stop", reason="'enough'", **fields)
    nodes = [START, m.HookNode(name="h", sleep="3600"), *before, interrupt]
    return graph(name, nodes, [("t", "h"), *chain("t", *(node.name for node in before), "stop")])


WHO = m.WorkerNode(name="who", task="graph_who")
stops_itself = stops("stops_itself", code=418)
stops_quietly = stops("stops_quietly", throw=False)
stops_by_own_id = stops("stops_by_own_id", WHO, target="who")
stops_alone = stops("stops_alone", child("a", "sleeps", False, x="60"))
SOON = add("soon", "1")


def stops_beside(name: str, work: str, **fields: Any) -> Any:
    """A graph that interrupts itself while an attempt is under way that runs to its end."""
    interrupt = m.InterruptNode(name="stop", reason="'enough'", **fields)
    nodes = [START, m.WorkerNode(name="w", task=work), SOON, interrupt, add("next", "1")]
    return graph(name, nodes, [*chain("t", "w", "next"), *chain("t", "soon", "stop")])


stops_after_work = stops_beside("stops_after_work", "graph_unstoppable", code=418)
stops_after_work_quietly = stops_beside(
    "stops_after_work_quietly", "graph_unstoppable", throw=False, descend=False
)
stops_after_queued_work = stops_beside(
    "stops_after_queued_work", "graph_unstoppable_elsewhere", code=418
)
stops_waited = stops("stops_waited", throw=False, descend=False)

sleeps_beside = graph(
    "sleeps_beside",
    [START, child("a", "sleeps", x="60"), m.HookNode(name="h", sleep="30")],
    [("t", "a"), ("t", "h")],
)


def stops_other(name: str, **fields: Any) -> Any:
    """A graph that interrupts another run, which has a child."""
    interrupt = m.InterruptNode(name="stop", target="a", reason="'enough'", **fields)
    return graph(
        name,
        [START, child("a", "sleeps_beside", False), interrupt, out("'stopped'")],
        chain("t", "a", "stop", "o"),
    )


stops_other_and_children = stops_other("stops_other_and_children", descend=True)
stops_other_alone = stops_other("stops_other_alone")
stops_other_quietly = stops_other("stops_other_quietly", throw=False, descend=True)
stops_other_quietly_alone = stops_other("stops_other_quietly_alone", throw=False)

# Spreads

spreads = graph(
    "spreads",
    [
        START,
        m.SpreadNode(name="s", items="xs", item="i", index="n"),
        add("w", "i", "n"),
        m.AggregateNode(name="g", of="s", collect="w", into="got"),
        out("got"),
    ],
    chain("t", "s", "w", "g", "o"),
    xs="list",
)
spreads_twice = graph(
    "spreads_twice",
    [
        START,
        m.SpreadNode(name="s", items="xss", item="xs"),
        m.SpreadNode(name="r", items="xs", item="i"),
        add("w", "i"),
        m.AggregateNode(name="g", of="r", collect="w", into="row"),
        add("size", "len(row)", "0"),
        m.AggregateNode(name="all", of="s", collect="[size, row]", into="rows"),
        out("rows"),
    ],
    chain("t", "s", "r", "w", "g", "size", "all", "o"),
    xss="list",
)
spreads_partly = graph(
    "spreads_partly",
    [
        START,
        m.SpreadNode(name="s", items="xs", item="i"),
        m.BranchNode(name="br"),
        add("w", "i"),
        m.HookNode(name="z", sleep="i"),
        m.AssignNode(name="end", set={"v": "i"}),
        m.AggregateNode(name="g", of="s", collect="v", into="got"),
        out("got"),
    ],
    [
        ("t", "s"),
        ("s", "br"),
        m.Edge("br", "w", when="i % 2 == 0"),
        m.Edge("br", "z", when="i == 1"),
        ("w", "end"),
        ("z", "end"),
        ("end", "g"),
        ("g", "o"),
    ],
    xs="list",
)
spreads_badly = graph(
    "spreads_badly",
    [
        START,
        m.SpreadNode(name="s", items="[1, 2, 3]", item="i"),
        m.BranchNode(name="br"),
        m.HookNode(name="z", sleep="60"),
        m.RaiseNode(name="no", error="LookupError", message="'second'"),
        m.AggregateNode(name="g", of="s", collect="i", into="got"),
        out("got"),
    ],
    [
        ("t", "s"),
        ("s", "br"),
        m.Edge("br", "no", when="i == 2"),
        ("br", "z"),
        ("z", "g"),
        ("g", "o"),
    ],
)

# Joins

joins = graph(
    "joins",
    [START, add("a", "x"), add("b", "x", "2"), add("c", "a", "b"), out("c")],
    [("t", "a"), ("t", "b"), ("a", "c"), ("b", "c"), ("c", "o")],
    x="int",
)
joins_late = graph(
    "joins_late",
    [
        START,
        add("a", "x"),
        m.HookNode(name="h", sleep="60"),
        add("b", "x", "2"),
        add("c", "a", "b"),
        out("c"),
    ],
    [("t", "a"), *chain("t", "h", "b", "c", "o"), ("a", "c")],
    x="int",
)
joins_skipped = graph(
    "joins_skipped",
    [
        START,
        m.BranchNode(name="br"),
        add("a", "x"),
        add("b", "x", "2"),
        add("b2", "b"),
        add("d", "x", "10"),
        m.AssignNode(name="j", set={"got": "d"}),
        add("c", "got", "0"),
        out("c"),
    ],
    [
        ("t", "br"),
        m.Edge("br", "a", when="x > 0"),
        m.Edge("br", "b"),
        ("b", "b2"),
        ("a", "j"),
        ("b2", "j"),
        ("t", "d"),
        ("d", "j"),
        *chain("j", "c", "o"),
    ],
    x="int",
)
skips_join = graph(
    "skips_join",
    [
        START,
        add("a", "1"),
        add("b", "1"),
        add("c", "a", "b"),
        add("d", "5", job={"d": "result"}),
        add("after", "c"),
    ],
    [
        ("t", "a"),
        ("t", "b"),
        m.Edge("a", "c", when="a > 5"),
        m.Edge("b", "c", when="b > 5"),
        ("c", "after"),
        ("a", "d"),
    ],
)

# Outputs, and failures

first_wins = graph(
    "first_wins",
    [
        START,
        m.HookNode(name="h", sleep="5"),
        m.HookNode(name="k", sleep="50"),
        out("'first'", "o1"),
        out("'second'", "o2"),
    ],
    [*chain("t", "h", "o1"), *chain("t", "k", "o2")],
)
goes_on_after_output = graph(
    "goes_on_after_output",
    [START, out("'early'"), m.HookNode(name="h", sleep="50"), add("a", "1"), add("b", "a")],
    [("t", "o"), *chain("t", "h", "a", "b")],
)
in_flight = graph(
    "in_flight",
    [
        START,
        m.WorkerNode(name="queued", task="graph_nowhere", input={"n": "1"}),
        m.HookNode(name="timer", sleep="3600"),
        child("kid", "sleeps", x="7200"),
        m.WorkerNode(name="body", task="graph_endless"),
        m.HookNode(name="sig", topic="go", key="'in flight'"),
        add("half", "1"),
        add("join", "half", "1"),
        m.WorkerNode(
            name="again",
            task="graph_refuse",
            input={"x": "1"},
            retry=m.RetryRule(attempts=2, first=900),
        ),
        add("a", "1"),
        m.WorkerNode(name="no", task="graph_refuse", input={"x": "2"}),
    ],
    [("t", name) for name in ("queued", "timer", "kid", "body", "sig", "half", "again", "a")]
    + [("half", "join"), ("timer", "join"), ("a", "no")],
)
raises_again = graph(
    "raises_again",
    [
        START,
        m.WorkerNode(name="a", task="graph_refuse", input={"x": "1"}),
        m.RaiseNode(name="again", again="e"),
    ],
    [("t", "a"), m.Edge("a", "again", on="error", bind="e")],
)

CASES = {
    "threshold: what waits is given up": Case(early, "2"),
    "threshold: what has not begun is given up": Case(early_unbegun, "2"),
    "threshold: never so many": Case(out_of_reach, "2"),
    "cycle": Case(lambda: loops(n=2), "2"),
    "cycle: no turn": Case(lambda: loops(n=0), "0"),
    "cycle: remapped": Case(remaps, '[2,["lost","lost"],"kept"]'),
    "cycle: nested": Case(nested, "2"),
    "cycle: left early, skips held": Case(lambda: exits(n=1), "1"),
    "cycle: left late, skips held": Case(lambda: exits(n=9), "2"),
    "cycle: with sleeps": Case(waits_in_turns, "2"),
    "interrupt: itself": Case(stops_itself, status="failed"),
    "interrupt: itself, quietly": Case(stops_quietly, status="cancelled"),
    "interrupt: itself by its id": Case(stops_by_own_id, status="failed"),
    "interrupt: itself, beside a child": Case(stops_alone, status="failed"),
    "interrupt: itself, no descent": Case(stops_waited, status="cancelled"),
    "interrupt: itself, after what finishes": Case(stops_after_work, status="failed"),
    "interrupt: itself, quietly, after what finishes": Case(
        stops_after_work_quietly, status="cancelled"
    ),
    "interrupt: itself, after queued work": Case(stops_after_queued_work, status="failed"),
    "interrupt: another and its child": Case(stops_other_and_children, '"stopped"'),
    "interrupt: another alone": Case(stops_other_alone, '"stopped"'),
    "interrupt: another, quietly": Case(stops_other_quietly, '"stopped"'),
    "interrupt: another alone, quietly": Case(stops_other_quietly_alone, '"stopped"'),
    "spread: empty": Case(lambda: spreads(xs=[]), "[]"),
    "spread: in order": Case(lambda: spreads(xs=[5, 1, 3]), "[5,2,5]"),
    "spread: nested": Case(
        lambda: spreads_twice(xss=[[1, 2], [], [3]]), json_of([[2, [2, 3]], [0, []], [1, [4]]])
    ),
    "spread: items skipped": Case(lambda: spreads_partly(xs=[0, 1, 2, 3]), "[0,1,2]"),
    "spread: all items skipped": Case(lambda: spreads_partly(xs=[3, 5]), "[]"),
    "spread: an item fails": Case(spreads_badly, status="failed"),
    "join": Case(lambda: joins(x=1), "5"),
    "join: one is late": Case(lambda: joins_late(x=1), "5"),
    "join: a path is skipped": Case(lambda: joins_skipped(x=1), "11"),
    "join: another path is skipped": Case(lambda: joins_skipped(x=0), "10"),
    "join: all paths are skipped": Case(skips_join, json_of({"d": 6}), is_race=True),
    "output: the first wins": Case(first_wins, '"first"'),
    "output: the rest goes on": Case(goes_on_after_output, '"early"'),
    "failure: what is in flight is cancelled": Case(in_flight, status="failed", is_race=True),
    "failure: raised again": Case(raises_again, status="failed"),
}
