"""Writes the chunks that tasks append to streams: without delay, in order, and before the outcome of the attempt."""

import asyncio
import logging
from collections import Counter, deque
from threading import Condition, Lock, get_ident
from typing import Final

from perdure.authoring.values.failures import encode_failure
from perdure.core.errors import (
    CommitRejected,
    PayloadTooLarge,
    RunEnded,
    StoreClosed,
    StoreError,
)
from perdure.core.streams.chunks import ChunkOrigin, NewChunk
from perdure.engine.runs.attempt_outcome import AttemptOutcome
from perdure.host.backoff import Backoff
from perdure.host.context import HostContext
from perdure.host.tasks.attempt import Attempt, Chunks
from perdure.host.tasks.exposure import encode_sent
from perdure.store.commit.bundle import Bundle

log = logging.getLogger("perdure.host")

MAX_WAITING_BYTES: Final = 16 * 1024 * 1024
"""Appended bytes of one attempt that the store has not written yet. Beyond it a thread waits; a coroutine, which can't,
gets an error."""

BATCH_BYTES: Final = 1024 * 1024
"""Bytes in one commit. More would delay its first chunk, which becomes durable with the last."""

CHUNK_BYTES: Final = 256
"""Memory that a chunk takes in addition to its payload."""


class StreamWriter:
    """What all chunk writers of one host share."""

    def __init__(self, context: HostContext) -> None:
        self.context = context
        self.loop = asyncio.get_running_loop()
        self.lock = Lock()
        """Guards every writer."""
        self.changed = Condition(self.lock)
        """Notified when a writer has room again, has ended or has failed."""
        self._thread = get_ident()

    @property
    def is_in_loop(self) -> bool:
        """Whether this is the thread of the event loop, which must not wait."""
        return get_ident() == self._thread

    def chunks_of(self, attempt: Attempt) -> Chunks:
        """The chunk writer of an attempt, created at the first call. Any thread may call this."""
        with self.lock:
            if attempt.chunks is None:
                attempt.chunks = ChunkWriter(self, attempt)
            return attempt.chunks


class ChunkWriter:
    """Takes the chunks of one attempt; none if the attempt is over already."""

    __slots__ = ("_attempt", "_is_open", "_pipe", "_shared")

    def __init__(self, shared: StreamWriter, attempt: Attempt) -> None:
        self._shared = shared
        self._attempt = attempt
        self._is_open = not attempt.is_over
        self._pipe: Pipe | None = None

    def append(self, name: str, value: object) -> None:
        """Append a chunk. It is durable soon, and before the outcome of the attempt."""
        shared = self._shared
        payload = encode_sent(
            shared.context.task_codec,
            self._attempt,
            name,
            value,
            lambda: f"a chunk of stream {name!r} appended by {self._attempt.text}",
        )
        with shared.lock:
            self._require_open(name)
            pipe = self._pipe
            if pipe is None:
                pipe = self._pipe = Pipe(shared, self._attempt)
            while not pipe.has_room(len(payload)):
                if shared.is_in_loop:
                    raise pipe.overrun(name)
                shared.changed.wait()
                self._require_open(name)
            is_idle = pipe.put(name, payload)
        if is_idle and shared.is_in_loop:
            pipe.begin()
        elif is_idle:
            shared.loop.call_soon_threadsafe(pipe.begin)

    async def flush(self) -> None:
        """Wait until all appended chunks are durable; raises the error if they can't be."""
        pipe, shared = self._pipe, self._shared
        if pipe is None:
            return
        if shared.is_in_loop:
            await pipe.emptied()
        else:
            emptied = asyncio.run_coroutine_threadsafe(pipe.emptied(), shared.loop)
            await asyncio.wrap_future(emptied)
        if pipe.failure is not None:
            raise pipe.failure

    def end(self) -> bool:
        """The attempt is over: take no more chunks. Returns whether there are chunks to settle."""
        with self._shared.lock:
            self._is_open = False
            if self._pipe is None:
                return False
            self._shared.changed.notify_all()
            return True

    async def settle(self, outcome: AttemptOutcome) -> AttemptOutcome:
        """Wait until all chunks are durable or have failed. Returns the outcome to report: a failure if they have."""
        failure = None
        if self._pipe is not None:
            await self._pipe.emptied()
            failure = self._pipe.failure
        if failure is None or not outcome.ok:
            return outcome
        if not isinstance(failure, CommitRejected):
            # The store is closed: the next owner of the run finds the step in doubt.
            raise failure
        may_retry = self._attempt.task.retry.covers(failure)
        return AttemptOutcome(False, encode_failure(self._shared.context.codec, failure), may_retry)

    def close(self) -> None:
        """The attempt is over. Unless `end` came first, chunks that are not durable yet are dropped."""
        if self._is_open and self.end() and self._pipe is not None:
            self._pipe.drain()

    def _require_open(self, name: str) -> None:
        if self._pipe is not None and self._pipe.failure is not None:
            raise self._pipe.failure
        if not self._is_open:
            raise self._attempt.after_end_error(f"stream {name!r} is appended to", "append")


