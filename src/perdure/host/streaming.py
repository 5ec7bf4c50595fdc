"""Chunks that tasks append to streams, on their way to the store: at once, in order, and before the outcome."""

import asyncio
import logging
from collections import Counter, deque
from threading import Condition, Lock, get_ident
from typing import Final

from perdure.authoring.failures import encode_failure
from perdure.core.errors import (
    CommitRejected,
    PayloadTooLarge,
    RunEnded,
    StoreClosed,
    StoreError,
)
from perdure.core.streams.chunks import NewChunk, Origin
from perdure.engine.replay.facts import Outcome
from perdure.host.body import Body, Chunks
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
        self.lock = Lock()
        """Guards every writer."""
        self.changed = Condition(self.lock)
        """Notified when a writer has room again, or never will have."""
        self._thread = get_ident()

    @property
    def is_in_loop(self) -> bool:
        """Whether this is the thread of the event loop, which must not wait."""
        return get_ident() == self._thread

    def chunks_of(self, body: Body) -> Chunks:
        """The writer of a body, made once, from whichever thread it is asked for."""
        with self.lock:
            if body.chunks is None:
                body.chunks = ChunkWriter(self, body)
            return body.chunks


class ChunkWriter:
    """Where the chunks of one body go. One that is over when it is made takes nothing in."""

    __slots__ = ("_body", "_is_open", "_pipe", "_shared")

    def __init__(self, shared: Streaming, body: Body) -> None:
        self._shared = shared
        self._body = body
        self._is_open = not body.is_over
        self._pipe: Pipe | None = None

    def append(self, name: str, value: object) -> None:
        """Take a chunk in. It is durable soon, and before the outcome of the body is."""
        shared = self._shared
        payload = shared.host.codec.encode(value)
        with shared.lock:
            self._require_open(name)
            pipe = self._pipe
            if pipe is None:
                pipe = self._pipe = Pipe(shared, self._body)
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
        """Wait until all that was appended is durable; raises what kept it from being."""
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
        """The body is over: take nothing more in. Returns whether there is anything to settle."""
        with self._shared.lock:
            self._is_open = False
            if self._pipe is None:
                return False
            self._shared.changed.notify_all()
            return True

    async def settle(self, outcome: Outcome) -> Outcome:
        """What is to be reported of the body, once all its chunks are durable or can't be."""
        failure = None
        if self._pipe is not None:
            await self._pipe.emptied()
            failure = self._pipe.failure
        if failure is None or not outcome.ok:
            return outcome
        if not isinstance(failure, CommitRejected):
            # The store is closed: whoever has the run next finds the step in doubt.
            raise failure
        may_retry = self._body.task.retry.covers(failure)
        return Outcome(False, encode_failure(self._shared.host.codec, failure), may_retry)

    def close(self) -> None:
        """The task of the body is over. If that was not ended before, nobody wants what it has."""
        if self._is_open and self.end() and self._pipe is not None:
            self._pipe.drain()

    def _require_open(self, name: str) -> None:
        if self._pipe is not None and self._pipe.failure is not None:
            raise self._pipe.failure
        if not self._is_open:
            raise self._body.too_late(f"stream {name!r} is appended to", "append")


class Pipe:
    """The chunks of one body that are not durable yet. One commit at a time; what comes meanwhile goes next."""

    def __init__(self, shared: Streaming, body: Body) -> None:
        info = body.info
        self._shared = shared
        self._run_id = info.run_id
        self._origin = Origin(info.step, info.attempt, body.claim)
        self._numbers: Counter[str] = Counter()
        """How many chunks each stream was given."""
        self._waiting: deque[NewChunk] = deque()
        self._waiting_bytes = 0
        self._is_sending = False
        self._awaiting: list[asyncio.Future[None]] = []
        """Whom to tell when nothing is left."""
        self.failure: Exception | None = None
        """Why no chunk will be written any more."""

    def has_room(self, size: int) -> bool:
        """Under the lock: whether a payload of that size may come in."""
        whole = self._waiting_bytes + size + CHUNK_BYTES
        return not self._waiting or whole <= MAX_WAITING_BYTES

    def overrun(self, name: str) -> PayloadTooLarge:
        return PayloadTooLarge(
            f"{self._waiting_bytes:,} bytes of chunks wait to be written, and the limit is "
            f"{MAX_WAITING_BYTES:,}",
            f"await flush() of stream {name!r} now and then",
        )

    def put(self, name: str, payload: bytes) -> bool:
        """Under the lock: take a chunk in. Returns whether somebody has to begin to send."""
        at_ms, number = self._shared.host.sources.now_ms(), self._numbers[name]
        self._numbers[name] += 1
        self._waiting.append(NewChunk(self._run_id, name, self._origin, number, payload, at_ms))
        self._waiting_bytes += len(payload) + CHUNK_BYTES
        is_idle, self._is_sending = not self._is_sending, True
        return is_idle

    def begin(self) -> None:
        self._shared.host.spawn(self._send())

    async def emptied(self) -> None:
        """Wait until nothing is left: all is written, or nothing more will be."""
        while self._is_sending:
            awaiting = self._shared.loop.create_future()
            self._awaiting.append(awaiting)
            await awaiting

    def drain(self) -> None:
        """Forget what waits."""
        with self._shared.lock:
            self._waiting.clear()
            self._waiting_bytes = 0

    async def _send(self) -> None:
        watchers = self._shared.host.watchers
        try:
            while batch := self._next_batch():
                await self._commit(batch)
                for name in {chunk.name for chunk in batch}:
                    watchers.grown((self._run_id, name))
        except RunEnded as error:
            # Nobody reads what an attempt says when its run is over: the task is told, and that is all.
            self._fail(error)
        except (CommitRejected, StoreError) as error:
            log.error("what a task streamed can't be written: %s", error)  # noqa: TRY400 - raised elsewhere
            self._fail(error)
        except Exception as error:
            self._fail(error)
            raise
        except BaseException:
            self._fail(StoreClosed("the host was stopped", "the step is begun again elsewhere"))
            raise
        finally:
            awaiting, self._awaiting = self._awaiting, []
            for each in awaiting:
                if not each.done():
                    each.set_result(None)

    def _next_batch(self) -> list[NewChunk]:
        """What is committed next. If that is nothing, nobody sends any more."""
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

    def _fail(self, error: Exception) -> None:
        with self._shared.lock:
            self.failure = error
            self._is_sending = False
            self._shared.changed.notify_all()
        self.drain()
