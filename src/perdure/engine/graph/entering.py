"""Enters a step: posts an attempt of leg 1, and another one after each crash. And the entry of its answer."""

from typing import TYPE_CHECKING, Final

import msgspec

from perdure.core.errors import AttemptsExhausted
from perdure.core.ids import StepId
from perdure.core.journal import events as e
from perdure.core.ledger import ATTEMPT, AccountId, step_account
from perdure.core.limits import MAX_ATTEMPTS
from perdure.engine.graph.labels import posted

if TYPE_CHECKING:
    from perdure.engine.graph.machine import GraphMachine

StagedFact = e.InvokeCompleted | e.TimerFired | e.StepSkipped | e.SignalDelivered
STAGED: Final = (e.InvokeCompleted, e.TimerFired, e.StepSkipped, e.SignalDelivered)
"""Facts whose digits a graph posts one by one."""


def enter_step(machine: "GraphMachine", step: StepId, *seeds: tuple[AccountId, int]) -> None:
    """Post an attempt of leg 1. A host that finds only this entry after a crash posts another one."""
    account, record = step_account(step), machine.record
    was_recorded = record.is_replaying
    record.emit(posted("attempt", (account, ATTEMPT), *seeds))
    if not was_recorded:
        return
    count, again = 1, posted("attempt", (account, ATTEMPT))
    while record.is_next(again):
        record.emit(again)
        count += 1
    if not record.is_replaying:
        if count >= MAX_ATTEMPTS:
            raise AttemptsExhausted(
                f"entry attempts exhausted ({count} of {MAX_ATTEMPTS}) for step {step}"
                f" of run {machine.info.run_id!r}: its host died each time before the step had requested anything",
                "find out why the host dies there; then start a new run",
            )
        record.emit(again)


def staged_form(machine: "GraphMachine", event: StagedFact) -> e.Event:
    """The staged form of a fact; of a step's answer, posts the entry first."""
    if isinstance(event, e.SignalDelivered):
        return msgspec.structs.replace(event, staged=True)
    step = machine.steps[event.promise_id]
    guid = step.guid if isinstance(event, e.InvokeCompleted) else event.guid
    assert guid is not None  # noqa: S101 - a timer's message has one, and so has an invoke's step
    if not step.is_entered:
        machine.record.add(machine.entry(step, guid), ())
        machine.on_entered(step)
    if isinstance(event, e.StepSkipped):
        return event
    if isinstance(event, e.TimerFired):
        return e.TimerFired(event.promise_id, guid, staged=True)
    return msgspec.structs.replace(event, guid=guid, staged=True)
