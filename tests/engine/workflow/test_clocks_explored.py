"""Order and timeouts hold whatever the clocks of hosts and senders say; the explorer catches what breaks that."""

import pytest

from perdure.testing.workflows import WRONG_CLOCKS, explore_workflow
from tests.engine.catching import Record, catching
from tests.engine.workflow.clock_bugs import BUGS
from tests.engine.workflow.clocks import hearing, speak


async def test_signals_arrive_in_order_and_in_time_despite_clock_skew(
    record_property: Record,
) -> None:
    explored = await explore_workflow(
        hearing, script=speak, queues=["elsewhere"], modes=[WRONG_CLOCKS]
    )
    for fault in (
        "clock of host-1: is an hour ahead",
        "clock of sender 2: is an hour behind",
        "message 2: is sent by its owner",
    ):
        assert fault in explored.faults
    record_property("explored", f"wrong clocks: {explored}")


CAUGHT = "without faults it ends|has lost rows"
"""A run ends otherwise, or the next owner takes a message that is not due for a lost one."""


@pytest.mark.parametrize("name", BUGS)
async def test_explorer_catches(name: str, record_property: Record) -> None:
    with BUGS[name](), catching(f"bug {name}", CAUGHT, record_property):
        await explore_workflow(hearing, script=speak, queues=["elsewhere"], modes=[WRONG_CLOCKS])
