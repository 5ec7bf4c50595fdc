"""What tasks ask of their host besides running: secrets, artifacts, resources."""

from perdure.authoring.context import ArtifactData
from perdure.core.errors import (
    ArtifactDamaged,
    ArtifactMissing,
    NoArtifactStore,
    StoreError,
    UnknownRun,
)
from perdure.core.ids import RunId
from perdure.core.journal.events import ArtifactRef
from perdure.host.artifacts.artifacts import Artifacts, store_artifact
from perdure.host.backoff import Backoff
from perdure.host.context import HostContext
from perdure.host.secrets import read_secret
from perdure.host.tasks.resources import Resources


class TaskRequests:
    """One per host, for all its attempts."""

    def __init__(self, context: HostContext) -> None:
        self._context = context
        self.resources = Resources(context.services.resources)

    async def secret(self, run_id: RunId, name: str) -> str:
        """The value of a secret for the scope of the run. Reads the run's row."""
        run = await self._context.store.run(run_id)
        if run is None:
            raise UnknownRun(f"run {run_id!r} is not in the store", "it was purged")
        return await read_secret(self._context.services.secrets, name, run.scope)

    async def put_artifact(
        self, run_id: RunId, data: ArtifactData, kind: str, expires_ms: int | None
    ) -> ArtifactRef:
        """Store an artifact of the run. Nothing refers to it until the outcome of the attempt is durable."""
        sources = self._context.sources
        artifacts = self.require_artifacts()
        return await store_artifact(
            artifacts, run_id, data, kind, sources.now_ms(), expires_ms, sources.entropy(16).hex()
        )

    async def prefetch(self, payload: bytes) -> None:
        """Read the input of an attempt, or what a message carries, if it is large. Tries until the store answers or the
        host stops; what is missing is reported where it is decoded."""
        payloads, backoff = self._context.payloads, Backoff(self._context.outage)
        assert payloads is not None  # noqa: S101 - the caller has asked
        while True:
            try:
                await payloads.prefetch((payload,))
            except (ArtifactMissing, ArtifactDamaged):
                return
            except StoreError as error:
                if self._context.stopping.is_set():
                    return
                backoff.blame(error, "a large payload")
                await backoff.wait(self._context.stopping)
            else:
                backoff.renew()
                return

    async def store_result(self, run_id: RunId, content: bytes) -> bytes:
        """Store a result over the limit; returns the payload that refers to it. Tries until the store answers: the
        task has done its work."""
        context = self._context
        assert context.payloads is not None  # noqa: S101 - without them no result is over the limit
        backoff = Backoff(context.outage)
        while True:
            try:
                payload = await context.payloads.store(run_id, content)
            except StoreError as error:
                backoff.blame(error, f"a large result of run {run_id}")
                await backoff.wait()
            else:
                backoff.renew()
                return payload

    def require_artifacts(self) -> Artifacts:
        artifacts = self._context.services.artifacts
        if artifacts is None:
            raise NoArtifactStore(
                "this engine has no place for artifacts",
                "pass one: Engine(url, artifacts=DirectoryArtifacts('artifacts'))",
            )
        return artifacts
