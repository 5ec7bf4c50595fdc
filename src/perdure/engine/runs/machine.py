"""The machine of one run, as hosts use it: the same interface for workflows and graphs."""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

import msgspec

from perdure.authoring.context import Info
from perdure.authoring.program import Program
from perdure.authoring.tags import require_tag_count
from perdure.core.codec import Codec
from perdure.core.ids import Guid, StepId
from perdure.core.journal import events as e
from perdure.core.messages import Message
from perdure.core.replay.doubt import doubted_steps, is_stopped, resolution_of
from perdure.core.replay.identity import child_run_id, retry_guid
from perdure.core.runs.acts import ACTS_PER_MINUTE, RETRY_AT_ONCE_MS
from perdure.core.runs.tracing import Links, links_of
from perdure.engine.runs.effects import (
    NO_TAGS,
    Acknowledge,
    AddHook,
    RecordedChange,
    RunEffect,
    SetTag,
)
from perdure.engine.runs.log_notes import LogNote
from perdure.engine.runs.parameters import RunParameters
from perdure.engine.runs.patches import Patches
from perdure.engine.runs.payloads import is_same_event
from perdure.engine.runs.prefetched import NO_MESSAGES
from perdure.engine.runs.promise import DurablePromise
from perdure.engine.runs.record import IsSame, Record
from perdure.engine.runs.size import JournalSize
from perdure.engine.sources import Sources
from perdure.store.commit.bundle import Bundle
from perdure.store.commit.fence import Fence
from perdure.store.rows.records import StoredRun

HeldOutcome = e.InvokeCompleted | e.StepSkipped
HELD: Final = (e.InvokeCompleted, e.StepSkipped)
"""Facts that a paused run holds."""

NONE_RELEASED: Final[deque[HeldOutcome]] = deque()
"""Shared by all runs that have never been paused, because an empty deque takes 760 bytes. Always empty."""


