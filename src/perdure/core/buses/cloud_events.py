"""Contract events as CloudEvents 1.0 in JSON."""

from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import quote

import msgspec

from perdure.core.runs.contract_event import ContractEvent

CONTENT_TYPE: Final = "application/cloudevents+json"


def cloud_event(event: ContractEvent) -> dict[str, Any]:
    """The event as a CloudEvent: `id` is the same each time it is published, `sequence` its place in the run's journal.

    `source` names the program, `subject` the run; all fields of the contract event are in `data`.
    """
    ref = event.engine_run_ref
    scope = f"/{quote(ref.scope, safe='')}" if ref.scope else ""
    time = datetime.fromtimestamp(event.emitted_at_ms / 1000, UTC)
    return {
        "specversion": "1.0",
        "id": event.event_id,
        "source": f"/perdure{scope}/{quote(ref.program, safe='')}",
        "type": f"perdure.{event.type}",
        "subject": event.run_id,
        "time": time.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "sequence": f"{event.seq:010d}",
        "datacontenttype": "application/json",
        "data": msgspec.to_builtins(event),
    }


def cloud_event_json(event: ContractEvent) -> bytes:
    """The CloudEvent as JSON, the same bytes each time."""
    return msgspec.json.encode(cloud_event(event))
