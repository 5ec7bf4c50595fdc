"""What all parts of one host share: store, codec, clock, identity, background tasks, and where they report to."""

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any, Protocol

from perdure.authoring.context import TASK
from perdure.core.codec import Codec
from perdure.core.errors import StoreClosed
from perdure.core.hosts.hints import Awaited
from perdure.core.ids import HostId, RunId
from perdure.core.messages import Message, Work
from perdure.core.secrets import GuardedCodec
from perdure.engine.runs.warm import WarmRun
from perdure.engine.sources import Sources
from perdure.host.alerts import Alerts
from perdure.host.artifacts.payloads import LargePayloads, reading_large
from perdure.host.background import Background
from perdure.host.bus.enrolling import Enrolments
from perdure.host.outage import Outage
from perdure.host.services import Services
from perdure.host.settings import Settings
from perdure.host.watchers import Watchers
from perdure.store.commit.committer import CommitsUnderWay
from perdure.store.rows.hosts import HostSnapshot
from perdure.store.store import Store


class HostListener(Protocol):
    """What the parts of a host report. The host passes each report on to the part that acts on it."""

    def message_sent(self, message: Message, owner: HostId | None = None) -> None:
        """A message that this host sent is durable. `owner` is that of its run, if the sender knows it."""

    def work_queued(self, work: Work) -> None:
        """A task that this host put on a queue is durable."""

    def run_resumed(self) -> None:
        """The pause of a run ended: its messages and its queued work may be due."""

    def signals_broadcast(self) -> None:
        """Signals to all runs of a search key are durable."""

    def hooks_changed(self) -> None:
        """A hook or a signal for hooks is durable, and its counterpart may be in the store already."""

    def runs_unfinished(self, runs: Sequence[WarmRun]) -> None:
        """These runs have decided more than their last commit holds: each needs another turn."""

    def runs_released(self) -> None:
        """Open runs without an owner are in the store, for any host."""

    def run_changed(self, run_id: RunId, change: Awaited) -> None:
        """A commit of this host ended the run or parked it, or added to its journal or to a stream."""

    def slot_left(self, slot: str) -> None:
        """A commit of this host ended a run that held this slot of a limit."""

    def snapshot_read(self, snapshot: HostSnapshot) -> None:
        """The host is about to act on this snapshot of the store."""

    def rows_repaired(self, run_id: RunId, rows: Sequence[str]) -> None:
        """A load wrote rows again that the journal of the run demands and the store lacked."""

    def advance_failed(self, run_id: RunId, problem: Exception) -> None:
        """A run could not take a fact in, or what it decided could not be written."""

    def failed(self, error: BaseException) -> None:
        """Background work of the host raised an error that no caller awaits."""


class HostContext:
    """One per host, made first and given to every part. Belongs to the event loop that made it."""

    def __init__(
        self,
        store: Store,
        host_id: HostId,
        codec: Codec,
        sources: Sources,
        settings: Settings,
        listener: HostListener,
        services: Services,
    ) -> None:
        self.store = store
        self.host_id = host_id
        """Changes when a peer took this host for dead and it continues under a new id."""
        artifacts = services.artifacts
        self.payloads = None if artifacts is None else LargePayloads(artifacts)
        """Payloads over the limit, if there is a place for them."""
        self.codec = codec = codec if self.payloads is None else reading_large(codec, self.payloads)
        self.services = services
        self.task_codec: Codec = GuardedCodec(codec) if services.secrets else codec
        """For what tasks return and send: refuses values that hold a secret."""
        self.sources = sources
        self.settings = settings
        self.listener = listener
        self.outage = Outage(store.name)
        self.watchers = Watchers(listener.run_changed, listener.slot_left)
        self.enrolments = Enrolments()
        self.stopping = asyncio.Event()
        """Once set, nothing waits for a store that does not answer."""
        self._background = Background(self.fail)
        self._endless = Background(self.fail)
        self.alerts = Alerts(self.spawn)
        self.undecided = CommitsUnderWay()
        self.is_killed = False

    @property
    def caller_codec(self) -> Codec:
        """For what a caller of the engine sends: as `task_codec`, if the caller is a task."""
        return self.codec if TASK.get() is None else self.task_codec

    def spawn(self, work: Coroutine[Any, Any, Any]) -> None:
        """Run `work` in the background. The listener hears what it raises."""
        self._background.spawn(work)

    def spawn_endless(self, work: Coroutine[Any, Any, Any]) -> None:
        """As `spawn`, for work that ends with the host: a quiet host does not wait for it."""
        self._endless.spawn(work)

    @property
    def endless(self) -> set[asyncio.Task[Any]]:
        """The background tasks that end with the host."""
        return self._endless.tasks

    @property
    def tasks(self) -> set[asyncio.Task[Any]]:
        """The background tasks that have not ended."""
        return self._background.tasks

    def fail(self, error: BaseException) -> None:
        """Report an error that no caller awaits."""
        if self.is_killed and isinstance(error, StoreClosed):
            # An attempt outlived its host. The next owner of the run finds the step in doubt.
            return
        self.listener.failed(error)
