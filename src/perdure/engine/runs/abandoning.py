"""Abandons a step that its run no longer needs: the event that settles it, the effect that undoes its start."""

from typing import TYPE_CHECKING

from perdure.authoring.values.failures import encode_failure
from perdure.core.errors import StepCancelled
from perdure.core.ids import RunId
from perdure.core.journal import events as e
from perdure.core.messages import AT_ONCE, Message
from perdure.core.replay.identity import cancel_guid, retry_guid, timer_guid
from perdure.engine.runs.effects import Acknowledge, DropWork, Enqueue, RunEffect, UnparkStep
from perdure.engine.runs.promise import DurablePromise, PromiseKind

if TYPE_CHECKING:
    from perdure.engine.runs.machine import RunMachine


def settlement_of(
    machine: "RunMachine", promise: DurablePromise
) -> e.InvokeCompleted | e.StepSkipped:
    """The event that settles a cancelled step: a failure if an attempt has started, else a skip."""
    if not promise.attempt:
        return e.StepSkipped(promise.step, "cancelled", 1)
    payload = encode_failure(machine.codec, cancellation_of(promise))
    return e.InvokeCompleted(promise.step, promise.attempt, False, payload=payload)


def cancellation_of(promise: DurablePromise) -> StepCancelled:
    return StepCancelled(f"step {promise.step} ({promise.name}) was cancelled", "it has no result")


def undo_effect(machine: "RunMachine", promise: DurablePromise) -> RunEffect:
    """The effect that undoes the one that the step began with."""
    run_id, step = machine.info.run_id, promise.step
    if promise.is_parked:
        return UnparkStep(step)
    if promise.kind is PromiseKind.TIMER:
        return Acknowledge(timer_guid(run_id, step))
    if promise.kind is PromiseKind.QUEUED:
        return DropWork(step)
    if promise.child_run is not None and not promise.retry_at_ms:
        return Enqueue(_cancel(machine, promise.child_run))
    return Acknowledge(retry_guid(run_id, step, promise.attempt))


def _cancel(machine: "RunMachine", child: RunId) -> Message:
    parent, now = machine.info.run_id, machine.sources.now_ms()
    reason = machine.cancel_reason or f"its parent {parent!r} no longer needs it"
    return Message(child, cancel_guid(child), "cancel", AT_ONCE, now, payload=reason.encode())
