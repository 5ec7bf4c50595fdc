"""Why a bundle was rejected, in words."""

from collections.abc import Iterable, MutableMapping

from perdure.core.errors import CommitRejected, RunEnded, RunExists, StaleToken, UnknownRun
from perdure.core.ids import RunId, StepId
from perdure.store.graph_index import RunChange, overflow
from perdure.store.group import Group, stale
from perdure.store.records import NewRun


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
        "its lease ended and another host has it, or it is done: drop the result",
    )


def unfit_heads(
    group: Group, found: Iterable[tuple[str, int, bytes, int]]
) -> dict[int, CommitRejected]:
    """Who must leave a group, given the (id, epoch, head, semaphore) that its runs really have."""
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
    """Who must leave a group, given the id of each run that has chunks in it, and when that was over."""
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
                    "let the task end: nobody waits for what it does",
                )
    return rejected


Counts = MutableMapping[tuple[str, str], tuple[int, int]]
"""Of each node (run, step), how many predecessors it requires, and how many are resolved."""


def overflows(
    group: Group, found: Iterable[tuple[str, str, int, int]]
) -> dict[int, CommitRejected]:
    """Who must leave a group, given (run, step, required, completed) of the nodes that it tracks: of each node those
    that count beyond its number, in the order of the bundles."""
    counts: Counts = {(run, step): (required, done) for run, step, required, done in found}
    rejected: dict[int, CommitRejected] = {}
    for position, bundle in enumerate(group.bundles):
        for run_id, change in bundle.index.runs.items() if bundle.index else ():
            problem = _overflow(run_id, change, counts)
            if problem is not None:
                rejected[position] = problem
    return rejected


def _overflow(run_id: RunId, run: RunChange, counts: Counts) -> CommitRejected | None:
    """Count what the run's nodes have resolved; stop at the first that has too many."""
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
