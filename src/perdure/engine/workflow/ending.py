"""Ends a workflow run: the terminal event, and the message to its parent."""

from asyncio import CancelledError
from typing import TYPE_CHECKING, Any

from perdure.authoring.failures import encode_failure
from perdure.authoring.interruption import Continued
from perdure.core.errors import NeverAwaited, PerdureError, RunCancelled
from perdure.core.journal import events as e
from perdure.engine.runs.parent_result import result_for_parent
from perdure.engine.workflow.continuing import continued_in, end_as_continued

if TYPE_CHECKING:
    from perdure.engine.workflow.machine import WorkflowMachine


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
