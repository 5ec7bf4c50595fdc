"""Writing a list of bundles: as one group if possible, each bad bundle rejected alone."""

from collections.abc import Awaitable, Callable, Sequence

from perdure.core.errors import BundleRefused, CommitRejected
from perdure.store.bundle import Bundle
from perdure.store.group import Group, break_fences, merge

Apply = Callable[[Group], Awaitable[dict[int, CommitRejected]]]
"""Commits a group and returns nothing, or rolls it back and returns who must leave it, and why."""


class StatementRefused(Exception):
    """The database refused a row of the group, and does not say whose."""


async def write(bundles: Sequence[Bundle], apply: Apply) -> list[CommitRejected | None]:
    """Commit what can be committed. The outcome of each bundle, in order; `None` means durable.

    Bundles keep their order, and a rejected one takes along every later one of its runs.
    """
    try:
        return await _write(bundles, apply)
    except BaseException:
        # The outcome is unknown to the callers: only what a fresh load finds is true.
        for bundle in bundles:
            break_fences(bundle)
        raise


async def _write(bundles: Sequence[Bundle], apply: Apply) -> list[CommitRejected | None]:
    outcomes: list[CommitRejected | None] = [None] * len(bundles)
    waiting = list(range(len(bundles)))
    while waiting:
        group, misfits = merge([bundles[i] for i in waiting])
        rejected = misfits or await _apply(group, apply)
        if rejected is None:
            await _one_by_one(bundles, waiting[: group.size], outcomes, apply)
            waiting = waiting[group.size :]
        elif rejected:
            for position, reason in rejected.items():
                outcomes[waiting[position]] = reason
                break_fences(bundles[waiting[position]])
            waiting = [i for position, i in enumerate(waiting) if position not in rejected]
        else:
            waiting = waiting[group.size :]
    return outcomes


async def _apply(group: Group, apply: Apply) -> dict[int, CommitRejected] | None:
    try:
        return await apply(group)
    except StatementRefused:
        return None


async def _one_by_one(
    bundles: Sequence[Bundle],
    positions: Sequence[int],
    outcomes: list[CommitRejected | None],
    apply: Apply,
) -> None:
    """A statement failed: find the bundle at fault by committing each on its own."""
    for i in positions:
        group, rejected = merge([bundles[i]])
        try:
            rejected = rejected or await apply(group)
        except StatementRefused as error:
            refused = BundleRefused(
                f"the database refused a row ({error})",
                "nothing of this bundle was written; the value at fault is named above",
            )
            refused.__cause__ = error
            rejected = {0: refused}
        if rejected:
            outcomes[i] = rejected[0]
            break_fences(bundles[i])
