"""A bundle: primitive writes that commit or fail as one.

These writes are all that an engine can do to a run in the store. Each method states what it commits; correctness is
defined by that, not by what the engine intends.
"""

import re
from collections.abc import Sequence
from typing import TypeVar

import msgspec

from perdure.core.errors import InputError, InvalidId
from perdure.core.graph.identity import mailbox_of
from perdure.core.ids import Guid, RunId, StepId, guid_run, parse_run_id, require_guid_of
from perdure.core.journal.journal import Appended
from perdure.core.limits import (
    MAX_KEY_LENGTH,
    MAX_NAME_LENGTH,
    MAX_PAYLOAD_BYTES,
    MAX_STEP_BYTES,
)
from perdure.core.messages import Message, Work
from perdure.core.streams.chunks import ROOT, NewChunk
from perdure.core.texts import require_storable_text
from perdure.store.commit.bundle_checks import (
    collide,
    require_new_run,
    require_payload,
)
from perdure.store.commit.fence import Fence
from perdure.store.commit.graph_index import HOOK_KINDS, KEY, GraphIndex, RunChange
from perdure.store.rows.records import (
    BroadcastRow,
    HookRow,
    InboxRow,
    NewRun,
    ParkedStep,
    ReadinessRow,
    TaskHolder,
)
from perdure.store.rows.values import require_integer

T = TypeVar("T")

FIRST_EPOCH = 1
MARKS = ("stale", "dead")

NO_ITEM = -1
"""The position of a value that is not an item of a spread."""

PublishedRow = tuple[RunId, str, bytes, int, TaskHolder | None, bool]
"""A published value: run, name, payload, time, the task's holder, and whether it was sent before."""

_ACCOUNT_BYTES = MAX_STEP_BYTES + len("message:")

_SUFFIX = re.compile(r"[0-9a-f]{32}")


