"""Lowering: addresses, planes, exits of loops, and the variables that paths bring to joins."""

import pytest

from perdure.core.graph import model as m
from perdure.core.graph.vertex import Inline, Lowered, Plane, Primitive
from tests.core.graph.lowered import arrow_of, graph, vertex_of, worker


def step(lowered: Lowered, name: str, plane: Plane = ()) -> str:
    return vertex_of(lowered, name).step(plane)


LOOP = graph(
    m.HookNode(name="loop", cycle=True),
    worker("work"),
    m.CycleNode(name="again", to="loop"),
    worker("after"),
    ("begin", "loop"),
    ("loop", "work"),
    ("work", "again"),
    ("work", "after"),
)

NESTED = graph(
    m.HookNode(name="outer", cycle=True),
    m.HookNode(name="inner", cycle=True),
    m.BranchNode(name="which"),
    m.CycleNode(name="next_inner", to="inner"),
    m.CycleNode(name="next_outer", to="outer"),
    worker("after"),
    ("begin", "outer"),
    ("outer", "inner"),
    ("inner", "which"),
    m.Edge("which", "next_inner", when="i"),
    m.Edge("which", "next_outer", when="o"),
    ("which", "after"),
)

SPREAD = graph(
    m.SpreadNode(name="each", items="xs", item="x"),
    worker("inside"),
    m.AggregateNode(name="all", of="each", collect="inside", into="got"),
    worker("behind"),
    ("begin", "each"),
    ("each", "inside"),
    ("inside", "all"),
    ("all", "behind"),
)


def test_an_address_has_a_number_for_each_activity_on_the_path() -> None:
    lowered = graph(
        worker("a"),
        m.AssignNode(name="inline", set={"x": "1"}),
        worker("b"),
        ("begin", "a"),
        ("a", "inline"),
        ("inline", "b"),
    )
    assert step(lowered, "begin") == "begin,0"
    assert step(lowered, "a") == "a,0,0"
    assert step(lowered, "b") == "b,0,0,0"


def test_a_join_is_as_deep_as_its_longest_path() -> None:
    lowered = graph(
        *(worker(name) for name in ("a", "b", "c")),
        *(("begin", "a"), ("a", "b"), ("b", "c"), ("begin", "c")),
    )
    assert step(lowered, "c") == "c,0,0,0,0"


def test_a_loop_numbers_the_iterations_of_all_vertices_behind_its_hook() -> None:
    assert step(LOOP, "loop") == "loop,0,0"
    assert step(LOOP, "work", (2,)) == "work,0,2,0"
    assert step(LOOP, "again", (2,)) == "again,0,2,0,0"
    assert step(LOOP, "after", (3,)) == "after,0,3,0,0"


def test_nested_loops_have_a_number_each() -> None:
    assert step(NESTED, "inner", (4,)) == "inner,0,4,0"
    assert step(NESTED, "after", (4, 2)) == "after,0,4,2,0"


def test_a_spread_numbers_its_items_up_to_its_aggregate() -> None:
    assert step(SPREAD, "inside", (7,)) == "inside,0,7,0"
    assert step(SPREAD, "all") == "all,0,0,0,0"
    assert step(SPREAD, "behind") == "behind,0,0,0,0,0"


def test_arrows_know_which_loops_they_leave() -> None:
    assert arrow_of(LOOP, "loop", "work").leaves == ()
    assert arrow_of(LOOP, "work", "again").leaves == ()
    assert [hook.name for hook in arrow_of(LOOP, "work", "after").leaves] == ["loop"]
    left = [hook.name for hook in arrow_of(NESTED, "which", "after").leaves]
    assert left == ["inner", "outer"], "the innermost first"
    assert [hook.name for hook in arrow_of(NESTED, "which", "next_outer").leaves] == ["inner"]
    assert arrow_of(NESTED, "which", "next_inner").leaves == (), "by it the outer loop goes on, too"


def test_a_hook_is_in_its_own_loop() -> None:
    lowered = graph(
        m.HookNode(name="loop", cycle=True),
        m.CycleNode(name="again", to="loop"),
        worker("after"),
        *(("begin", "loop"), ("loop", "again"), ("loop", "after")),
    )
    assert [hook.name for hook in arrow_of(lowered, "loop", "after").leaves] == ["loop"]


