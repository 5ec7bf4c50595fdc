"""Cancels the coroutines of a run, and abandons the steps that they began.

Two things end by themselves: a branch that `perdure.shield` protects, with the steps that it waits for, and an attempt
under way of a task with `on_cancel="finish"`. A coroutine that waits only for such things gets their outcome, and
`Cancelled` when it next begins or awaits anything. A coroutine that waits for other things too gets `Cancelled` once
those that end by themselves have ended.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from perdure.authoring.call import BranchOperation
from perdure.authoring.context import Promise
from perdure.authoring.interruption import Cancelled
from perdure.authoring.signal import Receive
from perdure.core.journal import events as e
from perdure.engine.runs.abandoning import cancellation_of, settlement_of, undo_effect
from perdure.engine.runs.promise import DurablePromise, PromiseKind
from perdure.engine.workflow.fiber import Fiber

if TYPE_CHECKING:
    from perdure.engine.workflow.machine import WorkflowMachine


def cancel_fibers(
    machine: "WorkflowMachine", fibers: Sequence[Fiber], event: e.CancelRequested
) -> None:
    """Interrupt the coroutines that are neither cleaning up nor shielded, and abandon the steps that they began."""
    machine.cancel_reason = event.reason
    interrupted = dict.fromkeys(
        fiber for fiber in fibers if not fiber.is_cleaning_up and not fiber.is_shielded
    )
    shielded = {
        id(promise)
        for fiber in fibers
        if fiber.is_shielded and fiber.wait is not None
        for promise in fiber.wait.promises
    }
    for fiber in interrupted:
        interrupt_fiber(machine, fiber)
    for promise in list(machine.promises.values()):
        if promise.kind is PromiseKind.BRANCH or promise.owner not in interrupted:
            continue
        if id(promise) not in shielded or machine.record.is_next(settlement_of(machine, promise)):
            _give_up(machine, promise)


def abandon_promises(
    machine: "WorkflowMachine", promises: Sequence[DurablePromise]
) -> tuple[Promise, ...]:
    """Abandon the open promises. Returns those that must still end: branches, and steps that end by themselves."""
    left = []
    for promise in promises:
        if promise.is_settled:
            continue
        if promise.kind is not PromiseKind.BRANCH:
            _give_up(machine, promise)
        elif not _ends_by_itself(machine, promise):
            interrupt_fiber(machine, promise.fiber)
        if not promise.is_settled:
            left.append(promise)
    return tuple(left)


def _give_up(machine: "WorkflowMachine", promise: DurablePromise) -> None:
    if _ends_by_itself(machine, promise):
        promise.is_finishing = True
    else:
        _abandon_leaf(machine, promise)


def interrupt_fiber(machine: "WorkflowMachine", fiber: Fiber) -> None:
    """Throw `Cancelled` into a coroutine, at once or after what it waits for has ended. A second call has no effect."""
    if fiber.is_interrupted or fiber.ending is not None:
        return
    fiber.is_interrupted = True
    fiber.pending = Cancelled(machine.cancel_reason or "")
    if fiber.wait is None or not waits_for_ends(machine, fiber):
        throw_cancelled(machine, fiber)


def waits_for_ends(machine: "WorkflowMachine", fiber: Fiber) -> bool:
    """Whether everything that the coroutine waits for ends by itself: then it gets the outcome first."""
    promises = () if fiber.wait is None else fiber.wait.promises
    open_ones = [promise for promise in promises if not promise.is_settled]
    return bool(open_ones) and all(_ends_by_itself(machine, each) for each in open_ones)


def throw_cancelled(machine: "WorkflowMachine", fiber: Fiber) -> None:
    """Abandon what the coroutine waits for; it resumes with `Cancelled` once all of it has ended."""
    pending = fiber.take_pending()
    fiber.thrown = None if pending is None else fiber.interrupt(pending)
    if fiber.wait is not None:
        give_up_wait(machine, fiber)


def give_up_wait(machine: "WorkflowMachine", fiber: Fiber) -> None:
    """Abandon the steps that the coroutine waits for; it resumes once all of them have ended."""
    assert fiber.wait is not None  # noqa: S101 - for the type checker
    open_ones = [promise for promise in fiber.wait.promises if not promise.is_settled]
    fiber.missing = len(open_ones)
    abandon_promises(machine, open_ones)


def _ends_by_itself(machine: "WorkflowMachine", promise: DurablePromise) -> bool:
    if promise.kind is PromiseKind.BRANCH:
        return isinstance(promise.operation, BranchOperation) and promise.operation.is_shielded
    if promise.is_finishing:
        return True
    if not promise.is_begun_task or not promise.task.finishes_on_cancel:
        return False
    # A journal written before the task had the option settles the step here, and takes precedence.
    return not machine.record.is_next(settlement_of(machine, promise))


def _abandon_leaf(machine: "WorkflowMachine", promise: DurablePromise) -> None:
    """Settle a promise that is not a branch as cancelled: with an outcome if it has started, else with a skip."""
    if promise.is_held:
        pass  # its outcome is journaled, and the program does not want it
    elif isinstance(promise.operation, Receive):
        machine.signals.give_up(promise, promise.operation.signal.name)
    else:
        machine.record.emit(settlement_of(machine, promise), undo_effect(machine, promise))
    if promise.kind is PromiseKind.LOCAL:
        machine.unwanted.append(promise.step)
    promise.failure = cancellation_of(promise)
    machine.settle(promise)
