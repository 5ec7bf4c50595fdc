"""Stores artifacts, reads them back, and verifies what is read."""

import asyncio
import os
from collections.abc import AsyncIterator, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

from perdure.authoring.context import ArtifactData
from perdure.authoring.durations import Duration, milliseconds
from perdure.core.artifacts import SCHEME, ArtifactName, name_of
from perdure.core.errors import ArtifactDamaged, InputError
from perdure.core.ids import RunId
from perdure.core.journal.events import ArtifactRef
from perdure.host.artifacts.store import PART_BYTES, ArtifactStore


class Artifacts:
    """Where artifacts are kept and for how long: `Engine(url, artifacts=Artifacts(store, keep={"log": 7 * 86400}))`.

    `keep` says how long artifacts of a kind stay after they are stored; others stay until their run is erased. Nothing
    of an open run is ever deleted. `orphans_after` is how long an object stays that no outcome refers to, because its
    attempt failed or its host died. Hosts look for what to delete every `sweep_every`; with 0 they don't.
    """

    def __init__(
        self,
        store: ArtifactStore,
        *,
        keep: Mapping[str, Duration] | None = None,
        orphans_after: Duration = 86_400,
        sweep_every: Duration = 3_600,
    ) -> None:
        self.store = store
        self.keep_ms = {
            kind: milliseconds(each, f"keep[{kind!r}]") for kind, each in (keep or {}).items()
        }
        self.grace_ms = milliseconds(orphans_after, "orphans_after")
        self.sweep_every_s = milliseconds(sweep_every, "sweep_every") / 1000


async def store_artifact(
    artifacts: Artifacts,
    run_id: RunId,
    data: ArtifactData,
    kind: str,
    now_ms: int,
    expires_ms: int | None,
    nonce: str,
) -> ArtifactRef:
    """Store the data as an artifact of the run. When this returns, the object is durable."""
    keep_ms = artifacts.keep_ms.get(kind) if expires_ms is None else expires_ms
    expires_at_ms = None if keep_ms is None else now_ms + keep_ms
    name = str(ArtifactName(run_id, expires_at_ms or 0, nonce))
    parts = _Parts(data)
    await artifacts.store.put(name, parts.read(), await parts.size_hint())
    return ArtifactRef(SCHEME + name, kind, parts.digest.hexdigest(), parts.size, expires_at_ms)


class _Parts:
    """The parts of what is stored; counts and hashes them as they are read."""

    def __init__(self, data: ArtifactData) -> None:
        if isinstance(data, str):
            data = data.encode()
        if not isinstance(data, bytes | os.PathLike):
            raise InputError(
                f"an artifact of type {type(data).__qualname__!r}",
                "pass bytes, a text, or the path of a file as a pathlib.Path",
            )
        self._data: bytes | os.PathLike[str] = data
        self.digest = sha256()
        self.size = 0

    async def size_hint(self) -> int:
        data = self._data
        if isinstance(data, bytes):
            return len(data)
        return (await asyncio.to_thread(Path(data).stat)).st_size

    async def read(self) -> AsyncIterator[bytes]:
        data = self._data
        if isinstance(data, bytes):
            for first in range(0, len(data), PART_BYTES):
                yield self._counted(data[first : first + PART_BYTES])
            return
        # Not opened in a thread: a cancelled attempt would never get the open file.
        with Path(data).open("rb") as file:  # noqa: ASYNC230
            while part := await asyncio.to_thread(file.read, PART_BYTES):
                yield self._counted(part)

    def _counted(self, part: bytes) -> bytes:
        self.digest.update(part)
        self.size += len(part)
        return part


async def stream_artifact(
    artifacts: Artifacts, ref: ArtifactRef, first: int, end: int | None
) -> AsyncIterator[bytes]:
    """The bytes `first` to `end` - 1 of an artifact, in parts. A whole artifact is verified: if its bytes are not those
    that were stored, the last part is not given and `ArtifactDamaged` is raised."""
    name = str(name_of(ref.uri))
    size = ref.size_bytes or 0
    last = size if end is None else min(end, size)
    is_whole = first == 0 and last == size
    digest: Any = sha256()
    position = first
    while position < last:
        part = await artifacts.store.read(name, position, min(position + PART_BYTES, last))
        if not part:
            raise _damaged(ref, f"ends at byte {position:,} of {size:,}")
        digest.update(part)
        position += len(part)
        if is_whole and position == last and digest.hexdigest() != ref.sha256:
            break
        yield part
    if is_whole and digest.hexdigest() != ref.sha256:
        raise _damaged(ref, f"has the checksum {digest.hexdigest()}, not {ref.sha256}")


def _damaged(ref: ArtifactRef, how: str) -> ArtifactDamaged:
    return ArtifactDamaged(f"artifact {ref.uri!r} {how}", "restore it from a backup")
