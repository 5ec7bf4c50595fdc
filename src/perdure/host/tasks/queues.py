"""Claims work from queues under a lease, executes it, and sends the outcome to the run, once.

Work that another host claimed before is in doubt: that host may have begun it. The task's policy decides whether it
is executed again, and the outcome message tells the run of the doubt.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from perdure.authoring.registry import find
from perdure.authoring.task import Task
from perdure.authoring.values.failures import encode_failure
from perdure.core.errors import CommitRejected, CorruptJournal, StaleToken, StoreError
from perdure.core.ids import Guid, RunId, StepId
from perdure.core.messages import AT_ONCE, Message, Work, at_once
from perdure.core.replay.doubt import (
    MOST_DOUBTS,
    Doubt,
    Resolution,
    attempts_used_up,
    resolve,
    step_in_doubt,
)
from perdure.core.replay.suspicion import first_of_queue, is_suspect
from perdure.engine.runs.attempt_outcome import AttemptOutcome, pack_outcome
from perdure.engine.runs.work_payload import WorkPayload, after_stop, unpack_work
from perdure.host.backoff import Backoff
from perdure.host.context import HostContext
from perdure.host.tasks.attempt import Attempt
from perdure.host.tasks.executor import Executor
from perdure.host.tasks.logs import note_lost_lease
from perdure.host.tasks.quarantine import Quarantine
from perdure.store.commit.bundle import Bundle
from perdure.store.rows.records import Claim, TaskHolder

log = logging.getLogger("perdure.host")

UNKNOWN_DELAY_MS = 5_000
"""How long this host leaves work of a task that is not registered here to other hosts."""

UNREADABLE_DELAY_MS = 60_000
"""How long work whose row can't be read stays unclaimed."""


