"""Where the parts of runs are: the store, the artifacts, and the archive with its objects."""

import gzip
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256

from perdure.core.artifacts import run_prefix
from perdure.core.errors import ArtifactDamaged, CorruptJournal, InputError, UnknownRun
from perdure.core.ids import RunId
from perdure.core.journal.entry import Entry
from perdure.engine.sources import Sources
from perdure.host.artifacts.artifacts import Artifacts
from perdure.host.artifacts.store import PART_BYTES, ArtifactStore, NameTaken
from perdure.host.artifacts.sweep import erase_artifacts
from perdure.store.retention_table import RetainedRun
from perdure.store.rows.exported import ExportHeader, read_export, write_export
from perdure.store.store import Store

MOST_BYTES = 1 << 32
"""More than any object of the archive has."""


@dataclass(frozen=True)
class Places:
    """`archive` is where runs are archived: without one, where the artifacts are."""

    store: Store
    sources: Sources
    artifacts: Artifacts | None
    archive: ArtifactStore | None

    def require_archive(self) -> ArtifactStore:
        if self.archive is None:
            raise InputError(
                "the engine has no place for an archive",
                "open it with archive='a directory', or with artifacts",
            )
        return self.archive

    async def write(self, header: ExportHeader, entries: Sequence[Entry]) -> str:
        """Store the run as an object of the archive, named by its bytes. When this returns, the object is durable."""
        content = gzip.compress(b"".join(write_export(header, entries)), mtime=0)
        name = f"{archive_prefix(header.run.run_id)}{sha256(content).hexdigest()}"
        with suppress(NameTaken):  # an earlier attempt has stored the same bytes
            await self.require_archive().put(name, _in_parts(content), len(content))
        return name

    async def read(self, kept: RetainedRun) -> tuple[ExportHeader, list[Entry]]:
        """An archived run. Raises `ArtifactMissing`, or `ArtifactDamaged` if it is not what the store says of it."""
        if kept.archive is None:
            raise UnknownRun(f"run {kept.run_id!r} is not in the archive", "see when it was purged")
        content = await self.require_archive().read(kept.archive, 0, MOST_BYTES)
        try:
            header, entries = read_export(content, kept.archive)
        except CorruptJournal as error:
            raise _damaged(kept, str(error)) from error
        run = header.run
        if (run.run_id, run.seq, run.head) != (kept.run_id, kept.entries, kept.head):
            raise _damaged(kept, "it has another journal than the store says")
        if header.receipt != kept.receipt:
            raise _damaged(kept, "it has another receipt than the store")
        return header, entries

    async def clear(self, run_id: RunId) -> None:
        """Delete the objects of a run that was erased or purged, and note that none are left."""
        kept = (await self.store.retention.get([run_id]))[run_id]
        if self.artifacts is not None:
            await erase_artifacts(self.artifacts, run_prefix(run_id))
        if self.archive is not None:
            async for each in self.archive.list(archive_prefix(run_id)):
                if each.name != kept.archive:
                    await self.archive.delete(each.name)
        await self.store.retention.finish(run_id)


def archive_prefix(run_id: RunId) -> str:
    """What the names of all objects of a run in the archive begin with."""
    return f"archive/{run_prefix(run_id)}"


def _damaged(kept: RetainedRun, why: str) -> ArtifactDamaged:
    return ArtifactDamaged(
        f"archived run {kept.run_id!r} is not what was archived: {why}",
        "restore its object from a backup",
    )


async def _in_parts(content: bytes) -> AsyncIterator[bytes]:
    for first in range(0, len(content), PART_BYTES):
        yield content[first : first + PART_BYTES]
