"""The committer: bundles of many runs share one physical commit.

While a group is being written, new bundles queue; together they form the next group. So one submitter waits for one
commit, and so do five hundred at once.
"""

import asyncio
import gc
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from types import TracebackType
from typing import TypeVar

from perdure.core.errors import StoreClosed
from perdure.store.commit.bundle import Bundle
from perdure.store.commit.contention import ContendedBundles
from perdure.store.commit.group import break_fences
from perdure.store.commit.writer import BundleOutcomes, Undecided

T = TypeVar("T")

Write = Callable[[Sequence[Bundle]], Awaitable[BundleOutcomes]]

OnDecided = Callable[[BaseException | None], None]
"""Called in the event loop with `None` when a bundle is durable, or with the reason why not. Must not raise."""

SubmittedBundle = tuple[Bundle, OnDecided]

MAX_GROUP = 1000
"""Bundles in a group at most: bounds how long the newest bundle waits for the oldest."""

SMALL_GROUP = 256
"""Up to this many queued bundles form one group. Of more, half does: its submitters continue while the rest follows."""

MAX_QUEUED = 4000
"""Bundles in the queue at most; beyond that, `commit` waits for a slot."""


class CollectorPause:
    """No automatic start of Python's garbage collector inside `with`, unless the program itself has disabled it.

    The collector looks at the young objects after every 700 new ones. A round of turns, or a group that is decided,
    makes some thousand that all are needed until the next one: collections in its midst find nothing, and move the
    objects on to the old generation, whose collections are dear. The collector belongs to the whole process, so what
    is inside must be short and must not wait.
    """

    __slots__ = ("_pauses",)

    def __enter__(self) -> None:
        self._pauses = gc.isenabled()
        if self._pauses:
            gc.disable()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._pauses:
            gc.enable()


class QueueCapacity:
    """Slots of a queue, granted in the order of the requests."""

    def __init__(self, slots: int) -> None:
        self._free = slots
        self._waiting: deque[asyncio.Future[None]] = deque()

    def try_acquire(self) -> bool:
        """Acquire a slot if one is free and no request waits for it."""
        if self._free > 0 and not self._waiting:
            self._free -= 1
            return True
        return False

    def force_acquire(self) -> None:
        """Acquire a slot even if none is free: the count becomes negative."""
        self._free -= 1

    async def acquire(self) -> None:
        """Wait for a slot and acquire it."""
        granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(granted)
        try:
            await granted
        except BaseException:
            if granted.done() and not granted.cancelled():
                self._free += 1
            raise
        finally:
            # A request leaves the line only when its task resumes, so that `try_acquire` can't overtake it before.
            self._waiting.remove(granted)
            self._grant()

    def release(self, slots: int) -> None:
        self._free += slots
        self._grant()

    def _grant(self) -> None:
        for granted in self._waiting:
            if self._free <= 0:
                return
            if not granted.done():
                self._free -= 1
                granted.set_result(None)


