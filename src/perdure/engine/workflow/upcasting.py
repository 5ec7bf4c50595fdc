"""Compares a step whose input was stored in an old shape with the same step in the program's new shape."""

from typing import TYPE_CHECKING

import msgspec

from perdure.authoring.call import Call
from perdure.core.journal import events as e
from perdure.core.replay.matching import differs
from perdure.core.upcasting import UpcastingCodec

if TYPE_CHECKING:
    from perdure.engine.workflow.machine import WorkflowMachine


def is_upcast(machine: "WorkflowMachine", recorded: e.Event, actual: e.Event) -> bool:
    """Whether the program's event equals the recorded one once the recorded input is upcast.

    False if no upcaster applies, because the stored bytes differ. Raises the errors of an upcaster.
    """
    if not isinstance(recorded, e.InvokeScheduled) or not isinstance(actual, e.InvokeScheduled):
        return False
    promise = machine.promises.get(actual.promise_id)
    if promise is None or not isinstance(promise.operation, Call) or recorded.payload is None:
        return False
    if differs(msgspec.structs.replace(recorded, payload=actual.payload), actual):
        return False
    if not isinstance(machine.codec, UpcastingCodec):
        return False
    wanted = promise.operation.definition.signature.stored
    modern = machine.codec.modernized(recorded.payload, wanted)
    if modern is None:
        return False
    return modern == machine.codec.encode(machine.codec.decode(actual.payload or b"{}", wanted))
