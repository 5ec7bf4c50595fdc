"""The effects of a run's events: writes that commit in the same bundle as the event that decided them."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import msgspec

from perdure.authoring.program import Program
from perdure.core.graph.transition import InboxValue
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
    """Remove a task from its queue, even if a host has claimed it."""

    step: StepId


class HoldWork(NamedTuple):
    """Keep hosts from claiming the run's tasks, or let them again."""

    held: bool


class ParkStep(NamedTuple):
    """List the step as waiting for an operator."""

    step: StepId
    task: str
    error: str
    since_ms: int


class UnparkStep(NamedTuple):
    """Take the step off that list."""

    step: StepId


class Acknowledge(NamedTuple):
    """Acknowledge a message: its work is done, or the run no longer needs it."""

    guid: Guid


NO_TAGS: Final[Mapping[str, str]] = MappingProxyType({})


class SpawnChild(NamedTuple):
    """Create a child run, in the scope and with the tags of its parent."""

    run_id: RunId
    workflow: Program[..., Any]
    payload: bytes
    parent: str | None
    tags: Mapping[str, str] = NO_TAGS


Inherited = SignalDelivered | CancelRequested
"""A fact that one run of a chain received and the next one gets."""


class ContinueAsNew(NamedTuple):
    """Create the next run of the chain. It gets the `inherited` facts, which had no effect on this run."""

    run_id: RunId
    workflow: Program[..., Any]
    payload: bytes
    parent: str | None
    key: str | None
    inherited: tuple[Inherited, ...]
    tags: Mapping[str, str] = NO_TAGS


class Publish(NamedTuple):
    """Publish a value for clients. With `at_ms` it was sent before, at that time, and may not have been stored."""

    name: str
    payload: bytes
    at_ms: int | None = None


class AppendChunk(NamedTuple):
    """Append to a stream. `number` counts the chunks that the workflow itself appends to it."""

    name: str
    number: int
    payload: bytes


class SendToMailbox(NamedTuple):
    """Send a message by topic and key: it is addressed to the mailbox of that topic and key."""

    message: Message


class SendBroadcast(NamedTuple):
    """Send a message to every open run that has a search key. The GUIDs end with `suffix`."""

    mailbox: RunId
    kind: str
    payload: bytes
    suffix: str
    now_ms: int
    scrubs: bool


class AddHook(NamedTuple):
    """Make a step reachable by topic and key, or its run by a search key."""

    step: StepId
    mailbox: RunId
    kind: str
    topic: str
    key: str
    since_ms: int


class SetTag(NamedTuple):
    """Give the run a tag. `before` is the tag's value so far, if the run has the tag."""

    name: str
    value: str
    before: str | None = None


class RemoveHook(NamedTuple):
    """Remove a step's hook."""

    step: StepId


class TrackJoin(NamedTuple):
    """A join that requires `required` inputs has `resolved` more of them and is not ready."""

    step: StepId
    required: int
    resolved: int


class Deliver(NamedTuple):
    """Store a value that a join will read."""

    delivered: InboxValue


class SetReady(NamedTuple):
    """A join is ready: remove its readiness row and its inbox rows."""

    step: StepId


class UntrackAll(NamedTuple):
    """The run is over: remove all its index rows."""


CreateRun = SpawnChild | ContinueAsNew
IndexEffect = (
    SendToMailbox
    | SendBroadcast
    | AddHook
    | SetTag
    | RemoveHook
    | TrackJoin
    | Deliver
    | SetReady
    | UntrackAll
)
StandingEffect = HoldWork | ParkStep | UnparkStep
RunEffect = (
    Enqueue
    | PutWork
    | DropWork
    | StandingEffect
    | Acknowledge
    | CreateRun
    | Publish
    | AppendChunk
    | IndexEffect
)


class RecordedChange(msgspec.Struct, frozen=True, gc=False):
    """An event to append, and the effects that commit with it."""

    event: Event
    effects: tuple[RunEffect, ...] = ()
