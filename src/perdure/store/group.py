"""Bundles of many runs, merged into rows by table, so that a group costs a few statements.

Pure: which bundles can't go together with the store is found by the database; which can't go
together with each other, or follow a rejected one, is found here.
"""

from collections.abc import Iterable, Sequence

import msgspec

from perdure.core.errors import BundleRefused, CommitRejected, StaleFence
from perdure.core.ids import Guid, RunId, StepId
from perdure.core.journal.journal import Appended
from perdure.core.journal.state import TERMINAL
from perdure.core.ledger import AccountId
from perdure.core.messages import Message, Work
from perdure.core.streams.chunks import ChunkKey, NewChunk
from perdure.store.bundle import FIRST_EPOCH, Bundle, Value
from perdure.store.graph_index import GraphIndex
from perdure.store.primitives import Fence
from perdure.store.records import NewRun, Tenure


class Head(msgspec.Struct, gc=False):
    """A run's row: what the group found it to be, and what it leaves.

    `head_before` is the hash that the group continues, which tells the sequence too. It is `None`
    if the group appends nothing, and only the epoch must hold.
    """

    run_id: RunId
    epoch: int
    head_before: bytes | None
    semaphore_before: int
    last: Appended | None

    @property
    def closed_at_ms(self) -> int | None:
        if self.last is None or self.last.status not in TERMINAL:
            return None
        return self.last.entries[-1].at_ms


class Group:
    """The rows that one physical commit writes, by table."""

    def __init__(self) -> None:
        self.created: list[tuple[NewRun, Head]] = []
        self.heads: dict[RunId, Head] = {}
        """Rows of runs that existed before."""
        self.appends: list[Appended] = []
        self.postings: dict[tuple[RunId, AccountId], int] = {}
        self.messages: list[Message] = []
        self.forwarded: dict[tuple[RunId, Guid], tuple[RunId, StepId | None]] = {}
        self.acknowledged: list[tuple[RunId, Guid]] = []
        self.marked: list[tuple[RunId, Guid, str, str]] = []
        self.work: dict[tuple[RunId, StepId], Work] = {}
        self.finished: list[tuple[RunId, StepId, str]] = []
        self.dropped: dict[tuple[RunId, StepId], None] = {}
        """Tasks that leave their queues after those that are finished, and before others are put."""
        self.published: dict[tuple[RunId, str], tuple[bytes, int, Tenure | None]] = {}
        self.chunks: dict[ChunkKey, NewChunk] = {}
        self.parked: dict[RunId, str | None] = {}
        self.index: GraphIndex | None = None
        self.finishers: dict[tuple[RunId, StepId], int] = {}
        """The positions of the bundles that finish work."""
        self.bundles: list[Bundle] = []
        """Those that were looked at, in order; the rest must wait for the next group."""

        self._born: dict[RunId, Head] = {}
        self._keys: set[tuple[str, str, str]] = set()

    @property
    def size(self) -> int:
        return len(self.bundles)

    def add_step(self, bundle: Bundle) -> bool:
        """Take in a bundle that is one append and fits, as most are. False if it must be looked at closely."""
        if len(bundle.appends) != 1 or bundle.has_more:
            return False
        fence, appended = bundle.appends[0]
        if fence.broken:
            return False
        head = self.known(fence.run_id)
        if head is None:
            before = appended.head_before, appended.semaphore_before
            self.heads[fence.run_id] = Head(fence.run_id, fence.epoch, *before, appended)
        elif head.epoch == fence.epoch and head.last and _follows(appended, head.last):
            head.last = appended
        else:
            return False
        self._add_books(appended)
        return True

    def add(self, bundle: Bundle) -> None:
        """Take in a bundle that fits."""
        for run, appended in bundle.created:
            head = Head(run.run_id, FIRST_EPOCH, None, 0, appended)
            self.created.append((run, head))
            self._born[run.run_id] = head
            if run.key is not None:
                self._keys.add((run.scope, run.program, run.key))
            self._add_books(appended)
        for fence, appended in bundle.appends:
            head = self._head(fence)
            if head.last is None:
                head.head_before = appended.head_before
                head.semaphore_before = appended.semaphore_before
            head.last = appended
            self._add_books(appended)
        for fence in bundle.fences:
            self._head(fence)
        self.messages += bundle.messages
        self.forwarded.update(bundle.forwarded)
        self.acknowledged += bundle.acknowledged
        self.marked += bundle.marked
        self._add_work(bundle)
        for run_id, name, payload, at_ms, by in bundle.published:
            value = self.published.get((run_id, name))
            if value is None or value[1] <= at_ms:
                self.published[run_id, name] = payload, at_ms, by
        for chunk in bundle.chunks:
            self.chunks.setdefault(chunk.key, chunk)
        self.parked.update(bundle.parked)
        if bundle.index is not None:
            self._add_index(bundle.index)

    @property
    def is_books_only(self) -> bool:
        """Whether it only appends to runs that exist, as the steps of warm runs do."""
        heads = self.heads.values()
        return (
            bool(heads)
            and not self.created
            and not self._has_more
            and all(head.head_before is not None for head in heads)
        )

    @property
    def is_one_birth(self) -> bool:
        """Whether it only creates one run, for whose key nobody contends."""
        return (
            len(self.created) == 1
            and self.created[0][0].key is None
            and not self.heads
            and not self._has_more
        )

    @property
    def _has_more(self) -> bool:
        """Whether there is anything but runs and their books."""
        return any(
            (
                self.messages,
                self.forwarded,
                self.acknowledged,
                self.marked,
                self.work,
                self.finished,
                self.dropped,
                self.published,
                self.chunks,
                self.parked,
                self.index,
            )
        )

    @property
    def appended(self) -> set[RunId]:
        """The runs that this group itself appends to: they were not over before it."""
        return {appended.run_id for appended in self.appends}

    def known(self, run_id: RunId) -> Head | None:
        return self.heads.get(run_id) or self._born.get(run_id)

    def must_wait(self, bundle: Bundle) -> bool:
        """Whether the bundle contends with this group for a key, a task, a value or a run.

        Then one of the two is too late, and only the database knows which: the bundle goes next.
        """
        for run, _ in bundle.created:
            if run.run_id in self._born or (run.scope, run.program, run.key) in self._keys:
                return True
        for run_id, step, _ in bundle.finished:
            if (run_id, step) in self.finishers or (run_id, step) in self.dropped:
                return True
        if any(map(self._publishes_otherwise, bundle.published)):
            return True
        if self.index and bundle.index and self.index.must_wait(bundle.index):
            return True
        shared = False
        for fence in bundle.fences:
            head = self.known(fence.run_id)
            if head is not None:
                shared = True
                if head.epoch != fence.epoch:
                    return True
        return shared and not all(map(self._continued_by, _first_appends(bundle)))

    def concerned(self, run_ids: Iterable[RunId]) -> set[int]:
        """Positions of the bundles that write any of these runs."""
        wanted = set(run_ids)
        return {
            position
            for position, bundle in enumerate(self.bundles)
            if any(fence.run_id in wanted for fence in bundle.fences)
        }

    def _publishes_otherwise(self, value: Value) -> bool:
        """Whether a value of the same name comes by another right, so that either may not be written."""
        run_id, name, *_, by = value
        known = self.published.get((run_id, name))
        return known is not None and known[2] != by

    def _continued_by(self, appended: Appended) -> bool:
        head = self.known(appended.run_id)
        return head is None or head.last is None or _follows(appended, head.last)

    def _head(self, fence: Fence) -> Head:
        head = self.known(fence.run_id)
        if head is None:
            head = self.heads[fence.run_id] = Head(fence.run_id, fence.epoch, None, 0, None)
        return head

    def _add_work(self, bundle: Bundle) -> None:
        for finished in bundle.finished:
            self.finished.append(finished)
            self.finishers[finished[0], finished[1]] = self.size
        for task in bundle.dropped:
            self.work.pop(task, None)
            self.dropped[task] = None
        for work in bundle.work:
            self.work.setdefault((work.run_id, work.step), work)

    def _add_index(self, index: GraphIndex) -> None:
        if self.index is None:
            self.index = GraphIndex()
        self.index.follow(index)

    def _add_books(self, appended: Appended) -> None:
        self.appends.append(appended)
        run_id, postings = appended.run_id, self.postings
        for account, increment in appended.postings.items():
            key = run_id, account
            postings[key] = postings.get(key, 0) + increment


