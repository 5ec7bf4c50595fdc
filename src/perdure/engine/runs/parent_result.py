"""The message that carries a child run's result to its parent."""

from typing import TYPE_CHECKING

from perdure.core.messages import AT_ONCE, Message
from perdure.core.replay.identity import parse_parent, result_guid
from perdure.engine.runs.effects import Enqueue, RunEffect

if TYPE_CHECKING:
    from perdure.engine.runs.machine import RunMachine


def result_for_parent(machine: "RunMachine", kind: str, payload: bytes) -> tuple[RunEffect, ...]:
    """The effect that sends the result to the parent; none if the run has no parent."""
    if machine.parent is None:
        return ()
    run_id, step, attempt = parse_parent(machine.parent)
    now = machine.sources.now_ms()
    guid = result_guid(run_id, step, attempt)
    return (Enqueue(Message(run_id, guid, kind, AT_ONCE, now, step, payload)),)
