"""Deliberate bugs in the projector, which its properties must catch."""

from collections.abc import Iterable

import msgspec

from perdure.core.runs.contract_event import ContractEvent
from perdure.core.runs.projector import SnapshotProjector
from perdure.core.runs.snapshot import RunSnapshot


class SkipsGaps(SnapshotProjector):
    """Applies what comes, though events before it are missing."""

    def incremental_project(
        self, snapshot: RunSnapshot, events: Iterable[ContractEvent]
    ) -> RunSnapshot:
        for event in events:
            if event.offset > snapshot.last_event_seq + 1:
                snapshot = msgspec.structs.replace(snapshot, last_event_seq=event.offset - 1)
            snapshot = super().incremental_project(snapshot, [event])
        return snapshot
