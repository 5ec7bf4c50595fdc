"""Chunks that tasks append to streams, on their way to the store: at once, in order, and before the outcome."""

import asyncio
import logging
from collections import deque
from threading import Condition, get_ident
from typing import Final

from perdure.authoring.failures import encode_failure
from perdure.core.errors import CommitRejected, OutsideRun, PayloadTooLarge, StoreClosed, StoreError
from perdure.core.streams.chunks import NewChunk, Origin
from perdure.engine.replay.facts import Outcome
from perdure.host.bodies import Order
from perdure.host.host import Host
from perdure.host.patience import Patience
from perdure.store.bundle import Bundle

log = logging.getLogger("perdure.host")

MAX_WAITING_BYTES: Final = 16 * 1024 * 1024
"""What one body may have appended and the store not written: more makes a thread wait, and is refused to a coroutine,
which can't."""

BATCH_BYTES: Final = 1024 * 1024
"""What goes in one commit: the first chunk of it waits for the last."""

CHUNK_BYTES: Final = 256
"""What a chunk takes in memory beside its payload."""


class Streaming:
    """What the writers of one host share."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.loop = asyncio.get_running_loop()
        self.changed = Condition()
        """Guards every writer; notified when one has room again, or never will have."""
        self._thread = get_ident()

    @property
    def is_in_loop(self) -> bool:
        """Whether this is the thread of the event loop, which must not wait."""
        return get_ident() == self._thread

    def chunks_of(self, order: Order) -> "ChunkWriter":
        return ChunkWriter(self, order)


class ChunkWriter:
    """The chunks of one body, from whichever thread. One commit at a time; what is appended meanwhile goes next."""

    __slots__ = (
        "_failure",
        "_is_open",
        "_is_sending",
        "_numbers",
        "_order",
        "_sent",
        "_shared",
        "_waiting",
        "_waiting_bytes",
    )

    def __init__(self, shared: Streaming, order: Order) -> None:
        # Most bodies append nothing: what they do not need is not made.
        self._shared = shared
        self._order = order
        self._numbers: dict[str, int] | None = None
        """How many chunks it has appended to each stream."""
        self._waiting: deque[NewChunk]
        self._waiting_bytes = 0
        self._is_open = True
        self._is_sending = False
        self._sent: list[asyncio.Future[None]]
        """Whom to tell when nothing is waiting any more."""
        self._failure: Exception | None = None

    @property
    def is_used(self) -> bool:
        return self._numbers is not None

    def append(self, name: str, value: object) -> None:
        """Take a chunk in. It is durable soon, and before the outcome of the body is."""
        shared = self._shared
        payload = shared.host.codec.encode(value)
        with shared.changed:
            self._await_room(name, len(payload) + CHUNK_BYTES)
            if self._numbers is None:
                self._numbers, self._waiting, self._sent = {}, deque(), []
            number = self._numbers.get(name, 0)
            self._numbers[name] = number + 1
            info, at_ms = self._order.info, shared.host.sources.now_ms()
            origin = Origin(info.step, info.attempt, self._order.claim)
            self._waiting.append(NewChunk(info.run_id, name, origin, number, payload, at_ms))
            self._waiting_bytes += len(payload) + CHUNK_BYTES
            if self._is_sending:
                return
            self._is_sending = True
        if shared.is_in_loop:
            self._begin_sending()
        else:
            shared.loop.call_soon_threadsafe(self._begin_sending)

    async def flush(self) -> None:
        """Wait until all that was appended is durable; raises what kept it from being."""
        if not self.is_used:
            return
        if self._shared.is_in_loop:
            await self._all_sent()
        else:
            sent = asyncio.run_coroutine_threadsafe(self._all_sent(), self._shared.loop)
            await asyncio.wrap_future(sent)
        if self._failure is not None:
            raise self._failure

    def end(self) -> bool:
        """The body is over: take nothing more in. Returns whether there is anything to settle."""
        with self._shared.changed:
            self._is_open = False
            if self.is_used:
                self._shared.changed.notify_all()
            return self.is_used

    async def settle(self, outcome: Outcome) -> Outcome:
        """What is to be reported, once all chunks are durable or can't be."""
        await self._all_sent()
        failure = self._failure
        if failure is None or not outcome.ok:
            return outcome
        if not isinstance(failure, CommitRejected):
            # The store is closed: whoever has the run next finds the step in doubt.
            raise failure
        may_retry = self._order.task.retry.covers(failure)
        return Outcome(False, encode_failure(self._shared.host.codec, failure), may_retry)

    def close(self) -> None:
        """Forget what waits: if anything does, nobody wants the outcome. A thread may go on all the same."""
        if self._is_open or self._waiting_bytes:
            self.end()
            with self._shared.changed:
                self._forget()

    def _await_room(self, name: str, size: int) -> None:
        while True:
            if self._failure is not None:
                raise self._failure
            if not self._is_open:
                info = self._order.info
                raise OutsideRun(
                    f"stream {name!r} is appended to when attempt {info.attempt} of task "
                    f"{self._order.task.name!r} ({info.step}) is over",
                    "append before the task returns, and before its timeout",
                )
            if not self._waiting_bytes or self._waiting_bytes + size <= MAX_WAITING_BYTES:
                return
            if self._shared.is_in_loop:
                raise PayloadTooLarge(
                    f"{self._waiting_bytes:,} bytes wait to be written to streams, and {size:,} more would be "
                    f"over the limit of {MAX_WAITING_BYTES:,}",
                    f"await flush() of stream {name!r} now and then",
                )
            self._shared.changed.wait()

    def _begin_sending(self) -> None:
        self._shared.host.spawn(self._send())

    async def _send(self) -> None:
        host, run_id = self._shared.host, self._order.info.run_id
        try:
            while batch := self._next_batch():
                await self._commit(batch)
                for name in {chunk.name for chunk in batch}:
                    host.watchers.grown((run_id, name))
        except (CommitRejected, StoreError) as error:
            log.error("what a task streamed could not be written: %s", error)  # noqa: TRY400 - it is told on
            self._fail(error)
        except BaseException:
            self._fail(StoreClosed("the host was stopped", "the step is begun again"))
            raise
        finally:
            for waiter in self._sent:
                if not waiter.done():
                    waiter.set_result(None)
            self._sent.clear()

    def _next_batch(self) -> list[NewChunk]:
        """What is committed next; nothing, and no more is being sent, if nothing waits."""
        batch: list[NewChunk] = []
        with self._shared.changed:
            size = 0
            while self._waiting and size < BATCH_BYTES:
                chunk = self._waiting.popleft()
                size += len(chunk.payload) + CHUNK_BYTES
                batch.append(chunk)
            self._waiting_bytes -= size
            self._is_sending = bool(batch)
            self._shared.changed.notify_all()
        return batch

    async def _commit(self, batch: list[NewChunk]) -> None:
        bundle = Bundle()
        for chunk in batch:
            bundle.append_chunk(chunk)
        patience = Patience()
        while True:
            try:
                # Again, it is the same: a chunk that is there already is not written twice.
                return await self._shared.host.store.commit(bundle)
            except StoreClosed:
                raise
            except StoreError as error:
                log.warning("chunks wait %.2f s for the store: %s", patience.delay_s, error)
                await patience.wait()

    async def _all_sent(self) -> None:
        while self._is_sending:
            sent = self._shared.loop.create_future()
            self._sent.append(sent)
            await sent

    def _fail(self, error: Exception) -> None:
        with self._shared.changed:
            self._failure = error
            self._forget()
            self._is_sending = False
            self._shared.changed.notify_all()

    def _forget(self) -> None:
        if self.is_used:
            self._waiting.clear()
            self._waiting_bytes = 0