class QueueWorker:
    """Serves queues with the host's free slots. While an attempt runs, the heartbeat's thread renews its lease."""

    def __init__(
        self,
        context: HostContext,
        executor: Executor,
        quarantine: Quarantine,
        on_regained: Callable[[Attempt], None],
        queues: Sequence[str],
    ) -> None:
        """`on_regained` gets each running attempt whose claim this host lost and has again."""
        self._context = context
        self._executor = executor
        self._quarantine = quarantine
        self._on_regained = on_regained
        self.queues = tuple(queues)
        self.lease_ms = round(context.settings.lease * 1000)
        self._claims: dict[tuple[RunId, StepId], Claim] = {}
        self._unreadable: set[Guid] = set()
        """Work whose rows are damaged: each is logged once."""
        self._is_open = True
        self._changing = asyncio.Lock()
        """Held while claims are made or regained: `_claims` reflects one request before the next is made."""
        self.next_due_ms: int | None = None
        """When the next work is due, as far as known; `None` if there is none, or no slot for it."""
        self._full: set[bool] = set()
        """For which kinds of slots, `is_async`, the store may hold more work than there were slots."""
        self._order = list(queues)
        """The queues in the order in which the next claim serves them: they take turns in being the first."""
        self._threaded: set[str] = set()
        """The queues of which the last claim held sync tasks."""

    def slot_freed(self) -> bool:
        """A slot is free. Returns whether work may be waiting for it."""
        if not any(self._executor.free_slots(is_async=kind) for kind in self._full):
            return False
        self._full.clear()
        return True

    def note_next_due(self, next_work_ms: int | None, now_ms: int) -> bool:
        """Note when the next work is due, as read from the store. Returns whether to poll now."""
        if not self.queues or not self._is_open or not self._executor.free_slots(is_async=True):
            return False
        self.next_due_ms = next_work_ms
        return next_work_ms is not None and next_work_ms <= now_ms

    async def poll(self) -> None:
        """Claim work that is due, as far as there are slots, and begin it."""
        self.next_due_ms = None
        if not self.queues or not self._is_open:
            return
        self._full.clear()
        left = [*await self._claim_all(is_async=True), *await self._claim_all(is_async=False)]
        # Work that is queued during the read may be due earlier than what the read returns.
        due_ms = await self._context.store.next_work(left) if left else None
        if due_ms is not None:
            self.expect(due_ms)

    def expect(self, due_at_ms: int) -> None:
        """Work is due then."""
        if self.next_due_ms is None or due_at_ms < self.next_due_ms:
            self.next_due_ms = due_at_ms

    async def _claim_all(self, *, is_async: bool) -> list[str]:
        """Claim the due work of the queues that need no threads, or of the others, as far as there are slots.

        Returns the queues that may hold no more of it: none if the slots were too few.
        """
        while queues := [each for each in self._order if (each not in self._threaded) is is_async]:
            free = self._executor.free_slots(is_async=is_async)
            if not free:
                self._full.add(is_async)
                return []
            if await self._claim_and_begin(queues, free) < free:
                return [each for each in queues if (each not in self._threaded) is is_async]
        return []

    async def _claim_and_begin(self, queues: Sequence[str], limit: int) -> int:
        """Returns how many tasks were claimed."""
        context = self._context
        now, began_ms = context.sources.now_ms(), context.sources.elapsed_ms()
        count, new = await self._claim(queues, now, limit)
        self._order.append(self._order.pop(0))
        returned: list[_Return] = []
        admitted = await self._hold_back(self._readable(new, returned))
        # If this process or its store stalled, another host may have executed the work by now.
        is_late = context.sources.elapsed_ms() - began_ms > self.lease_ms / 2
        for read in admitted:
            if is_late:
                returned.append(_Return(read.claim, 0))
            else:
                self._begin(read, returned)
        self._note_threads(admitted)
        for delay_ms in {each.delay_ms for each in returned}:
            claims = [each.claim for each in returned if each.delay_ms == delay_ms]
            await self._give_back(claims, delay_ms)
        return count

    def _note_threads(self, claimed: Sequence["_ReadClaim"]) -> None:
        """Note which queues hold sync tasks: of these this host claims no more than it has free threads."""
        self._threaded -= {read.claim.work.queue for read in claimed}
        self._threaded |= {read.claim.work.queue for read in claimed if read.needs_thread}

    async def _claim(
        self, queues: Sequence[str], now_ms: int, limit: int
    ) -> tuple[int, list[Claim]]:
        """Returns how many tasks were claimed, and those that do not already run here."""
        context = self._context
        token = context.sources.entropy(16).hex()
        async with self._changing:
            claims = await context.store.claim_work(
                context.host_id, queues, token, now_ms, self.lease_ms, limit
            )
            return len(claims), [claim for claim in claims if not self._is_renewed(claim)]

    def _is_renewed(self, claim: Claim) -> bool:
        """Whether the task already runs here: its lease ended or it was back on its queue, and this is a new claim."""
        work = claim.work
        if self._held(work) is None:
            return False
        self._claims[work.run_id, work.step] = claim
        attempt = self._executor.find(work.run_id, work.step, is_claimed=True)
        if attempt is not None and attempt.unconfirmed(claim.claims):
            self._on_regained(attempt)
        return True

    def _readable(self, claims: Sequence[Claim], returned: list["_Return"]) -> list["_ReadClaim"]:
        """The claims with their payloads. Work whose row is damaged goes back, with a delay: it must not keep the host
        from other work."""
        readable: list[_ReadClaim] = []
        for claim in claims:
            try:
                header, payload = unpack_work(claim.work)
            except CorruptJournal as error:
                work = claim.work
                if work.guid not in self._unreadable:
                    self._unreadable.add(work.guid)
                    log.warning(
                        "%s; the next host that loads run %s, such as a restarted one, writes its row again",
                        *(error.what, work.run_id),
                    )
                returned.append(_Return(claim, UNREADABLE_DELAY_MS))
            else:
                readable.append(_ReadClaim(claim, header, payload, find("task", header.task)))
        return readable

    async def _hold_back(self, claims: list["_ReadClaim"]) -> list["_ReadClaim"]:
        """Give back all suspects but the one that quarantine admits. Must come before any attempt begins here."""
        quarantine = self._quarantine
        suspects = [read for read in claims if read.claim.doubts and is_suspect(read.deaths)]
        if not suspects or not quarantine.length_s:
            return claims
        if quarantine.is_idle:
            suspects.pop(first_of_queue([read.deaths for read in suspects]))
        if suspects:
            # Not due before the pause is over: if the admitted suspect kills this process while the others are claimed
            # here, they count this death, too.
            due_ms = self._context.sources.now_ms() + round(quarantine.length_s * 1000)
            await self._context.store.return_claims([read.claim for read in suspects], due_ms)
        return [read for read in claims if read not in suspects]

    def serves(self, work: Work) -> bool:
        return self._is_open and work.queue in self.queues

    def _begin(self, read: "_ReadClaim", returned: list["_Return"]) -> None:
        """Begin an attempt; `returned` gets the claim if this host can't."""
        claim, header, payload, task = read
        work = claim.work
        if task is None:
            log.warning(
                "queue %r has work for task %r, which is not registered here",
                work.queue,
                header.task,
            )
            returned.append(_Return(claim, UNKNOWN_DELAY_MS))
            return
        if header.timeout_ms is not None:
            task = task.limited(header.timeout_ms)
        total = header.doubts + claim.doubts
        doubt = None
        if claim.doubts:
            resolution = resolve(
                task.on_doubt, total, self._context.settings.max_doubts, header.stops
            )
            doubt = Doubt(total, resolution, header.stops)
            if doubt.resolution is Resolution.FAIL:
                self._give_up(claim, task, doubt)
                return
        if not self._executor.reserve(task):
            returned.append(_Return(claim, 0))
            return
        self._claims[work.run_id, work.step] = claim
        info, report = header.info(work), partial(self._ended, work, doubt)
        is_doubted = total > 0
        attempt = Attempt(
            info, task, payload, report, is_claimed=True, claim=claim.claims, is_doubted=is_doubted
        )
        self._executor.start(attempt)
        if claim.doubts and is_suspect(total - header.stops):
            self._quarantine.watch(attempt)

    async def _give_back(self, claims: Sequence[Claim], delay_ms: int) -> None:
        context = self._context
        now = context.sources.now_ms()
        await context.store.return_claims(claims, now + delay_ms if delay_ms else at_once(now))

    def _give_up(self, claim: Claim, task: Task[..., Any], doubt: Doubt) -> None:
        """Fail work that is in doubt and must not be executed again."""
        work = claim.work
        self._claims[work.run_id, work.step] = claim
        deaths = doubt.total - doubt.stops
        if doubt.total >= MOST_DOUBTS and task.on_doubt is not Resolution.FAIL:
            about = work.run_id, work.step, task.name
            error = attempts_used_up(*about, doubt.stops, deaths)
        else:
            error = step_in_doubt(work.step, task.name, task.on_doubt, deaths)
        outcome = AttemptOutcome(False, encode_failure(self._context.codec, error))
        self._report(self._report_of(work, outcome, outcome.kind_by(claim.claims, doubt)))

    def _held(self, work: Work) -> Claim | None:
        """The claim under which the work runs here, if it does."""
        claim = self._claims.get((work.run_id, work.step))
        return claim if claim is not None and claim.work.guid == work.guid else None

    def _ended(
        self, work: Work, doubt: Doubt | None, attempt: Attempt, outcome: AttemptOutcome
    ) -> None:
        kind = outcome.kind_by(attempt.claim, doubt)
        self._report(self._report_of(work, outcome, kind, attempt))

    def _report_of(
        self, work: Work, outcome: AttemptOutcome, kind: str, attempt: Attempt | None = None
    ) -> "_Report":
        now = self._context.sources.now_ms()
        message = Message(
            work.run_id, work.guid, kind, AT_ONCE, now, work.step, pack_outcome(outcome)
        )
        return _Report(work, message, attempt)

    def _report(self, report: "_Report") -> None:
        """Commits: the work leaves its queue and its outcome is sent to the run, fenced by the token of the claim.

        Does not wait: outcomes of one iteration of the event loop share a commit. If the work is no longer claimed
        here, its outcome is dropped.
        """
        work, attempt = report.work, report.attempt
        claim = self._held(work)
        if claim is None:
            self._settle(report)
            return
        bundle = Bundle()
        for value in () if attempt is None else attempt.unconfirmed(claim.claims):
            tenure = TaskHolder(self._context.host_id, work.step)
            bundle.publish(work.run_id, *value, tenure, again=True)
        bundle.finish_work(work.run_id, work.step, claim.token)
        bundle.enqueue(report.message)
        undecided = self._context.undecided
        undecided.begin()
        try:
            self._context.store.submit(bundle, partial(self._decided, report, claim))
        except BaseException:
            undecided.end()
            self._settle(report)
            raise

    def _decided(self, report: "_Report", claim: Claim, failure: BaseException | None) -> None:
        context = self._context
        context.undecided.end()
        if context.is_killed:
            return
        if failure is not None:
            context.spawn(self._report_again(report, claim, failure))
            return
        if self._held(report.work) is claim:
            del self._claims[report.work.run_id, report.work.step]
        self._settle(report)
        context.listener.message_sent(report.message, claim.owner)

    def _settle(self, report: "_Report") -> None:
        if report.attempt is not None:
            self._executor.forget(report.attempt)

    async def _report_again(
        self, report: "_Report", claim: Claim, failure: BaseException | None
    ) -> None:
        """The commit of an outcome failed: report it again if the work is still claimed here, or is again."""
        backoff = report.backoff = report.backoff or Backoff(self._context.outage)
        work = report.work
        try:
            if isinstance(failure, StaleToken):
                failure = None
                if not await self._regain([claim]) and self._held(work) is claim:
                    del self._claims[work.run_id, work.step]
                    log.info(
                        "step %s of run %s is no longer claimed by this host; the outcome of its attempt is dropped",
                        *(work.step, work.run_id),
                    )
        except (StoreError, CommitRejected) as error:
            failure = error
        if failure is not None:
            if not self._is_open or not isinstance(failure, StoreError | CommitRejected):
                self._settle(report)
                raise failure
            backoff.blame(failure, f"the outcome of {work.run_id}/{work.step}")
            await backoff.wait()
        self._report(report)

    def held(self) -> tuple[Claim, ...]:
        """The claims under which tasks run here. Safe in any thread: a dict's values are copied in one step."""
        return tuple(self._claims.values())

    def claims_lost(self, claims: Sequence[Claim]) -> None:
        """The store no longer has these claims: regain them where possible, and cancel the other attempts."""
        self._context.spawn(self._lose(claims))

    async def _lose(self, claims: Sequence[Claim]) -> None:
        try:
            await self._regain(claims)
        except StoreError as error:
            # The next renewal finds them lost again.
            log.warning(
                "%d lost claims could not be regained yet; retrying: %s", len(claims), error
            )

    async def regain(self) -> None:
        """Another host took this one for dead and put its tasks back on their queues: regain those that no host has
        claimed since, and cancel the other attempts."""
        await self._regain(self.held())

    async def _regain(self, claims: Sequence[Claim]) -> bool:
        """Whether this host holds all these claims again. The attempts of those that it does not hold are cancelled."""
        context = self._context
        async with self._changing:
            claims = [claim for claim in claims if self._held(claim.work) is claim]
            if not claims:
                return False
            until_ms = context.sources.now_ms() + self.lease_ms
            regained = await context.store.regain_work(context.host_id, claims, until_ms)
        for claim in claims:
            if self._held(claim.work) is claim:
                self._note_regained(claim) if claim in regained else self._let_go(claim)
        return len(regained) == len(claims)

    def _note_regained(self, claim: Claim) -> None:
        work = claim.work
        attempt = self._executor.find(work.run_id, work.step, is_claimed=True)
        if attempt is not None:
            attempt.was_lost = True
            self._on_regained(attempt)

    def _let_go(self, claim: Claim) -> None:
        """Another host has the work, or it is done. An attempt that reports its outcome finds out by itself."""
        run_id, step = claim.work.run_id, claim.work.step
        attempt = self._executor.find(run_id, step, is_claimed=True)
        if attempt is None or not attempt.is_reporting:
            if attempt is not None:
                note_lost_lease(attempt)
            del self._claims[run_id, step]
            self._executor.cancel(run_id, step, is_claimed=True)

    def pause(self) -> None:
        """Claim no more work; running attempts keep their leases."""
        self._is_open = False

    async def stop(self) -> None:
        """Claim no more work, and give back the work that has not ended."""
        self.close()
        async with self._changing:
            # Without claims nothing is regained any more: work that is given back now stays on its queue.
            stopped, self._claims = self._stopped(), {}
        if self.queues:
            context = self._context
            now = at_once(context.sources.now_ms())
            await context.store.return_stopped(stopped, now)
            # All work of this host: a claim whose request was interrupted may be durable, though unknown here.
            await context.store.return_work(context.host_id, now)

    def _stopped(self) -> list[Claim]:
        """The claims whose attempts this host cancelled and another host is to begin again.

        Not those with a thread that still runs, which may yet kill the process; nor those that must not begin again,
        which the next host fails.
        """
        ended = {
            (attempt.info.run_id, attempt.info.step)
            for attempt in self._executor.stopped_claims
            if attempt.has_ended and attempt.task.on_doubt is not Resolution.FAIL
        }
        return [
            replace(claim, work=after_stop(claim.work))
            for key, claim in self._claims.items()
            if key in ended
        ]

    def close(self) -> None:
        self.pause()


class _ReadClaim(NamedTuple):
    """A claim, what its payload says, and its task; `None` if that is not registered here."""

    claim: Claim
    header: WorkPayload
    payload: bytes
    task: Task[..., Any] | None

    @property
    def deaths(self) -> int:
        """How many hosts died while they had the work."""
        return self.header.doubts + self.claim.doubts - self.header.stops

    @property
    def needs_thread(self) -> bool:
        return self.task is not None and not self.task.is_async


class _Return(NamedTuple):
    """A claim to give back, and how long its work stays unclaimed."""

    claim: Claim
    delay_ms: int


class _Report(msgspec.Struct):
    """The outcome of a claimed task, as a message to its run; with its attempt, if one was executed."""

    work: Work
    message: Message
    attempt: Attempt | None
    backoff: Backoff | None = None
