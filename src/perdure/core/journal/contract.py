"""Event names and idempotency keys of the run contract, computed from the journal's entries.

Sequence numbers are the same. Events that the contract has no name for keep their own.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from hashlib import sha256
from typing import Final

from perdure.core.ids import RunId
from perdure.core.journal import events as e
from perdure.core.journal.invariants import Recorded

RUN_STEP: Final = "RUN"
"""The step in the keys of run-level events."""

_NAMES: Final[dict[type[e.Event], str]] = {
    e.ExecutionStarted: "RunStarted",
    e.ExecutionCompleted: "RunCompleted",
    e.ExecutionFailed: "RunFailed",
    e.ExecutionCancelled: "RunCancelled",
    e.InvokeStarted: "StepStarted",
}


def contract_name(event: e.Event) -> str:
    """The event's name in the run contract."""
    if isinstance(event, e.InvokeCompleted):
        return "StepCompleted" if event.ok else "StepFailed"
    return _NAMES.get(type(event), type(event).__name__)


def step_of(event: e.Event) -> str:
    """The step that an event belongs to, or `RUN`."""
    return getattr(event, "promise_id", None) or getattr(event, "join_set_id", None) or RUN_STEP


def idempotency_key(
    run_id: RunId, step: str, logical_attempt: int, event_type: str, plan_version: str
) -> str:
    """The key of one event: the same for every engine attempt of one logical attempt."""
    text = f"{run_id}|{step}|{logical_attempt}|{event_type}|{plan_version}"
    return sha256(text.encode()).hexdigest()


def keys(run_id: RunId, plan_version: str, journal: Iterable[Recorded]) -> Iterator[str]:
    """The key of each entry, in order. The n-th event of one type and step adds `#n` to the type.

    Terminal step events occur once per logical attempt, so they have no number.
    """
    seen: Counter[tuple[str, str]] = Counter()
    for entry in journal:
        step, name = step_of(entry.event), contract_name(entry.event)
        seen[step, name] += 1
        count = seen[step, name]
        yield idempotency_key(
            run_id, step, 1, name if count == 1 else f"{name}#{count}", plan_version
        )
