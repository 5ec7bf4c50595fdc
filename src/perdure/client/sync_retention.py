"""Retention for sync code: `engine.retention` of a `SyncEngine`."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from perdure.authoring.tags import TagValue
from perdure.client.retention import EngineRetention, Erasure, KeptRun
from perdure.core.ids import RunId
from perdure.host.retention.passes import Retained
from perdure.host.retention.policy import Retention

if TYPE_CHECKING:
    from perdure.client.sync import SyncEngine


class SyncRetention:
    """Each method is the sync form of the same method of `EngineRetention`."""

    def __init__(self, engine: "SyncEngine", retention: EngineRetention) -> None:
        self._engine = engine
        self._retention = retention

    @property
    def policies(self) -> tuple[Retention, ...]:
        async def read() -> tuple[Retention, ...]:
            return self._retention.policies

        return self._engine.wait_for(read())

    def archive(self, run_ids: Iterable[str]) -> list[RunId]:
        return self._engine.wait_for(self._retention.archive(run_ids))

    def erase(self, run_id: str, *, by: str = "", reason: str = "", scrub: bool = True) -> Erasure:
        return self._engine.wait_for(
            self._retention.erase(run_id, by=by, reason=reason, scrub=scrub)
        )

    def scrub(self) -> bool:
        return self._engine.wait_for(self._retention.scrub())

    def purge(self, run_ids: Iterable[str]) -> list[RunId]:
        return self._engine.wait_for(self._retention.purge(run_ids))

    def run(self) -> list[Retained]:
        return self._engine.wait_for(self._retention.run())

    def preview(self) -> list[Retained]:
        return self._engine.wait_for(self._retention.preview())

    def get(self, run_id: str) -> KeptRun | None:
        return self._engine.wait_for(self._retention.get(run_id))

    def tagged(self, tags: Mapping[str, TagValue]) -> list[RunId]:
        return self._engine.wait_for(self._retention.tagged(tags))

    def verify_archive(self, run_ids: Sequence[str]) -> list[str]:
        return self._engine.wait_for(self._retention.verify_archive(run_ids))

    def compact(self, *, full: bool = True) -> bool:
        return self._engine.wait_for(self._retention.compact(full=full))
