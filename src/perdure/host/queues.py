"""Work from queues: claimed under a lease, executed, and its outcome sent to the run, once."""

import asyncio
import logging
from collections.abc import Sequence
from functools import partial
from typing import Any

from perdure.authoring.registry import find
from perdure.authoring.task import Task
from perdure.core.errors import CommitRejected, StaleToken, StoreError
from perdure.core.ids import RunId, StepId
from perdure.core.messages import Message, Work
from perdure.engine.replay.errand import unpack_errand
from perdure.engine.replay.facts import Outcome
from perdure.host.body import Body
from perdure.host.host import Host
from perdure.host.patience import Patience
from perdure.store.bundle import Bundle
from perdure.store.records import Claim

log = logging.getLogger("perdure.host")

UNKNOWN_DELAY_MS = 5_000
"""How long work of a task that this host does not have is left for others."""


class QueueWorker:
    """Serves queues with the host's free slots. While a body runs its lease is renewed."""

    def __init__(self, host: Host, queues: Sequence[str], lease_ms: int) -> None:
        self._host = host
        self._queues = tuple(queues)
        self._lease_ms = lease_ms
        self._claims: dict[tuple[RunId, StepId], Claim] = {}
        self._renewing: asyncio.Task[None] | None = None
        self._is_open = True
        self.next_due_ms: int | None = None
        """When the next work is due, as far as known; `None` if there is none or no slot for it."""
        self.is_full = False
        """There may be more work than there were slots."""

    async def poll(self) -> None:
        """Claim what is due, as far as there are slots, and begin it."""
        if not self._queues or not self._is_open:
            return
        host, store = self._host, self._host.store
        self.is_full = False
        while free := host.bodies.free_slots():
            now = host.sources.now_ms()
            token = host.sources.entropy(16).hex()
            claims = await store.claim_work(
                host.host_id, self._queues, token, now, self._lease_ms, free
            )
            for claim in claims:
                await self._begin(claim)
            if len(claims) < free:
                self.next_due_ms = await store.next_work(self._queues)
                return
        self.next_due_ms = None
        self.is_full = True

    def serves(self, work: Work) -> bool:
        return self._is_open and work.queue in self._queues

    async def _begin(self, claim: Claim) -> None:
        errand, payload = unpack_errand(claim.work)
        task: Task[..., Any] | None = find("task", errand.task)
        host = self._host
        if task is None or not host.bodies.reserve(task):
            delay_ms = 0
            if task is None:
                delay_ms = UNKNOWN_DELAY_MS
                log.warning(
                    "queue %r has work for task %r, which is not registered here",
                    claim.work.queue,
                    errand.task,
                )
            await host.store.return_claims([claim], host.sources.now_ms() + delay_ms)
            return
        self._claims[claim.work.run_id, claim.work.step] = claim
        info, report = errand.info(claim.work), partial(self._ended, claim)
        body = Body(info, task, payload, report, is_claimed=True, claim=claim.claims)
        host.bodies.start(body)
        if self._renewing is None or self._renewing.done():
            self._renewing = asyncio.get_running_loop().create_task(self._renew())

    async def _ended(self, claim: Claim, body: Body, outcome: Outcome) -> None:
        try:
            await self._report(claim, outcome)
        finally:
            self._host.bodies.forget(body)

    async def _report(self, claim: Claim, outcome: Outcome) -> None:
        """Commits: the work is off its queue and its outcome is on the way, by the token of the claim."""
        work, now = claim.work, self._host.sources.now_ms()
        kind = outcome.kind_by(claim.claims)
        message = Message(work.run_id, work.guid, kind, now, now, work.step, outcome.payload)
        patience = Patience()
        while self._claims.get((work.run_id, work.step)) is claim:
            bundle = Bundle()
            bundle.finish_work(work.run_id, work.step, claim.token)
            bundle.enqueue(message)
            try:
                await self._host.store.commit(bundle)
                self._host.on_message(message)
            except StaleToken:
                log.info("work %s/%s was claimed again meanwhile", work.run_id, work.step)
            except (StoreError, CommitRejected) as error:
                if not self._is_open:
                    raise
                log.warning("an outcome waits %.2f s for the store: %s", patience.delay_s, error)
                await patience.wait()
                continue
            self._claims.pop((work.run_id, work.step), None)

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

    def pause(self) -> None:
        """Claim nothing more; what runs keeps its lease."""
        self._is_open = False

    async def stop(self) -> None:
        """Claim nothing more; give back what has not ended."""
        self.close()
        self._claims.clear()
        if self._queues:
            # All of it: a claim that was cut short may be durable, though nothing here knows of it.
            host = self._host
            await host.store.return_work(host.host_id, host.sources.now_ms())

    def close(self) -> None:
        self.pause()
        if self._renewing is not None:
            self._renewing.cancel()
