"""The journal alone rebuilds a run: rows that are lost are made again, and rows that are wrong are found."""

import asyncio
from typing import Any

import pytest

from perdure import Handle
from perdure.authoring.graphs.program import GraphProgram
from perdure.core.codec import JsonCodec
from perdure.engine.graph.index import index_of
from perdure.engine.graph.machine import GraphMachine
from perdure.engine.programs import Programs
from perdure.engine.replay.programs import program_of, rebuild
from perdure.store.primitives import Fence
from perdure.testing.checkers import assert_sound
from perdure.testing.explorer import OpenStore, VirtualSources, memory_store
from perdure.testing.interlude import After
from perdure.testing.workflows import explore_workflow
from tests.engine.graph.flowing import joins_late, spreads_partly
from tests.engine.replay.emptied import emptied

CALLS = {"join": lambda: joins_late(x=1), "spread": lambda: spreads_partly(xs=[0, 1, 2, 3])}
RESULTS = {"join": b"5", "spread": b"[0,1,2]"}


async def drop_rows(handle: Handle[Any]) -> None:
    """Nothing is left of what the run waits for."""
    store = handle._hosting.host.store
    run = await store.run(handle.run_id)
    assert run is not None
    assert await store.readiness(run.run_id)
    await store.rebuild_index(Fence(run.run_id, run.epoch), [], [])
    assert not await store.readiness(run.run_id)
    assert not await store.inbox(run.run_id)


async def drop_and_rebuild_rows(handle: Handle[Any]) -> None:
    """The rows are lost, and made again from the journal."""
    store = handle._hosting.host.store
    while not await store.inbox(handle.run_id):  # noqa: ASYNC110 - two workers' commits are under way
        await asyncio.sleep(0.001)
    before = await store.readiness(handle.run_id), await store.inbox(handle.run_id)
    await drop_rows(handle)
    run = await store.run(handle.run_id)
    assert run is not None
    programs = Programs()
    program = program_of(run, programs)
    assert isinstance(program, GraphProgram)
    entries = await store.entries(run.run_id, 0, run.seq)
    warm = rebuild(run, entries, program, JsonCodec(), VirtualSources(), programs)
    assert isinstance(warm.machine, GraphMachine)
    index = index_of(warm.machine)
    await store.rebuild_index(warm.fence, index.readiness, index.inbox)
    assert (await store.readiness(run.run_id), await store.inbox(run.run_id)) == before


async def explore(name: str, script: Any, open_store: OpenStore) -> None:
    """Play the script when a join waits, or is about to: with the third commit, in both graphs."""
    await explore_workflow(
        CALLS[name],
        script=After(3, script),
        max_faults=0,
        modes=["warm"],
        open_store=open_store,
        check=lambda ended: _require(ended.payload, RESULTS[name]),
    )


def _require(payload: bytes | None, result: bytes) -> None:
    assert payload == result


@pytest.mark.parametrize("name", CALLS)
async def test_lost_rows_are_rebuilt_and_the_run_goes_on(name: str) -> None:
    await explore(name, drop_and_rebuild_rows, memory_store)


@pytest.mark.postgres
@pytest.mark.parametrize("name", CALLS)
async def test_lost_rows_are_rebuilt_on_postgres(name: str, fresh_postgres: str) -> None:
    await explore(name, drop_and_rebuild_rows, emptied(fresh_postgres))


async def drop_rows_for_good(handle: Handle[Any]) -> None:
    await drop_rows(handle)
    with pytest.raises(AssertionError, match="has the rows"):
        await assert_sound(handle._hosting.host.store)


async def test_lost_rows_are_found_and_the_run_does_not_need_them() -> None:
    await explore("join", drop_rows_for_good, memory_store)
