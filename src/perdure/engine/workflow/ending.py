"""Ends a workflow run: the terminal event, and the message to its parent."""

from asyncio import CancelledError
from typing import TYPE_CHECKING, Any

from perdure.authoring.interruption import Cancelled, Continued
from perdure.authoring.values.failures import encode_failure
from perdure.core.errors import NeverAwaited, PerdureError, RunCancelled, StepCancelled
from perdure.core.journal import events as e
from perdure.engine.runs.abandoning import undo_effect
from perdure.engine.runs.effects import RunEffect
from perdure.engine.runs.parent_result import result_for_parent
from perdure.engine.runs.promise import DurablePromise, PromiseKind
from perdure.engine.workflow.continuing import continued_in, end_as_continued

if TYPE_CHECKING:
    from perdure.engine.workflow.machine import WorkflowMachine


def end_branch(
    machine: "WorkflowMachine", promise: DurablePromise, value: Any, error: BaseException | None
) -> None:
    """End a branch of the run with its coroutine's outcome."""
    payload = None if error is None else encode_failure(machine.codec, error)
    machine.record.emit(e.InvokeCompleted(promise.step, 1, error is None, payload=payload))
    if isinstance(error, Cancelled):
        error = StepCancelled(f"branch {promise.step} was cancelled", "it has no result")
    promise.value, promise.failure = value, error
    machine.settle(promise)


def detach_steps(machine: "WorkflowMachine") -> None:
    """Skip the detached steps that are still open when the body ends. A pause may have held an outcome: that counts."""
    for step, promise in machine.promises.items():
        if not promise.is_held:
            effects = (undo_effect(machine, promise),) if promise.is_parked else ()
            machine.record.emit(e.StepSkipped(step, "detached", 1), *effects)
    machine.promises.clear()


def end_workflow_at_once(machine: "WorkflowMachine", accepted: e.SignalAccepted) -> None:
    """End the run as cancelled, without its clean-up: its steps are abandoned where they are."""
    machine.unawaited.disown()
    if machine.cancel_reason is None:
        machine.record.emit(e.CancelRequested(accepted.reason, signal_id=accepted.signal_id))
        machine.cancel_reason = accepted.reason
    effects: list[RunEffect] = []
    released = 1
    for promise in machine.promises.values():
        released += promise.kind is not PromiseKind.SIGNAL
        if promise.kind not in (PromiseKind.SIGNAL, PromiseKind.BRANCH):
            effects.append(undo_effect(machine, promise))
        if promise.kind is PromiseKind.LOCAL:
            machine.unwanted.append(promise.step)
        promise.is_settled = True
    machine.promises.clear()
    machine.is_over = True
    cancelled = RunCancelled.of(machine.info.run_id, accepted.reason)
    result = result_for_parent(machine, "gave-up", encode_failure(machine.codec, cancelled))
    ended = e.ExecutionCancelled(reason=accepted.reason, released=released)
    machine.record.emit(ended, *effects, *result)
    machine.close()  # a coroutine left to the garbage collector would run its `finally` blocks


def end_run(machine: "WorkflowMachine", value: Any, error: BaseException | None) -> None:
    """End the run with the body's outcome, once no step of it is open."""
    error = continued_in(error)
    forgotten = machine.unawaited.disown()
    result = b""
    is_well = error is None or isinstance(error, Continued)
    if is_well and forgotten:
        error = NeverAwaited(
            f"workflow {machine.workflow.name!r} called {', '.join(forgotten)} and never awaited it",
            f"write `await {forgotten[0]}(...)`",
        )
    elif is_well and machine.left:
        error = NeverAwaited(
            f"workflow {machine.workflow.name!r} left {machine.left[0]!r} before its end, "
            "and its `finally` block was never awaited",
            "use `async with contextlib.aclosing(...)` around it",
        )
    if error is None:
        try:
            result = machine.workflow.pack_result(
                machine.codec,
                value,
                lambda: (
                    f"the result of workflow {machine.workflow.name!r} (run {machine.info.run_id!r})"
                ),
            )
        except PerdureError as refusal:
            error = refusal
    if error is None:
        result_message = result_for_parent(machine, "completed", result)
        machine.record.emit(e.ExecutionCompleted(payload=result, released=1), *result_message)
    elif isinstance(error, Continued):
        end_as_continued(machine, error)
    elif isinstance(error, CancelledError) and machine.cancel_reason is not None:
        reason = machine.cancel_reason
        cancelled = RunCancelled.of(machine.info.run_id, reason)
        result_message = result_for_parent(
            machine, "gave-up", encode_failure(machine.codec, cancelled)
        )
        machine.record.emit(e.ExecutionCancelled(reason=reason, released=1), *result_message)
    else:
        failure = encode_failure(machine.codec, error)
        result_message = result_for_parent(machine, "gave-up", failure)
        machine.record.emit(e.ExecutionFailed(payload=failure, released=1), *result_message)
