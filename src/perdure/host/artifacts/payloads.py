"""Payloads over the limit: their bytes go to the artifact store before the commit that refers to them.

A machine encodes while it drives a program, and does no I/O. So its codec notes what is to be stored, and staging
stores it before the bundle is submitted. What is read is prefetched where a coroutine may wait; a codec that still
lacks the bytes reads them, and blocks the event loop meanwhile.
"""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Coroutine, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from hashlib import sha256
from typing import Any, Final, TypeVar

from perdure.authoring.interruption import PayloadUnavailable
from perdure.core.codec import Codec
from perdure.core.errors import ArtifactDamaged, StoreError
from perdure.core.ids import RunId
from perdure.core.large_payloads import PayloadRef, read_reference, reference_to
from perdure.core.limits import MAX_LARGE_PAYLOAD_BYTES, MAX_PAYLOAD_BYTES
from perdure.core.upcasting import UpcastingCodec
from perdure.host.artifacts.artifacts import Artifacts
from perdure.host.artifacts.store import PART_BYTES, NameTaken

T = TypeVar("T")

CACHE_BYTES: Final = 64 * 1024 * 1024
"""Contents that are kept in memory, the latest ones."""

MAX_STORED: Final = 100_000
"""Names that are remembered as stored. What is forgotten is stored again, which changes nothing."""


class LargePayloads:
    """The large payloads of one host. Belongs to its event loop."""

    def __init__(self, artifacts: Artifacts, *, stores: bool = True) -> None:
        """Without `stores` nothing is noted: for replays that commit nothing."""
        self._store = artifacts.store
        self._stores = stores
        self._contents: OrderedDict[str, bytes] = OrderedDict()
        self._bytes = 0
        self._stored: OrderedDict[str, None] = OrderedDict()
        self._unstored: dict[RunId, dict[str, bytes]] = {}

    def note(self, run_id: RunId, content: bytes) -> PayloadRef:
        """The reference to bytes that are to be stored before it is committed."""
        ref = reference_to(run_id, content)
        if self._stores and ref.name not in self._stored:
            self._unstored.setdefault(run_id, {})[ref.name] = content
        self._keep(ref.name, content)
        return ref

    def store_noted(self, run_id: RunId) -> None:
        """Store what was noted for the run. Blocks; does nothing if nothing was noted."""
        noted = self._unstored.pop(run_id, None)
        for name, content in () if noted is None else noted.items():
            _wait_for(self._put(name, content))

    def forget_noted(self, run_id: RunId) -> None:
        """Nothing of what was noted for the run will be committed."""
        self._unstored.pop(run_id, None)

    async def store(self, run_id: RunId, content: bytes) -> bytes:
        """Store the bytes. Returns the payload that refers to them."""
        ref = reference_to(run_id, content)
        await self._put(ref.name, content)
        self._keep(ref.name, content)
        return ref.payload

    async def prefetch(self, payloads: Iterable[bytes | None]) -> None:
        """Read the contents of those payloads that are references, as far as memory allows."""
        total = 0
        for payload in payloads:
            ref = None if payload is None else read_reference(payload)
            if ref is None:
                continue
            self._note_stored(ref.name)
            total += ref.size
            if ref.name not in self._contents and total <= CACHE_BYTES:
                self._keep(ref.name, await self._read(ref))

    def content_of(self, payload: bytes) -> bytes:
        """The bytes that a payload refers to; the payload itself if it is no reference. May block."""
        ref = read_reference(payload)
        if ref is None:
            return payload
        content = self._contents.get(ref.name)
        if content is None:
            content = _wait_for(self._read(ref))
            self._note_stored(ref.name)
            self._keep(ref.name, content)
        return content

    async def _put(self, name: str, content: bytes) -> None:
        if name not in self._stored:
            with suppress(NameTaken):  # an earlier attempt has stored the same bytes
                await self._store.put(name, _parts_of(content), len(content))
            self._note_stored(name)

    async def _read(self, ref: PayloadRef) -> bytes:
        parts, position = [], 0
        while position < ref.size:
            part = await self._store.read(ref.name, position, min(position + PART_BYTES, ref.size))
            if not part:
                break
            parts.append(part)
            position += len(part)
        content = b"".join(parts)
        if sha256(content).hexdigest() != ref.sha256:
            raise ArtifactDamaged(
                f"large payload {ref.name!r} is not what was stored", "restore it from a backup"
            )
        return content

    def _note_stored(self, name: str) -> None:
        self._stored[name] = None
        if len(self._stored) > MAX_STORED:
            self._stored.popitem(last=False)

    def _keep(self, name: str, content: bytes) -> None:
        if name in self._contents:
            self._contents.move_to_end(name)
            return
        self._contents[name] = content
        self._bytes += len(content)
        while self._bytes > CACHE_BYTES:
            _, dropped = self._contents.popitem(last=False)
            self._bytes -= len(dropped)


async def _parts_of(content: bytes) -> AsyncIterator[bytes]:
    for first in range(0, len(content), PART_BYTES):
        yield content[first : first + PART_BYTES]


def _wait_for(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine in an event loop of its own, in a thread, and wait for it."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, work).result()


class ReadingCodec:
    """Reads large payloads, and writes none: values over the limit are refused as ever."""

    def __init__(self, inner: Codec, large: LargePayloads) -> None:
        self._inner = inner
        self._large = large
        self.encode = inner.encode

    def decode(self, payload: bytes, wanted: type[T]) -> T:
        return self._inner.decode(self._large.content_of(payload), wanted)

    def plain(self, payload: bytes) -> bytes:
        content = self._large.content_of(payload)
        plain = getattr(self._inner, "plain", None)
        return content if plain is None else bytes(plain(content))

    def of_run(self, run_id: RunId) -> "RunCodec":
        """The codec of a run's machine."""
        return RunCodec(self._inner, self._large, run_id)


class RunCodec(ReadingCodec):
    """Writes large payloads, too, which belong to one run. Staging stores them before the commit."""

    def __init__(self, inner: Codec, large: LargePayloads, run_id: RunId) -> None:
        super().__init__(inner, large)
        self._run_id = run_id
        self.encode = self._encode

    def decode(self, payload: bytes, wanted: type[T]) -> T:
        try:
            content = self._large.content_of(payload)
        except StoreError as error:
            # Not an outcome of the program: it must not be able to catch this.
            raise PayloadUnavailable from error
        return self._inner.decode(content, wanted)

    def _encode(self, value: object, *, limit: int = MAX_PAYLOAD_BYTES) -> bytes:
        payload = self._inner.encode(value, limit=MAX_LARGE_PAYLOAD_BYTES)
        if len(payload) <= limit:
            return payload
        return self._large.note(self._run_id, payload).payload


def reading_large(codec: Codec, large: LargePayloads) -> Codec:
    """The codec, which also reads large payloads; upcasters get what they hold."""
    if isinstance(codec, UpcastingCodec):
        return codec.around(lambda inner: ReadingCodec(inner, large))
    return ReadingCodec(codec, large)


class LargeCodec:
    """Encodes values of any size up to the limit of large payloads: the caller stores what is over the usual limit."""

    def __init__(self, inner: Codec) -> None:
        self._inner = inner
        self.decode = inner.decode

    def encode(self, value: object, *, limit: int = MAX_PAYLOAD_BYTES) -> bytes:
        return self._inner.encode(value, limit=max(limit, MAX_LARGE_PAYLOAD_BYTES))
