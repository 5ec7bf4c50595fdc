"""A group: bundles of many runs, merged by table, so that all of them cost a few statements.

Pure. This module finds bundles that don't fit each other or that follow a rejected one; the database finds bundles
that don't fit the stored rows.
"""

from collections.abc import Iterable, Sequence

import msgspec
from msgspec.structs import astuple

from perdure.core.errors import BundleRefused, CommitRejected, StaleFence
from perdure.core.ids import Guid, RunId, StepId
from perdure.core.journal.journal import Appended
from perdure.core.journal.state import TERMINAL
from perdure.core.ledger import AccountId
from perdure.core.messages import Message, Work
from perdure.core.streams.chunks import ChunkKey, NewChunk
from perdure.store.commit.bundle import FIRST_EPOCH, Bundle, PublishedRow
from perdure.store.commit.fence import Fence
from perdure.store.commit.graph_index import GraphIndex
from perdure.store.rows.records import NewRun, ParkedStep, TaskHolder, enrolled_rows
from perdure.store.rows.values import RowValues


class RunHead(msgspec.Struct, gc=False):
    """A run's row before and after the group.

    `head_before` is the hash that the group's entries continue, which also determines the sequence. `None` if the
    group appends nothing to the run: then only the epoch must match.
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

    def after(self) -> RowValues:
        """The sequence, head, semaphore and status after the group; `None` where nothing is appended."""
        last = self.last
        if last is None:
            return None, None, None, None
        # `str.__str__` gives the plain text of a status; the property `value` takes two calls.
        return last.seq_after, last.head, last.semaphore_after, str.__str__(last.status)


class Group:
    """The rows that one physical commit writes, by table."""

    def __init__(self) -> None:
        self.created: list[tuple[NewRun, RunHead]] = []
        self.enrolled: list[RowValues] = []
        """The buses to which new runs are published."""
        self.heads: dict[RunId, RunHead] = {}
        """Rows of runs that existed before the group."""
        self.is_steps_only = True
        """Whether it only appends to the journals of runs."""
        self.event_rows: list[RowValues] = []
        """The entries of all journals: run id and the entry's fields."""
        self.postings: dict[tuple[RunId, AccountId], int] = {}
        self.messages: list[Message] = []
        self.forwarded: dict[tuple[RunId, Guid], tuple[RunId, StepId | None]] = {}
        self.acknowledged: list[tuple[RunId, Guid]] = []
        self.marked: list[tuple[RunId, Guid, str, str]] = []
        self.work: dict[tuple[RunId, StepId], Work] = {}
        self.finished: list[tuple[RunId, StepId, str]] = []
        self.dropped: dict[tuple[RunId, StepId], None] = {}
        """Tasks that are dropped after others are finished and before new ones are put."""
        self.held: dict[RunId, int] = {}
        """Whether the tasks of a run are held, those put by this group included."""
        self.parked_steps: dict[tuple[RunId, StepId], ParkedStep | None] = {}
        """Steps that wait for an operator from now on; `None` for those that no longer do."""
        self.published: dict[tuple[RunId, str], tuple[bytes, int, TaskHolder | None]] = {}
        self.published_again: dict[tuple[RunId, str], tuple[bytes, int, TaskHolder | None]] = {}
        """Values that are sent again. Written before the new values."""
        self.chunks: dict[ChunkKey, NewChunk] = {}
        self.parked: dict[RunId, str | None] = {}
        self.blamed: dict[RunId, str] = {}
        self.index: GraphIndex | None = None
        self.finishers: dict[tuple[RunId, StepId], int] = {}
        """The position of the bundle that finishes each task."""
        self.bundles: list[Bundle] = []
        """The merged and the rejected bundles, in order; the rest waits for the next group."""

        self._new_heads: dict[RunId, RunHead] = {}
        self._keys: set[tuple[str, str, str]] = set()

    @property
    def size(self) -> int:
        return len(self.bundles)

    def add_step(self, bundle: Bundle) -> bool:
        """Fast path: add a bundle that is a single append and fits. False if the bundle needs the full check."""
        if len(bundle.appends) != 1 or bundle.has_more:
            return False
        fence, appended = bundle.appends[0]
        if fence.broken:
            return False
        head = self.heads.get(fence.run_id) or self._new_heads.get(fence.run_id)
        if head is None:
            before = appended.head_before, appended.semaphore_before
            self.heads[fence.run_id] = RunHead(fence.run_id, fence.epoch, *before, appended)
        elif head.epoch == fence.epoch and head.last and _follows(appended, head.last):
            head.last = appended
        else:
            return False
        self._add_books(appended)
        return True

    def add(self, bundle: Bundle) -> None:
        """Add a bundle that fits."""
        self.is_steps_only = self.is_steps_only and not bundle.has_more
        for run, appended in bundle.created:
            head = RunHead(run.run_id, FIRST_EPOCH, None, 0, appended)
            self.created.append((run, head))
            self._new_heads[run.run_id] = head
            if run.enrolments:
                self.enrolled += enrolled_rows(run)
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
        for value in bundle.published:
            self._add_value(*value)
        for chunk in bundle.chunks:
            self.chunks.setdefault(chunk.key, chunk)
        self.parked.update(bundle.parked)
        self.blamed.update(bundle.blamed)
        if bundle.index is not None:
            self._add_index(bundle.index)

    @property
    def is_books_only(self) -> bool:
        """Whether it only appends to existing runs, as the steps of warm runs do."""
        heads = self.heads.values()
        return (
            bool(heads)
            and not self.created
            and not self._has_more
            and all(head.head_before is not None for head in heads)
        )

    @property
    def is_one_new_run(self) -> bool:
        """Whether it only creates one run, without a key that others could contend for."""
        return (
            len(self.created) == 1
            and self.created[0][0].key is None
            and not self.heads
            and not self._has_more
        )

    @property
    def _has_more(self) -> bool:
        """Whether it writes anything besides runs and their books."""
        return any(
            (
                self.enrolled,
                self.messages,
                self.forwarded,
                self.acknowledged,
                self.marked,
                self.work,
                self.finished,
                self.dropped,
                self.held,
                self.parked_steps,
                self.published,
                self.published_again,
                self.chunks,
                self.parked,
                self.blamed,
                self.index,
            )
        )

    @property
    def appended(self) -> set[RunId]:
        """The runs that this group appends to, which are therefore open before it."""
        return {run_id for run_id, *_ in self.event_rows}

    def head_rows(self) -> list[RowValues]:
        """The rows of the runs that it appends to, before and after."""
        return [
            (head.run_id, head.epoch, head.head_before, head.semaphore_before, *head.after())
            for head in self.heads.values()
        ]

    def closed_rows(self) -> list[RowValues]:
        """The runs that it ends, and when."""
        heads = self.heads.values()
        return [(head.run_id, at_ms) for head in heads if (at_ms := head.closed_at_ms) is not None]

    def posting_rows(self) -> list[RowValues]:
        return [(*account, total) for account, total in self.postings.items()]

    def known(self, run_id: RunId) -> RunHead | None:
        return self.heads.get(run_id) or self._new_heads.get(run_id)

    def must_wait(self, bundle: Bundle) -> bool:
        """Whether the bundle conflicts with this group over a key, a task, a value or a run.

        Only the database can decide which of the two is too late, so the bundle goes into the next group.
        """
        for run, _ in bundle.created:
            if run.run_id in self._new_heads or (run.scope, run.program, run.key) in self._keys:
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

    def _publishes_otherwise(self, value: PublishedRow) -> bool:
        """Whether the group has a value of the same name from another holder, or sent another time: only one of the two
        may be written."""
        run_id, name, _, _, by, again = value
        same, other = self.published, self.published_again
        if again:
            same, other = other, same
        known = same.get((run_id, name))
        return (known is not None and known[2] != by) or (run_id, name) in other

    def _continued_by(self, appended: Appended) -> bool:
        head = self.known(appended.run_id)
        return head is None or head.last is None or _follows(appended, head.last)

    def _head(self, fence: Fence) -> RunHead:
        head = self.known(fence.run_id)
        if head is None:
            head = self.heads[fence.run_id] = RunHead(fence.run_id, fence.epoch, None, 0, None)
        return head

    def _add_value(
        self,
        run_id: RunId,
        name: str,
        payload: bytes,
        at_ms: int,
        by: TaskHolder | None,
        again: bool,
    ) -> None:
        if not again:
            self.published[run_id, name] = payload, at_ms, by
            return
        known = self.published_again.get((run_id, name))
        if known is None or known[1] <= at_ms:
            self.published_again[run_id, name] = payload, at_ms, by

    def _add_work(self, bundle: Bundle) -> None:
        for finished in bundle.finished:
            self.finished.append(finished)
            self.finishers[finished[0], finished[1]] = self.size
        for task in bundle.dropped:
            self.work.pop(task, None)
            self.dropped[task] = None
        for work in bundle.work:
            self.work.setdefault((work.run_id, work.step), work)
        self.held.update(bundle.held)
        self.parked_steps.update(bundle.parked_steps)

    def _add_index(self, index: GraphIndex) -> None:
        if self.index is None:
            self.index = GraphIndex()
        self.index.follow(index)

    def _add_books(self, appended: Appended) -> None:
        run_id, postings = appended.run_id, self.postings
        self.event_rows += [(run_id, *astuple(entry)) for entry in appended.entries]
        for account, increment in appended.postings.items():
            key = run_id, account
            postings[key] = postings.get(key, 0) + increment


