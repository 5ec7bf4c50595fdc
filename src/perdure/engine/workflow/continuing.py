"""Continues a run as a new one: checks that nothing is open, and passes on the signals that it has not received."""

from typing import TYPE_CHECKING, Any

from perdure.authoring.call import Call
from perdure.authoring.interruption import Cancelled, Continued
from perdure.authoring.parameters import STORED_AS
from perdure.authoring.program import Program
from perdure.core.codec import encode_named
from perdure.core.errors import InputError
from perdure.core.journal import events as e
from perdure.core.replay.identity import next_run_id
from perdure.engine.runs.effects import ContinueAsNew
from perdure.engine.workflow.fiber import MAIN, Fiber

if TYPE_CHECKING:
    from perdure.engine.workflow.machine import WorkflowMachine

_NAMED = 5
"""Open steps that a refusal lists."""


def prepare_continuation(machine: "WorkflowMachine", fiber: Fiber, call: Call[Any]) -> Continued:
    """The exception that ends the body. Raises if the run can't continue as new; the run is then unchanged."""
    machine.use(call)
    if machine.cancel_reason is not None:
        # To continue would lose the cancellation.
        raise Cancelled(machine.cancel_reason)
    if fiber.number != MAIN:
        raise InputError(
            f"branch {fiber.prefix} of run {machine.info.run_id!r} can't continue as new",
            "await perdure.continue_as_new(...) in the body of the workflow",
        )
    opened = [
        f"{each.step} ({each.name})"
        for each in machine.promises.values()
        if each.step not in machine.loop.timers
    ]
    opened += [f"task {each.get_name()!r}" for each in machine.loop.tasks()]
    if opened:
        more = f" and {len(opened) - _NAMED} more" if len(opened) > _NAMED else ""
        raise InputError(
            f"run {machine.info.run_id!r} can't continue as new while it has open steps: "
            f"{', '.join(opened[:_NAMED])}{more}",
            "await or cancel them first",
        )
    if machine.signals.unanswered:
        name = next(iter(machine.signals.unanswered.values()))
        raise InputError(
            f"run {machine.info.run_id!r} can't continue as new while request {name!r} has no answer",
            "reply to it or reject it first",
        )
    workflow = call.definition
    assert isinstance(workflow, Program)  # noqa: S101 - the verb takes no other
    arguments = call.arguments
    if machine.parameters is not None and workflow is machine.program:
        # The next run begins with the values that this one has now, except those that the call gives.
        given = {**machine.parameters.given, **arguments.get(STORED_AS, {})}
        arguments = {**arguments, STORED_AS: given} if given else arguments
    payload = encode_named(
        machine.codec,
        arguments,
        lambda: (
            f"an argument of {workflow.noun} {workflow.name!r}, as which run {machine.info.run_id!r} continues"
        ),
    )
    workflow.check_input(machine.codec, payload)
    return Continued(call, payload)


def end_as_continued(machine: "WorkflowMachine", continued: Continued) -> None:
    """End this run after its body; the next run of the chain begins in the same commit."""
    workflow = continued.call.definition
    assert isinstance(workflow, Program)  # noqa: S101 - the verb takes no other
    next_run = next_run_id(machine.info.run_id)
    continuing = ContinueAsNew(
        next_run,
        workflow,
        continued.payload,
        machine.parent,
        machine.info.key,
        machine.signals.left(),
        machine.tags,
    )
    # The input is in the next run's first entry and need not be stored here as well.
    machine.record.emit(e.RunContinued(next_run, released=1), continuing)


def continued_in(error: BaseException | None) -> BaseException | None:
    """The `Continued` that a task group has put into an exception group, if that has nothing else; or `error`."""
    inner = error
    while isinstance(inner, BaseExceptionGroup) and len(inner.exceptions) == 1:
        inner = inner.exceptions[0]
    return inner if isinstance(inner, Continued) else error
