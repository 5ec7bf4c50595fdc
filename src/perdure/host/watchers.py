"""Notifies callers in this process when a run ends, or its journal or a stream grows."""

import asyncio
from collections.abc import Container
from typing import NamedTuple, Self

from perdure.core.ids import RunId
from perdure.core.journal.events import ExecutionCancelled, Terminal
from perdure.core.journal.state import Status

Topic = RunId | tuple[RunId, str]
"""The journal of a run, or a stream of it."""


class RunEnding(NamedTuple):
    """How a run ended: status, and the result, the error or the reason of the cancel."""

    status: Status
    payload: bytes | None
    reason: str = ""

    @classmethod
    def of(cls, status: Status, last: Terminal) -> Self:
        """The ending that the last entry of the run records."""
        reason = last.reason if isinstance(last, ExecutionCancelled) else ""
        return cls(status, last.payload, reason)


class Watchers:
    """Futures for the durable ending of a run, and events for followers of a journal or a stream.

    A future that resolves to `None` is a hint: this host does not know the ending, so the caller reads the store.
    """

    def __init__(self) -> None:
        self._endings: dict[RunId, list[asyncio.Future[RunEnding | None]]] = {}
        self._followers: dict[Topic, list[asyncio.Event]] = {}

    def ending_of(self, run_id: RunId) -> asyncio.Future[RunEnding | None]:
        future: asyncio.Future[RunEnding | None] = asyncio.get_running_loop().create_future()
        self._endings.setdefault(run_id, []).append(future)
        return future

    def forget(self, run_id: RunId, future: asyncio.Future[RunEnding | None]) -> None:
        futures = self._endings.get(run_id)
        if futures is not None and future in futures:
            futures.remove(future)
            if not futures:
                del self._endings[run_id]

    def follow(self, *topics: Topic) -> asyncio.Event:
        """An event that is set whenever this process learns that one of these has grown."""
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

    @property
    def followed(self) -> set[Topic]:
        """The journals and streams that have followers in this process."""
        return set(self._followers)

    def grown(self, topic: Topic) -> None:
        for event in self._followers.get(topic, ()):
            event.set()

    def look(self, known: Container[RunId]) -> None:
        """Have callers that wait for a run which is not in `known` read the store."""
        for run_id in [each for each in self._endings if each not in known]:
            self.ended(run_id, None)

    def ended(self, run_id: RunId, ending: RunEnding | None) -> None:
        for future in self._endings.pop(run_id, ()):
            if not future.done():
                future.set_result(ending)

    def fail(self, error: Exception) -> None:
        """The host has stopped: raise `error` in all waiting callers, and wake the followers."""
        for futures in self._endings.values():
            for future in futures:
                if not future.done():
                    future.set_exception(error)
        self._endings.clear()
        for followers in self._followers.values():
            for event in followers:
                event.set()
