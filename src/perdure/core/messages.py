"""What travels between runs and hosts: messages to a run, and work for any host."""

import msgspec

from perdure.core.ids import Guid, RunId, StepId


class Message(msgspec.Struct, frozen=True):
    """A durable transition addressed to a run.

    `arrival` sorts the messages of a run; it is never a cursor, because commit order is not
    arrival order.
    """

    run_id: RunId
    guid: Guid
    kind: str
    due_at_ms: int
    arrival: int
    step: StepId | None = None
    payload: bytes | None = None


class Work(msgspec.Struct, frozen=True):
    """A task for any host that serves the queue. Its result travels as the message `guid`."""

    run_id: RunId
    step: StepId
    guid: Guid
    queue: str
    available_at_ms: int
    priority: int = 0
    payload: bytes | None = None
