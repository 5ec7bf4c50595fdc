"""Messages to a run, and work for any host."""

from typing import Final

import msgspec

from perdure.core.ids import Guid, HostId, RunId, StepId

AT_ONCE: Final = 0
"""The due time of a message without a delay: every host delivers it, whatever its clock says."""

OUTCOMES: Final = ("completed", "reconciled", "failed", "gave-up")
"""Kinds of the messages that carry the outcome of an attempt to its run. Details may follow after a colon."""

LONG_AGO_MS: Final = 10**12
"""About thirty years: more than clocks of hosts differ."""


def at_once(now_ms: int) -> int:
    """The availability time of work that any host may claim now: past by every clock, and still in time order."""
    return now_ms - LONG_AGO_MS


class Message(msgspec.Struct, frozen=True, gc=False):
    """A durable transition addressed to a run.

    `arrival` sorts the messages of a run; it is never a cursor, because commit order is not arrival order. The sender
    sets it to its clock. For a message that is due `AT_ONCE` the store raises it above the arrival of every pending
    message first sent to the same run or mailbox, so messages that were durable earlier are delivered first.
    """

    run_id: RunId
    guid: Guid
    kind: str
    due_at_ms: int
    arrival: int
    step: StepId | None = None
    payload: bytes | None = None


class MessageSummary(msgspec.Struct, frozen=True):
    """A stored message about a step, without its payload."""

    step: StepId
    state: str
    kind: str
    due_at_ms: int

    @property
    def is_pending(self) -> bool:
        """Whether it will be delivered."""
        return self.state == "pending"


class WorkSummary(msgspec.Struct, frozen=True):
    """A task on a queue, without its payload. `host` has claimed it, or is `None`."""

    guid: Guid
    queue: str
    available_at_ms: int
    host: HostId | None = None


class Work(msgspec.Struct, frozen=True, gc=False):
    """A task for any host that serves the queue. The message `guid` carries its result."""

    run_id: RunId
    step: StepId
    guid: Guid
    queue: str
    available_at_ms: int
    priority: int = 0
    payload: bytes | None = None