def test_a_cycle_activity_decides_the_loops_around_its_own() -> None:
    names = "inner", "outer", "next_inner", "next_outer"
    inner, outer, next_inner, next_outer = (vertex_of(NESTED, name) for name in names)
    assert next_inner.decides == (inner, outer)
    assert next_outer.decides == (outer,)
    assert (inner.cycles, outer.cycles) == (1, 2)
    assert (inner.exits, outer.exits) == (2, 1)
    assert inner.again == ((outer, 2, 1),), "each turn of the inner one brings both, and the exit"
    assert outer.again == ()


def test_an_item_of_a_spread_leaves_no_loop() -> None:
    lowered = graph(
        m.HookNode(name="loop", cycle=True),
        m.SpreadNode(name="each", items="xs", item="x"),
        m.RaiseNode(name="no", error="ValueError"),
        m.AggregateNode(name="all", of="each", collect="x", into="got"),
        m.CycleNode(name="again", to="loop"),
        ("begin", "loop"),
        ("loop", "each"),
        ("each", "no"),
        ("each", "all"),
        ("all", "again"),
    )
    assert arrow_of(lowered, "each", "no").leaves == ()
    assert vertex_of(lowered, "loop").exits == 0


def joining(*ways: m.AnyNode) -> Lowered:
    """Nodes side by side between the trigger and a join."""
    edges = [edge for way in ways for edge in (("begin", way.name), (way.name, "join"))]
    return graph(*ways, worker("join", input={"v": "v"}), *edges)


def test_variables_of_a_join_are_those_set_since_the_paths_parted() -> None:
    lowered = joining(
        m.AssignNode(name="one", set={"v": "1"}), m.AssignNode(name="two", set={"w": "2"})
    )
    assert arrow_of(lowered, "one", "join").variables == {"v"}
    assert arrow_of(lowered, "two", "join").variables == {"w"}
    assert arrow_of(lowered, "begin", "one").keeps is None


def test_a_scope_is_kept_where_paths_part_that_may_set_the_same_variable() -> None:
    lowered = joining(
        m.AssignNode(name="one", set={"v": "1"}), worker("two", output={"v": "result"})
    )
    assert arrow_of(lowered, "begin", "one").keeps == "@begin"
    assert arrow_of(lowered, "two", "join").since == "@begin"


def test_variables_set_by_items_are_not_joined_behind_the_aggregate() -> None:
    lowered = graph(
        m.SpreadNode(name="each", items="xs", item="x"),
        m.AssignNode(name="inside", set={"v": "x"}),
        m.AggregateNode(name="all", of="each", collect="v", into="got"),
        worker("join"),
        *(("begin", "each"), ("each", "inside"), ("inside", "all"), ("all", "join")),
        ("begin", "join"),
    )
    assert arrow_of(lowered, "all", "join").variables == {"got"}


def test_needs_are_the_variables_that_are_read_here_or_behind() -> None:
    lowered = graph(
        worker("a", input={"p": "first"}),
        worker("b", input={"p": "second"}),
        m.RaiseNode(name="no", again="caught"),
        ("begin", "a"),
        m.Edge("a", "b", when="third > 1"),
        m.Edge("b", "no", on="error", bind="caught"),
    )
    for name, needs in (("b", {"second", "caught"}), ("a", {"first", "second", "third", "caught"})):
        assert vertex_of(lowered, name).needs == needs


@pytest.mark.parametrize(
    ("node", "primitive"),
    [
        (worker("it"), Primitive.RESPOND_LATER),
        (m.AwaitNode(name="it", program="p"), Primitive.RESPOND_LATER),
        (m.HookNode(name="it"), Primitive.PASS_THROUGH),
        (m.HookNode(name="it", sleep="1"), Primitive.RESPOND_LATER),
        (m.HookNode(name="it", topic="t"), Primitive.RESPOND_LATER),
        (m.SignalNode(name="it", topic="t", key="k"), Primitive.SEND),
        (m.InterruptNode(name="it"), Primitive.END),
        (m.InterruptNode(name="it", target="other"), Primitive.SEND),
        (m.BranchNode(name="it"), None),
        (m.OutputNode(name="it", value="1"), None),
    ],
)
def test_kinds_become_primitives(node: m.AnyNode, primitive: Primitive | None) -> None:
    vertex = vertex_of(graph(node, ("begin", "it")), "it")
    assert vertex.primitive is primitive
    assert (vertex.inline is None) == (primitive is not None)


def test_a_barrier_knows_its_spread_and_the_spread_its_barrier() -> None:
    spread, barrier = vertex_of(SPREAD, "each"), vertex_of(SPREAD, "all")
    assert spread.inline is Inline.SPREAD
    assert barrier.primitive is Primitive.BARRIER
    assert (barrier.spread, spread.aggregate) == (spread, barrier)
