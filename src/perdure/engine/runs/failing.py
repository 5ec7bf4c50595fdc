"""Ends a step whose attempts have failed: it fails for the program, or it is parked for an operator.

A parked step is open: the program waits for it, and everything else of the run continues. Steps of a run that is being
cancelled are not parked: it must end without an operator.
"""

from perdure.core.codec import Codec
from perdure.core.journal import events as e
from perdure.core.runs.fingerprint import error_text
from perdure.engine.runs.effects import ParkStep, RunEffect
from perdure.engine.runs.log_notes import StepFailed, StepParked
from perdure.engine.runs.machine import RunMachine
from perdure.engine.runs.promise import DurablePromise, PromiseKind

UNREADABLE = "unreadable"
"""The fingerprint of an error that has none."""


def parks_failure(machine: RunMachine, promise: DurablePromise) -> bool:
    """Whether the step is parked if its logical attempt fails."""
    if promise.kind is PromiseKind.CHILD or machine.cancel_reason is not None:
        return False
    if promise.is_finishing or promise.is_unwanted:
        return False
    wanted = promise.task.parks_failure
    return machine.parks_failures if wanted is None else wanted


def park_step(
    machine: RunMachine, promise: DurablePromise, attempt: int, error: bytes, *effects: RunEffect
) -> None:
    """Journal that the logical attempt has failed for good and waits for an operator."""
    step, queue = promise.step, promise.task.queue
    _note(machine, promise, attempt, error, is_parked=True)
    row = ParkStep(
        step, promise.name, fingerprint_of(machine.codec, error), machine.sources.now_ms()
    )
    parked = e.InvokeRetrying(step, attempt, e.NEVER, queue, payload=error)
    machine.feed(parked, row, *effects)


def fingerprint_of(codec: Codec, error: bytes | None) -> str:
    """The fingerprint of a stored error."""
    text = error_text(codec, error)
    return UNREADABLE if text is None else text.fingerprint


def note_failure(machine: RunMachine, promise: DurablePromise, attempt: int, error: bytes) -> None:
    """Let the host log that the step failed."""
    _note(machine, promise, attempt, error, is_parked=False)


def _note(
    machine: RunMachine, promise: DurablePromise, attempt: int, error: bytes, *, is_parked: bool
) -> None:
    is_child = promise.kind is PromiseKind.CHILD
    queue = None if is_child else promise.task.queue
    noun = "child run" if is_child else "task"
    note = StepParked if is_parked else StepFailed
    machine.log_notes.append(note(noun, promise.step, promise.name, attempt, error, queue))
