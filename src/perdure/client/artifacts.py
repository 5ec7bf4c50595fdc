"""Artifacts from outside of runs: `engine.artifacts`."""

from collections.abc import AsyncIterator, Callable

from perdure.core.artifacts import name_of, run_prefix
from perdure.core.errors import InputError, UnknownRun
from perdure.core.ids import parse_run_id
from perdure.core.journal.events import ArtifactRef
from perdure.host.artifacts.artifacts import Artifacts, stream_artifact
from perdure.host.artifacts.store import ArtifactStore, DirectoryArtifacts
from perdure.host.artifacts.sweep import Swept, erase_artifacts, require_not_needed, sweep
from perdure.host.host import Host


class EngineArtifacts:
    """Reads the artifacts of an engine, and deletes them."""

    def __init__(self, host: Callable[[], Host]) -> None:
        self._host = host

    async def get(self, ref: ArtifactRef) -> bytes:
        """The whole artifact, in memory. Raises `ArtifactMissing`, and `ArtifactDamaged` if its checksum differs."""
        return b"".join([part async for part in self.stream(ref)])

    def stream(
        self, ref: ArtifactRef, first: int = 0, end: int | None = None
    ) -> AsyncIterator[bytes]:
        """The bytes `first` to `end` - 1 of an artifact, in parts.

        If these are all bytes, the checksum is compared before the last part is given. A smaller range can't be
        verified.
        """
        given = _require_ref(ref)
        name_of(given.uri)
        if first < 0 or (end is not None and end < first):
            raise InputError(f"bytes {first} to {end}", "pass 0 <= first <= end")
        return self._parts(given, first, end)

    async def _parts(self, ref: ArtifactRef, first: int, end: int | None) -> AsyncIterator[bytes]:
        async for part in stream_artifact(self._artifacts(), ref, first, end):
            yield part

    async def erase(self, run_id: str) -> int:
        """Delete all artifacts of a run that is over, and its payloads over the limit. Returns how many there were.

        Refused while a run is open that may need them: the run, its parent, a child, one that continues it.
        """
        run = parse_run_id(run_id)
        row = await self._host().dispatcher.store.run(run)
        if row is None:
            raise UnknownRun(f"run {run_id!r} is not in the store", "see its id")
        await require_not_needed(self._host().dispatcher.store, row)
        return await erase_artifacts(self._artifacts(), run_prefix(run))

    async def sweep(self) -> Swept:
        """Delete what expired, and what no outcome refers to, as hosts do in the background."""
        dispatcher = self._host().dispatcher
        return await sweep(self._artifacts(), dispatcher.store, dispatcher.sources)

    def _artifacts(self) -> Artifacts:
        return self._host().executor.requests.require_artifacts()


def _require_ref(ref: object) -> ArtifactRef:
    if not isinstance(ref, ArtifactRef):
        raise InputError(
            f"{ref!r:.200} is no artifact", "pass the ArtifactRef that a task returned"
        )
    return ref


def archive_from(given: object) -> ArtifactStore | None:
    """What an engine was given as its archive."""
    found = artifacts_from(given)
    return None if found is None else found.store


def artifacts_from(given: object) -> Artifacts | None:
    """What an engine was given as its place for artifacts."""
    if given is None or isinstance(given, Artifacts):
        return given
    if isinstance(given, str):
        return Artifacts(DirectoryArtifacts(given))
    if all(hasattr(given, name) for name in ("put", "read", "delete", "list")):
        store: ArtifactStore = given  # type: ignore[assignment]
        return Artifacts(store)
    raise InputError(
        f"artifacts is {given!r:.200}", "pass a DirectoryArtifacts, or the path of a directory"
    )