class Committer:
    """One per host and store. Belongs to the event loop that made it."""

    def __init__(
        self,
        write: Write,
        write_contended: Write | None = None,
        *,
        max_group: int = MAX_GROUP,
        max_queued: int = MAX_QUEUED,
    ) -> None:
        """`write_contended` retries bundles that `write` left undecided, and runs concurrently with it."""
        self._loop = asyncio.get_running_loop()
        self._write = write
        self._contended = ContendedBundles(write_contended or write)
        self._max_group = max_group
        self._queue: deque[SubmittedBundle] = deque()
        self._capacity = QueueCapacity(max_queued)
        self._writing: asyncio.Future[BundleOutcomes] | None = None
        self._is_idle = True
        self._idle = asyncio.Event()
        self._idle.set()
        self._closed = False

    def submit(self, bundle: Bundle, on_decided: OnDecided) -> None:
        """Queue a bundle, however long the queue is; calls `on_decided` with its outcome."""
        if self._closed:
            self._require_open()
        self._capacity.force_acquire()
        self._enqueue(bundle, on_decided)

    def commit(self, bundle: Bundle) -> Awaitable[None]:
        """Queue a bundle. The awaitable returns when the bundle is durable, or raises `CommitRejected`.

        Bundles are queued in the order of the calls. A cancelled caller does not withdraw a bundle from the queue;
        a bundle that still waits for a slot is not written then, and its fences break.
        """
        self._require_open()
        if self._capacity.try_acquire():
            return self._enqueue_awaited(bundle)
        return self._commit_later(bundle)

    async def _commit_later(self, bundle: Bundle) -> None:
        await self._wait_for_slot(bundle)
        await self._enqueue_awaited(bundle)

    def _enqueue_awaited(self, bundle: Bundle) -> asyncio.Future[None]:
        # A cancelled caller cancels only this future: the bundle stays in the queue.
        done: asyncio.Future[None] = self._loop.create_future()
        self._enqueue(bundle, partial(settle_future, done, None))
        return done

    def _enqueue(self, bundle: Bundle, on_decided: OnDecided) -> None:
        self._queue.append((bundle, on_decided))
        if self._is_idle:
            # In the loop's next iteration, so that other bundles submitted in this one join the group.
            self._is_idle = False
            self._idle.clear()
            self._loop.call_soon(self._write_group)

    async def close(self) -> None:
        """Refuse new bundles; return when every accepted one is decided."""
        self._closed = True
        await self._idle.wait()
        await self._contended.close()

    async def _wait_for_slot(self, bundle: Bundle) -> None:
        try:
            await self._capacity.acquire()
        except BaseException:
            # The bundle will not be written, so later bundles of its runs would continue a missing entry.
            break_fences(bundle)
            raise
        if self._closed:
            self._capacity.release(1)
            self._require_open()

    def _require_open(self) -> None:
        if self._closed:
            raise StoreClosed("the store is closed", "commit before closing it")

    def _write_group(self) -> None:
        """Hand the next group to the database; `_decide` continues when its outcome is known."""
        queue = self._queue
        waiting = len(queue)
        size = min(waiting, max(SMALL_GROUP, waiting // 2), self._max_group)
        group = [queue.popleft() for _ in range(size)]
        if self._contended.bundles:
            group = self._uncontended(group)
        writing = self._begin([bundle for bundle, _ in group])
        self._writing = writing  # the event loop itself holds only a weak reference to a task
        if writing.done():
            self._decide(group, writing)
        else:
            writing.add_done_callback(partial(self._decide, group))

    def _uncontended(self, group: list[SubmittedBundle]) -> list[SubmittedBundle]:
        """The bundles that no contended bundle must precede; the others join the contended ones."""
        uncontended = []
        for submitted in group:
            if self._contended.precedes(submitted[0]):
                self._capacity.release(1)
                self._contended.add(submitted)
            else:
                uncontended.append(submitted)
        return uncontended

    def _begin(self, bundles: list[Bundle]) -> asyncio.Future[BundleOutcomes]:
        try:
            return asyncio.ensure_future(self._write(bundles))
        except Exception as error:
            failed: asyncio.Future[BundleOutcomes] = self._loop.create_future()
            failed.set_exception(error)
            return failed

    def _decide(
        self, group: Sequence[SubmittedBundle], writing: asyncio.Future[BundleOutcomes]
    ) -> None:
        """Call each submitter with the outcome of its bundle."""
        self._capacity.release(len(group))
        failure: BaseException | None
        if writing.cancelled():
            failure = StoreClosed("the event loop was stopped", "open the store again")
        else:
            failure = writing.exception()
        outcomes: Sequence[BaseException | Undecided | None] = [failure] * len(group)
        if failure is None:
            outcomes = writing.result()
        if self._queue:
            self._loop.call_soon(self._write_group)
        else:
            self._is_idle = True
            self._idle.set()
        with CollectorPause():
            for submitted, outcome in zip(group, outcomes, strict=True):
                if isinstance(outcome, Undecided):
                    self._contended.add(submitted)
                else:
                    submitted[1](outcome)


def settle_future(done: asyncio.Future[T], result: T, outcome: BaseException | None) -> None:
    """An `OnDecided` that settles a future, with `result` on success, unless its awaiter was cancelled."""
    if done.done():
        return
    if outcome is None:
        done.set_result(result)
    else:
        done.set_exception(outcome)


class CommitsUnderWay:
    """Counts commits whose submitters do not wait for them. A host that stops lets these end."""

    def __init__(self) -> None:
        self._count = 0
        self._none = asyncio.Event()
        self._none.set()

    def __bool__(self) -> bool:
        return self._count > 0

    def begin(self) -> None:
        """A commit was submitted, or is about to be."""
        self._count += 1
        if self._count == 1:
            self._none.clear()

    def end(self) -> None:
        """A commit was decided, or was not submitted after all."""
        self._count -= 1
        if not self._count:
            self._none.set()

    async def wait(self) -> None:
        """Wait until all are decided."""
        await self._none.wait()
