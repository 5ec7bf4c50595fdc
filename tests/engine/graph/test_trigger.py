"""What a trigger publishes: values to clients, search keys to all senders of signals."""

from pathlib import Path

from perdure import Engine
from perdure.core.journal.state import Status
from perdure.testing import assert_sound
from perdure.testing.probe import Probe
from tests.engine.graph.working import keyed, keyed_with_child


async def test_trigger_publishes_and_is_found_by_its_keys(tmp_path: Path) -> None:
    async with Engine(f"sqlite:///{tmp_path / 'runs.db'}") as engine:
        store = Probe(engine).store
        for call in (keyed(c="red"), keyed_with_child(c="blue")):
            run = await engine.start(call)
            color = call.arguments["c"]
            assert (await run.result(timeout=60))["c"] == color
            published = await store.published(run.run_id)
            assert published["emitted"] == f'["{color}"]'.encode()
            assert published["job"].startswith(f'{{"c":"{color}"'.encode())
            name = call.definition.name
            assert await store.statistics(name, "color") == [(color, Status.COMPLETED, 1)]
        await assert_sound(store)
