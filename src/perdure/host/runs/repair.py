"""Writes rows again that a run's journal demands and the store lacks, before the run continues.

A journal can't be rebuilt, and a ledger that contradicts it parks the run. But messages, work and the index of a graph
are functions of the journal, so a load can write them again.
"""

import logging
from collections.abc import Sequence

import msgspec

from perdure.authoring.values.failures import encode_failure
from perdure.core.errors import BooksDiffer, RunCancelled
from perdure.core.ids import RunId
from perdure.core.journal import events as e
from perdure.core.journal.state import Status
from perdure.core.messages import AT_ONCE, Message, Work
from perdure.core.obligations import has_outcome, is_result
from perdure.core.replay.identity import result_guid
from perdure.engine.runs.promise import DurablePromise
from perdure.engine.runs.required_rows import (
    add_list_rows,
    awaited_children,
    has_list_rows,
    missing_rows,
)
from perdure.engine.runs.warm import WarmRun
from perdure.host.context import HostContext
from perdure.store.commit.bundle import Bundle
from perdure.store.rows.records import Run, StoredRun

log = logging.getLogger("perdure.host")


class Repair:
    """Compares the rows of a run that was just replayed with its journal."""

    def __init__(self, context: HostContext) -> None:
        self._store = context.store
        self._codec = context.codec
        self._sources = context.sources
        self._listener = context.listener

    async def repair(self, warm: WarmRun, stored: StoredRun) -> None:
        """Commits: the rows that the journal demands and the store lacks. Raises `BooksDiffer` if one can't be rebuilt.

        Damaged rows are removed in a commit before: after a crash between the two, the next load finds them missing.
        """
        bundle = Bundle()
        put_back = [
            *await self._with_kept_results(missing_rows(warm, stored), stored),
            *await self._missing_results(warm, stored),
        ]
        for row in put_back:
            if isinstance(row, Message):
                bundle.enqueue(row)
            else:
                bundle.put_work(warm.fence, row)
        if warm.machine.is_paused and any(isinstance(row, Work) for row in put_back):
            bundle.hold_work(warm.fence, held=True)
        is_reindexed = warm.machine.reindex(bundle, warm.fence, stored)
        listed = await self._add_list_rows(warm, stored, bundle)
        if not (put_back or is_reindexed or listed):
            return
        indexed = ["rows of its graph's index"] if is_reindexed else []
        named = [*map(_name_of, put_back), *indexed, *listed]
        self._listener.rows_repaired(warm.run_id, named)
        damaged = _without_damaged(warm, stored, put_back)
        if damaged.fences:
            await self._store.commit(damaged)
        await self._store.commit(bundle)

    async def _add_list_rows(self, warm: WarmRun, stored: StoredRun, bundle: Bundle) -> list[str]:
        """Add missing rows by which lists find the run. They are read only if the run must have some."""
        # Decisions that are not committed yet bring their own rows.
        if warm.machine.record.changes or not has_list_rows(warm):
            return []
        rows = await self._store.list_rows(warm.run_id)
        return add_list_rows(warm, stored.entries, rows, bundle)

    async def _with_kept_results(
        self, rows: list[Message | Work], stored: StoredRun
    ) -> list[Message | Work]:
        """The rows, with results that are stored but would not be delivered in place of the work that they are from.

        The work is done, and a host may have its result in memory: executed again it would have its effect twice.
        """
        damaged = {guid for guid, message in stored.messages.items() if has_outcome(message)}
        if not any(row.guid in damaged for row in rows):
            return rows
        kept = {
            message.guid: message
            for message, _, _ in await self._store.messages(stored.run.run_id)
            if message.guid in damaged and message.payload is not None
        }
        return [_delivered(row, kept.get(row.guid)) for row in rows]

    async def _missing_results(self, warm: WarmRun, stored: StoredRun) -> list[Message]:
        """The results of ended children that are neither in the run's journal nor among its messages."""
        children = awaited_children(warm)
        if not children:
            return []
        known = {run.run_id: run for run in await self._store.runs(list(children))}
        found: list[Message] = []
        for child, promise in children.items():
            if child not in known:
                raise BooksDiffer(
                    f"run {child!r} is not in the store, and step {promise.step} of run {warm.run_id!r} waits for it",
                    "restore it from a backup and start the engine again; or cancel the run",
                )
            guid = result_guid(warm.run_id, promise.step, promise.attempt or 1)
            if known[child].is_over and not is_result(stored.messages, guid, promise.step):
                found += await self._result_of(known[child], warm.run_id, promise)
        return found

    async def _result_of(self, child: Run, parent: RunId, promise: DurablePromise) -> list[Message]:
        end = await self._store.chain_end(child.origin) or child
        if not end.is_over or end.status is Status.CONTINUED:
            return []
        (last,) = await self._store.entries(end.run_id, end.seq - 1, end.seq) or (None,)
        event = None if last is None else last.event
        if isinstance(event, e.ExecutionCancelled):
            lost = RunCancelled.of(end.run_id, event.reason)
            kind, payload = "gave-up", encode_failure(self._codec, lost)
        elif isinstance(event, e.Terminal) and event.payload is not None:
            is_done = isinstance(event, e.ExecutionCompleted)
            kind, payload = "completed" if is_done else "gave-up", event.payload
        else:
            return []
        guid = result_guid(parent, promise.step, promise.attempt or 1)
        now = self._sources.now_ms()
        found = await self._store.messages(parent)
        if any(message.guid == guid and state == "pending" for message, state, _ in found):
            # The child ended after the messages of its parent were read.
            return []
        return [Message(parent, guid, kind, AT_ONCE, now, promise.step, payload)]


def _delivered(row: Message | Work, result: Message | None) -> Message | Work:
    """The result as it was sent; the row itself if there is none, or if the row is no work."""
    if result is None or isinstance(row, Message):
        return row
    return msgspec.structs.replace(result, due_at_ms=AT_ONCE, step=row.step)


def _without_damaged(
    warm: WarmRun, stored: StoredRun, put_back: Sequence[Message | Work]
) -> Bundle:
    """A bundle that deletes damaged rows with the keys of rows to write: the store does not overwrite existing rows."""
    bundle = Bundle()
    for row in put_back:
        if row.guid in stored.messages:
            bundle.acknowledge(warm.fence, row.guid)
        if isinstance(row, Work):
            for step, work in stored.work.items():
                # Under another step it is the same work, which a host must not execute beside the row to write.
                if step == row.step or (work.guid == row.guid and work.host is None):
                    bundle.drop_work(warm.fence, step)
    return bundle


def _name_of(row: Message | Work) -> str:
    return (
        f"{row.kind} of step {row.step}" if isinstance(row, Message) else f"work of step {row.step}"
    )
