"""How groups of bundles reach the connection that writes.

A lone bundle is committed in the event loop's own thread, while commits are quick. Any other group is merged there, and
handed to the connection's thread as one job for its quick way. What that does not do, because somebody does not fit or
there is no quick way, the thread does statement by statement, and says why it can't be done.
"""

import asyncio
from collections.abc import Awaitable, Sequence
from functools import partial
from pathlib import Path
from time import perf_counter

from perdure.core.errors import StoreUnavailable
from perdure.store.bundle import Bundle
from perdure.store.committer import settle_future
from perdure.store.sqlite.connection import Connection
from perdure.store.sqlite.foreign import descriptors
from perdure.store.sqlite.opening import MEMORY
from perdure.store.sqlite.pace import Pace
from perdure.store.sqlite.turns import Turns
from perdure.store.sqlite.writing import all_parts, apply, begin
from perdure.store.writer import Outcomes, Writing, write

_LOOK_EVERY = 64
"""After so many groups a second SQLite library on the file is looked for."""


class Groups:
    """Writes groups, between the jobs and the transactions of others."""

    def __init__(self, path: str, turns: Turns) -> None:
        self._path = path
        self._turns = turns
        self._writer = turns.writer
        self.pace = Pace()
        self._folding: asyncio.Future[None] | None = None
        self._count = 0

    def write(self, bundles: Sequence[Bundle]) -> Awaitable[Outcomes]:
        """Commit what can be committed. One group at a time."""
        return self._write_later(bundles) if self._turns.is_taken else self._write_now(bundles)

    async def _write_later(self, bundles: Sequence[Bundle]) -> Outcomes:
        async with self._turns.job():
            return await self._write_now(bundles)

    def _write_now(self, bundles: Sequence[Bundle]) -> Awaitable[Outcomes]:
        self._count += 1
        if self._path != MEMORY and self._count % _LOOK_EVERY == 0:
            descriptors.require_ours(Path(self._path))
        writing = Writing(bundles)
        connection = self._writer.idle_connection
        if connection is not None and not connection.is_folding:
            if connection.log_is_long and (self._folding is None or self._folding.done()):
                self._folding = self._writer.submit(Connection.fold_log)
            elif len(bundles) == 1 and self.pace.is_quick:
                self._write_in_place(connection, writing)
        answer: asyncio.Future[Outcomes] = asyncio.get_running_loop().create_future()
        if writing.group is None:
            answer.set_result(writing.outcomes)
        elif not self._write_quickly(writing, answer):
            self._write_in_words(writing, answer)
        return answer

    def _write_in_place(self, connection: Connection, writing: Writing) -> None:
        """Commit the group here and now, unless somebody else has the file, or it does not fit."""
        group = writing.group
        if group is None:
            return
        began = perf_counter()
        parts = all_parts(group)
        if parts is not None and connection.is_quick:
            if connection.write(parts):
                writing.tell({})
        elif begin(connection):
            try:
                write(writing, partial(apply, connection))
            finally:
                # Nothing was applied if the bundle was rejected before the database was asked.
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
        self._measure(writing, began)

    def _write_quickly(self, writing: Writing, answer: asyncio.Future[Outcomes]) -> bool:
        """Let the thread commit the group in one go. False if it can't now."""
        parts = None if writing.group is None else all_parts(writing.group)
        began = perf_counter()

        def told(came_about: bool) -> None:
            try:
                if came_about:
                    writing.tell({})
            except Exception as error:  # nobody else would hear of it
                settle_future(answer, [], error)
                return
            self._measure(writing, began)
            if writing.group is None:
                settle_future(answer, writing.outcomes, None)
            else:
                self._write_in_words(writing, answer)

        return parts is not None and self._writer.write(parts, told)

    def _write_in_words(self, writing: Writing, answer: asyncio.Future[Outcomes]) -> None:
        """Let the thread commit what is left, statement by statement, and find out who does not fit."""

        def job(connection: Connection) -> Outcomes:
            began = perf_counter()
            if connection.in_transaction:
                # It would be ended, with whatever its owner still wants to do.
                writing.give_up()
                raise StoreUnavailable(
                    "a group of commits came in the midst of a transaction",
                    "nothing of it was written, and it is tried again; please report this",
                )
            outcomes = write(writing, partial(apply, connection))
            self._measure(writing, began)
            return outcomes

        self._writer.submit(job).add_done_callback(partial(_pass_on, answer))

    def _measure(self, writing: Writing, began: float) -> None:
        if len(writing.outcomes) == 1:
            self.pace.committed(perf_counter() - began)


def _pass_on(answer: asyncio.Future[Outcomes], given: asyncio.Future[Outcomes]) -> None:
    if given.cancelled():
        answer.cancel()
    elif (failure := given.exception()) is not None:
        settle_future(answer, [], failure)
    else:
        settle_future(answer, given.result(), None)
