"""Reads a run that a command names."""

from perdure.client.runs.rows import require_run
from perdure.core.ids import RunId, parse_run_id
from perdure.core.journal.entry import Entry
from perdure.store.rows.records import Run
from perdure.store.store import Store


async def read_run(store: Store, name: str) -> tuple[Run, list[Entry]]:
    """The row and the journal of a run. Raises `UnknownRun` if there is none."""
    run_id = parse_run_id(name)
    await require_run(store, run_id)
    ((run, entries),) = await store.load([run_id])
    return run, entries


async def find_run(store: Store, name: str) -> RunId:
    """The id of an existing run."""
    return (await require_run(store, parse_run_id(name))).run_id
