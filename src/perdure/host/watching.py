"""Who waits in this process: for a run to end, for its journal to grow, for its streams."""

import asyncio
from collections.abc import Container
from typing import NamedTuple, Self

from perdure.core.ids import RunId
from perdure.core.journal.events import ExecutionCancelled, Terminal
from perdure.core.journal.state import Status

Topic = RunId | tuple[RunId, str]
"""The journal of a run, or a stream of it."""


class Ending(NamedTuple):
    """How a run ended: its status, and its result, its error, or why it was cancelled."""

    status: Status
    payload: bytes | None
    reason: str = ""

    @classmethod
    def of(cls, status: Status, last: Terminal) -> Self:
        """As its last entry tells."""
        reason = last.reason if isinstance(last, ExecutionCancelled) else ""
        return cls(status, last.payload, reason)


class Watchers:
    """Futures that get the ending of a run when it is durable, and events for who follows a journal or a stream.

    A future that gets `None` is a hint: nobody here knows of the run, so look in the store.
    """

    def __init__(self) -> None:
        self._endings: dict[RunId, list[asyncio.Future[Ending | None]]] = {}
        self._followers: dict[Topic, list[asyncio.Event]] = {}

    def ending_of(self, run_id: RunId) -> asyncio.Future[Ending | None]:
        future: asyncio.Future[Ending | None] = asyncio.get_running_loop().create_future()
        self._endings.setdefault(run_id, []).append(future)
        return future

    def forget(self, run_id: RunId, future: asyncio.Future[Ending | None]) -> None:
        futures = self._endings.get(run_id)
        if futures is not None and future in futures:
            futures.remove(future)
            if not futures:
                del self._endings[run_id]

    def follow(self, *topics: Topic) -> asyncio.Event:
        """An event that is set whenever one of these has grown, as far as this process knows."""
        grown = asyncio.Event()
        for topic in topics:
            self._followers.setdefault(topic, []).append(grown)
        return grown

    def unfollow(self, grown: asyncio.Event, *topics: Topic) -> None:
        for topic in topics:
            followers = self._followers.get(topic, [])
            followers.remove(grown)
            if not followers:
                self._followers.pop(topic, None)

    def grown(self, topic: Topic) -> None:
        for event in self._followers.get(topic, ()):
            event.set()

    def look(self, known: Container[RunId]) -> None:
        """Let those look in the store who wait for a run that is not `known` here."""
        for run_id in [each for each in self._endings if each not in known]:
            self.ended(run_id, None)

    def ended(self, run_id: RunId, ending: Ending | None) -> None:
        for future in self._endings.pop(run_id, ()):
            if not future.done():
                future.set_result(ending)
