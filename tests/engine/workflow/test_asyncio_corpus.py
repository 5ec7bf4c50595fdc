"""Ordinary asyncio programs end as on asyncio's own loop, whatever fails in between."""

import asyncio
import selectors
from typing import Any

import msgspec
import pytest

from perdure import task, workflow
from perdure.testing.workflows import Ended, explore_workflow
from tests.engine.catching import Record
from tests.engine.workflow.asyncio_corpus import CORPUS
from tests.engine.workflow.emptied import emptied

CHEAP = [
    "as_completed_in_the_order_of_ends",
    "condition_notifies_in_order",
    "task_group_cancels_the_others_after_a_failure",
    "timeout_too_late",
    "wait_for_a_shielded_task",
    "wait_for_the_first_completed",
]
"""Programs that the ordinary tests explore too."""


class _Sleepless(selectors.SelectSelector):
    """Does not wait for the next timer, but moves the clock to it."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def select(self, timeout: float | None = None) -> list[Any]:
        self.now += timeout or 0
        return super().select(0)


def on_asyncios_loop(name: str) -> Any:
    """What the program returns on asyncio's own loop, as JSON."""
    selector = _Sleepless()
    loop = asyncio.SelectorEventLoop(selector)
    loop.time = lambda: selector.now  # type: ignore[method-assign]

    async def nap(n: int) -> int:
        return await asyncio.sleep(n, n)

    async def main() -> Any:
        return await CORPUS[name](nap)

    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        result = runner.run(main())
    # Read when the runner has cancelled the remaining tasks: these may change it.
    return msgspec.json.decode(msgspec.json.encode(result))


@task
async def same_nap(n: int) -> int:
    return n


async def nap_in_a_workflow(n: int) -> int:
    await asyncio.sleep(n)
    return await same_nap(n)


@workflow
async def ordinary_asyncio(name: str) -> Any:
    return await CORPUS[name](nap_in_a_workflow)


async def explored(name: str, record_property: Record, **options: Any) -> None:
    expected = await asyncio.to_thread(on_asyncios_loop, name)

    def ends_as_on_asyncios_loop(ended: Ended) -> None:
        assert (ended.status, ended.value) == ("completed", expected)

    found = await explore_workflow(
        lambda: ordinary_asyncio(name), check=ends_as_on_asyncios_loop, **options
    )
    record_property("explored", f"asyncio {name}: {found}")


@pytest.mark.parametrize("name", CORPUS)
async def test_program_ends_as_on_asyncios_loop(name: str, record_property: Record) -> None:
    """Warm, evicted at every wait, and with parts that commit apart."""
    await explored(name, record_property, max_faults=0)


@pytest.mark.parametrize("name", CHEAP)
async def test_program_survives_any_one_fault(name: str, record_property: Record) -> None:
    await explored(name, record_property, modes=["warm", "always replayed"])


@pytest.mark.deep
@pytest.mark.parametrize("name", CORPUS)
async def test_every_program_survives_any_one_fault(name: str, record_property: Record) -> None:
    await explored(name, record_property)


@pytest.mark.postgres
@pytest.mark.parametrize("name", ["timeout_around_a_gather"])
async def test_program_survives_any_one_fault_on_postgres(
    name: str, fresh_postgres: str, record_property: Record
) -> None:
    await explored(name, record_property, modes=["warm"], open_store=emptied(fresh_postgres))
