"""What commits together with a run's events: an event, and the effects that are as durable as it is."""

from typing import Any, NamedTuple

import msgspec

from perdure.authoring.workflow import Workflow
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
    workflow: Workflow[..., Any]
    payload: bytes
    parent: str


Inherited = SignalDelivered | CancelRequested
"""What reached a run, and is for the one that continues it."""


class Continue(NamedTuple):
    """Create the run that goes on for this one. What came for this one and had no effect is `inherited`."""

    run_id: RunId
    workflow: Workflow[..., Any]
    payload: bytes
    parent: str | None
    key: str | None
    inherited: tuple[Inherited, ...]


class Publish(NamedTuple):
    """Let clients read a value."""

    name: str
    payload: bytes


class AppendChunk(NamedTuple):
    """Append to a stream. `number` counts what the workflow itself appends to it."""

    name: str
    number: int
    payload: bytes


Birth = Spawn | Continue
Effect = Enqueue | PutWork | DropWork | Acknowledge | Birth | Publish | AppendChunk


class Change(msgspec.Struct, frozen=True, gc=False):
    """An event to append, and what commits with it."""

    event: Event
    effects: tuple[Effect, ...] = ()
