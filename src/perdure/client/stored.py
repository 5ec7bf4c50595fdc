"""A run as its row in the store says."""

from perdure.core.errors import RunDiverged, UnknownName, UnknownRun
from perdure.core.ids import RunId
from perdure.core.journal.state import TERMINAL
from perdure.store.records import Run
from perdure.store.store import Store


async def stored_run(store: Store, run_id: RunId) -> Run:
    """The row; a clear error if there is none."""
    run = await store.run(run_id)
    if run is None:
        raise UnknownRun(f"there is no run {run_id!r}", "check the id and the store")
    return run


async def require_unparked(store: Store, run: Run) -> None:
    """A clear error if nothing comes of the run until somebody mends it. A cancel is all that it takes.

    What is unknown where the run was last may be known to another process, now or after a restart.
    """
    if run.parked is None or run.status in TERMINAL or run.parked.startswith(UnknownName.code):
        return
    messages = await store.messages(run.run_id)
    if not any(each.kind == "cancel" for each, state, _ in messages if state == "pending"):
        raise RunDiverged(
            f"run {run.run_id!r} is parked: {run.parked}", "it goes on when that is mended"
        )
