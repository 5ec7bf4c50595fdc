"""Work from queues: claimed under a lease, executed, and its outcome sent to the run, once.

Work that another host had claimed before is in doubt: that host may have begun it. The task's policy says whether it
is executed again, and the run hears of the doubt with the outcome.
"""

import asyncio
import logging
from collections.abc import Sequence
from functools import partial
from typing import Any

from msgspec.structs import replace

from perdure.authoring.failures import encode_failure
from perdure.authoring.registry import find
from perdure.authoring.task import Task
from perdure.core.errors import CommitRejected, StaleToken, StoreError
from perdure.core.ids import RunId, StepId
from perdure.core.messages import Message, Work
from perdure.core.replay.doubt import Doubt, Resolution, resolve, step_in_doubt
from perdure.core.replay.suspicion import first_of_queue, is_suspect
from perdure.engine.replay.errand import stopped, unpack_errand
from perdure.engine.replay.facts import Outcome
from perdure.host.body import Body
from perdure.host.host import Host
from perdure.host.patience import Patience
from perdure.store.bundle import Bundle
from perdure.store.records import Claim, Tenure

log = logging.getLogger("perdure.host")

UNKNOWN_DELAY_MS = 5_000
"""How long work of a task that this host does not have is left for others."""


class QueueWorker:
    """Serves queues with the host's free slots. While a body runs its lease is renewed."""

    def __init__(self, host: Host, queues: Sequence[str], lease_ms: int) -> None:
        self._host = host
        self.queues = tuple(queues)
        self._lease_ms = lease_ms
        self._claims: dict[tuple[RunId, StepId], Claim] = {}
        self._renewing: asyncio.Task[None] | None = None
        self._is_open = True
        self.next_due_ms: int | None = None
        """When the next work is due, as far as known; `None` if there is none or no slot for it."""
        self.is_full = False
        """There may be more work than there were slots."""

    def show(self, next_work_ms: int | None, now_ms: int) -> bool:
        """When work may be claimed next, as the store says. Returns whether to poll now."""
        if not self.queues or not self._is_open or not self._host.bodies.free_slots():
            return False
        self.next_due_ms = next_work_ms
        return next_work_ms is not None and next_work_ms <= now_ms

    async def poll(self) -> None:
        """Claim what is due, as far as there are slots, and begin it."""
        if not self.queues or not self._is_open:
            return
        host, store = self._host, self._host.store
        self.is_full = False
        while free := host.bodies.free_slots():
            now = host.sources.now_ms()
            token = host.sources.entropy(16).hex()
            claims = await store.claim_work(
                host.host_id, self.queues, token, now, self._lease_ms, free
            )
            for claim in await self._hold_back(claims):
                is_late = host.sources.now_ms() - now > self._lease_ms / 2
                if is_late and self._held(claim.work) is None:
                    # This process stood still, or its store did: another host may have done it by now.
                    await self._give_back(claim, 0)
                else:
                    await self._begin(claim)
            if len(claims) < free:
                self.next_due_ms = await store.next_work(self.queues)
                return
        self.next_due_ms = None
        self.is_full = True

    async def _hold_back(self, claims: Sequence[Claim]) -> Sequence[Claim]:
        """Give back all suspects but the one whose turn it is, before anything begins that may end this process."""
        probation = self._host.probation
        suspects = [claim for claim in claims if claim.doubts and self._is_suspect(claim)]
        if not suspects or not probation.length_s:
            return claims
        if probation.is_idle:
            suspects.pop(first_of_queue([_deaths(claim) for claim in suspects]))
        if suspects:
            # Not before: who is on probation may end this process while others are claimed, and they would count.
            due_ms = self._host.sources.now_ms() + round(probation.length_s * 1000)
            await self._host.store.return_claims(suspects, due_ms)
        return [claim for claim in claims if claim not in suspects]

    def _is_suspect(self, claim: Claim) -> bool:
        return is_suspect(_deaths(claim)) and self._held(claim.work) is None

    def serves(self, work: Work) -> bool:
        return self._is_open and work.queue in self.queues

    async def _begin(self, claim: Claim) -> None:
        host, work = self._host, claim.work
        if self._held(work) is not None:
            # Its lease ended, but it runs here yet, and nobody else has come: this is a new lease.
            self._claims[work.run_id, work.step] = claim
            body = host.bodies.find(work.run_id, work.step, is_claimed=True)
            if body is not None and body.unheard(claim.claims):
                host.on_return(body)
            return
        errand, payload = unpack_errand(work)
        task: Task[..., Any] | None = find("task", errand.task)
        if task is None:
            log.warning(
                "queue %r has work for task %r, which is not registered here",
                work.queue,
                errand.task,
            )
            await self._give_back(claim, UNKNOWN_DELAY_MS)
            return
        if errand.timeout_ms is not None:
            task = task.limited(errand.timeout_ms)
        total = errand.doubts + claim.doubts
        doubt = None
        if claim.doubts:
            resolution = resolve(task.on_doubt, total, host.max_doubts, errand.stops)
            doubt = Doubt(total, resolution, errand.stops)
            if doubt.resolution is Resolution.FAIL:
                await self._give_up(claim, task, doubt)
                return
        if not host.bodies.reserve(task):
            await self._give_back(claim, 0)
            return
        self._claims[work.run_id, work.step] = claim
        info, report = errand.info(work), partial(self._ended, work, doubt)
        is_doubted = total > 0
        body = Body(
            info, task, payload, report, is_claimed=True, claim=claim.claims, is_doubted=is_doubted
        )
        host.bodies.start(body)
        if claim.doubts and is_suspect(total - errand.stops):
            host.probation.watch(body)
        if self._renewing is None or self._renewing.done():
            self._renewing = asyncio.get_running_loop().create_task(self._renew())

    async def _give_back(self, claim: Claim, delay_ms: int) -> None:
        host = self._host
        await host.store.return_claims([claim], host.sources.now_ms() + delay_ms)

    async def _give_up(self, claim: Claim, task: Task[..., Any], doubt: Doubt) -> None:
        """The work is in doubt, and is not executed again."""
        work = claim.work
        self._claims[work.run_id, work.step] = claim
        deaths = doubt.total - doubt.stops
        error = step_in_doubt(work.step, task.name, task.on_doubt, deaths)
        outcome = Outcome(False, encode_failure(self._host.codec, error))
        await self._report(work, outcome, outcome.kind_by(claim.claims, doubt))

    def _held(self, work: Work) -> Claim | None:
        """The claim under which this attempt runs here, if it does."""
        claim = self._claims.get((work.run_id, work.step))
        return claim if claim is not None and claim.work.guid == work.guid else None

    async def _ended(self, work: Work, doubt: Doubt | None, body: Body, outcome: Outcome) -> None:
        try:
            await self._report(work, outcome, outcome.kind_by(body.claim, doubt), body)
        finally:
            self._host.bodies.forget(body)

    async def _report(
        self, work: Work, outcome: Outcome, kind: str, body: Body | None = None
    ) -> None:
        """Commits: the work is off its queue and its outcome is on the way, by the token of the claim."""
        now = self._host.sources.now_ms()
        message = Message(work.run_id, work.guid, kind, now, now, work.step, outcome.payload)
        patience = Patience()
        while (claim := self._held(work)) is not None:
            bundle = Bundle()
            for said in () if body is None else body.unheard(claim.claims):
                bundle.publish(work.run_id, *said, Tenure(self._host.host_id, work.step))
            bundle.finish_work(work.run_id, work.step, claim.token)
            bundle.enqueue(message)
            try:
                await self._host.store.commit(bundle)
                self._host.on_message(message)
            except StaleToken:
                if self._held(work) is not claim:
                    continue
                log.info("work %s/%s was claimed again meanwhile", work.run_id, work.step)
            except (StoreError, CommitRejected) as error:
                if not self._is_open:
                    raise
                log.warning("an outcome waits %.2f s for the store: %s", patience.delay_s, error)
                await patience.wait()
                continue
            if self._held(work) is claim:
                del self._claims[work.run_id, work.step]
            return

    async def _renew(self) -> None:
        """Keep the leases of what runs; stop a body whose lease somebody else has."""
        store = self._host.store
        while self._claims:
            await asyncio.sleep(self._lease_ms / 3000)
            claims = list(self._claims.values())
            try:
                until = self._host.sources.now_ms() + self._lease_ms
                held = set(await store.renew_work(claims, until))
            except StoreError as error:
                log.warning("leases could not be renewed: %s", error)
                continue
            for claim in claims:
                work = claim.work
                if claim not in held:
                    if self._claims.get((work.run_id, work.step)) is claim:
                        del self._claims[work.run_id, work.step]
                        self._host.bodies.cancel(work.run_id, work.step, is_claimed=True)

    def drop(self) -> None:
        """This host was taken for dead, and its work is on the queues again: what runs of it ends."""
        claims, self._claims = self._claims, {}
        for run_id, step in claims:
            self._host.bodies.cancel(run_id, step, is_claimed=True)

    def pause(self) -> None:
        """Claim nothing more; what runs keeps its lease."""
        self._is_open = False

    async def stop(self) -> None:
        """Claim nothing more; give back what has not ended."""
        self.close()
        if self.queues:
            host = self._host
            now = host.sources.now_ms()
            await host.store.return_stopped(self._stopped(), now)
            # All of it: a claim that was cut short may be durable, though nothing here knows of it.
            await host.store.return_work(host.host_id, now)
        self._claims.clear()

    def _stopped(self) -> list[Claim]:
        """What this host has ended itself, and others are to begin again: as of local steps, a thread may end the
        process yet, and what is not begun again is left to the next host to fail."""
        ended = {
            (body.info.run_id, body.info.step)
            for body in self._host.bodies.stopped_claims
            if body.has_ended and body.task.on_doubt is not Resolution.FAIL
        }
        return [
            replace(claim, work=stopped(claim.work))
            for place, claim in self._claims.items()
            if place in ended
        ]

    def close(self) -> None:
        self.pause()
        if self._renewing is not None:
            self._renewing.cancel()


def _deaths(claim: Claim) -> int:
    """How many hosts may have died of it."""
    errand, _ = unpack_errand(claim.work)
    return errand.doubts + claim.doubts - errand.stops
