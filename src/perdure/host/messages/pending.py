"""Reads the pending messages of several message queues with one statement."""

import asyncio
from typing import NamedTuple

from perdure.core.ids import RunId, guid_run
from perdure.core.messages import Message
from perdure.host.context import HostContext
from perdure.store.store import Store

BATCH = 500
"""Messages per read."""


class PendingMessages(NamedTuple):
    """The first durable messages of a queue that are due at once, in order; `is_all` if there are no more."""

    messages: list[Message]
    is_all: bool


class PendingReader:
    """Requests of one iteration of the event loop share one statement.

    A read sees all that was committed before its request: a request that comes during a read waits for the next one.
    """

    def __init__(self, context: HostContext) -> None:
        self._context = context
        self._asked: dict[RunId, asyncio.Future[PendingMessages]] = {}

    @property
    def is_needed(self) -> bool:
        """Whether messages of other processes can be in the store."""
        return self._store.is_shared

    @property
    def _store(self) -> Store:
        return self._context.store

    async def of(self, origin: RunId) -> PendingMessages:
        """The pending messages first sent to this run or mailbox, for runs that this host owns and unowned runs."""
        if not self._asked:
            asyncio.get_running_loop().call_soon(self._begin)
        answer = self._asked.get(origin)
        if answer is None:
            answer = self._asked[origin] = asyncio.get_running_loop().create_future()
        return await asyncio.shield(answer)

    def _begin(self) -> None:
        asked, self._asked = self._asked, {}
        self._context.spawn(self._read(asked))

    async def _read(self, asked: dict[RunId, asyncio.Future[PendingMessages]]) -> None:
        try:
            found = await self._store.pending(self._context.host_id, list(asked), BATCH)
        except (
            Exception
        ) as error:  # fails the delivery of each queue that asked; the poller tries again
            for answer in asked.values():
                if not answer.done():
                    answer.set_exception(error)
            return
        queues: dict[RunId, list[Message]] = {origin: [] for origin in asked}
        for message in found:
            queues[guid_run(message.guid)].append(message)
        for origin, answer in asked.items():
            if not answer.done():
                answer.set_result(PendingMessages(queues[origin], len(found) < BATCH))
