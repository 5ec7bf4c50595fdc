"""Notifies callers in this process when a run ends, or its journal or a stream grows."""

import asyncio
from collections.abc import Callable, Collection
from typing import NamedTuple, Protocol, Self

from perdure.core.errors import CorruptJournal
from perdure.core.hosts.hints import Awaited
from perdure.core.ids import HostId, RunId
from perdure.core.journal.entry import Entry
from perdure.core.journal.events import ExecutionCancelled, Terminal
from perdure.core.journal.state import Status, fold
from perdure.store.rows.records import Run

Topic = RunId | tuple[RunId, str]
"""The journal of a run, or a stream of it."""


class RunEnding(NamedTuple):
    """How a run ended: status, and the result, the error or the reason of the cancel."""

    status: Status
    payload: bytes | None
    reason: str = ""
    slot: str | None = None
    """The slot of a limit that the run held, if this process ended it."""

    @classmethod
    def of(cls, status: Status, last: Terminal, slot: str | None = None) -> Self:
        """The ending that the last entry of the run records."""
        reason = last.reason if isinstance(last, ExecutionCancelled) else ""
        return cls(status, last.payload, reason, slot)

    @classmethod
    def read(cls, run: Run, last: Entry | None) -> Self:
        """The ending of a run that is over, from its row and its last entry. Raises if these contradict each other."""
        event = None if last is None else last.event
        if not isinstance(event, Terminal) or fold([event]).status is not run.status:
            raise CorruptJournal(
                f"run {run.run_id!r} is {run.status}, but its last entry does not say so",
                "run `audit` to find what was changed, and restore the row from a backup",
            )
        return cls.of(run.status, event)


class OnGrowth(Protocol):
    """What is notified when a journal or a stream has grown, such as an `asyncio.Event`."""

    def set(self) -> None: ...


class Watchers:
    """Futures for the durable ending of a run, and events for followers of a journal or a stream.

    A future that resolves to `None` is a hint: this host does not know the ending, so the caller reads the store.
    """

    def __init__(
        self, on_changed: Callable[[RunId, Awaited], None], on_freed: Callable[[str], None]
    ) -> None:
        """`on_changed` gets the changes that this process reports, while callers elsewhere wait for such changes.
        `on_freed` gets each slot of a limit that the end of a run has freed.
        """
        self._on_freed = on_freed
        self.audience: dict[Awaited, dict[HostId, int]] = {what: {} for what in Awaited}
        """Other processes whose callers wait for such changes, and until when each counts as such."""
        self.on_run_grown: Callable[[RunId], None] | None = None
        """Called with each run whose journal a commit of this process added to, if events are published."""
        self._on_changed = on_changed
        self._endings: dict[RunId, list[asyncio.Future[RunEnding | None]]] = {}
        self._followers: dict[Topic, list[OnGrowth]] = {}

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
        """An event that is set whenever this process learns that one of these has grown.

        Followers of a stream follow the journal of its run, too: it says which chunks are valid.
        """
        grown = asyncio.Event()
        self.notify(grown, *topics)
        return grown

    def notify(self, grown: OnGrowth, *topics: Topic) -> None:
        """Call `grown.set` whenever this process learns that one of these has grown, until `unfollow`."""
        for topic in topics:
            self._followers.setdefault(topic, []).append(grown)

    def unfollow(self, grown: OnGrowth, *topics: Topic) -> None:
        for topic in topics:
            followers = self._followers.get(topic, [])
            followers.remove(grown)
            if not followers:
                self._followers.pop(topic, None)

    def waits_for(self, run_id: RunId) -> bool:
        """Whether callers in this process wait for the run's end, or follow its journal or a stream of it."""
        return run_id in self._endings or run_id in self._followers

    @property
    def awaited(self) -> Collection[RunId]:
        """The runs whose ends callers in this process wait for."""
        return self._endings.keys()

    @property
    def followed(self) -> Collection[Topic]:
        """The journals and streams that have followers in this process."""
        return self._followers.keys()

    def grown(self, topic: Topic) -> None:
        """A commit of this process added to it."""
        if self.on_run_grown is not None and isinstance(topic, str):
            self.on_run_grown(topic)
        if self._followers:
            self.wake_followers(topic)
        if self.audience[Awaited.GROWTH]:
            self._on_changed(topic if isinstance(topic, str) else topic[0], Awaited.GROWTH)

    def ended(self, run_id: RunId, ending: RunEnding | None) -> None:
        """A commit of this process ended the run, or parked it (`None`)."""
        self.wake_waiting(run_id, ending)
        if ending is not None and ending.slot is not None:
            self._on_freed(ending.slot)
        if self.audience[Awaited.END]:
            self._on_changed(run_id, Awaited.END)

    def wake_followers(self, topic: Topic) -> None:
        for event in self._followers.get(topic, ()):
            event.set()

    def wake_waiting(self, run_id: RunId, ending: RunEnding | None) -> None:
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