def merge(bundles: Sequence[Bundle]) -> tuple[Group, dict[int, CommitRejected]]:
    """The bundles from the first on that fit together, and those among them that fit nowhere."""
    group = Group()
    rejected: dict[int, CommitRejected] = {}
    for bundle in bundles:
        if not group.add_step(bundle):
            misfit = _misfit(bundle)
            if misfit is not None:
                rejected[group.size] = misfit
                break_fences(bundle)
            elif group.must_wait(bundle):
                break
            else:
                group.add(bundle)
        group.bundles.append(bundle)
    return group, rejected


def break_fences(bundle: Bundle) -> None:
    """Let no later bundle of the same runs pass: they build on what was rejected."""
    for fence in bundle.fences:
        fence.broken = True


def break_all(bundles: Iterable[Bundle]) -> None:
    """The outcome is unknown to the callers, or nothing was written: only what a fresh load finds is true."""
    for bundle in bundles:
        break_fences(bundle)


def _misfit(bundle: Bundle) -> CommitRejected | None:
    for fence in bundle.fences:
        if fence.broken:
            return StaleFence(
                f"an earlier bundle of run {fence.run_id!r} was rejected",
                "drop the run from memory and load it again",
            )
    uncertified = _uncertified(bundle)
    if uncertified is not None or (len(bundle.appends) == 1 and not bundle.created):
        return uncertified
    last = {run.run_id: appended for run, appended in bundle.created}
    for fence, appended in bundle.appends:
        before = last.get(fence.run_id)
        if before is not None and not _follows(appended, before):
            return stale(fence.run_id, fence.epoch)
        last[fence.run_id] = appended
    return None


def _uncertified(bundle: Bundle) -> BundleRefused | None:
    """What counts, and is written again after a lost connection, must be found by the entries that it came with."""
    if bundle.index is None:
        return None
    appended = {appended.run_id for _, appended in (*bundle.created, *bundle.appends)}
    for run_id, change in bundle.index.runs.items():
        if run_id not in appended and not change.is_repeatable:
            return BundleRefused(
                f"a bundle tracks nodes of run {run_id!r} and has no entries of it",
                "append the entries that tell what was resolved in the same bundle",
            )
    return None


def _first_appends(bundle: Bundle) -> Iterable[Appended]:
    """What each run that existed before the bundle appends first in it."""
    first = {appended.run_id: appended for _, appended in reversed(bundle.appends)}
    for run, _ in bundle.created:
        first.pop(run.run_id, None)
    return first.values()


def _follows(appended: Appended, before: Appended) -> bool:
    return (
        appended.semaphore_before == before.semaphore_after and appended.head_before == before.head
    )


def stale(run_id: RunId, epoch: int) -> StaleFence:
    return StaleFence(
        f"run {run_id!r} is no longer as its owner of epoch {epoch} knew it",
        "another host owns it now: drop the run from memory",
    )
