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
from perdure.store.commit.writer import BundleOutcomes, PendingWrites, write
from perdure.store.sqlite.commit_latency import CommitLatency
from perdure.store.sqlite.connection import Connection
from perdure.store.sqlite.foreign import descriptors
from perdure.store.sqlite.opening import MEMORY
from perdure.store.sqlite.write_lock import WriteLock
from perdure.store.sqlite.writing import apply_group, group_statements, try_begin

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
        writing = PendingWrites(bundles)
        connection = self._writer.idle_connection
        if connection is not None and not connection.is_checkpointing:
            if connection.wal_is_long and (self._checkpoint is None or self._checkpoint.done()):
                self._checkpoint = self._writer.submit(Connection.checkpoint_wal)
            elif len(bundles) == 1 and self.latency.is_low:
                self._write_in_place(connection, writing)
        outcomes: asyncio.Future[BundleOutcomes] = asyncio.get_running_loop().create_future()
        if writing.group is None:
            outcomes.set_result(writing.outcomes)
        elif not self._write_natively(writing, outcomes):
            self._write_by_statement(writing, outcomes)
        return outcomes

    def _write_in_place(self, connection: Connection, writing: PendingWrites) -> None:
        """Commit the group in this thread, unless another process has the file's lock or the group does not fit."""
        group = writing.group
        if group is None:
            return
        began = perf_counter()
        statements = group_statements(group)
        if statements is not None and connection.is_native:
            if connection.write(statements):
                writing.report({})
        elif try_begin(connection):
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
        statements = None if writing.group is None else group_statements(writing.group)
        began = perf_counter()

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

        return statements is not None and self._writer.write(statements, on_written)

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
