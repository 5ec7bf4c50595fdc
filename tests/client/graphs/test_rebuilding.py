"""The journal alone rebuilds a graph run: lost rows are written again, and wrong rows are detected."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from perdure import Engine, GraphProgram, Handle, ProgramCall, Signal, task
from perdure.core.codec import JsonCodec
from perdure.core.graph import model as m
from perdure.core.ids import RunId
from perdure.engine.graph.index import index_of
from perdure.engine.graph.machine import GraphMachine
from perdure.engine.known_programs import KnownPrograms
from perdure.engine.programs.rebuilding import program_for, rebuild
from perdure.store.commit.fence import Fence
from perdure.store.rows.records import ReadinessRow
from perdure.store.store import Store
from perdure.testing.checkers import assert_sound
from perdure.testing.explorer import VirtualSources
from perdure.testing.probe import Probe

pytestmark = pytest.mark.asyncio

GO = Signal("go", int)


@task
async def rebuilt_double(of: int) -> int:
    return 2 * of


def _graph(name: str, nodes: list[Any], edges: list[Any], **fields: Any) -> GraphProgram[..., Any]:
    made = tuple(edge if isinstance(edge, m.Edge) else m.Edge(*edge) for edge in edges)
    trigger, output = m.TriggerNode(name="t"), m.OutputNode(name="o", value="got")
    return GraphProgram(m.Graph(name, (trigger, *nodes, output), made, input=fields))


joins = _graph(
    "rebuilt.joins",
    [
        m.AssignNode(name="plain", set={"p": "x + 1"}),
        m.WorkerNode(name="w", task="rebuilt_double", input={"of": "p"}),
        m.HookNode(name="h", topic="go"),
        m.AssignNode(name="both", set={"got": "[p, w, h]"}),
    ],
    [("t", "plain"), ("plain", "w"), ("plain", "h"), ("w", "both"), ("h", "both"), ("both", "o")],
    x=m.FieldType("int"),
)
spreads = _graph(
    "rebuilt.spreads",
    [
        m.SpreadNode(name="s", items="xs", item="i"),
        m.BranchNode(name="way"),
        m.WorkerNode(name="w", task="rebuilt_double", input={"of": "i"}, output={"v": "result"}),
        m.HookNode(name="h", topic="go", output={"v": "result"}),
        m.AggregateNode(name="g", of="s", collect="v", into="got"),
    ],
    [
        ("t", "s"),
        ("s", "way"),
        m.Edge("way", "h", when="i == 1"),
        ("way", "w"),
        ("w", "g"),
        ("h", "g"),
        ("g", "o"),
    ],
    xs=m.FieldType("list"),
)

CASES = {
    "join": (lambda: joins(x=1), [2, 4, 7]),
    "spread": (lambda: spreads(xs=[0, 1, 2]), [0, 7, 4]),
}
Case = tuple[Callable[[], ProgramCall[Any]], list[int]]


async def _waiting(engine: Engine, case: Case) -> Handle[Any]:
    """A run whose join waits only for a signal."""
    handle = await engine.start(case[0]())
    store = Probe(engine).store

    rows: list[ReadinessRow] = []
    while [row.required - row.completed for row in rows] != [1]:
        await asyncio.sleep(0.001)
        rows = await store.readiness(handle.run_id)
    return handle


async def _drop_rows(store: Store, run_id: RunId) -> None:
    run = await store.run(run_id)
    assert run is not None
    await store.rebuild_index(Fence(run.run_id, run.epoch), [], [])
    assert not await store.readiness(run.run_id)
    assert not await store.inbox(run.run_id)


@pytest.mark.parametrize("name", CASES)
async def test_lost_rows_are_rebuilt_from_the_journal_and_the_run_resumes(
    name: str, shared_url: str
) -> None:
    case = CASES[name]
    async with Engine(shared_url) as engine:
        handle = await _waiting(engine, case)
        store = Probe(engine).store
        before = await store.readiness(handle.run_id), await store.inbox(handle.run_id)
        assert before[1]
        await _drop_rows(store, handle.run_id)
        run = await store.run(handle.run_id)
        assert run is not None
        entries = await store.entries(run.run_id, 0, run.seq)
        programs = KnownPrograms()
        program = program_for(run, programs)
        warm = rebuild(run, entries, program, JsonCodec(), VirtualSources(), programs)
        assert isinstance(warm.machine, GraphMachine)
        index = index_of(warm.machine)
        await store.rebuild_index(warm.fence, index.readiness, index.inbox)
        assert (await store.readiness(run.run_id), await store.inbox(run.run_id)) == before
    async with Engine(shared_url) as engine:
        again = engine.handle(handle.run_id)
        await again.signal(GO, 7)
        assert await again.result(timeout=60) == case[1]
        await assert_sound(Probe(engine).store)


@pytest.mark.parametrize("name", CASES)
async def test_lost_rows_are_found_and_the_run_does_not_need_them(
    name: str, shared_url: str
) -> None:
    case = CASES[name]
    async with Engine(shared_url) as engine:
        handle = await _waiting(engine, case)
        await _drop_rows(Probe(engine).store, handle.run_id)
        with pytest.raises(AssertionError, match="has the rows"):
            await assert_sound(Probe(engine).store)
    async with Engine(shared_url) as engine:
        again = engine.handle(handle.run_id)
        await again.signal(GO, 7)
        assert await again.result(timeout=60) == case[1]
        await assert_sound(Probe(engine).store)
