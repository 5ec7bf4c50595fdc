"""Who paused a run, and which of its steps are parked, by its journal."""

from collections.abc import Callable, Iterable

import msgspec

from perdure.core.ids import StepId
from perdure.core.journal import events as e
from perdure.core.journal.entry import Entry


class PauseRecord(msgspec.Struct, frozen=True):
    """A pause that no resume has ended. `by` is empty if the act named no operator."""

    since_ms: int
    reason: str = ""
    by: str = ""
    command: str = ""


class StepParking(msgspec.Struct, frozen=True):
    """A step that waits for an operator. `error` is what its last attempt raised."""

    step: StepId
    task: str
    error: str
    since_ms: int
    command: str = ""


def pause_of(entries: Iterable[Entry]) -> PauseRecord | None:
    """The pause that is in force."""
    found: PauseRecord | None = None
    actors: dict[str, str] = {}
    for entry in entries:
        match entry.event:
            case e.SignalAccepted(signal_id=signal, by=by):
                actors[signal] = by
            case e.RunPaused(reason=reason, signal_id=signal_id):
                found = PauseRecord(entry.at_ms, reason, actors.get(signal_id or "", ""))
            case e.RunResumed():
                found = None
            case _:
                pass
    return found


def parked_steps_of(
    entries: Iterable[Entry], error_text: Callable[[bytes | None], str]
) -> list[StepParking]:
    """The steps that are parked, in the order in which they were."""
    names: dict[StepId, str] = {}
    found: dict[StepId, StepParking] = {}
    for entry in entries:
        match entry.event:
            case e.InvokeScheduled(promise_id=step, function_name=name):
                names[step] = name
            case e.InvokeRetrying(promise_id=step, payload=payload) if entry.event.parks:
                error = error_text(payload)
                found[step] = StepParking(step, names.get(step, ""), error, entry.at_ms)
            case e.InvokeCompleted(promise_id=step) | e.StepSkipped(promise_id=step):
                found.pop(step, None)
            case e.InvokeStarted(promise_id=step):
                found.pop(step, None)
            case _:
                pass
    return list(found.values())
