"""Ends a graph run: completed, failed or cancelled. Steps that are still open are abandoned."""

from typing import TYPE_CHECKING

from perdure.authoring.values.failures import encode_failure
from perdure.core.codec import encode_named
from perdure.core.errors import InputError, PerdureError, RunCancelled
from perdure.core.graph.inputs import output_faults
from perdure.core.graph.step_error import StepError
from perdure.core.ids import Guid, StepId
from perdure.core.journal import events as e
from perdure.engine.graph.answers import encode_interruption, encode_step_error
from perdure.engine.runs.abandoning import undo_effect
from perdure.engine.runs.effects import RunEffect
from perdure.engine.runs.parent_result import result_for_parent
from perdure.engine.runs.promise import PromiseKind

if TYPE_CHECKING:
    from perdure.engine.graph.machine import GraphMachine


def complete_run(machine: "GraphMachine", guid: Guid | None, step: StepId | None) -> None:
    """Complete the run, after its semaphore has reached the threshold. Abandons the open steps, child runs too.

    If the result can't be stored, or does not match the graph's declared output, the run fails with that error.
    """
    ending: e.Terminal
    effects, released = _abandon_open_steps(machine, descends=True), machine.state.semaphore
    try:
        payload = encode_named(
            machine.codec,
            machine.state.outcome,
            lambda: f"the result of graph {machine.info.program!r} (run {machine.info.run_id!r})",
        )
        _require_output(machine)
    except PerdureError as error:
        payload = encode_failure(machine.codec, error)
        ending = e.ExecutionFailed(payload=payload, released=released, guid=guid, step=step)
        machine.finish(ending, (*effects, *result_for_parent(machine, "gave-up", payload)))
        return
    ending = e.ExecutionCompleted(payload=payload, released=released, guid=guid, step=step)
    machine.finish(ending, (*effects, *result_for_parent(machine, "completed", payload)))


def _require_output(machine: "GraphMachine") -> None:
    fields = machine.workflow.model.output
    faults = [] if fields is None else output_faults(fields, machine.state.outcome)
    if faults:
        raise InputError(
            f"the output of graph {machine.info.program!r} is not what it says: {'; '.join(faults)}",
            "fix the activities that produce the output, or the declaration of the output",
        )


def fail_run(machine: "GraphMachine", step_error: StepError) -> None:
    """Fail the run and cancel its open steps, child runs too."""
    _fail(machine, encode_step_error(machine.codec, step_error), descends=True)


def interrupt_run(
    machine: "GraphMachine", reason: str, code: int, *, throws: bool, descends: bool
) -> None:
    """End the run at its own request, as failed if it `throws`. Finishing attempts end first, as at a cancellation."""
    if throws:
        _mark_finishing(machine)
        if not is_finishing(machine):
            _fail(machine, encode_interruption(machine.codec, reason, code), descends=descends)
            return
        request = e.CancelRequested(reason, code=code, descends=descends)
        machine.record.emit(request)
    else:
        # The event omits `descends`, which replay reads from the graph: so it equals the one in older journals.
        machine.record.emit(e.CancelRequested(reason))
        request = e.CancelRequested(reason, descends=descends)
        _mark_finishing(machine)
    machine.cancel_reason = reason
    _end_when_finished(machine, request)


def stop_run(machine: "GraphMachine", request: e.CancelRequested) -> None:
    """End the run at the request of a client or another run. Attempts of tasks with `on_cancel="finish"` end first;
    no other activity begins."""
    _mark_finishing(machine)
    _end_when_finished(machine, request)


def _mark_finishing(machine: "GraphMachine") -> None:
    # If the journal ends the run here, it was written before the task had the option.
    if not machine.record.is_next_of(e.Terminal):
        for promise in machine.promises.values():
            promise.is_finishing = promise.is_begun_task and promise.task.finishes_on_cancel


def _end_when_finished(machine: "GraphMachine", request: e.CancelRequested) -> None:
    machine.stopping = request
    if not is_finishing(machine):
        end_as_requested(machine, request)
        return
    machine.unstarted = []
    for promise in machine.promises.values():
        promise.is_unwanted = not promise.is_finishing
        if promise.is_unwanted and promise.kind is PromiseKind.LOCAL:
            machine.unwanted.append(promise.step)


def is_finishing(machine: "GraphMachine") -> bool:
    """Whether an attempt must end before the run does."""
    return any(promise.is_finishing for promise in machine.promises.values())


def end_as_requested(machine: "GraphMachine", request: e.CancelRequested) -> None:
    """End the run now: as failed if the request has a code, else as cancelled."""
    if request.code:
        payload = encode_interruption(machine.codec, request.reason, request.code)
        _fail(machine, payload, descends=request.descends)
    else:
        _cancel(machine, request.reason, descends=request.descends)


def end_graph_at_once(machine: "GraphMachine", accepted: e.SignalAccepted) -> None:
    """Cancel the run now, whatever finishes."""
    if machine.stopping is None:
        machine.record.emit(e.CancelRequested(accepted.reason, signal_id=accepted.signal_id))
    machine.cancel_reason = accepted.reason
    _cancel(machine, accepted.reason, descends=True)


def _fail(machine: "GraphMachine", payload: bytes, *, descends: bool) -> None:
    effects = _abandon_open_steps(machine, descends=descends)
    ending = e.ExecutionFailed(payload=payload, released=machine.state.semaphore)
    machine.finish(ending, (*effects, *result_for_parent(machine, "gave-up", payload)))


def _cancel(machine: "GraphMachine", reason: str, *, descends: bool) -> None:
    effects = _abandon_open_steps(machine, descends=descends)
    payload = encode_failure(machine.codec, RunCancelled.of(machine.info.run_id, reason))
    ending = e.ExecutionCancelled(reason=reason, released=machine.state.semaphore)
    machine.finish(ending, (*effects, *result_for_parent(machine, "gave-up", payload)))


def _abandon_open_steps(machine: "GraphMachine", *, descends: bool) -> list[RunEffect]:
    """Settle the open promises and return the effects that undo them; child runs continue unless the end `descends`."""
    effects = []
    for promise in machine.promises.values():
        if promise.kind is not PromiseKind.CHILD or descends:
            effects.append(undo_effect(machine, promise))
        if promise.kind is PromiseKind.LOCAL:
            machine.unwanted.append(promise.step)
        promise.is_settled = True
    machine.promises.clear()
    return effects
