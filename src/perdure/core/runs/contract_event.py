"""Contract events: the entries of a journal under the names of the run contract, with decoded data."""

from datetime import UTC, datetime
from hashlib import sha256
from typing import Any, Final

import msgspec

from perdure.core.ids import RunId, StepId
from perdure.core.journal.contract import EventType

ADAPTER_VERSION: Final = "perdure/1"
"""The version of the mapping from entries to contract events. It changes when the mapping does."""

_MAX_DATA_SHOWN: Final = 120
"""Characters of the data that a `repr` shows."""

_VARIANTS: Final = {digit: "89ab"[int(digit, 16) % 4] for digit in "0123456789abcdef"}
"""The digit of a UUID that has the variant in its upper two bits."""


class EngineRunRef(msgspec.Struct, frozen=True):
    """What executes a run: the program, its version, and the digest that pins its content."""

    program: str
    version: str
    digest: str
    scope: str = ""
    engine: str = "perdure"


class ContractEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An entry of a run's journal under the run contract.

    `seq` numbers the entries of the run from 0 without gaps, `offset` those of the whole chain of runs that continue
    each other; they are equal unless the run continues another. `step` is `None` for events of the run itself.

    The journal has one time for each entry: when its host appended it. The commit follows within milliseconds, so
    `emitted_at_ms` and `persisted_at_ms` are the same.
    """

    run_id: RunId
    seq: int
    offset: int
    event_id: str
    """A UUID that depends on the run and `seq` alone."""
    type: EventType
    step: StepId | None = None
    logical_attempt: int = 1
    """1, and one more after each retry of the step by an operator. 1 for events of the run itself."""
    engine_attempt: int | None = None
    """The physical attempt that the event is about."""
    data: dict[str, Any] = {}
    """The other fields of the event. An input, a result, a signal's value or an error is decoded."""
    idempotency_key: str
    emitted_at_ms: int
    persisted_at_ms: int
    adapter_version: str = ADAPTER_VERSION
    engine_run_ref: EngineRunRef
    caused_by_signal: str | None = None
    """The id of the operator's act that led to the event."""
    parent_event: str | None = None
    """The id of the event that this one follows from."""

    def __repr__(self) -> str:
        place = "" if self.step is None else f" {self.step}"
        if self.logical_attempt > 1:
            place += f" retry #{self.logical_attempt - 1}"
        if self.engine_attempt is not None:
            place += f" attempt {self.engine_attempt}"
        return f"<{self.seq} {self.type}{place} at {_time(self.emitted_at_ms)}{_shown(self.data)}>"


def _shown(data: dict[str, Any]) -> str:
    text = ", ".join(f"{name}={value!r}" for name, value in data.items())
    if len(text) > _MAX_DATA_SHOWN:
        text = f"{text[:_MAX_DATA_SHOWN]}..."
    return f": {text}" if text else ""


def _time(at_ms: int) -> str:
    try:
        return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds")
    except (OverflowError, ValueError, OSError):
        return f"{at_ms} ms"


def event_id(run_id: RunId, seq: int) -> str:
    """The id of the event at `seq` of a run's journal: a UUID of version 8, the same in every process."""
    text = sha256(f"{run_id}|{seq}".encode()).hexdigest()
    return (
        f"{text[:8]}-{text[8:12]}-8{text[13:16]}-{_VARIANTS[text[16]]}{text[17:20]}-{text[20:32]}"
    )