class RunMachine(ABC):
    """One run in memory. Facts go in, decisions come out; a machine does no I/O."""

    __slots__ = (
        "_held",
        "_sent_ms",
        "acts_per_minute",
        "cancel_reason",
        "codec",
        "info",
        "is_over",
        "is_paused",
        "links",
        "log_notes",
        "parameters",
        "parent",
        "parks_failures",
        "patches",
        "prefetched",
        "program",
        "promises",
        "record",
        "released",
        "search_keys",
        "seed",
        "size",
        "slot",
        "sources",
        "tags",
        "tenant",
        "unstarted",
        "unwanted",
    )

    parent: str | None
    """The run and step that get this run's result."""
    slot: str | None
    """The slot of a limit that the run holds while it is open."""
    links: Links
    """The runs that a traced run comes from."""
    cancel_reason: str | None
    tenant: str
    """The scope of the run."""
    acts_per_minute: int
    """How many operator acts the run takes in a minute."""

    def __init__(
        self,
        program: Program[..., Any],
        info: Info,
        codec: Codec,
        sources: Sources,
        recorded: Sequence[e.Event],
        is_same: IsSame,
    ) -> None:
        self.program = program
        self.info = info
        self.codec = codec
        self.sources = sources
        self.record = Record(recorded, self._place, partial(is_same_event, codec, is_same))
        self.patches = Patches(self.record)
        self.size = JournalSize()
        self.promises: dict[StepId, DurablePromise] = {}
        """The open steps."""
        self.unstarted: list[DurablePromise] = []
        """Local tasks ready to start; the host removes them."""
        self.unwanted: list[StepId] = []
        """Steps whose attempts the host stops; the host removes them."""
        self.log_notes: list[LogNote] = []
        """What the host logs once the next commit is durable; the host removes them."""
        self.prefetched = NO_MESSAGES
        """Messages queued behind the one that is being fed."""
        self.is_over = False
        self.is_paused = False
        """Nothing begins, and the program does not advance."""
        self._held: list[tuple[HeldOutcome, DurablePromise]] = []
        """Outcomes journaled while the run is paused, in order; the program gets them when it resumes."""
        self.released = NONE_RELEASED
        """Outcomes that a pause held and that the program has not learned yet: they come before any other fact."""
        self.parks_failures = False
        """Whether failed steps of tasks that do not say so themselves are parked."""
        self.parameters: RunParameters | None = None
        """`None` if the program declares none."""
        if program.parameters is not None:
            self.parameters = RunParameters(program.parameters, codec)
        self.parent = self.slot = self.cancel_reason = None
        self.links = ()
        self.seed: str = info.run_id
        """What random ids derive from."""
        self.search_keys: tuple[AddHook, ...] = ()
        """The rows by which broadcasts and lists find a graph's run; those of its tags are others."""
        self.tags: Mapping[str, str] = NO_TAGS
        """The tags of the run now. Never changed in place: effects refer to it."""
        self._sent_ms, self.acts_per_minute, self.tenant = 0, ACTS_PER_MINUTE, ""

    @abstractmethod
    def replay(self) -> None:
        """Feed the recorded facts. Raises `Diverged` where the program takes another path."""

    def replay_some(self) -> bool:
        """Replay a bounded part, if the machine supports parts. Returns whether the replay is complete."""
        self.replay()
        return True

    @abstractmethod
    def feed(self, event: e.Event, *effects: RunEffect) -> None:
        """Record a fact with its effects, and decide what follows from it."""

    def feed_together(self, feed_all: Callable[[], None]) -> None:
        """Call `feed_all`, which feeds several facts. A machine may prepare once for all of them."""
        feed_all()

    @abstractmethod
    def close(self) -> None:
        """Release the run from memory."""

    @abstractmethod
    def next_delivery(self, name: str) -> int:
        """The number of the next signal of that name."""

    @abstractmethod
    def _place(self) -> str:
        """The program's current position, for error texts."""

    def start_attempt(self, promise: DurablePromise) -> int:
        """Start the next attempt of a local task; it becomes durable with the next commit. Returns its number."""
        attempt = promise.attempt + 1
        effects: tuple[RunEffect, ...] = ()
        if promise.retry_at_ms:
            # Acknowledged in the commit that starts the attempt: after a crash one of the two is always there.
            delay = retry_guid(self.info.run_id, promise.step, promise.attempt)
            effects = (Acknowledge(delay),)
        self.feed(e.InvokeStarted(promise.step, attempt), *effects)
        return attempt

    # Facts with the same meaning for every program

    def begin_as(self, event: e.ExecutionStarted) -> None:
        """Take what the first entry says about the run, besides its arguments."""
        if self.parameters is not None:
            self.parameters.begin(event.payload)
            self.on_parameters(self.parameters)
        self.parent = event.parent_id
        self.seed = event.seed or self.seed
        self.tags = event.tags or NO_TAGS
        if event.trace is not None:
            self.info = msgspec.structs.replace(self.info, trace=event.trace)
            self.links = links_of(event)
        self.slot = event.slot
        self.tenant = event.scope or ""

    def set_tags(self, tags: Mapping[str, str]) -> None:
        """Give the run these tags, with the next commit. Those of other names stay."""
        changed = {name: value for name, value in tags.items() if self.tags.get(name) != value}
        after = require_tag_count({**self.tags, **changed})
        for name, value in changed.items():
            self.record.attach(SetTag(name, value, self.tags.get(name)))
        self.tags = after

    def on_invoke_started(self, event: e.InvokeStarted) -> None:
        promise = self.promises.get(event.promise_id)
        if promise is not None:
            promise.attempt = event.attempt
            promise.is_running = True
            promise.retry_at_ms = 0
            if promise.child_run is not None:
                promise.child_run = child_run_id(self.info.run_id, promise.step, event.attempt)

    def on_retrying(self, event: e.InvokeRetrying) -> None:
        promise = self.promises.get(event.promise_id)
        if promise is not None:
            promise.is_running = False
            promise.retry_at_ms = event.retry_at_ms
            promise.is_parked = event.parks
            promise.is_given_up = False

    def on_accepted(self, event: e.SignalAccepted) -> None:
        """An operator's act. Three have their effect here: a retry, an emergency stop, and new parameters."""
        if event.signal_type == e.ActType.EMERGENCY_STOP:
            self.stop_at_once(event)
        elif event.signal_type == e.ActType.RETRY_STEP and event.step in self.promises:
            promise = self.promises[event.step]
            promise.begin_logical_attempt()
            promise.retry_at_ms = RETRY_AT_ONCE_MS
        elif event.signal_type == e.ActType.UPDATE_PARAMS and self.parameters is not None:
            self.parameters.update(event.payload)
            self.on_parameters(self.parameters)

    def on_parameters(self, parameters: RunParameters) -> None:  # noqa: B027 - workflows ask for them
        """The parameters have new values, or their first ones."""

    @abstractmethod
    def stop_at_once(self, event: e.SignalAccepted) -> None:
        """End the run as cancelled, without its clean-up."""

    def feed_skip(self, promise: DurablePromise, event: e.StepSkipped, *effects: RunEffect) -> None:  # noqa: ARG002 - a graph looks at the promise
        """Record that an operator skipped the step."""
        self.feed(event, *effects)

    def on_paused(self, event: e.RunPaused) -> None:  # noqa: ARG002 - a fact without parts that count
        self.is_paused = True

    def on_resumed(self, event: e.RunResumed) -> None:  # noqa: ARG002 - as above
        self.released = deque([*self.released, *self._release()])

    def _hold(self, event: HeldOutcome) -> None:
        """Keep an outcome until the run resumes. Its step is no longer open: nothing may doubt or begin it again."""
        promise = self.promises.pop(event.promise_id, None)
        if promise is not None:
            promise.is_running = False
            promise.is_held = True
            self._held.append((event, promise))

    def _release(self) -> list[HeldOutcome]:
        """End the pause. The steps of the held outcomes are open again until the program learns these, in order."""
        self.is_paused = False
        held, self._held = self._held, []
        self.promises.update((event.promise_id, promise) for event, promise in held)
        return [event for event, _ in held]

    def on_posted(self, event: e.Posted) -> None:
        """Count doubts, if the entry posts any."""
        resolution = resolution_of(event)
        if resolution is not None:
            for step, count in doubted_steps(event):
                promise = self.promises.get(step)
                if promise is not None:
                    promise.doubt(count, resolution, is_stopped=is_stopped(event))

    def ignore(self, event: e.Event) -> None:  # noqa: B027 - ignores it
        """A fact without meaning for the program."""

    def take_changes(self) -> list[RecordedChange]:
        """The changes to commit, in order; the record starts a new list."""
        changes, self.record.changes = self.record.changes, []
        return changes

    def arrival(self) -> int:
        """The time now, or 1 ms after the last message that the program sent if that is later: keeps their order."""
        self._sent_ms = max(self.sources.now_ms(), self._sent_ms + 1)
        return self._sent_ms

    @property
    def has_more(self) -> bool:
        """Whether decisions remain that need no new fact."""
        return False

    def continue_turn(self) -> None:  # noqa: B027 - workflow turns are never cut short
        """Continue a turn that was cut short."""

    @property
    def is_busy(self) -> bool:
        """Whether the consequences of the last fact are still being computed; only a cancellation may be fed then."""
        return False

    @property
    def is_walking(self) -> bool:
        """Whether it is busy with a walk, which a cancellation discards."""
        return False

    @property
    def takes_more(self) -> bool:
        """Whether another fact may be fed before the decisions so far are committed."""
        return not self.is_over

    def signal_name(self, topic: str, step: StepId | None) -> str:  # noqa: ARG002 - a graph looks at the step
        """The name under which the journal has a signal."""
        return topic

    def delivery_of(self, message: Message) -> e.SignalDelivered:
        """The event that delivers a signal to the run now."""
        name = self.signal_name(message.kind.partition(":")[2], message.step)
        number = self.next_delivery(name)
        return e.SignalDelivered(name, number, message.guid, payload=message.payload)

    def takes_signal(self, step: StepId | None) -> bool:  # noqa: ARG002 - as above
        """Whether the run still accepts a signal for that step."""
        return True

    def has_key(self, step: StepId | None) -> bool:  # noqa: ARG002 - as above
        """Whether the step waits for signals to a topic and key."""
        return False

    def hook_again(self, step: StepId | None) -> AddHook | None:  # noqa: ARG002 - as above
        """The hook to add again after the run refused a signal matched to it, if the step still waits.

        The match removed it.
        """
        return None

    def has_unread(self, guid: Guid) -> bool:  # noqa: ARG002 - as above
        """Whether that signal is buffered: received, but not posted to the ledger yet."""
        return False

    def reindex(self, bundle: Bundle, fence: Fence, stored: StoredRun) -> bool:  # noqa: ARG002 - as above
        """Add to the bundle what the stored index lacks or has too much. False if it is right, or there is none."""
        return False


Handlers = dict[type[e.Event], Callable[[Any, Any], None]]
"""A machine's handler for each kind of fact."""

COMMON_FACTS: Final[Handlers] = {
    e.InvokeStarted: RunMachine.on_invoke_started,
    e.InvokeRetrying: RunMachine.on_retrying,
    e.Posted: RunMachine.on_posted,
    e.RunApproved: RunMachine.ignore,
    e.RunPaused: RunMachine.on_paused,
    e.RunResumed: RunMachine.on_resumed,
    e.SignalAccepted: RunMachine.on_accepted,
    e.SignalRejected: RunMachine.ignore,
}
"""Handlers of facts with the same meaning for every program."""
