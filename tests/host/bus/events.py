"""Events for tests of buses."""

from perdure.core.ids import RunId, StepId
from perdure.core.journal.contract import EventType
from perdure.core.runs.contract_event import ContractEvent, EngineRunRef, event_id

RUN = RunId("r_" + "0" * 31 + "1")


def contract_event(seq: int = 3, type: EventType = EventType.STEP_COMPLETED) -> ContractEvent:  # noqa: A002
    return ContractEvent(
        run_id=RUN,
        seq=seq,
        offset=seq,
        event_id=event_id(RUN, seq),
        type=type,
        step=StepId("root.0"),
        data={"result": {"total": 42, "name": "Ä"}},
        idempotency_key="ab" * 32,
        emitted_at_ms=1_700_000_000_123,
        persisted_at_ms=1_700_000_000_123,
        engine_run_ref=EngineRunRef("check out", "1", "d1", "acme/live"),
    )
