"""The projector: snapshots from contract events, without the store."""

from collections.abc import Iterable

from perdure.core.ids import parse_run_id
from perdure.core.runs.contract_event import ContractEvent
from perdure.core.runs.projection import Projection, has_gap
from perdure.core.runs.snapshot import RunSnapshot


class SnapshotProjector:
    """Projects contract events to snapshots. It has no state: the watermark is in the snapshot.

    Events are applied in the order of their `offset`. Those that the snapshot has are passed over, so applying events
    again changes nothing. At a gap the projection halts: the snapshot keeps its watermark and names the missing event,
    and continues when it is given that event.
    """

    def project_run(self, run_id: str, events: Iterable[ContractEvent]) -> RunSnapshot:
        """The snapshot of a run, or of the chain that began with it, from its first event on."""
        return self.incremental_project(RunSnapshot(run_id=parse_run_id(run_id)), events)

    def incremental_project(
        self, snapshot: RunSnapshot, events: Iterable[ContractEvent]
    ) -> RunSnapshot:
        """A new snapshot, with the events after `snapshot.last_event_seq` applied."""
        projection = Projection(snapshot)
        projection.apply(events)
        return projection.snapshot()

    def detect_gaps(self, last_seq: int, next_seq: int) -> bool:
        """Whether events are missing between the last that was applied and the next that came."""
        return has_gap(last_seq, next_seq)