def merge(bundles: Sequence[Bundle]) -> tuple[Group, dict[int, CommitRejected]]:
    """The longest prefix of the bundles that fit together as a group, and the rejected ones by position."""
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
    """Make later bundles of the same runs fail: they continue entries that were not written."""
    for fence in bundle.fences:
        fence.broken = True


def break_all(bundles: Iterable[Bundle]) -> None:
    """Break all fences, because the outcome is unknown or nothing was written: hosts must load the runs again."""
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
    """Counters must commit with entries of their run: after a lost connection, those entries show whether the group
    was committed, so that nothing is counted twice."""
    if bundle.index is None:
        return None
    appended = {appended.run_id for _, appended in (*bundle.created, *bundle.appends)}
    for run_id, change in bundle.index.runs.items():
        if run_id not in appended and not change.is_repeatable:
            return BundleRefused(
                f"a bundle tracks nodes of run {run_id!r} and has no entries of that run",
                "append the entries that record the resolved predecessors in the same bundle",
            )
    return None


def _first_appends(bundle: Bundle) -> Iterable[Appended]:
    """The first append of each run that existed before the bundle."""
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
        f"run {run_id!r} has changed in the store since its owner of epoch {epoch} last wrote it",
        "another host owns it now: drop the run from memory",
    )
