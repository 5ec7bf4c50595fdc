"""Archives, erases and purges runs: each step is one commit, and a repeated act ends what a crash has interrupted.

Order. An archived run is durable in the archive before its rows go. Rows go before artifacts and objects do, with a
note in the same commit that these are still to be deleted: `end_unfinished` finds it.
"""

from collections.abc import Iterator, Sequence

import msgspec

from perdure.core.errors import InputError, NoArtifactStore, UnknownRun
from perdure.core.ids import RunId
from perdure.core.journal.entry import Entry
from perdure.core.journal.events import InvokeCompleted
from perdure.core.large_payloads import MARK
from perdure.core.runs.erasing import (
    Erased,
    RunErasure,
    erase_journal,
    read_erasure,
    receipt_of,
)
from perdure.host.retention.family import EraseOrder, family_of
from perdure.host.retention.places import Places
from perdure.store.retention_table import ErasureOrder, Removal, RetainedRun
from perdure.store.rows.exported import ExportHeader

MOST_RUNS = 100
MOST_ENTRIES = 20_000
"""Runs and entries of one transaction; a single run may have more."""

MOST_TRIES = 10


class By(msgspec.Struct, frozen=True):
    """Who erases, and why: for the receipt."""

    name: str = ""
    reason: str = ""


async def archive_runs(places: Places, run_ids: Sequence[RunId]) -> list[RunId]:
    """Move runs to the archive. Returns those that are there now and were in the store before."""
    places.require_archive()
    done = []
    for batch in _batches(await _lengths(places, run_ids)):
        kept = await places.store.retention.get(batch)
        removals = [
            await _written(
                places, run_id, None if kept.get(run_id) is None else kept[run_id].receipt
            )
            for run_id in batch
        ]
        found = [removal for removal in removals if removal is not None]
        done += await places.store.retention.remove(found, places.sources.now_ms())
    return done


async def purge_runs(places: Places, run_ids: Sequence[RunId]) -> list[RunId]:
    """Remove runs from the store and from the archive. Returns those that were there."""
    retention, now_ms = places.store.retention, places.sources.now_ms()
    done = []
    for batch in _batches(await _lengths(places, run_ids)):
        removed = await retention.remove([Removal(run_id) for run_id in batch], now_ms)
        archived = await retention.purge_archived(
            [run_id for run_id in batch if run_id not in removed], now_ms
        )
        for run_id in (*removed, *archived):
            await places.clear(run_id)
        done += [*removed, *archived]
    return done


async def erase_runs(places: Places, run_id: RunId, by: By) -> list[RunErasure]:
    """Erase the data of a run and of all runs that got it: its chain, children and forks. Returns the receipts.

    A run that was erased before keeps its receipt; what is left of it is deleted.
    """
    for _ in range(MOST_TRIES):
        order = await family_of(places.store.retention, run_id)
        receipts = [await _erased(places, each, order, by) for each in order.run_ids]
        if all(receipts):
            return [each for each in receipts if each is not None]
    raise InputError(
        f"run {run_id!r} gets children or forks while it is erased", "erase it when that has ended"
    )


async def end_unfinished(places: Places) -> int:
    """Delete the objects that an interrupted act has left. Returns of how many runs."""
    count = 0
    while found := await places.store.retention.unfinished(MOST_RUNS):
        for run_id in found:
            await places.clear(run_id)
        count += len(found)
    return count


async def _lengths(places: Places, run_ids: Sequence[RunId]) -> dict[RunId, int]:
    """The numbers of entries of the runs, 0 for those that are not in the store."""
    found: dict[RunId, int] = dict.fromkeys(run_ids, 0)
    ids = list(found)
    for first in range(0, len(ids), MOST_RUNS):
        runs = await places.store.runs(ids[first : first + MOST_RUNS])
        found |= {run.run_id: run.seq for run in runs}
    return found


