"""Enters a step: posts an attempt of leg 1, and another one after each crash."""

from typing import TYPE_CHECKING

from perdure.core.errors import AttemptsExhausted
from perdure.core.ids import StepId
from perdure.core.ledger import ATTEMPT, AccountId, step_account
from perdure.core.limits import MAX_ATTEMPTS
from perdure.engine.graph.labels import posted

if TYPE_CHECKING:
    from perdure.engine.graph.machine import GraphMachine


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
