"""Messages to a run that has decided to continue as new, before that decision is committed."""

from typing import TYPE_CHECKING

from perdure.core.journal import events as e
from perdure.core.messages import Message
from perdure.engine.runs.effects import Acknowledge, ContinueAsNew, Inherited, RecordedChange

if TYPE_CHECKING:
    from perdure.engine.runs.machine import RunMachine


def pass_to_next_run(machine: "RunMachine", message: Message) -> bool:
    """Add the message to what the next run of the chain inherits; this run is over, but not committed yet.

    So signals and cancellations reach a chain whose runs never wait. False if the message concerns only this run, or is
    a duplicate.
    """
    last = machine.record.changes[-1]
    *others, continuing = last.effects or (None,)
    if not isinstance(continuing, ContinueAsNew):
        return False  # a graph that has ended, and whose last events wait for the next commit
    fact = _inherited(continuing, message)
    if fact is None:
        return False
    continuing = continuing._replace(inherited=(*continuing.inherited, fact))
    effects = (*others, Acknowledge(message.guid), continuing)
    machine.record.changes[-1] = RecordedChange(last.event, effects)
    return True


def _inherited(continuing: ContinueAsNew, message: Message) -> Inherited | None:
    kind, _, name = message.kind.partition(":")
    if any(fact.guid == message.guid for fact in continuing.inherited):
        return None
    if kind == "signal":
        known = (fact for fact in continuing.inherited if isinstance(fact, e.SignalDelivered))
        number = sum(fact.signal_name == name for fact in known) + 1
        return e.SignalDelivered(name, number, message.guid, payload=message.payload)
    if kind == "cancel":
        return e.CancelRequested((message.payload or b"").decode(errors="replace"), message.guid)
    return None
