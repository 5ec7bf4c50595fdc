"""What commits atomically. Engines decide; these primitives are all that they can do to the store.

Correctness is defined by what a primitive commits, not by what an engine intends: each one states
its guarantee. Calls are collected in a `Bundle`, and a bundle commits whole or not at all.
"""

from collections.abc import Sequence
from typing import Protocol

from perdure.core.ids import Guid, RunId, StepId
from perdure.core.journal.journal import Appended
from perdure.core.ledger import Settlement
from perdure.core.messages import Message, Work
from perdure.core.streams.chunks import NewChunk
from perdure.store.records import Delivery, NewRun, Readiness, Tenure


class Fence:
    """The right to write one run: an epoch, while no bundle under it has been rejected.

    A takeover bumps the epoch in the store, so that every bundle under the old one is rejected. A
    rejected bundle breaks the fence, because the journal in memory is then ahead of the store: the
    run must be loaded again, under a new fence.
    """

    __slots__ = ("broken", "epoch", "run_id")

    def __init__(self, run_id: RunId, epoch: int) -> None:
        self.run_id = run_id
        self.epoch = epoch
        self.broken = False


class Primitives(Protocol):
    """The writes that a bundle may hold."""

    def create_run(self, run: NewRun, appended: Appended) -> Fence:
        """Commits: the run, its first entries, their postings and its semaphore.

        Rejects the bundle with `RunExists` if the run's key is taken: nothing of it is written.
        """
        ...

    def append(self, fence: Fence, appended: Appended) -> None:
        """Commits: entries, their postings, the semaphore and the run's head.

        Rejects the bundle with `StaleFence` unless the run, locked, still has the fence's epoch and
        the sequence and semaphore that the entries were decided on.
        """
        ...

    def spawn(
        self,
        fence: Fence,
        appended: Appended,
        guid: Guid,
        settlement: Settlement,
        children: Sequence[Message],
    ) -> None:
        """Commits: the children's messages, the semaphore delta, the message's spawned digit and,
        if the run closes by it, the message's closed bit.

        The compound primitive of step 2. The settlement says what the semaphore was and becomes;
        the store compares *was* with the locked row and rejects the bundle if it differs, so that
        the closed bit is decided on the row and not on a memory of it.
        """
        ...

    def enqueue(self, message: Message) -> None:
        """Commits: a message to a run, once per GUID. Anyone may send; the run's row is not touched."""
        ...

    def forward(self, run_id: RunId, guid: Guid, to: RunId) -> None:
        """Commits: a message that is pending for `run_id` is that of `to`, under the same GUID.

        If it is not pending there nothing is changed; if `to` has one of that GUID, that one stays. Anyone may
        forward what comes for a run that was continued: it takes nothing more, and no run's row is touched.
        """
        ...

    def give_back(self, fence: Fence, guid: Guid, step: StepId) -> None:
        """Commits: a signal that was matched to a hook is in its mailbox again, as it was, for the next one.

        If it is not pending for that step of the run nothing is changed: it may be matched to another by now.
        """
        ...

    def acknowledge(self, fence: Fence, guid: Guid) -> None:
        """Commits: the message is gone, with the bundle that certifies its effect."""
        ...

    def mark(self, fence: Fence, guid: Guid, state: str, reason: str) -> None:
        """Commits: the message stays, out of delivery, as `stale` or `dead`, with the reason."""
        ...

    def put_work(self, fence: Fence, work: Work) -> None:
        """Commits: a task on a queue, once per step."""
        ...

    def finish_work(self, run_id: RunId, step: StepId, token: str) -> None:
        """Commits: the task is off the queue.

        Rejects the bundle with `StaleToken` if it was claimed again meanwhile, so that a slow host's
        result does not stand beside another's.
        """
        ...

    def drop_work(self, fence: Fence, step: StepId) -> None:
        """Commits: the task is off its queue, whoever has claimed it.

        The token of that claim is worth nothing from then on. To drop what is not there changes
        nothing. In one bundle a task that is dropped and then put is a new one, on its queue.
        """
        ...

    def publish(
        self, run_id: RunId, name: str, payload: bytes, at_ms: int, by: Tenure | None = None
    ) -> None:
        """Commits: the value of that name, which clients may read, unless a newer one is there.

        Of values with the same time the last one counts. What a run publishes itself goes with its entries, whose
        fence guards it. What its tasks publish is not written unless the tenure that it comes `by` holds: a host that
        has lost the run or the task, or comes after the end, changes nothing. The run's row is not touched.
        """
        ...

    def append_chunk(self, chunk: NewChunk) -> None:
        """Commits: the chunk at the end of its stream, once per number of its origin.

        Positions have no gaps and are in the order of commits, so that a reader may go on from the last one that it
        has. Anyone may append, until the run is over: its streams end with it. Rejects the bundle with `RunEnded`
        after that, and with `UnknownRun` if there is no such run.
        """
        ...

    def park(self, fence: Fence, reason: str | None) -> None:
        """Commits: why the run is not advanced; with `None`, that it is no longer parked.

        Rejects the bundle with `StaleFence` unless the run still has the fence's epoch.
        """
        ...

    def track(self, fence: Fence, step: StepId, required: int, resolved: int) -> None:
        """Commits: so many more predecessors of a node are resolved, of those that it requires.

        With entries of the same run, which tell the same. Rejects the bundle with `ReadinessOverflow` if more were
        resolved than are required, or another number was required before: somebody has counted wrong.
        """
        ...

    def deliver(
        self,
        fence: Fence,
        step: StepId,
        source: StepId,
        variable: str,
        position: int,
        value: bytes,
    ) -> None:
        """Commits: a value that waits for a node, which is tracked for its source in the same bundle.

        `position` is that of its item, or -1 if it comes from no spread.
        """
        ...

    def ready(self, fence: Fence, step: StepId) -> None:
        """Commits: the node waits no more, and neither does anything for it.

        What the bundle tracked and delivered before for the same node is not written at all.
        """
        ...

    def untrack_all(self, fence: Fence) -> None:
        """Commits: no node of the run waits, nothing waits for one, and no hook for a signal. Its search keys stay."""
        ...

    def rebuild(
        self, fence: Fence, readiness: Sequence[Readiness], inbox: Sequence[Delivery]
    ) -> None:
        """Commits: these nodes of the run wait, and these values for them, and no others."""
        ...

    def hook(
        self,
        fence: Fence,
        step: StepId,
        mailbox: RunId,
        kind: str,
        topic: str,
        key: str,
        since_ms: int,
    ) -> None:
        """Commits: a step waits for a signal at a mailbox (kind `wait`), or its run has a search key (kind `key`).

        What is there already stays as it is.
        """
        ...

    def unhook(self, fence: Fence, step: StepId) -> None:
        """Commits: the step waits for no signal."""
        ...

    def broadcast(
        self,
        fence: Fence,
        mailbox: RunId,
        kind: str,
        payload: bytes | None,
        suffix: str,
        now_ms: int,
        scrub: bool,
    ) -> None:
        """Commits: a message to each open run that has the search key, once per run: `suffix` ends its GUID.

        Of the runs that have the key when the bundle commits; its own is one of them, if it has. With `scrub`
        those are not found by that key again.
        """
        ...
