"""Artifacts in memory for explored programs, swept at every commit, and the checks of them."""

import re
from collections.abc import AsyncIterator, Callable
from typing import Final

from perdure.core.artifacts import SCHEME, StoredArtifact, parse_name
from perdure.core.errors import ArtifactMissing
from perdure.core.journal import events as e
from perdure.core.large_payloads import read_reference
from perdure.engine.sources import Sources
from perdure.host.artifacts.artifacts import Artifacts
from perdure.host.artifacts.store import NameTaken
from perdure.host.artifacts.sweep import sweep
from perdure.host.services import Services
from perdure.store.commit.bundle import Bundle
from perdure.store.store import Store

_IN_RESULT: Final = re.compile(SCHEME.encode() + rb"([\w/-]+)")


class MemoryArtifacts:
    """An `ArtifactStore` in memory."""

    def __init__(self, now_ms: Callable[[], int] = lambda: 0) -> None:
        self.objects: dict[str, bytes] = {}
        self._now_ms = now_ms
        self._stored_at_ms: dict[str, int] = {}

    async def put(self, name: str, parts: AsyncIterator[bytes], size: int) -> None:
        del size
        if name in self.objects:
            raise NameTaken(f"artifact {name!r} exists", "names are used once")
        self.objects[name] = b"".join([part async for part in parts])
        self._stored_at_ms[name] = self._now_ms()

    async def read(self, name: str, first: int, end: int) -> bytes:
        if name not in self.objects:
            raise ArtifactMissing(f"artifact {name!r} is not in memory", "it was deleted")
        return self.objects[name][first:end]

    async def delete(self, name: str) -> None:
        self.objects.pop(name, None)

    async def list(self, prefix: str) -> AsyncIterator[StoredArtifact]:
        for name, content in sorted(self.objects.items()):
            if name.startswith(prefix):
                yield StoredArtifact(name, len(content), self._stored_at_ms[name])


class ArtifactChecker:
    """Sweeps at every commit without a grace time, and checks that what journals refer to is there."""

    def __init__(self, store: Store, sources: Sources) -> None:
        self._store = store
        self._sources = sources
        self._memory = MemoryArtifacts(sources.now_ms)
        self._artifacts = Artifacts(self._memory, orphans_after=0, sweep_every=0)
        self._referenced: set[str] = set()
        self.services = Services(self._artifacts)

    async def before_commit(self) -> None:
        """A sweep just before what an attempt has stored is referred to."""
        if self._memory.objects:
            await sweep(self._artifacts, self._store, self._sources)

    async def check(self, bundle: Bundle) -> list[str]:
        """The references of journals to objects that are not there, after another sweep."""
        found = []
        for message in bundle.messages:
            self._take_payload(message.payload)
        for appended in [*(first for _, first in bundle.created), *(a for _, a in bundle.appends)]:
            for entry in appended.entries:
                self._take_payload(entry.payload)
                if isinstance(entry.event, e.InvokeCompleted):
                    found += self._take(entry.event)
        await self.before_commit()
        lost = sorted(self._referenced - self._memory.objects.keys())
        found += [f"the journal refers to artifact {name}, which is not stored" for name in lost]
        return found

    def _take_payload(self, payload: bytes | None) -> None:
        """Note the reference to a large payload."""
        ref = None if payload is None else read_reference(payload)
        if ref is not None:
            self._referenced.add(ref.name)

    def _take(self, completed: e.InvokeCompleted) -> list[str]:
        """Note the references of an outcome. Its result may have no others, unless it got them from another step."""
        self._referenced.update(ref.uri.removeprefix(SCHEME) for ref in completed.artifacts)
        used = [found.decode() for found in _IN_RESULT.findall(completed.payload or b"")]
        return [
            f"the outcome of {completed.promise_id} does not list artifact {name} of its result"
            for name in used
            if name not in self._referenced
        ]

    async def left_over(self) -> list[str]:
        """Objects that no journal refers to, once all runs are over."""
        await self.before_commit()
        # A payload of a start that failed stays for some time; one of a run stays with the run.
        orphans = [
            name
            for name in sorted(self._memory.objects.keys() - self._referenced)
            if not (parse_name(name).is_mark or parse_name(name).is_payload)
        ]
        return [f"artifact {name} is left over" for name in orphans]
