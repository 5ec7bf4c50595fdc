"""A run that fails leaves nothing behind: no work on a queue, no timer, no child, no hook, no body."""

import asyncio
from pathlib import Path

import pytest

from perdure import Engine
from perdure.core.ids import StepId
from perdure.core.journal.state import Status
from perdure.core.replay.identity import child_run_id
from perdure.testing import assert_sound
from perdure.testing.probe import Probe
from tests.client.engines import until_store
from tests.engine.graph import building
from tests.engine.graph.flowing import in_flight


async def test_failure_cancels_what_is_in_flight(tmp_path: Path) -> None:
    building.ENDED.clear()
    async with Engine(f"sqlite:///{tmp_path / 'runs.db'}") as engine:
        run = await engine.start(in_flight())
        with pytest.raises(ValueError, match="no 2"):
            await run.result(timeout=60)
        store = Probe(engine).store
        kid = child_run_id(run.run_id, StepId("kid,0,0"))
        while (child := await store.run(kid)) is not None and child.closed_at_ms is None:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        assert child is not None
        assert child.status is Status.CANCELLED
        assert await store.next_work(["nowhere"]) is None

        async def is_delivered() -> bool:
            """The child's last word to the run, which is over, is out of delivery."""
            left = [(m.kind, state) for m, state, _ in await store.messages(run.run_id)]
            return not [kind for kind, state in left if state == "pending" or kind == "timer"]

        await until_store(is_delivered)
        assert not await store.hooks_waiting(run.run_id)
        assert not await store.readiness(run.run_id)
        assert not await store.inbox(run.run_id)
        assert building.ENDED == ["endless"]
        await assert_sound(store)
