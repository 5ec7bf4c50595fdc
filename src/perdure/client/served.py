"""What a server of an engine asks of it beyond its public methods: its host, with its store and codec."""

from contextlib import suppress
from typing import Any

from perdure.client.engine import Engine
from perdure.client.runs.acts import Receipt
from perdure.client.runs.handle import Handle
from perdure.client.runs.lists import RunSummary, summary_of
from perdure.client.runs.status import status_of
from perdure.core.errors import RunDiverged, UnknownRun
from perdure.core.ids import RunId
from perdure.core.runs.acts import Decision, act_guid
from perdure.host.host import Host

status_of_run = status_of
"""The status that users see of a run, from its row."""


def host_of_engine(engine: Engine) -> Host:
    """The open host of an engine. Raises if the caller is not on its event loop."""
    return engine._require_host()


def is_open(engine: Engine) -> bool:
    """Whether `open` has begun and `close` has not."""
    return engine._host is not None


def engine_to_serve(engine: Engine, url: str | None = None, *, executes: bool) -> Engine:
    """A closed engine like this one, on another store if one is named. Without `executes` it only reads and sends."""
    other = engine.replace(queues=None if executes else ())
    other._hosts = executes
    other._url = engine._url if url is None else url
    return other


async def run_summary(engine: Engine, run_id: RunId) -> RunSummary:
    """One run as lists show it."""
    found = await engine._require_host().dispatcher.store.listed_run(run_id)
    if found is None:
        raise UnknownRun(f"there is no run {run_id!r}", "check the id and the store")
    return summary_of(found)


async def decision_on(handle: Handle[Any], signal_id: str) -> Decision | None:
    """The decision on the act of that id, if the run's owner has decided."""
    end = await handle._receiver()
    receipt = Receipt(handle._host, end, act_guid(end.origin, signal_id))
    while True:
        place = receipt._run_id
        found = await receipt._look()
        if found is not None or receipt._run_id == place:
            return found


async def wait_for_end(handle: Handle[Any]) -> None:
    """Wait until the run is over, or parked for good. Needs no program."""
    with suppress(RunDiverged):
        await handle._ending()
