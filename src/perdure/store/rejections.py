"""Why a bundle was rejected, in words."""

from collections.abc import Iterable

from perdure.core.errors import CommitRejected, RunEnded, RunExists, StaleToken, UnknownRun
from perdure.core.ids import RunId, StepId
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


def _unknown(run_id: RunId) -> UnknownRun:
    return UnknownRun(f"there is no run {run_id!r} in this store", "open the store that holds it")
