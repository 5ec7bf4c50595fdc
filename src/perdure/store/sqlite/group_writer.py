"""Writes groups on the writing connection, in one of three ways.

While commits are fast, a lone bundle is committed in the event loop's own thread. Any other group is merged there and
submitted to the native writer in the connection's thread. If the native writer does not commit it, because a bundle
does not fit or the module is not compiled, the connection's thread writes it statement by statement and finds out why
a bundle does not fit.
"""

import asyncio
from collections.abc import Awaitable, Sequence
from functools import partial
from pathlib import Path
from time import perf_counter

from perdure.core.errors import StoreUnavailable
from perdure.store.commit.bundle import Bundle
from perdure.store.commit.committer import settle_future
from perdure.store.commit.group import merge
from perdure.store.commit.writer import BundleOutcomes, PendingWrites, write
from perdure.store.sqlite.commit_latency import CommitLatency
from perdure.store.sqlite.connections.connection import Connection, group_statements
from perdure.store.sqlite.connections.foreign import descriptors
from perdure.store.sqlite.connections.opening import MEMORY
from perdure.store.sqlite.connections.write_lock import WriteLock
from perdure.store.sqlite.writing import apply_group, try_begin

_CHECK_EVERY = 64
"""Number of groups between two checks for a second SQLite library on the file."""


class GroupWriter:
    """Writes groups, between other jobs and users' transactions."""

    def __init__(self, path: str, lock: WriteLock) -> None:
        self._path = path
        self._lock = lock
        self._writer = lock.writer
        self.latency = CommitLatency()
        self._checkpoint: asyncio.Future[None] | None = None
        self._count = 0

    def write(self, bundles: Sequence[Bundle]) -> Awaitable[BundleOutcomes]:
        """Commit the bundles that fit. The caller writes one list at a time."""
        return self._write_later(bundles) if self._lock.is_held else self._write_now(bundles)

    async def _write_later(self, bundles: Sequence[Bundle]) -> BundleOutcomes:
        async with self._lock.job():
            return await self._write_now(bundles)

    def _write_now(self, bundles: Sequence[Bundle]) -> Awaitable[BundleOutcomes]:
        self._count += 1
        if self._path != MEMORY and self._count % _CHECK_EVERY == 0:
            descriptors.require_ours(Path(self._path))
        outcomes: asyncio.Future[BundleOutcomes] = asyncio.get_running_loop().create_future()
        connection = self._own_connection(bundles)
        if connection is not None:
            decided = self._write_at_once(connection, bundles)
            if decided is not None:
                outcomes.set_result(decided)
                return outcomes
        writing = PendingWrites(bundles)
        if connection is not None:
            self._write_in_place(connection, writing)
        if writing.group is None:
            outcomes.set_result(writing.outcomes)
        elif not self._write_natively(writing, outcomes):
            self._write_by_statement(writing, outcomes)
        return outcomes

    def _own_connection(self, bundles: Sequence[Bundle]) -> Connection | None:
        """The connection, if these bundles may be written in this thread."""
        connection = self._writer.idle_connection
        if connection is None or connection.is_checkpointing:
            return None
        if connection.wal_is_long and (self._checkpoint is None or self._checkpoint.done()):
            self._checkpoint = self._writer.submit(Connection.checkpoint_wal)
            return None
        return connection if len(bundles) == 1 and self.latency.is_low else None

    def _write_at_once(
        self, connection: Connection, bundles: Sequence[Bundle]
    ) -> BundleOutcomes | None:
        """Commit a lone bundle in this thread, in one native call. `None` if it can't be, or does not fit."""
        began = perf_counter()
        group, rejected = merge(bundles)
        if rejected:
            return [rejected[0]]
        if group.chunks or not connection.write(group_statements(group)):
            return None
        self.latency.record(perf_counter() - began)
        return [None]

    def _write_in_place(self, connection: Connection, writing: PendingWrites) -> None:
        """Write what the native writer can't, in this thread, unless another process has the file's lock."""
        group, began = writing.group, perf_counter()
        if group is None or (connection.is_native and not group.chunks):
            return
        if try_begin(connection):
            try:
                write(writing, partial(apply_group, connection))
            finally:
                # The transaction is still open if the bundle was rejected before any statement.
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
        self._measure(writing, began)

    def _write_natively(
        self, writing: PendingWrites, outcomes: asyncio.Future[BundleOutcomes]
    ) -> bool:
        """Submit the group to the native writer. False if that is not possible now."""
        group, began = writing.group, perf_counter()
        if group is None or group.chunks:
            return False

        def on_written(is_committed: bool) -> None:
            try:
                if is_committed:
                    writing.report({})
            except Exception as error:  # no caller above would receive it
                settle_future(outcomes, [], error)
                return
            self._measure(writing, began)
            if writing.group is None:
                settle_future(outcomes, writing.outcomes, None)
            else:
                self._write_by_statement(writing, outcomes)

        return self._writer.write(group_statements(group), on_written)

    def _write_by_statement(
        self, writing: PendingWrites, outcomes: asyncio.Future[BundleOutcomes]
    ) -> None:
        """Let the thread write the rest statement by statement, and find out which bundles do not fit."""

        def job(connection: Connection) -> BundleOutcomes:
            began = perf_counter()
            if connection.in_transaction:
                # To write the group would end a transaction that another user of the connection has begun.
                writing.abandon()
                raise StoreUnavailable(
                    "a group of commits reached the connection while a transaction was open on it",
                    "report this as a bug; nothing of the group was written, and it is tried again",
                )
            written = write(writing, partial(apply_group, connection))
            self._measure(writing, began)
            return written

        self._writer.submit(job).add_done_callback(partial(_pass_on, outcomes))

    def _measure(self, writing: PendingWrites, began: float) -> None:
        if len(writing.outcomes) == 1:
            self.latency.record(perf_counter() - began)


def _pass_on(
    outcomes: asyncio.Future[BundleOutcomes], given: asyncio.Future[BundleOutcomes]
) -> None:
    if given.cancelled():
        outcomes.cancel()
    elif (failure := given.exception()) is not None:
        settle_future(outcomes, [], failure)
    else:
        settle_future(outcomes, given.result(), None)
