"""Pins the costs of graphs: commits, rows, statements, memory. Change a number here only deliberately."""

import asyncio
from collections.abc import AsyncIterator
from itertools import pairwise
from typing import Any

import pytest

from perdure import Engine, task
from perdure.authoring.graphs.program import GraphProgram
from perdure.core.graph import model as m
from perdure.engine.graph.machine import GraphMachine
from perdure.engine.runs.effects import RecordedChange
from perdure.host import host as host_module
from perdure.store.sqlite.store import SqliteStore
from tests.client.counting_store import Till, written
from tests.client.engines import assert_sound, until
from tests.store.builders import Meter

pytestmark = pytest.mark.asyncio

STEPS = 10
TURNS = 12
PATIENCE_S = 60

ROWS_PER_STATEMENT = 100
"""The least of a statement that is for many, on SQLite: lists are of up to 512, and shorter towards the end."""


class Desk:
    """A gate: tasks wait while it is closed."""

    def __init__(self) -> None:
        self.arrived = 0
        self.open = asyncio.Event()


desk: Desk


@task
async def tallied(number: int) -> int:
    desk.arrived += 1
    await desk.open.wait()
    return number + 1


def graph(name: str, nodes: list[m.AnyNode], **inputs: m.FieldType) -> GraphProgram[..., Any]:
    """A graph without a fork."""
    edges = [m.Edge(one.name, other.name) for one, other in pairwise(nodes)]
    return GraphProgram(m.Graph(name, tuple(nodes), tuple(edges), input=inputs))


def chained(steps: int) -> GraphProgram[..., Any]:
    workers: list[m.AnyNode] = [
        m.WorkerNode(
            name=f"w{n}", task="tallied", input={"number": "number"}, output={"number": "result"}
        )
        for n in range(steps)
    ]
    begin, end = m.TriggerNode(name="begin"), m.OutputNode(name="end", value="number")
    return graph(f"tally_chain{steps}", [begin, *workers, end], number=m.FieldType("int"))