def _batches(lengths: dict[RunId, int]) -> Iterator[list[RunId]]:
    batch: list[RunId] = []
    entries = 0
    for run_id, length in lengths.items():
        if batch and (len(batch) == MOST_RUNS or entries + length > MOST_ENTRIES):
            yield batch
            batch, entries = [], 0
        batch.append(run_id)
        entries += length
    if batch:
        yield batch


async def _written(places: Places, run_id: RunId, receipt: str | None) -> Removal | None:
    """Write a run to the archive. `None` if it is not in the store, or open."""
    store = places.store
    run = await store.run(run_id)
    if run is None or not run.is_over or run.damage is not None:
        return None
    entries = await store.entries(run_id)
    streams = {
        name: [chunk.payload for chunk in await store.chunks(run_id, name, 0, length)]
        for name, length in (await store.streams(run_id)).items()
    }
    header = ExportHeader(
        run=run,
        balances=await store.balances(run_id),
        published=await store.published(run_id),
        streams=streams,
        receipt=receipt,
    )
    return Removal(run_id, await places.write(header, entries), receipt)


async def _erased(places: Places, run_id: RunId, order: EraseOrder, by: By) -> RunErasure | None:
    """Erase one run. `None` if it has changed its place or its relatives: look again."""
    kept = (await places.store.retention.get([run_id])).get(run_id)
    if kept is None or kept.receipt is None:
        if kept is not None and run_id in order.archived:
            is_erased = await _erase_archived(places, kept, by)
        else:
            is_erased = await _erase_stored(places, run_id, by)
        if not is_erased:
            return None
        kept = (await places.store.retention.get([run_id]))[run_id]
    if kept.is_unfinished:
        await places.clear(run_id)
    return None if kept.receipt is None else read_erasure(kept.receipt)


async def _erase_stored(places: Places, run_id: RunId, by: By) -> bool:
    store = places.store
    run = await store.run(run_id)
    if run is None:
        return False
    entries = await store.entries(run_id)
    _require_artifacts(places, run_id, entries)
    erased = erase_journal(entries)
    receipt = _receipt(places, run_id, erased, by)
    order = ErasureOrder(run_id, run.head, erased.changed, receipt.text)
    return await store.retention.erase(order)


async def _erase_archived(places: Places, kept: RetainedRun, by: By) -> bool:
    run_id = kept.run_id
    if kept.archive is None:
        return False
    header, entries = await places.read(kept)
    _require_artifacts(places, run_id, entries)
    erased = erase_journal(entries)
    receipt = _receipt(places, run_id, erased, by).text
    run = msgspec.structs.replace(header.run, key=None, parked=None)
    rewritten = ExportHeader(run=run, balances=header.balances, receipt=receipt)
    name = await places.write(rewritten, erased.entries)
    return await places.store.retention.erase_archived(run_id, kept.archive, name, receipt)


def _receipt(places: Places, run_id: RunId, erased: Erased, by: By) -> RunErasure:
    return receipt_of(run_id, erased, places.sources.now_ms(), by.name, by.reason)


def _require_artifacts(places: Places, run_id: RunId, entries: Sequence[Entry]) -> None:
    """Raise if the run has artifacts, or payloads over the limit, and the engine does not know where."""
    if places.artifacts is not None:
        return
    for entry in entries:
        payload = entry.payload
        has_artifacts = '"artifacts":' in entry.body and isinstance(entry.event, InvokeCompleted)
        if has_artifacts or (payload is not None and payload.startswith(MARK)):
            raise NoArtifactStore(
                f"run {run_id!r} has artifacts, and the engine does not know where they are",
                "open it with the `artifacts` of the engines that executed the run",
            )


async def require_known_run(places: Places, run_id: RunId) -> None:
    """Raise `UnknownRun` for a run that is neither in the store nor in the archive."""
    if not await places.store.retention.kin([run_id]):
        raise UnknownRun(f"there is no run {run_id!r}", "check the id and the store")
