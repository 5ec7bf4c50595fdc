"""Artifacts in memory for explored programs, swept at every commit, and the checks of them."""

import re
from collections.abc import AsyncIterator
from typing import Final

from perdure.core.artifacts import SCHEME, StoredArtifact, parse_name
from perdure.core.errors import ArtifactMissing
from perdure.core.journal import events as e
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

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}

    async def put(self, name: str, parts: AsyncIterator[bytes], size: int) -> None:
        del size
        if name in self.objects:
            raise NameTaken(f"artifact {name!r} exists", "names are used once")
        self.objects[name] = b"".join([part async for part in parts])

    async def read(self, name: str, first: int, end: int) -> bytes:
        if name not in self.objects:
            raise ArtifactMissing(f"artifact {name!r} is not in memory", "it was deleted")
        return self.objects[name][first:end]

    async def delete(self, name: str) -> None:
        self.objects.pop(name, None)

    async def list(self, prefix: str) -> AsyncIterator[StoredArtifact]:
        for name, content in sorted(self.objects.items()):
            if name.startswith(prefix):
                yield StoredArtifact(name, len(content), 0)


class ArtifactChecker:
    """Sweeps at every commit without a grace time, and checks that what journals refer to is there."""

    def __init__(self, store: Store, sources: Sources) -> None:
        self._store = store
        self._sources = sources
        self._memory = MemoryArtifacts()
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
        for appended in [*(first for _, first in bundle.created), *(a for _, a in bundle.appends)]:
            for entry in appended.entries:
                if isinstance(entry.event, e.InvokeCompleted):
                    found += self._take(entry.event)
        await self.before_commit()
        lost = sorted(self._referenced - self._memory.objects.keys())
        found += [f"the journal refers to artifact {name}, which is not stored" for name in lost]
        return found

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
        orphans = [name for name in self._memory.objects if name not in self._referenced]
        return [f"artifact {name} is left over" for name in orphans if not parse_name(name).is_mark]
