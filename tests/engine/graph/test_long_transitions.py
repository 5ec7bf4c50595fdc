"""Transitions with more work or more events than one turn may have: they continue in the next turn."""

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest

from perdure import Engine, GraphBuilder, RunCancelled
from perdure.authoring.graphs.program import GraphProgram
from perdure.core.graph import model as m
from perdure.core.graph.walk import Walk
from perdure.core.journal import events as e
from perdure.engine.graph import machine as machines
from perdure.engine.graph import pending_transition
from perdure.engine.graph.index import index_of
from perdure.testing import assert_sound
from perdure.testing.probe import Probe
from perdure.testing.workflows import explore_workflow
from tests.engine.catching import Record
from tests.engine.graph import flowing
from tests.engine.graph.building import START, Case, add, chain, graph, out
from tests.engine.graph.test_explored import CASES, check
from tests.engine.graph.test_machine import machine_of, started, taken
from tests.engine.workflow.emptied import emptied

inline_items = graph(
    "inline_items",
    [
        START,
        m.SpreadNode(name="each", items="range(4)", item="x"),
        m.AssignNode(name="double", set={"y": "x * 2"}),
        m.BranchNode(name="size"),
        add("w", "y"),
        m.AssignNode(name="small", set={"w": "y"}),
        m.AggregateNode(name="all", of="each", collect="w", into="ws"),
        out("ws"),
    ],
    [
        *chain("t", "each", "double", "size"),
        m.Edge("size", "w", when="y > 3"),
        m.Edge("size", "small"),
        m.Edge("w", "all"),
        m.Edge("small", "all"),
        m.Edge("all", "o"),
    ],
)
LONG_CASES = {
    "inline items": Case(inline_items, "[0,2,5,7]"),
    **{
        name: CASES[name]
        for name in (
            "spread: nested",
            "spread: items skipped",
            "spread: an item fails",
            "cycle: left late, skips held",
            "worker: 202, 202, 200",
            "hook: 202, then 200, by key",
            "trigger with keys and a child",
        )
    },
}


@pytest.fixture
def short_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every arrow is a turn of its own, and every commit short."""
    monkeypatch.setattr(pending_transition, "TURN_WORK", 1)
    monkeypatch.setattr(machines, "LONGEST_TURN", 3)


@pytest.mark.usefixtures("short_turns")
@pytest.mark.parametrize("name", ["inline items", "trigger with keys and a child"])
async def test_crash_between_two_parts_of_a_transition(name: str) -> None:
    case = LONG_CASES[name]
    await explore_workflow(
        case.call, script=case.script, queues=["elsewhere"], modes=["warm"], check=check(case)
    )


@pytest.mark.deep
@pytest.mark.usefixtures("short_turns")
@pytest.mark.parametrize("name", LONG_CASES)
async def test_crash_between_two_parts_of_a_transition_in_every_mode(
    name: str, record_property: Record
) -> None:
    case = LONG_CASES[name]
    explored = await explore_workflow(
        case.call, script=case.script, queues=["elsewhere"], check=check(case)
    )
    record_property("explored", f"long transitions, {name}: {explored}")


@pytest.mark.postgres
@pytest.mark.usefixtures("short_turns")
async def test_crash_between_two_parts_of_a_transition_on_postgres(emptied_postgres: str) -> None:
    case = LONG_CASES["inline items"]
    await explore_workflow(
        case.call, modes=["warm"], open_store=emptied(emptied_postgres), check=check(case)
    )


def busy_graph(name: str, items: str) -> GraphProgram[..., Any]:
    b = GraphBuilder(name)
    b.spread("each", items, item="i")
    b.assign("work", {"v": "i + 1"})
    b.aggregate("all", of="each", collect="v", into="vs")
    b.output("done", "len(vs)")
    b.chain("each", "work", "all", "done")
    return GraphProgram[..., Any](b.build())


long_walk = busy_graph("long_walk", "range(20_000)")


async def test_event_loop_runs_between_two_parts_of_a_transition(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ticks = 0
    parts: Counter[int] = Counter()
    advance = Walk.advance

    def watched(self: Walk, limit: int | None = None) -> int:
        parts[ticks] += 1
        spent = advance(self, limit)
        assert spent < 2 * pending_transition.TURN_WORK
        return spent

    monkeypatch.setattr(Walk, "advance", watched)
    async with Engine(f"sqlite:///{tmp_path / 'runs.db'}") as engine:
        run = await engine.start(long_walk())
        waiting = asyncio.create_task(run.result(timeout=120))
        while not waiting.done():
            await asyncio.sleep(0)
            ticks += 1
        assert await waiting == 20_000
        assert len(parts) > 5
        assert max(parts.values()) <= 3
        await assert_sound(Probe(engine).store)


async def test_run_can_be_cancelled_while_it_computes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pending_transition, "TURN_WORK", 1)
    async with Engine(f"sqlite:///{tmp_path / 'runs.db'}") as engine:
        run = await engine.start(long_walk())
        await run.cancel("it takes too long")
        with pytest.raises(RunCancelled, match="takes too long"):
            await run.result(timeout=60)
        events = [entry.event async for entry in run.events()]
        assert [type(event) for event in events] == [
            e.ExecutionStarted,
            e.CancelRequested,
            e.ExecutionCancelled,
        ]
        replayed = machine_of(long_walk, events)
        replayed.replay()
        assert not replayed.take_changes()
        await assert_sound(Probe(engine).store)


async def test_another_host_completes_a_long_transition_after_a_crash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"sqlite:///{tmp_path / 'runs.db'}"
    with monkeypatch.context() as patch:
        patch.setattr(pending_transition, "TURN_WORK", 1)
        async with Engine(url) as engine:
            run = await engine.start(long_walk())
            run_id = run.run_id
            await Probe(engine).abort()
    async with Engine(url) as engine:
        assert await engine.handle(run_id).result(timeout=120) == 20_000
        await assert_sound(Probe(engine).store)


def test_fact_between_two_parts_of_a_turn_is_replayed_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(machines, "LONGEST_TURN", 4)
    first = machine_of(flowing.spreads, [])
    given = b'{"xs":[3,1,2,5]}'
    first.feed(msgspec.structs.replace(started(flowing.spreads), payload=given))
    journal = taken(first)
    is_cut_short = first.has_more
    assert is_cut_short
    begun = first.unstarted.pop()
    first.feed(e.InvokeStarted(begun.step, 1))
    first.feed(e.InvokeCompleted(begun.step, 1, True, payload=b"7"))
    journal += taken(first)
    while first.has_more:
        first.continue_turn()
        journal += taken(first)
    second = machine_of(flowing.spreads, journal)
    second.replay()
    assert not second.take_changes()
    assert index_of(second) == index_of(first)
    assert second.steps.keys() == first.steps.keys()