chain, half_chain = chained(STEPS), chained(STEPS // 2)

spread = graph(
    "tally_spread",
    [
        m.TriggerNode(name="begin"),
        m.SpreadNode(name="each", items="range(items)", item="item"),
        m.WorkerNode(name="tally", task="tallied", input={"number": "item"}),
        m.AggregateNode(name="all", of="each", collect="tally", into="found"),
        m.OutputNode(name="end", value="sum(found)"),
    ],
    items=m.FieldType("int"),
)


cycle: GraphProgram[..., Any] = GraphProgram(
    m.Graph(
        "tally_cycle",
        (
            m.TriggerNode(name="begin"),
            m.AssignNode(name="zero", set={"turn": "0"}),
            m.HookNode(name="again", cycle=True),
            m.BranchNode(name="ask"),
            m.WorkerNode(name="tally", task="tallied", input={"number": "turn"}),
            m.CycleNode(name="back", to="again", input={"turn": "tally"}),
            m.OutputNode(name="end", value="turn"),
        ),
        (
            m.Edge("begin", "zero"),
            m.Edge("zero", "again"),
            m.Edge("again", "ask"),
            m.Edge("ask", "tally", when="turn < turns"),
            m.Edge("ask", "end"),
            m.Edge("tally", "back"),
        ),
        input={"turns": m.FieldType("int")},
    )
)

nested: GraphProgram[..., Any] = GraphProgram(
    m.Graph(
        "tally_nested",
        (
            m.TriggerNode(name="begin"),
            m.AssignNode(name="zero", set={"turn": "0"}),
            m.HookNode(name="outer", cycle=True),
            m.BranchNode(name="ask"),
            m.AssignNode(name="inner_zero", set={"part": "0"}),
            m.HookNode(name="inner", cycle=True),
            m.BranchNode(name="inner_ask"),
            m.WorkerNode(name="tally", task="tallied", input={"number": "part"}),
            m.CycleNode(name="inner_back", to="inner", input={"part": "tally"}),
            m.CycleNode(name="back", to="outer", input={"turn": "turn + 1"}),
            m.OutputNode(name="end", value="turn"),
        ),
        (
            m.Edge("begin", "zero"),
            m.Edge("zero", "outer"),
            m.Edge("outer", "ask"),
            m.Edge("ask", "inner_zero", when="turn < turns"),
            m.Edge("ask", "end"),
            m.Edge("inner_zero", "inner"),
            m.Edge("inner", "inner_ask"),
            m.Edge("inner_ask", "tally", when="part < 2"),
            m.Edge("inner_ask", "back"),
            m.Edge("tally", "inner_back"),
        ),
        input={"turns": m.FieldType("int")},
    )
)


@pytest.fixture
async def engine(engine_url: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Engine]:
    """An engine that does not poll its store while the test counts."""
    global desk  # noqa: PLW0603 - where the task looks for it
    desk = Desk()
    desk.open.set()
    monkeypatch.setattr(host_module, "POLL_MS", 60_000)
    async with Engine(engine_url) as opened:
        yield opened
        await assert_sound(opened)


async def run(engine: Engine, program: GraphProgram[..., Any], **given: int) -> Any:
    started = await engine.start(program(**given))
    return await started.result(timeout=PATIENCE_S)


async def test_a_chain_commits_once_per_activity_and_once_to_begin(engine: Engine) -> None:
    till = Till(engine)
    meter = await Meter.of(till.store)
    assert await run(engine, chain, number=0) == STEPS
    assert len(till.bundles) == STEPS + 1
    assert meter.commits == STEPS + 1


async def test_a_warm_activity_writes_ten_rows_and_nothing_else(engine: Engine) -> None:
    till = Till(engine)
    await run(engine, chain, number=0)
    _, *warm, _ = till.bundles
    # The entry of the answer, the answer, what follows from it; the next attempt, its leg 1, its start.
    assert [written(bundle) for bundle in warm] == [{"event": 6, "ledger": 3, "run": 1}] * len(warm)
    rows = await till.rows()
    # Six for each activity; two at the beginning, one at the end. Two accounts for each: its own and its answer's.
    assert {table: count for table, count in rows.items() if count} == {
        "run": 1,
        "event": 6 * STEPS + 3,
        "ledger": 2 * STEPS + 2,
        "host": 1,
    }


async def test_statements_of_a_warm_activity_are_those_of_a_warm_step(engine: Engine) -> None:
    till = Till(engine)
    await run(engine, chain, number=0)  # so that what a connection asks once is not counted
    counts = []
    for program in (half_chain, chain):
        meter = await Meter.of(till.store)
        await run(engine, program, number=0)
        counts.append(len(meter.statements))
    # SQLite: begin, run, events, accounts, commit. Postgres: all in one.
    each = 5 if isinstance(till.store, SqliteStore) else 1
    assert counts[1] - counts[0] == each * (STEPS - STEPS // 2)


async def test_a_turn_of_a_cycle_is_one_commit(engine: Engine) -> None:
    till = Till(engine)
    meter = await Meter.of(till.store)
    assert await run(engine, cycle, turns=TURNS) == TURNS
    assert len(till.bundles) == meter.commits == TURNS + 1
    _, *warm, _ = till.bundles
    # The answer is three, the cycle two, the hook three, the next worker three. The accounts are the worker's
    # and its answer's, the cycle's and its message's, the hook's, and the next worker's.
    assert [written(bundle) for bundle in warm] == [{"event": 11, "ledger": 6, "run": 1}] * len(
        warm
    )


async def test_a_spread_is_born_in_statements_for_many_rows_each(engine: Engine) -> None:
    till = Till(engine)
    few, many = 10, 1000
    counts = [await statements_of_birth(engine, till, items) for items in (few, many)]
    if isinstance(till.store, SqliteStore):
        # Three events for each item, and one account.
        assert counts[1] - counts[0] <= 4 * (many - few) / ROWS_PER_STATEMENT
    else:
        # The second part of the turn is a commit of its own.
        assert counts[1] <= 2 * counts[0]


async def statements_of_birth(engine: Engine, till: Till, items: int) -> int:
    """From the start of a run until every item has reached its task."""
    desk.open.clear()
    desk.arrived = 0
    meter = await Meter.of(till.store)
    started = await engine.start(spread(items=items))
    await until(lambda: desk.arrived == items)
    count = len(meter.statements)
    desk.open.set()
    await started.result(timeout=PATIENCE_S)
    return count


async def test_no_statement_of_a_spread_is_for_one_row(engine: Engine) -> None:
    items = 1000
    till = Till(engine)
    meter = await Meter.of(till.store)
    assert await run(engine, spread, items=items) == sum(range(items + 1))
    # Each answer is a bundle; they share their commits, and the statements in them.
    assert len(till.bundles) <= items + 4
    assert meter.commits <= 8
    rows = await till.rows()
    assert rows["event"] >= 6 * items
    assert rows["ledger"] >= 2 * items
    assert len(meter.statements) <= 9 * items / ROWS_PER_STATEMENT
    assert rows["readiness"] == rows["inbox"] == 0


async def test_loops_inside_loops_leave_nothing_behind(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = []
    take = GraphMachine.take_changes

    def watched(machine: GraphMachine) -> list[RecordedChange]:
        kept.append(len(machine.state.hooks) + len(machine.state.loops) + len(machine.state.joins))
        return take(machine)

    monkeypatch.setattr(GraphMachine, "take_changes", watched)
    assert await run(engine, nested, turns=TURNS) == TURNS
    assert len(kept) >= 2 * TURNS
    # Both hooks, and a turn of each.
    assert max(kept) <= 4
    assert kept[-1] == 0
