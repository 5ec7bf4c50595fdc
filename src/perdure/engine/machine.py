"""What a host needs of the machine that runs a program, of whichever kind the program is."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

from perdure.authoring.context import Info
from perdure.authoring.program import Program
from perdure.core.codec import Codec
from perdure.core.ids import Guid, StepId
from perdure.core.journal import events as e
from perdure.core.replay.doubt import doubted_steps, is_stopped, resolution_of
from perdure.engine.replay.effects import Change, Effect, Hook
from perdure.engine.replay.mail import NO_MAIL
from perdure.engine.replay.patches import Patches
from perdure.engine.replay.promise import DurablePromise
from perdure.engine.replay.record import IsSame, Record
from perdure.engine.sources import Sources


class RunMachine(ABC):
    """One run in memory: facts go in, decisions come out, and nothing else."""

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
        self.record = Record(recorded, self._place, is_same)
        self.patches = Patches(self.record)
        self.promises: dict[StepId, DurablePromise] = {}
        """Everything that is open."""
        self.unstarted: list[DurablePromise] = []
        """Local tasks that were scheduled; the host takes them away."""
        self.unwanted: list[StepId] = []
        """Steps whose bodies are to stop; the host takes them away."""
        self.mail = NO_MAIL
        """What has come and stands behind the fact that is taken in."""
        self.is_over = False
        self.cancel_reason: str | None = None
        self.parent: str | None = None
        """Whom to tell how it ended."""
        self._sent_ms = 0

    @abstractmethod
    def replay(self) -> None:
        """Feed the recorded facts. Raises `Diverged` where the program takes another path."""

    @abstractmethod
    def feed(self, event: e.Event, *effects: Effect) -> None:
        """Take a fact in, and decide all that follows from it."""

    @abstractmethod
    def close(self) -> None:
        """Take the run out of memory."""

    @abstractmethod
    def next_delivery(self, name: str) -> int:
        """The number that the next signal of that name gets."""

    @abstractmethod
    def _place(self) -> str:
        """Where the program is, for people."""

    # Facts that mean the same to every program

    def on_invoke_started(self, event: e.InvokeStarted) -> None:
        promise = self.promises.get(event.promise_id)
        if promise is not None:
            promise.attempt = event.attempt
            promise.is_running = True
            promise.retry_at_ms = 0

    def on_retrying(self, event: e.InvokeRetrying) -> None:
        promise = self.promises.get(event.promise_id)
        if promise is not None:
            promise.is_running = False
            promise.retry_at_ms = event.retry_at_ms

    def on_posted(self, event: e.Posted) -> None:
        """Steps were in doubt, if that is what it says."""
        resolution = resolution_of(event)
        if resolution is not None:
            for step, count in doubted_steps(event):
                promise = self.promises.get(step)
                if promise is not None:
                    promise.doubt(count, resolution, is_stopped=is_stopped(event))

    def ignore(self, event: e.Event) -> None:  # noqa: B027 - as it says
        """A fact that means nothing to the program."""

    def take_changes(self) -> list[Change]:
        """What is to be committed, in order."""
        changes, self.record.changes = self.record.changes, []
        return changes

    def arrival(self) -> int:
        """The time now, or as little later as keeps the order of what the program sends."""
        self._sent_ms = max(self.sources.now_ms(), self._sent_ms + 1)
        return self._sent_ms

    @property
    def has_more(self) -> bool:
        """Whether more is to be decided without any fact."""
        return False

    def go_on(self) -> None:  # noqa: B027 - most have nothing left over
        """Decide more, if a turn was cut short."""

    @property
    def takes_more(self) -> bool:
        """Whether another fact may come before what is decided is written."""
        return not self.is_over

    def signal_name(self, topic: str, step: StepId | None) -> str:  # noqa: ARG002 - a graph looks at the step
        """What a signal is called in the journal."""
        return topic

    def takes_signal(self, step: StepId | None) -> bool:  # noqa: ARG002 - as above
        """Whether there is any use in it."""
        return True

    def has_key(self, step: StepId | None) -> bool:  # noqa: ARG002 - as above
        """Whether the step waits for signals to a topic and key."""
        return False

    def hook_again(self, step: StepId | None) -> Hook | None:  # noqa: ARG002 - as above
        """How the step is found that a signal was matched to in vain, if it waits on: the match has taken it out."""
        return None

    def has_unread(self, guid: Guid) -> bool:  # noqa: ARG002 - as above
        """Whether a signal has come of which the ledger does not tell yet."""
        return False


Handlers = dict[type[e.Event], Callable[[Any, Any], None]]
"""What a machine does with each kind of fact."""
