"""Which deaths of a host the explorer tries."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

import perdure
from perdure import task, workflow
from perdure.store.store import Store
from perdure.testing import explore_workflow
from perdure.testing.crashing_store import CrashingStore
from perdure.testing.explorer import Exploration, memory_store
from perdure.testing.simulation import Simulation
from tests.engine.graph import working


@task(name="dying.doubled")
async def doubled(x: int) -> int:
    return 2 * x


@workflow(name="dying.gathers")
async def gathers() -> int:
    first, second = await perdure.gather(doubled(1), doubled(2))
    return first + second


async def rows_of(store: Store) -> str:
    """All that the store holds of runs."""
    rows: list[Any] = []
    async for books in store.books():
        run_id = books.run_id
        rows += [await store.run(run_id), books, await store.messages(run_id)]
        rows += [await store.readiness(run_id), await store.inbox(run_id)]
    return repr(rows)


async def deaths(call: Any, monkeypatch: pytest.MonkeyPatch) -> tuple[Exploration, set[str]]:
    """Explore the program step by step. Also returns what the store held whenever a host died."""
    found: set[str] = set()
    stores: list[Store] = []
    die = CrashingStore.die

    @asynccontextmanager
    async def noted_store() -> AsyncIterator[Store]:
        async with memory_store() as store:
            stores.append(store)
            yield store

    async def note_and_die(self: CrashingStore) -> None:
        found.add(await rows_of(stores[-1]))
        await die(self)

    with monkeypatch.context() as patched:
        patched.setattr(CrashingStore, "die", note_and_die)
        explored = await explore_workflow(call, modes=["stepwise"], open_store=noted_store)
    return explored, found


@pytest.mark.parametrize(
    "call", [gathers, working.CASES["worker with maps"].call], ids=["workflow", "graph"]
)
async def test_a_death_is_left_out_only_if_another_one_leaves_the_same_rows(
    call: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    explored, left = await deaths(call, monkeypatch)
    with monkeypatch.context() as patched:
        patched.setattr(Simulation, "moment", lambda _: None)
        fully_explored, fully_left = await deaths(call, monkeypatch)
    assert left == fully_left
    assert len(left) > 5
    assert explored.schedules < fully_explored.schedules
    assert "commit 2: crash before" in fully_explored.faults


begun: list[str] = []


@task(name="dying.notes")
async def notes() -> None:
    begun.append("once")


@workflow(name="dying.begins")
async def begins() -> None:
    await notes()


async def test_a_death_after_a_task_and_before_its_result_is_durable_is_tried() -> None:
    explored = await explore_workflow(begins, modes=["warm"])
    assert {"commit 1: crash after", "commit 2: crash before"} <= explored.faults
