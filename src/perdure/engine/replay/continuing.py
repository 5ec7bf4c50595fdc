"""How a run goes on as a new one: what it must have settled before, and what the new one inherits."""

from typing import TYPE_CHECKING, Any

from perdure.authoring.call import Call
from perdure.authoring.interruption import Cancelled, Continued
from perdure.authoring.program import Program
from perdure.core.errors import InputError
from perdure.core.journal import events as e
from perdure.core.messages import Message
from perdure.core.replay.identity import next_run_id
from perdure.engine.replay.beginning import encode_arguments
from perdure.engine.replay.effects import Acknowledge, Change, Continue, Inherited
from perdure.engine.replay.fiber import Fiber

if TYPE_CHECKING:
    from perdure.engine.machine import RunMachine
    from perdure.engine.replay.machine import Machine

_NAMED = 5
"""How many open steps a refusal names."""


def continuation(machine: "Machine", fiber: Fiber, call: Call[Any]) -> Continued:
    """What ends the body; a refusal leaves the run as it was."""
    machine.use(call)
    if machine.cancel_reason is not None:
        # To go on would lose the request to stop.
        raise Cancelled(machine.cancel_reason)
    if fiber.promise is not None:
        raise InputError(
            f"branch {fiber.prefix} of run {machine.info.run_id!r} can't continue as new",
            "await perdure.continue_as_new(...) in the body of the workflow",
        )
    if machine.promises:
        opened = [f"{each.step} ({each.name})" for each in machine.promises.values()]
        more = f" and {len(opened) - _NAMED} more" if len(opened) > _NAMED else ""
        raise InputError(
            f"run {machine.info.run_id!r} can't continue as new while it has open steps: "
            f"{', '.join(opened[:_NAMED])}{more}",
            "await or cancel them first",
        )
    return Continued(call, encode_arguments(machine, call))


def go_on(machine: "Machine", continued: Continued) -> None:
    """The body is over: end this run, and let the next one begin in the same commit."""
    workflow = continued.call.definition
    assert isinstance(workflow, Program)  # noqa: S101 - the verb takes no other
    next_run = next_run_id(machine.info.run_id)
    birth = Continue(
        next_run,
        workflow,
        continued.payload,
        machine.parent,
        machine.info.key,
        machine.signals.left(),
    )
    # The input is in the next run's first entry; here it would be kept twice.
    machine.record.emit(e.RunContinued(next_run, released=1), birth)


def pass_on(machine: "RunMachine", message: Message) -> bool:
    """Take a message in for the next run: this one is over, but that is not written yet.

    So a chain whose runs never wait can be reached all the same. False if the message is for this run alone, or
    came before.
    """
    last = machine.record.changes[-1]
    *others, birth = last.effects or (None,)
    if not isinstance(birth, Continue):
        return False  # a graph that has ended, and whose last events wait for the next commit
    fact = _inherited(birth, message)
    if fact is None:
        return False
    birth = birth._replace(inherited=(*birth.inherited, fact))
    effects = (*others, Acknowledge(message.guid), birth)
    machine.record.changes[-1] = Change(last.event, effects)
    return True


def _inherited(birth: Continue, message: Message) -> Inherited | None:
    kind, _, name = message.kind.partition(":")
    if any(fact.guid == message.guid for fact in birth.inherited):
        return None
    if kind == "signal":
        known = (fact for fact in birth.inherited if isinstance(fact, e.SignalDelivered))
        number = sum(fact.signal_name == name for fact in known) + 1
        return e.SignalDelivered(name, number, message.guid, payload=message.payload)
    if kind == "cancel":
        return e.CancelRequested((message.payload or b"").decode(errors="replace"), message.guid)
    return None
