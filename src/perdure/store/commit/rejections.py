"""Why a bundle was rejected: the errors, and which bundles of a group get them."""

from collections.abc import Iterable, MutableMapping

from perdure.core.errors import CommitRejected, RunEnded, RunExists, StaleToken, UnknownRun
from perdure.core.ids import RunId, StepId
from perdure.store.commit.graph_index import RunChange, overflow
from perdure.store.commit.group import Group, stale
from perdure.store.rows.records import NewRun


def run_exists(wanted: NewRun, holder: RunId) -> RunExists:
    what = f"key {wanted.key!r} of program {wanted.program!r}"
    if holder == wanted.run_id:
        what = f"run {wanted.run_id!r}"
    return RunExists(
        holder, f"{what} exists already (run {holder!r})", "use that run, or another key"
    )


def stale_token(run_id: RunId, step: StepId) -> StaleToken:
    return StaleToken(
        f"work {step!r} of run {run_id!r} is no longer claimed under this token",
        "drop the result: the lease ended and another host claimed the task, or the task is done",
    )


def unfit_heads(
    group: Group, found: Iterable[tuple[str, int, bytes, int]]
) -> dict[int, CommitRejected]:
    """The bundles to reject because of stale runs, given the stored (id, epoch, head, semaphore) of its runs."""
    stored = {run_id: (epoch, head, semaphore) for run_id, epoch, head, semaphore in found}
    rejected: dict[int, CommitRejected] = {}
    for head in group.heads.values():
        row = stored.get(head.run_id)
        reason: CommitRejected
        if row is None:
            reason = _unknown(head.run_id)
        elif row[0] != head.epoch or (
            head.head_before is not None and row[1:] != (head.head_before, head.semaphore_before)
        ):
            reason = stale(head.run_id, head.epoch)
        else:
            continue
        rejected |= dict.fromkeys(group.concerned([head.run_id]), reason)
    return rejected


def late_chunks(group: Group, found: Iterable[tuple[str, int | None]]) -> dict[int, CommitRejected]:
    """The bundles to reject because of chunks, given the id and closing time of each run that they append to."""
    closed = dict(found)
    rejected: dict[int, CommitRejected] = {}
    for position, bundle in enumerate(group.bundles):
        for run_id in {chunk.run_id for chunk in bundle.chunks}:
            if run_id in group.appended:
                continue
            if run_id not in closed:
                rejected[position] = _unknown(run_id)
            elif closed[run_id] is not None:
                rejected[position] = RunEnded(
                    f"run {run_id!r} is over, and its streams have ended with it",
                    "end the task: its run no longer uses its result",
                )
    return rejected


Counts = MutableMapping[tuple[str, str], tuple[int, int]]
"""Counts of predecessors by node (run, step): required, resolved."""


def overflows(
    group: Group, found: Iterable[tuple[str, str, int, int]]
) -> dict[int, CommitRejected]:
    """The bundles to reject because they count too far, given (run, step, required, completed) of the tracked nodes.

    Bundles are counted in their order: for each node, those that exceed its number are rejected.
    """
    counts: Counts = {(run, step): (required, done) for run, step, required, done in found}
    rejected: dict[int, CommitRejected] = {}
    for position, bundle in enumerate(group.bundles):
        for run_id, change in bundle.index.runs.items() if bundle.index else ():
            problem = _overflow(run_id, change, counts)
            if problem is not None:
                rejected[position] = problem
    return rejected


def _overflow(run_id: RunId, run: RunChange, counts: Counts) -> CommitRejected | None:
    """Add a run's change to the counts; the error of the first node that exceeds its number."""
    if run.clears:
        for node in [node for node in counts if node[0] == run_id]:
            del counts[node]
    for step, change in run.steps.items():
        if change.clears:
            counts.pop((run_id, step), None)
        if not change.resolved:
            continue
        required, done = counts.get((run_id, step), (change.required, 0))
        if required != change.required or done + change.resolved > required:
            more = change.required, change.resolved
            return overflow((run_id, step), (required, done), more)
        counts[run_id, step] = required, done + change.resolved
    return None


def _unknown(run_id: RunId) -> UnknownRun:
    return UnknownRun(f"there is no run {run_id!r} in this store", "open the store that holds it")
