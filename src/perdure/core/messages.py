"""Messages to a run, and work for any host."""

from typing import Final

import msgspec

from perdure.core.ids import Guid, HostId, RunId, StepId

AT_ONCE: Final = 0
"""The due time of a message without a delay: every host delivers it, whatever its clock says."""

STATES: Final = ("pending", "stale", "dead")
"""States of a message: it will be delivered; its run did not need it; its run was over."""

SENT: Final = ("signal:", "cancel", "act:")
"""Beginnings of the kinds of messages that are sent to a run as a whole: no step of it waits for exactly this one."""

START: Final = "start"
"""The kind of the message with the input of a run that has not begun. It is never due: the run's first commit
acknowledges it."""

_WITHOUT_OUTCOME: Final = ("timer", "retry", START)
"""Kinds of messages that carry no outcome."""

OUTCOMES: Final = ("completed", "reconciled", "failed", "gave-up")
"""Kinds of the messages that carry the outcome of an attempt to its run. Details may follow after a colon."""

LONG_AGO_MS: Final = 10**12
"""About thirty years: more than clocks of hosts differ."""


HEADER_ROOM: Final = 8192
"""Bytes reserved for the header in the payload of work."""


def is_outcome(kind: str) -> bool:
    """Whether messages of this kind carry the outcome of an attempt. The number of the attempt's claim may follow."""
    name, _, detail = kind.partition(":")
    claim = detail.partition(":")[0]
    return name in OUTCOMES and (not claim or claim.isdecimal())


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
    """A stored message about a step, without its payload. `step` is `None` only if the row is damaged."""

    step: StepId | None
    state: str
    kind: str
    due_at_ms: int
    has_payload: bool = False

    @property
    def is_pending(self) -> bool:
        """Whether it will be delivered."""
        return self.state == "pending"


def damage_of_sent(message: MessageSummary) -> str | None:
    """Why a message in the store that was sent to a run is none that any sender wrote; `None` if it may be.

    Hosts deliver only pending messages whose time has come. The journal does not show what was sent and not received.
    """
    if not message.kind.startswith(SENT):
        if message.step is None and message.kind not in _WITHOUT_OUTCOME:
            return None if is_outcome(message.kind) else f"has the unknown kind {message.kind!r}"
        return None
    if message.state not in STATES:
        return f"is {message.state!r}, which is no state of a message"
    if message.is_pending and message.due_at_ms != AT_ONCE:
        return f"is due at {message.due_at_ms}, and every {message.kind!r} is due at {AT_ONCE}"
    if message.kind.startswith("signal:") and not message.has_payload:
        return "has no payload"
    return None


class WorkSummary(msgspec.Struct, frozen=True):
    """A task on a queue. `host` has claimed it, or is `None`. `header` is the beginning of its payload."""

    guid: Guid
    queue: str
    available_at_ms: int
    host: HostId | None = None
    header: bytes | None = None

    @property
    def is_readable(self) -> bool:
        """Whether a host that claims the work can read what it is to execute."""
        text, feed, _ = (self.header or b"").partition(b"\n")
        if not feed:
            return len(text) >= HEADER_ROOM
        try:
            msgspec.json.decode(text, type=WorkHeader)
        except msgspec.DecodeError:
            return False
        return True


class WorkHeader(msgspec.Struct, frozen=True, omit_defaults=True):
    """The header of a work payload. After it come a line feed and the encoded input."""

    task: str
    attempt: int
    program: str
    version: str = ""
    key: str | None = None
    doubts: int = 0
    """How often earlier attempts of the step were in doubt."""
    stops: int = 0
    """How many doubts, those about earlier claims included, arose because a host ended the attempt in order to stop."""
    logical_attempt: int = 1
    """Which logical attempt of the step it belongs to."""
    timeout_ms: int | None = None
    """The time limit of an attempt, if it differs from the task's own."""
    trace: str | None = None
    """The trace context of the run, if it is traced."""


class Work(msgspec.Struct, frozen=True, gc=False):
    """A task for any host that serves the queue. The message `guid` carries its result."""

    run_id: RunId
    step: StepId
    guid: Guid
    queue: str
    available_at_ms: int
    priority: int = 0
    payload: bytes | None = None