class Pipe:
    """The chunks of one attempt that are not durable yet. One commit at a time; later chunks go into the next."""

    def __init__(self, shared: StreamWriter, attempt: Attempt) -> None:
        info = attempt.info
        self._shared = shared
        self._run_id = info.run_id
        self._origin = ChunkOrigin(info.step, info.attempt, attempt.claim)
        self._numbers: Counter[str] = Counter()
        """The number of chunks appended to each stream."""
        self._waiting: deque[NewChunk] = deque()
        self._waiting_bytes = 0
        self._is_sending = False
        self._awaiting: list[asyncio.Future[None]] = []
        """Set when no chunk is left to send."""
        self.failure: Exception | None = None
        """Why no more chunks can be written."""

    def has_room(self, size: int) -> bool:
        """Whether a payload of that size may be appended now. The caller holds the lock."""
        whole = self._waiting_bytes + size + CHUNK_BYTES
        return not self._waiting or whole <= MAX_WAITING_BYTES

    def overrun(self, name: str) -> PayloadTooLarge:
        return PayloadTooLarge(
            f"{self._waiting_bytes:,} bytes of chunks wait to be written, and the limit is "
            f"{MAX_WAITING_BYTES:,}",
            f"await flush() of stream {name!r} now and then",
        )

    def put(self, name: str, payload: bytes) -> bool:
        """Append a chunk. Returns whether the caller must call `begin`. The caller holds the lock."""
        at_ms, number = self._shared.context.sources.now_ms(), self._numbers[name]
        self._numbers[name] += 1
        self._waiting.append(NewChunk(self._run_id, name, self._origin, number, payload, at_ms))
        self._waiting_bytes += len(payload) + CHUNK_BYTES
        is_idle, self._is_sending = not self._is_sending, True
        return is_idle

    def begin(self) -> None:
        """Start to send, in the thread of the event loop."""
        self._shared.context.spawn(self._send())

    async def emptied(self) -> None:
        """Wait until all chunks are durable or have failed."""
        while self._is_sending:
            awaiting = self._shared.loop.create_future()
            self._awaiting.append(awaiting)
            await awaiting

    def drain(self) -> None:
        """Drop the chunks that wait."""
        with self._shared.lock:
            self._waiting.clear()
            self._waiting_bytes = 0

    async def _send(self) -> None:
        watchers = self._shared.context.watchers
        try:
            while batch := self._next_batch():
                await self._commit(batch)
                for name in {chunk.name for chunk in batch}:
                    watchers.grown((self._run_id, name))
        except RunEnded as error:
            # Chunks of a run that is over have no readers: the task gets the error, and it is not logged.
            self._fail(error)
        except (CommitRejected, StoreError) as error:
            log.error("chunks of run %s can't be written: %s", self._run_id, error)  # noqa: TRY400 - raised elsewhere
            self._fail(error)
        except Exception as error:
            self._fail(error)
            raise
        except BaseException:
            self._fail(
                StoreClosed(
                    "the host was stopped",
                    "the step is in doubt: the next owner of the run resolves it",
                )
            )
            raise
        finally:
            awaiting, self._awaiting = self._awaiting, []
            for each in awaiting:
                if not each.done():
                    each.set_result(None)

    def _next_batch(self) -> list[NewChunk]:
        """The chunks to commit next. If there are none, sending stops."""
        batch, size = [], 0
        with self._shared.lock:
            while self._waiting and size < BATCH_BYTES:
                batch.append(self._waiting.popleft())
                size += len(batch[-1].payload) + CHUNK_BYTES
            self._waiting_bytes -= size
            self._is_sending = bool(batch)
            self._shared.changed.notify_all()
        return batch

    async def _commit(self, batch: list[NewChunk]) -> None:
        bundle = Bundle()
        for chunk in batch:
            bundle.append_chunk(chunk)
        backoff = Backoff(self._shared.context.outage)
        while True:
            try:
                # Safe to repeat: the store does not write a chunk twice.
                await self._shared.context.store.commit(bundle)
            except StoreClosed:
                raise
            except StoreError as error:
                backoff.blame(error, "chunks of a stream")
                await backoff.wait()
            else:
                backoff.renew()
                return

    def _fail(self, error: Exception) -> None:
        with self._shared.lock:
            self.failure = error
            self._is_sending = False
            self._shared.changed.notify_all()
        self.drain()
