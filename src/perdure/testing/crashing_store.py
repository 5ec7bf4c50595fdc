"""The store as one explored host sees it: each call may kill the host, and a dead host never gets a reply."""

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from perdure.core.ids import HostId
from perdure.core.messages import Message
from perdure.store.commit.bundle import Bundle
from perdure.store.commit.committer import OnDecided
from perdure.store.graph_tables import MAX_MATCHES
from perdure.store.rows.records import Claim
from perdure.testing.admission import FaultyAdmission
from perdure.testing.peers import faulty_claim, faulty_snapshot, faulty_takeover
from perdure.testing.transactions import Bundles, Commit, end_transactions, faulty_transaction

if TYPE_CHECKING:
    from perdure.testing.simulation import Simulation

_FAULTS = "commits", "crash before", "crash after"


_TABLES: Final = frozenset(("buses", "schedules", "retention"))
"""Attributes of a store that have methods of their own."""


class _TableOfTheDead:
    """A table, asked by a dead host: no answer comes."""

    def __getattr__(self, _: str) -> Any:
        return self._never

    async def _never(self, *_: Any, **__: Any) -> Any:
        await asyncio.get_running_loop().create_future()


class CrashingStore:
    """Passes calls to the simulation's store, and asks the simulation which faults happen on the way.

    After the host's death no call returns: the host's coroutines stay suspended until they are cancelled.
    """

    is_shared = True
    """The store is in memory, but several hosts of the simulation use it."""

    def __init__(self, simulation: "Simulation", host_id: HostId) -> None:
        self._simulation = simulation
        self._host_id = host_id
        self.late: list[Message] = []
        """Messages to deliver once more, though the host has received them."""
        self.death: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when the host is dead."""
        self.tasks: set[asyncio.Task[None]] = set()
        """Commits that the host submitted without waiting, and connections that close after its death."""
        self.transaction = partial(faulty_transaction, simulation, self)
        self.take_over = partial(faulty_takeover, simulation, self)
        self.claim_runs = partial(faulty_claim, simulation, self, "claim_runs")
        self.take_run = partial(faulty_claim, simulation, self, "take_run")
        self.host_snapshot = partial(faulty_snapshot, simulation, self)
        self.admission = FaultyAdmission(simulation, self)
        self.open_transactions: set[Any] = set()
        self.may_claim = asyncio.Event()
        """Unset while callers ask the host for runs that its takeover has not claimed yet."""
        self.may_claim.set()
        self.has_lost_runs = False
        """Another host has taken them, and this one does not know it."""
        self._committed: tuple[int, ...] | None = None
        """The moment after this host's last commit; `None` if a fault belongs to that."""

    def __getattr__(self, name: str) -> Any:
        if self.death.done():
            return _TableOfTheDead() if name in _TABLES else self._never
        self._simulation.calls += 1
        return getattr(self._simulation.store, name)

    async def _never(self, *_: Any, **__: Any) -> Any:
        await asyncio.get_running_loop().create_future()

    async def require_alive(self) -> None:
        """Return if the host is alive; never return if it is dead."""
        if self.death.done():
            await self._never()
        self._simulation.calls += 1

    async def die(self) -> None:
        """Kill the host and close its transactions. Never returns."""
        if not self.death.done():
            self.death.set_result(None)
            end_transactions(self)
        await self._never()

    async def commit(self, bundle: Bundle) -> None:
        await self.commit_by(lambda _: self._simulation.store.commit(bundle), [bundle])

    async def commit_by(self, commit: Commit, bundles: Bundles, may_lose: bool = True) -> None:
        """Let `commit` write the bundles. The host may die before or after; with `may_lose` it may lose its runs."""
        simulation = self._simulation
        if self.death.done():
            await self._never()
        moment = simulation.moment()
        is_after_commit = moment is not None and moment == self._committed
        simulation.commits += 1
        # If nothing has happened since the last commit, "crash after" that one was the same schedule.
        faults = ["commits", "crash after"] if is_after_commit else [*_FAULTS]
        fault = await self.choose_fault(f"commit {simulation.commits}", faults, may_lose)
        await asyncio.shield(simulation.write(commit, bundles))
        await simulation.script.play(simulation.commits)
        if fault == "crash after":
            await self.die()
        self._committed = simulation.moment() if fault == "commits" else None

    async def choose_fault(self, what: str, options: Sequence[str], may_lose: bool = True) -> str:
        """Choose an option. "crash before" kills the host at once; "lost owner" lets another host take its runs."""
        losing = ["lost owner"] if may_lose and self._simulation.may_lose_runs else []
        fault = self._simulation.choose(what, [*options, *losing])
        if fault == "crash before":
            await self.die()
        if fault == "lost owner":
            self._simulation.may_lose_runs = False
            await self._lose_runs()
        return fault

    def submit(self, bundle: Bundle, decided: OnDecided) -> None:
        task = asyncio.ensure_future(self._submit(bundle, decided))
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def _submit(self, bundle: Bundle, decided: OnDecided) -> None:
        try:
            await self.commit(bundle)
        except Exception as error:  # whatever a commit raises is its outcome
            decided(error)
        else:
            decided(None)

    async def _lose_runs(self) -> None:
        """Another host takes over all runs and finishes them, while this host still believes that it owns them.

        If the other one fails, this one dies: it could wait for ever for runs that are no longer its own.
        """
        other = self._simulation.new_host()
        other.victims.add(self._host_id)
        self.has_lost_runs = True
        try:
            await other.live()
        except Exception as error:  # raised here, this host could swallow it as a failed commit
            self._simulation.violations.append(str(error))
            await self.die()

    async def due_messages(self, owner: HostId, now_ms: int, limit: int) -> list[Message]:
        await self.require_alive()
        due = await self._simulation.store.due_messages(owner, now_ms, limit)
        late, self.late = self.late, []
        if not due:
            return late
        options = ["in order", "again at once", "again later"]
        if len(due) > 1 and not self._simulation.clocks_differ:
            options.append("in reverse")
        fault = self._simulation.choose(f"delivery of {len(due)} messages", options)
        if fault == "in reverse":
            due.reverse()
        elif fault == "again at once":
            due = [*due, *due]
        elif fault == "again later":
            self.late = list(due)
        return [*late, *due]

    async def match_hooks(self, now_ms: int, limit: int = MAX_MATCHES) -> list[Message]:
        await self.require_alive()
        matched = await self._simulation.store.match_hooks(now_ms, limit)
        # No "crash before": the commit that precedes this call has "crash after", which is the same schedule.
        if matched:
            options = ["is reported", "crash after"]
            if self._simulation.choose(f"match of {len(matched)}", options) == "crash after":
                await self.die()
        return matched

    async def claim_work(
        self,
        host: HostId,
        queues: Sequence[str],
        token: str,
        now_ms: int,
        lease_ms: int,
        limit: int,
    ) -> list[Claim]:
        await self.require_alive()
        store = self._simulation.store
        claims = await store.claim_work(host, queues, token, now_ms, lease_ms, limit)
        if claims:
            options = ["leased", "lease ends early", "is put back"]
            if len(claims) > 1:
                options.append("one is lost")
            fault = self._simulation.choose(f"claim of {len(claims)}", options)
            if fault == "lease ends early":
                self._simulation.sources.advance(lease_ms + 1)
            elif fault == "is put back":
                # A peer declared this host dead and returned its work, but has claimed none of it yet.
                await store.return_work(host, now_ms)
            elif fault == "one is lost":
                # A peer claimed a task whose lease had ended, and died: its result is refused, and the others' are not.
                peer = HostId("peer")
                await store.claim_work(peer, queues, "lost", now_ms + lease_ms, lease_ms, 1)
                await store.return_work(peer, now_ms)
        return claims
