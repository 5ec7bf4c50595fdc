"""Receives the signals that an active step of a graph waits for."""

from functools import partial
from typing import TYPE_CHECKING

from perdure.core.graph.walk import Walk
from perdure.core.ids import Guid, message_guid
from perdure.core.journal import events as e
from perdure.engine.graph.active_step import ActiveStep
from perdure.engine.graph.answers import returned_answer
from perdure.engine.runs.abandoning import undo_effect
from perdure.engine.runs.effects import RunEffect

if TYPE_CHECKING:
    from perdure.engine.graph.machine import GraphMachine


def receive_signal(machine: "GraphMachine", step: ActiveStep) -> None:
    """Receive the oldest buffered signal that the step waits for; the next ones too while the step stays."""
    event = None
    if step.step in machine.steps and not machine.is_over:
        event = machine.signals.take(step.step)
    if event is None:
        return
    guid = event.guid or message_guid(machine.info.run_id, "signal", event.signal_name)
    if not step.is_entered:
        machine.record.emit(machine.entry(step, guid))
    machine.on_entered(step)
    walk = machine.leave(step, returned_answer(machine.codec, event.payload))
    received = e.SignalReceived(
        step.step,
        event.signal_name,
        event.delivery_id,
        guid,
        True,
        walk.stays,
        payload=event.payload,
    )
    promise = machine.promises.get(step.step)
    effects: tuple[RunEffect, ...] = ()
    if not walk.stays:
        machine.signals.give_up(step.step)
        if promise is not None:  # its time limit
            del machine.promises[step.step]
            promise.is_settled = True
            effects = (undo_effect(machine, promise),)
    machine.record.emit(received, *effects)
    machine.walk(walk, partial(settle_answer, machine, step, guid))


def settle_answer(machine: "GraphMachine", step: ActiveStep, guid: Guid, walk: Walk) -> None:
    """Decide on an answer after its walk; the next answer may be buffered already."""
    machine.answered(step, guid, walk)
    if not machine.is_closing:
        receive_signal(machine, step)
