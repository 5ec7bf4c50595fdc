"""A run as its row in the store says."""

from perdure.core.errors import UnknownRun
from perdure.core.ids import RunId
from perdure.store.records import Run
from perdure.store.store import Store


async def stored_run(store: Store, run_id: RunId) -> Run:
    """The row; a clear error if there is none."""
    run = await store.run(run_id)
    if run is None:
        raise UnknownRun(f"there is no run {run_id!r}", "check the id and the store")
    return run
