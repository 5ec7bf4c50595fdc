"""The committer: bundles of many runs share one physical commit.

While a group is on its way to disk, bundles queue; then they go as the next group. So one submitter
pays one commit, and five hundred pay one commit together.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TypeVar

from perdure.core.errors import StoreClosed
from perdure.store.aside import Aside
from perdure.store.bundle import Bundle
from perdure.store.group import break_fences
from perdure.store.writer import Outcomes, SetAside

T = TypeVar("T")

Write = Callable[[Sequence[Bundle]], Awaitable[Outcomes]]

Decided = Callable[[BaseException | None], None]
"""Called in the event loop when a bundle is durable, or with the reason why it was not written. Must not raise."""

Waiting = tuple[Bundle, Decided]

MAX_GROUP = 1000
"""Bundles in a group: bounds the time that the newest bundle waits for the oldest."""

SMALL_GROUP = 256
"""So many bundles go together, though no others wait. Of more, half goes: its submitters go on meanwhile."""

MAX_QUEUED = 4000
"""Bundles that wait for their turn; beyond it, submitters wait to be let in."""


class Room:
    """Places in a queue. Who has to wait for one gets it in the order of asking."""

    def __init__(self, places: int) -> None:
        self._free = places
        self._waiting: deque[asyncio.Future[None]] = deque()

    def take(self) -> bool:
        """Take a place if there is one and nobody waits for it."""
        if self._free > 0 and not self._waiting:
            self._free -= 1
            return True
        return False

    def overfill(self) -> None:
        """Take a place even if there is none."""
        self._free -= 1

    async def wait(self) -> None:
        """Wait for a place and take it."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            await turn
        except BaseException:
            if turn.done() and not turn.cancelled():
                self._free += 1
            raise
        finally:
            # Only now may others pass: a place that was given but not yet used is still in line.
            self._waiting.remove(turn)
            self._call_next()

    def give_back(self, places: int) -> None:
        self._free += places
        self._call_next()

    def _call_next(self) -> None:
        for turn in self._waiting:
            if self._free <= 0:
                return
            if not turn.done():
                self._free -= 1
                turn.set_result(None)


class Committer:
    """One per host and store. Belongs to the event loop that made it."""

    def __init__(
        self,
        write: Write,
        write_apart: Write | None = None,
        *,
        max_group: int = MAX_GROUP,
        max_queued: int = MAX_QUEUED,
    ) -> None:
        """`write_apart` tries bundles again that `write` has set aside, at the same time as that."""
        self._loop = asyncio.get_running_loop()
        self._write = write
        self._aside = Aside(write_apart or write)
        self._max_group = max_group
        self._queue: deque[Waiting] = deque()
        self._room = Room(max_queued)
        self._answer: asyncio.Future[Outcomes] | None = None
        self._is_idle = True
        self._idle = asyncio.Event()
        self._idle.set()
        self._closed = False

    def submit(self, bundle: Bundle, decided: Decided) -> None:
        """Take a bundle in, however many wait; `decided` learns what became of it."""
        if self._closed:
            self._require_open()
        self._room.overfill()
        self._enqueue(bundle, decided)

    def commit(self, bundle: Bundle) -> Awaitable[None]:
        """Take a bundle in. What it returns is done when that is durable, or raises `CommitRejected`.

        Bundles are taken in the order of the calls. To stop waiting does not take a bundle back once
        it is in the queue; before that it is not written, and breaks its fences.
        """
        self._require_open()
        if self._room.take():
            return self._enqueue_awaited(bundle)
        return self._commit_later(bundle)

    async def _commit_later(self, bundle: Bundle) -> None:
        await self._wait_for_room(bundle)
        await self._enqueue_awaited(bundle)

    def _enqueue_awaited(self, bundle: Bundle) -> asyncio.Future[None]:
        # To cancel the caller cancels this future only: the bundle stays in its place.
        done: asyncio.Future[None] = self._loop.create_future()
        self._enqueue(bundle, partial(settle_future, done, None))
        return done

    def _enqueue(self, bundle: Bundle, decided: Decided) -> None:
        self._queue.append((bundle, decided))
        if self._is_idle:
            # Not at once: whoever else has a bundle in this turn of the loop comes along.
            self._is_idle = False
            self._idle.clear()
            self._loop.call_soon(self._write_group)

    async def close(self) -> None:
        """Refuse new bundles; return when all that were accepted are decided."""
        self._closed = True
        await self._idle.wait()
        await self._aside.close()

    async def _wait_for_room(self, bundle: Bundle) -> None:
        try:
            await self._room.wait()
        except BaseException:
            # The caller left before the bundle was taken: later bundles of its runs build on nothing.
            break_fences(bundle)
            raise
        if self._closed:
            self._room.give_back(1)
            self._require_open()

    def _require_open(self) -> None:
        if self._closed:
            raise StoreClosed("the store is closed", "commit before closing it")

    def _write_group(self) -> None:
        """Hand the next group to the database; go on when it is decided."""
        queue = self._queue
        waiting = len(queue)
        size = min(waiting, max(SMALL_GROUP, waiting // 2), self._max_group)
        group = [queue.popleft() for _ in range(size)]
        if self._aside:
            group = self._passing(group)
        answer = self._begin([bundle for bundle, _ in group])
        self._answer = answer  # kept, because the loop holds on to a task only weakly
        if answer.done():
            self._decide(group, answer)
        else:
            answer.add_done_callback(partial(self._decide, group))

    def _passing(self, group: list[Waiting]) -> list[Waiting]:
        """Those that follow nothing which was set aside; the others join that."""
        passing = []
        for waiting in group:
            if self._aside.precedes(waiting[0]):
                self._room.give_back(1)
                self._aside.add(waiting)
            else:
                passing.append(waiting)
        return passing

    def _begin(self, bundles: list[Bundle]) -> asyncio.Future[Outcomes]:
        try:
            return asyncio.ensure_future(self._write(bundles))
        except Exception as error:
            failed: asyncio.Future[Outcomes] = self._loop.create_future()
            failed.set_exception(error)
            return failed

    def _decide(self, group: Sequence[Waiting], answer: asyncio.Future[Outcomes]) -> None:
        """Tell each submitter what became of its bundle."""
        self._room.give_back(len(group))
        failure: BaseException | None
        if answer.cancelled():
            failure = StoreClosed("the event loop was stopped", "open the store again")
        else:
            failure = answer.exception()
        outcomes: Sequence[BaseException | SetAside | None] = [failure] * len(group)
        if failure is None:
            outcomes = answer.result()
        if self._queue:
            self._loop.call_soon(self._write_group)
        else:
            self._is_idle = True
            self._idle.set()
        for waiting, outcome in zip(group, outcomes, strict=True):
            if isinstance(outcome, SetAside):
                self._aside.add(waiting)
            else:
                waiting[1](outcome)


def settle_future(done: asyncio.Future[T], result: T, outcome: BaseException | None) -> None:
    """A `Decided` for whoever awaits a future, and may have stopped. `result` is for success."""
    if done.done():
        return
    if outcome is None:
        done.set_result(result)
    else:
        done.set_exception(outcome)
