"""A graph run whose program can't be replayed: when it is cancelled, it leaves no rows."""

import asyncio
from pathlib import Path

from perdure import Engine, RunStatus
from perdure.core.codec import JsonCodec
from perdure.core.ids import RunId
from perdure.core.messages import Message
from perdure.core.replay.identity import cancel_guid
from perdure.engine.programs.parked import ParkedRun
from perdure.store.store import Store
from perdure.testing import assert_sound
from perdure.testing.explorer import VirtualSources
from perdure.testing.probe import Probe
from tests.engine.graph.flowing import joins_late


async def cancel_as_parked(store: Store, run_id: RunId) -> None:
    """Cancel the run without its program, while a join of it waits."""
    run = await store.run(run_id)
    assert run is not None
    assert await store.readiness(run.run_id)
    parked = ParkedRun(run, await store.entries(run.run_id, 0, run.seq))
    sources = VirtualSources()
    message = Message(run.run_id, cancel_guid(run.run_id), "cancel", 0, 0, payload=b"enough")
    await store.commit(parked.cancel(message, [], JsonCodec(), sources))
    assert not await store.readiness(run.run_id)
    assert not await store.inbox(run.run_id)


async def test_cancelled_without_its_program(tmp_path: Path) -> None:
    async with Engine(f"sqlite:///{tmp_path / 'runs.db'}") as engine:
        run = await engine.start(joins_late(x=1))
        store = Probe(engine).store
        while not await store.inbox(run.run_id):  # noqa: ASYNC110 - nothing notifies of it
            await asyncio.sleep(0.01)
        await cancel_as_parked(store, run.run_id)
        assert await run.status() is RunStatus.CANCELLED
        await assert_sound(store)
