"""What commits together with a run's events: an event, and the effects that are as durable as it is."""

from typing import Any, NamedTuple

import msgspec

from perdure.authoring.program import Program
from perdure.core.graph.walk import Delivered
from perdure.core.ids import Guid, RunId, StepId
from perdure.core.journal.events import CancelRequested, Event, SignalDelivered
from perdure.core.messages import Message, Work


class Enqueue(NamedTuple):
    """Send a message."""

    message: Message


class PutWork(NamedTuple):
    """Put a task on a queue."""

    work: Work


class DropWork(NamedTuple):
    """Take a task off its queue, whoever has claimed it."""

    step: StepId


class Acknowledge(NamedTuple):
    """A message has done its work, or is not wanted any more."""

    guid: Guid


class Spawn(NamedTuple):
    """Create a child run."""

    run_id: RunId
    workflow: Program[..., Any]
    payload: bytes
    parent: str | None


Inherited = SignalDelivered | CancelRequested
"""What reached a run, and is for the one that continues it."""


class Continue(NamedTuple):
    """Create the run that goes on for this one. What came for this one and had no effect is `inherited`."""

    run_id: RunId
    workflow: Program[..., Any]
    payload: bytes
    parent: str | None
    key: str | None
    inherited: tuple[Inherited, ...]


class Publish(NamedTuple):
    """Let clients read a value. Without a time it is of the time when it is written."""

    name: str
    payload: bytes
    at_ms: int | None = None


class AppendChunk(NamedTuple):
    """Append to a stream. `number` counts what the workflow itself appends to it."""

    name: str
    number: int
    payload: bytes


class Mail(NamedTuple):
    """Send a message to whoever waits for a topic and key: it is addressed to their mailbox."""

    message: Message


class Broadcast(NamedTuple):
    """Send a message to every open run with a search key; `suffix` ends its GUIDs."""

    mailbox: RunId
    kind: str
    payload: bytes
    suffix: str
    now_ms: int
    scrubs: bool


class Hook(NamedTuple):
    """Let a step be found by topic and key, or the run by a search key."""

    step: StepId
    mailbox: RunId
    kind: str
    topic: str
    key: str
    since_ms: int


class Unhook(NamedTuple):
    """The step is not to be found any more."""

    step: StepId


class Track(NamedTuple):
    """A join has so many more of what it requires, and is not ready."""

    step: StepId
    required: int
    resolved: int


class Deliver(NamedTuple):
    """A join is given something."""

    delivered: Delivered


class Ready(NamedTuple):
    """A join waits for nothing any more."""

    step: StepId


class UntrackAll(NamedTuple):
    """The run is over: nothing of it waits."""


Birth = Spawn | Continue
IndexEffect = Mail | Broadcast | Hook | Unhook | Track | Deliver | Ready | UntrackAll
Effect = Enqueue | PutWork | DropWork | Acknowledge | Birth | Publish | AppendChunk | IndexEffect


class Change(msgspec.Struct, frozen=True, gc=False):
    """An event to append, and what commits with it."""

    event: Event
    effects: tuple[Effect, ...] = ()
