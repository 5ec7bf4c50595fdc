"""How a step that nobody wants any more is given up, wherever it is kept."""

from typing import TYPE_CHECKING

from perdure.authoring.failures import encode_failure
from perdure.authoring.signal import Receive
from perdure.core.errors import StepCancelled
from perdure.core.ids import RunId
from perdure.core.journal import events as e
from perdure.core.messages import Message
from perdure.core.replay.identity import cancel_guid, retry_guid, timer_guid
from perdure.engine.replay.effects import Acknowledge, DropWork, Effect, Enqueue
from perdure.engine.replay.promise import DurablePromise, Place

if TYPE_CHECKING:
    from perdure.engine.machine import RunMachine
    from perdure.engine.replay.machine import Machine


def abandon_leaf(machine: "Machine", promise: DurablePromise) -> None:
    """Settle a promise that is not a branch, as cancelled; a started one with an outcome, another with a skip."""
    step = promise.step
    failure = StepCancelled(f"step {step} ({promise.name}) was cancelled", "it has no result")
    if isinstance(promise.operation, Receive):
        machine.signals.give_up(promise, promise.operation.signal.name)
    elif promise.attempt:
        payload = encode_failure(machine.codec, failure)
        settled = e.InvokeCompleted(step, promise.attempt, False, payload=payload)
        machine.record.emit(settled, undo(machine, promise))
    else:
        machine.record.emit(e.StepSkipped(step, "cancelled", 1), undo(machine, promise))
    if promise.place is Place.LOCAL:
        machine.unwanted.append(step)
    promise.failure = failure
    machine.settle(promise)


def undo(machine: "RunMachine", promise: DurablePromise) -> Effect:
    """What takes back the effect that the step began with."""
    run_id, step = machine.info.run_id, promise.step
    if promise.place is Place.TIMER:
        return Acknowledge(timer_guid(run_id, step))
    if promise.place is Place.QUEUED:
        return DropWork(step)
    if promise.child_run is not None:
        return Enqueue(_cancel(machine, promise.child_run))
    return Acknowledge(retry_guid(run_id, step, promise.attempt))


def _cancel(machine: "RunMachine", child: RunId) -> Message:
    parent, now = machine.info.run_id, machine.sources.now_ms()
    reason = machine.cancel_reason or f"its parent {parent!r} does not want it any more"
    return Message(child, cancel_guid(child), "cancel", now, now, payload=reason.encode())
