"""One pass of the policies over the runs that are over."""

import logging
from collections.abc import AsyncIterator, Sequence

import msgspec

from perdure.core.errors import PerdureError, StoreError
from perdure.core.ids import RunId
from perdure.core.runs.listing import FIRST_ID
from perdure.host.retention.acts import MOST_RUNS, By, archive_runs, erase_runs, purge_runs
from perdure.host.retention.places import Places
from perdure.host.retention.policy import Retention
from perdure.store.retention_table import EndPosition, Retainable

log = logging.getLogger("perdure.host")

LOOKED_AT = 2000
"""Runs that one read looks at."""

SWEPT = 1000
"""Messages that one commit deletes."""


class Retained(msgspec.Struct, frozen=True):
    """What a pass of a policy did: how many runs were due, and how many of them are archived, erased or purged now.

    The others stay until their relatives are over, or until the run that they got their data from is erased.
    """

    policy: Retention
    due: int
    done: int


async def apply_policy(places: Places, policy: Retention, *, dry_run: bool = False) -> Retained:
    """Archive, erase or purge the runs that are due; with `dry_run`, count them alone."""
    due = done = 0
    async for batch in _due(places, policy):
        due += len(batch)
        if not dry_run:
            done += await _act(places, policy, batch)
    return Retained(policy, due, done)


async def sweep_messages(places: Places, keep_ms: int) -> int:
    """Delete messages that are not delivered any more, and arrived that long ago. Returns how many."""
    before_ms, count = places.sources.now_ms() - keep_ms, 0
    while True:
        swept = await places.store.retention.sweep_messages(before_ms, SWEPT)
        count += swept
        if swept < SWEPT:
            return count


async def _act(places: Places, policy: Retention, batch: Sequence[RunId]) -> int:
    if policy.then == "archive":
        return len(await archive_runs(places, batch))
    if policy.then == "purge":
        return len(await purge_runs(places, batch))
    done = 0
    for run_id in batch:
        try:
            await erase_runs(places, run_id, By(reason="retention"))
        except StoreError:
            raise
        except PerdureError as error:  # such as an open relative: a later pass erases the run
            log.info("retention does not erase run %s: %s", run_id, error)
            continue
        done += 1
    return done


async def _due(places: Places, policy: Retention) -> AsyncIterator[list[RunId]]:
    """The runs that are due, in batches."""
    until_ms = places.sources.now_ms() - policy.after_ms
    for wanted in policy.selections:
        last = EndPosition(until_ms, RunId(FIRST_ID))
        if policy.keep is not None:
            beyond = await places.store.retention.beyond(wanted, policy.keep)
            # Archived runs are older than those in the store: of them, none are kept for their number.
            last = last if beyond is None else min(last, beyond)
            if beyond is None and policy.keep:
                continue
        async for batch in _stored(places, wanted, last, skips_erased=policy.then == "erase"):
            yield batch
        if policy.then != "archive":
            async for batch in _archived(places, wanted, last, policy):
                yield batch


async def _stored(
    places: Places, wanted: Retainable, last: EndPosition, *, skips_erased: bool
) -> AsyncIterator[list[RunId]]:
    after: EndPosition | None = None
    while True:
        found, after = await places.store.retention.ended(
            wanted, after, last.closed_at_ms, LOOKED_AT
        )
        due = [each.run_id for each in found if each <= last]
        for first in range(0, len(due), MOST_RUNS):
            batch = due[first : first + MOST_RUNS]
            if skips_erased:
                kept = await places.store.retention.get(batch)
                batch = [each for each in batch if each not in kept or kept[each].receipt is None]
            if batch:
                yield batch
        if after is None:
            return


async def _archived(
    places: Places, wanted: Retainable, last: EndPosition, policy: Retention
) -> AsyncIterator[list[RunId]]:
    after: EndPosition | None = None
    table = places.store.retention
    while found := await table.archived(wanted, after, last.closed_at_ms, MOST_RUNS):
        after = EndPosition(found[-1].closed_at_ms, found[-1].run_id)
        batch = [
            run.run_id
            for run in found
            if EndPosition(run.closed_at_ms, run.run_id) <= last
            and (policy.then == "purge" or run.receipt is None)
        ]
        if batch:
            yield batch