class Bundle(msgspec.Struct, eq=False, gc=False):
    """Collects writes. Refuses bad input at the call, before anything reaches the store.

    Most bundles are one step of one run, so the rarer kinds of write cost nothing while they are empty.
    """

    appends: Sequence[tuple[Fence, Appended]] = ()
    other_fences: Sequence[Fence] = ()
    """Those of writes that append nothing."""
    has_more: bool = False
    """Whether the bundle holds anything besides appends."""
    created: Sequence[tuple[NewRun, Appended]] = ()
    messages: Sequence[Message] = ()
    forwarded: Sequence[tuple[tuple[RunId, Guid], tuple[RunId, StepId | None]]] = ()
    acknowledged: Sequence[tuple[RunId, Guid]] = ()
    marked: Sequence[tuple[RunId, Guid, str, str]] = ()
    work: Sequence[Work] = ()
    finished: Sequence[tuple[RunId, StepId, str]] = ()
    dropped: Sequence[tuple[RunId, StepId]] = ()
    held: Sequence[tuple[RunId, int]] = ()
    parked_steps: Sequence[tuple[tuple[RunId, StepId], ParkedStep | None]] = ()
    published: Sequence[PublishedRow] = ()
    chunks: Sequence[NewChunk] = ()
    parked: Sequence[tuple[RunId, str | None]] = ()
    blamed: Sequence[tuple[RunId, str]] = ()
    index: GraphIndex | None = None

    @property
    def fences(self) -> list[Fence]:
        """The rights under which it writes. A list made for each call: most bundles are never asked."""
        return [*(fence for fence, _ in self.appends), *self.other_fences]

    @property
    def is_empty(self) -> bool:
        """Whether it has no write of a run."""
        return not (self.appends or self.other_fences)

    def create_run(self, run: NewRun, appended: Appended) -> Fence:
        """Commits: the run, its first entries, their postings and its semaphore.

        The store rejects the bundle with `RunExists` if another run holds the key.
        """
        require_new_run(run)
        if any(collide(run, other) for other, _ in self.created):
            raise InputError(
                f"run {run.run_id!r} (key {run.key!r}) is created twice in one bundle",
                "create a run once",
            )
        if appended.run_id != run.run_id or appended.seq_before != 0:
            raise InputError(
                f"run {run.run_id!r} is created with entries of {appended.run_id!r} from "
                f"{appended.seq_before} on",
                "create a run with the first entries of its own journal",
            )
        _require_books(appended)
        self.created = self._grown(self.created, (run, appended))
        fence = Fence(run.run_id, FIRST_EPOCH)
        self._guard(fence)
        return fence

    def require(self, fence: Fence) -> None:
        """Commits nothing of the run: the bundle is rejected with `StaleFence` unless the run has the fence's epoch."""
        self.has_more = True
        self.other_fences = [*self.other_fences, fence]

    def append(self, fence: Fence, appended: Appended) -> None:
        """Commits: entries, their postings, the semaphore and the run's head.

        The store rejects the bundle with `StaleFence` unless the run's locked row still has the fence's epoch, and the
        head and semaphore that the entries were decided on.
        """
        if appended.run_id != fence.run_id:
            raise InputError(
                f"entries of run {appended.run_id!r} under the fence of {fence.run_id!r}",
                "append under the fence of the run that the entries belong to",
            )
        _require_books(appended)
        pair = fence, appended
        self.appends = [*self.appends, pair] if self.appends else (pair,)

    def enqueue(self, message: Message) -> None:
        """Commits: a message to a run, once per GUID. Needs no fence and does not touch the run's row."""
        parse_run_id(message.run_id)
        require_guid_of(message.guid, message.run_id)
        require_storable_text("kind", message.kind, MAX_NAME_LENGTH)
        require_storable_text("step", message.step or "", MAX_STEP_BYTES)
        require_integer("due_at_ms", message.due_at_ms)
        require_integer("arrival", message.arrival)
        require_payload(f"message {message.guid!r}", message.payload)
        self.messages = self._grown(self.messages, message)

    def forward(self, run_id: RunId, guid: Guid, to: RunId) -> None:
        """Commits: the message pending for `run_id` is addressed to `to`, under the same GUID.

        Changes nothing if the message is not pending there; if `to` already has that GUID, that message stays. Needs
        no fence: a run that was continued accepts no more messages, and no run's row is touched.
        """
        if parse_run_id(run_id) == parse_run_id(to):
            raise InputError(
                f"message {guid!r} is forwarded from run {to!r} to the same run",
                "forward it to the run that continues this one",
            )
        guid_run(guid)
        self.forwarded = self._grown(self.forwarded, ((run_id, guid), (to, None)))

    def give_back(self, fence: Fence, guid: Guid, step: StepId) -> None:
        """Commits: a signal that was matched to a hook is back in its mailbox, unchanged, for the next hook.

        Changes nothing if the signal is not pending for that step of the run: it may be matched to another hook by now.
        """
        require_storable_text("step", step, MAX_STEP_BYTES)
        mailbox = guid_run(guid)
        if mailbox == fence.run_id:
            raise InputError(
                f"message {guid!r} was sent to run {mailbox!r} itself, not to a mailbox",
                "give back only signals that were matched to a hook",
            )
        self._guard(fence)
        self.forwarded = self._grown(self.forwarded, ((fence.run_id, guid), (mailbox, step)))

    def acknowledge(self, fence: Fence, guid: Guid) -> None:
        """Commits: the message is deleted, together with the entries that record its effect."""
        if not guid.isascii() or "\0" in guid:  # rare
            require_storable_text("guid", guid)
        self._guard(fence)
        self.acknowledged = self._grown(self.acknowledged, (fence.run_id, guid))

    def mark(self, fence: Fence, guid: Guid, state: str, reason: str) -> None:
        """Commits: the message is kept but no longer delivered, as `stale` or `dead`, with the reason."""
        if state not in MARKS:
            raise InputError(f"a message can't be marked {state!r}", f"use one of {MARKS}")
        require_storable_text("guid", guid)
        require_storable_text("reason", reason)
        self._guard(fence)
        self.marked = self._grown(self.marked, (fence.run_id, guid, state, reason))

    def put_work(self, fence: Fence, work: Work) -> None:
        """Commits: a task on a queue, once per step."""
        if work.run_id != fence.run_id:
            raise InputError(
                f"work of run {work.run_id!r} under the fence of {fence.run_id!r}",
                "put work under the fence of its own run",
            )
        require_guid_of(work.guid, work.run_id)
        require_storable_text("queue", work.queue, MAX_NAME_LENGTH)
        require_storable_text("step", work.step, MAX_STEP_BYTES)
        require_integer("available_at_ms", work.available_at_ms)
        require_integer("priority", work.priority, 32)
        require_payload(f"work {work.step!r}", work.payload)
        self._guard(fence)
        self.work = self._grown(self.work, work)

    def finish_work(self, run_id: RunId, step: StepId, token: str) -> None:
        """Commits: the task is off its queue.

        The store rejects the bundle with `StaleToken` if the task has been claimed again, so that a slow host's result
        is not written beside another host's.
        """
        parse_run_id(run_id)
        require_storable_text("step", step, MAX_STEP_BYTES)
        require_storable_text("token", token)
        if any((run_id, step) == other[:2] for other in self.finished):
            raise InputError(
                f"work {step!r} of run {run_id!r} is finished twice in one bundle",
                "finish each task once",
            )
        self.finished = self._grown(self.finished, (run_id, step, token))

    def drop_work(self, fence: Fence, step: StepId) -> None:
        """Commits: the task is off its queue, claimed or not; a claim's token is invalid from then on.

        Changes nothing if there is no such task. A task that one bundle drops and then puts is a new task.
        """
        require_storable_text("step", step, MAX_STEP_BYTES)
        task = fence.run_id, step
        self.work = [work for work in self.work if (work.run_id, work.step) != task]
        self._guard(fence)
        self.dropped = self._grown(self.dropped, task)

    def hold_work(self, fence: Fence, *, held: bool) -> None:
        """Commits: hosts claim no task of the run, those that this bundle puts included; or they may again.

        Claims under way are not affected. The last call of a bundle counts.
        """
        self._guard(fence)
        self.held = self._grown(self.held, (fence.run_id, int(held)))

    def park_step(self, fence: Fence, step: StepId, parked: ParkedStep) -> None:
        """Commits: the step waits for an operator, so that lists find it. The same bundle appends the entry."""
        require_storable_text("step", step, MAX_STEP_BYTES)
        require_storable_text("task", parked.task, MAX_NAME_LENGTH)
        require_integer("since_ms", parked.since_ms)
        self._guard(fence)
        self.parked_steps = self._grown(self.parked_steps, ((fence.run_id, step), parked))

    def unpark_step(self, fence: Fence, step: StepId) -> None:
        """Commits: the step no longer waits for an operator. Changes nothing if it does not."""
        require_storable_text("step", step, MAX_STEP_BYTES)
        self._guard(fence)
        self.parked_steps = self._grown(self.parked_steps, ((fence.run_id, step), None))

    def publish(
        self,
        run_id: RunId,
        name: str,
        payload: bytes,
        at_ms: int,
        by: TaskHolder | None = None,
        *,
        again: bool = False,
    ) -> None:
        """Commits: the newest value of that name, which clients may read.

        The value that commits last wins, whatever the times are. Only a value that is sent `again` must have a later
        time than the stored one. What a run publishes commits with its entries, whose fence guards it. What a task
        publishes comes `by` its holder and is written only while that host owns the run, or holds the task's claim,
        and the run is open. The run's row is not touched.
        """
        parse_run_id(run_id)
        if not name:
            raise InvalidId(f"run {run_id!r} publishes under an empty name", "give it a name")
        require_storable_text("name", name, MAX_NAME_LENGTH)
        require_integer("at_ms", at_ms)
        require_payload(f"published value {name!r}", payload)
        self.published = self._grown(self.published, (run_id, name, payload, at_ms, by, again))

    def append_chunk(self, chunk: NewChunk) -> None:
        """Commits: the chunk at the end of its stream, once per number of its origin.

        Positions have no gaps and follow the order of commits, so a reader may continue from its last position. Needs
        no fence. A run's streams end with the run: the store then rejects the bundle with `RunEnded`, and with
        `UnknownRun` if there is no such run.
        """
        parse_run_id(chunk.run_id)
        if not chunk.name:
            raise InvalidId(f"run {chunk.run_id!r} has a stream without a name", "give it a name")
        require_storable_text("name", chunk.name, MAX_NAME_LENGTH)
        require_storable_text("step", chunk.origin.step, MAX_STEP_BYTES)
        for what in ("attempt", "claim"):
            require_integer(what, getattr(chunk.origin, what), 32)
        require_integer("number", chunk.number)
        require_integer("at_ms", chunk.at_ms)
        require_payload(f"chunk {chunk.number} of stream {chunk.name!r}", chunk.payload)
        self.chunks = self._grown(self.chunks, chunk)

    def park(self, fence: Fence, reason: str | None) -> None:
        """Commits: the reason why the run is parked; with `None`, that it is no longer parked."""
        require_storable_text("reason", reason or "")
        self._guard(fence)
        self.parked = self._grown(self.parked, (fence.run_id, reason))

    def blame(self, fence: Fence, fingerprint: str) -> None:
        """Commits: the fingerprint of the error with which the run failed, by which lists find it."""
        require_storable_text("fingerprint", fingerprint, MAX_NAME_LENGTH)
        self._guard(fence)
        self.blamed = self._grown(self.blamed, (fence.run_id, fingerprint))

    def tag(
        self,
        fence: Fence,
        name: str,
        value: str,
        since_ms: int,
        before: str | None = None,
        scope: str = "",
    ) -> None:
        """Commits: the run's tag has this value, and no longer the value `before`, if the run had the tag.

        A tag is a search key of the run, in its scope.
        """
        if before is not None:
            self._indexed(fence).drop_key(ROOT.step, mailbox_of(name, before, scope))
        self.hook(fence, ROOT.step, mailbox_of(name, value, scope), KEY, name, value, since_ms)

    def track(self, fence: Fence, step: StepId, required: int, resolved: int) -> None:
        """Commits: `resolved` more of the `required` predecessors of a node are resolved.

        Must commit with entries of the same run that record it. The store rejects the bundle with `ReadinessOverflow`
        if more predecessors were resolved than required, or if another number was required before: a miscount.
        """
        require_storable_text("step", step, MAX_STEP_BYTES)
        require_integer("required", required)
        if resolved < 1:
            raise InputError(
                f"{resolved} predecessors of step {step!r} of run {fence.run_id!r} are resolved",
                "track a node when at least one of its predecessors is resolved",
            )
        self._indexed(fence)
        self._graphs.track(fence.run_id, step, required, resolved)

    def deliver(
        self,
        fence: Fence,
        step: StepId,
        source: StepId,
        variable: str,
        position: int,
        value: bytes,
    ) -> None:
        """Commits: a value that waits for a node; the same bundle tracks the node for its `source`.

        `position` is the index of the item in its spread; `NO_ITEM` for a value that is no such item.
        """
        require_storable_text("step", step, MAX_STEP_BYTES)
        require_storable_text("source", source, MAX_STEP_BYTES)
        require_storable_text("variable", variable, MAX_NAME_LENGTH)
        require_integer("position", position)
        if position < NO_ITEM:
            raise InputError(
                f"a value of step {source!r} at position {position}",
                f"count items from 0; use {NO_ITEM} for a value that is no item",
            )
        require_payload(f"value {variable!r} of step {source!r}", value)
        delivery = InboxRow(step, source, variable, position, value)
        self._indexed(fence).step(step).deliveries.append(delivery)

    def ready(self, fence: Fence, step: StepId) -> None:
        """Commits: the node no longer waits, and neither does any value for it.

        Rows that the same bundle tracked and delivered before for the node are never written.
        """
        require_storable_text("step", step, MAX_STEP_BYTES)
        self._indexed(fence).ready(step)

    def untrack_all(self, fence: Fence) -> None:
        """Commits: the run has no waiting nodes, values or hooks left. Its search keys stay."""
        change = self._indexed(fence)
        change.clear()
        change.unhook()

    def rebuild(
        self, fence: Fence, readiness: Sequence[ReadinessRow], inbox: Sequence[InboxRow]
    ) -> None:
        """Commits: exactly these nodes of the run wait, and exactly these values wait for them."""
        self._indexed(fence).clear()
        for waiting in readiness:
            self.track(fence, waiting.step, waiting.required, waiting.completed)
        for value in inbox:
            self.deliver(fence, *msgspec.structs.astuple(value))

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
        """Commits: a step waits for a signal at a mailbox (kind `wait`), or a search key names the run (kind `key`).

        A hook that exists already stays unchanged.
        """
        require_storable_text("step", step, MAX_STEP_BYTES)
        parse_run_id(mailbox)
        if kind not in HOOK_KINDS:
            raise InputError(f"a hook can't be of kind {kind!r}", f"use one of {HOOK_KINDS}")
        require_storable_text("topic", topic, MAX_NAME_LENGTH)
        require_storable_text("key", key, MAX_KEY_LENGTH)
        require_integer("since_ms", since_ms)
        hook = HookRow(fence.run_id, step, kind, mailbox, topic, key, since_ms)
        self._indexed(fence).step(step).hooks.setdefault((kind, mailbox), hook)

    def unhook(self, fence: Fence, step: StepId) -> None:
        """Commits: the step no longer waits for a signal."""
        require_storable_text("step", step, MAX_STEP_BYTES)
        self._indexed(fence).step(step).unhook()

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

        The runs are those that have the key when the bundle commits, its own run included. With `scrub`, later
        broadcasts to that key do not find these runs; statistics still count them.
        """
        parse_run_id(mailbox)
        require_storable_text("kind", kind, MAX_NAME_LENGTH)
        require_payload(f"a broadcast to {mailbox!r}", payload)
        require_integer("now_ms", now_ms)
        if not _SUFFIX.fullmatch(suffix):
            raise InvalidId(
                f"{suffix!r} does not end a message GUID", "use 32 hex digits of a digest"
            )
        self._indexed(fence)
        self._graphs.broadcasts.append(BroadcastRow(mailbox, kind, payload, suffix, now_ms, scrub))

    @property
    def is_broadcast(self) -> bool:
        """Whether it sends messages to all runs of a search key."""
        return self.index is not None and bool(self.index.broadcasts)

    @property
    def _graphs(self) -> GraphIndex:
        if self.index is None:
            self.index = GraphIndex()
        return self.index

    def _indexed(self, fence: Fence) -> RunChange:
        """The changes to the run's nodes and hooks. Many calls in a row add the same fence only once."""
        if not any(fence is other for other in self.fences[-1:]):
            self._guard(fence)
        self.has_more = True
        return self._graphs.run(fence.run_id)

    def _guard(self, fence: Fence) -> None:
        self.other_fences = [*self.other_fences, fence]

    def _grown(self, items: Sequence[T], item: T) -> Sequence[T]:
        """`items` with one more. Most bundles have one item of a kind, so the list is made with the first."""
        self.has_more = True
        if isinstance(items, list):
            items.append(item)
            return items
        return [item]


def _require_books(appended: Appended) -> None:
    if not appended.entries:
        raise InputError(
            f"an append to run {appended.run_id!r} without entries", "append at least one entry"
        )
    for account in appended.postings:
        if len(account) > _ACCOUNT_BYTES or not account.isascii() or "\0" in account:  # rare
            require_storable_text("account", account, _ACCOUNT_BYTES)
    for entry in appended.entries:
        if entry.sealed is not None and len(entry.sealed) > MAX_PAYLOAD_BYTES:
            require_payload(f"entry {entry.seq} of run {appended.run_id!r}", entry.payload)
