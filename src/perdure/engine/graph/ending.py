"""How a graph run ends: complete when nothing is open, or failed or cancelled with what is open given up."""

from typing import TYPE_CHECKING

from perdure.authoring.failures import encode_failure
from perdure.core.errors import InputError, PerdureError, RunCancelled
from perdure.core.graph.inputs import output_faults
from perdure.core.graph.trouble import Trouble
from perdure.core.ids import Guid, StepId
from perdure.core.journal import events as e
from perdure.engine.graph.answers import encode_trouble, interruption
from perdure.engine.replay.abandoning import undo
from perdure.engine.replay.effects import Effect
from perdure.engine.replay.ending import tell_parent
from perdure.engine.replay.promise import Place

if TYPE_CHECKING:
    from perdure.engine.graph.machine import GraphMachine


def complete(machine: "GraphMachine", guid: Guid | None, step: StepId | None) -> None:
    """The last step is through. If its result can't be kept, or is not what the graph says, that is how it ends."""
    ending: e.Terminal
    try:
        payload = machine.codec.encode(machine.state.outcome)
        _require_output(machine)
    except PerdureError as error:
        payload = encode_failure(machine.codec, error)
        ending = e.ExecutionFailed(payload=payload, released=0, guid=guid, step=step)
        machine.finish(ending, tell_parent(machine, "gave-up", payload))
        return
    ending = e.ExecutionCompleted(payload=payload, released=0, guid=guid, step=step)
    machine.finish(ending, tell_parent(machine, "completed", payload))


def _require_output(machine: "GraphMachine") -> None:
    fields = machine.workflow.model.output
    faults = [] if fields is None else output_faults(fields, machine.state.outcome)
    if faults:
        raise InputError(
            f"the output of graph {machine.info.program!r} is not what it says: {'; '.join(faults)}",
            "mend what leads to its output, or what is said of it",
        )


def fail(machine: "GraphMachine", trouble: Trouble) -> None:
    """What is in flight is cancelled."""
    _fail(machine, encode_trouble(machine.codec, trouble), descends=True)


def interrupt(
    machine: "GraphMachine", reason: str, code: int, *, throws: bool, descends: bool
) -> None:
    """The run ends itself, failed if it `throws`."""
    if throws:
        _fail(machine, interruption(machine.codec, reason, code), descends=descends)
        return
    machine.cancel_reason = reason
    machine.record.emit(e.CancelRequested(reason))
    _cancel(machine, reason, descends=descends)


def stop(machine: "GraphMachine", request: e.CancelRequested) -> None:
    """Somebody wants the run to end: as failed, if the request has a code."""
    if request.code:
        payload = interruption(machine.codec, request.reason, request.code)
        _fail(machine, payload, descends=request.descends)
    else:
        _cancel(machine, request.reason, descends=request.descends)


def _fail(machine: "GraphMachine", payload: bytes, *, descends: bool) -> None:
    effects = _give_up(machine, descends=descends)
    ending = e.ExecutionFailed(payload=payload, released=machine.state.semaphore)
    machine.finish(ending, (*effects, *tell_parent(machine, "gave-up", payload)))


def _cancel(machine: "GraphMachine", reason: str, *, descends: bool) -> None:
    effects = _give_up(machine, descends=descends)
    told = encode_failure(machine.codec, RunCancelled.of(machine.info.run_id, reason))
    ending = e.ExecutionCancelled(reason=reason, released=machine.state.semaphore)
    machine.finish(ending, (*effects, *tell_parent(machine, "gave-up", told)))


def _give_up(machine: "GraphMachine", *, descends: bool) -> list[Effect]:
    """Nobody wants what is open any more; children go on unless the end `descends` to them."""
    effects = []
    for promise in machine.promises.values():
        if promise.place is not Place.CHILD or descends:
            effects.append(undo(machine, promise))
        if promise.place is Place.LOCAL:
            machine.unwanted.append(promise.step)
        promise.is_settled = True
    machine.promises.clear()
    return effects
