"""Reading the row of a run, with an error for each reason why the run can't be used."""

from perdure.core.errors import CorruptJournal, RunDiverged, UnknownName, UnknownRun
from perdure.core.ids import RunId
from perdure.core.journal.state import TERMINAL
from perdure.engine.runs.warm import WarmRun
from perdure.host.host import Host
from perdure.store.rows.records import Run
from perdure.store.store import Store


async def require_run(store: Store, run_id: RunId) -> Run:
    """The row of the run. Raises `UnknownRun` if there is none."""
    run = await store.run(run_id)
    if run is None:
        raise await unknown_run(store, run_id)
    return run


async def unknown_run(store: Store, run_id: RunId) -> UnknownRun:
    """The error for a run that is not in the store: it may be in the archive, or purged."""
    kept = (await store.retention.get([run_id])).get(run_id)
    if kept is None:
        return UnknownRun(f"there is no run {run_id!r}", "check the id and the store")
    if kept.archive is not None:
        return UnknownRun(
            f"run {run_id!r} is in the archive, not in the store",
            f"read its object {kept.archive!r}; `perdure replay` reads it too",
        )
    return UnknownRun(f"run {run_id!r} was purged", "only the head of its journal is left")


def advancing(host: Host, run_id: RunId) -> WarmRun | None:
    """The run, if it is in this host's memory and about to continue.

    When its status changes next, its row gets the right one, whatever it holds until then.
    """
    run = host.dispatcher.cache.get(run_id)
    return run if run is not None and (run.is_pinned or host.is_about_to_continue(run)) else None


def require_consistent(run: Run) -> None:
    """Raise `CorruptJournal` if the row has a time of closing and an open status: no host would advance the run."""
    if run.closed_at_ms is not None and run.status not in TERMINAL:
        raise CorruptJournal(
            f"run {run.run_id!r} is {run.status}, but its row says that it was closed at {run.closed_at_ms}",
            "run `audit` to find what was changed, and restore the row from a backup",
        )


async def require_unparked(store: Store, run: Run) -> None:
    """Raise `RunDiverged` if the run is parked and does not resume by itself.

    It may resume if another process, or this one after a restart, has the name that was unknown to the last host; or
    if a cancel is pending, the one message that a parked run takes.
    """
    if run.parked is None or run.is_over or run.parked.startswith(UnknownName.code):
        return
    messages = await store.messages(run.run_id)
    if not any(each.kind == "cancel" for each, state, _ in messages if state == "pending"):
        raise RunDiverged(
            f"run {run.run_id!r} is parked: {run.parked}",
            "fix the cause above; the run then resumes",
        )
