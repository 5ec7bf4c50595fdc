"""Takes over runs of dead hosts and unowned runs.

Every host does so by itself; there is no leader. Taking a run over increments its epoch, so the store rejects what
the former owner still commits. A takeover can be interrupted at any point: the row of the dead host is removed last, so
the next host that sees the row completes it.
"""

import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import NamedTuple

from perdure.core.hosts.sharing import BATCH, FAIR_LOOKS, MOST_COUNTED, allowance, room_after
from perdure.core.hosts.watch import HostWatch
from perdure.core.ids import HostId
from perdure.core.messages import at_once
from perdure.host.cluster.identity import is_dead
from perdure.host.runs.dispatcher import Dispatcher
from perdure.host.runs.logs import note_taken
from perdure.store.rows.hosts import HostSnapshot
from perdure.store.rows.records import Run

log = logging.getLogger("perdure.host")

UNSHARED_LOOKS = 60
"""At how many polls a host takes unowned runs without sharing, after the other hosts left such runs to it."""

Take = Callable[[int], Awaitable[Sequence[Run]]]
"""Takes over up to that many runs of one former owner."""


class Orphans(NamedTuple):
    """The owners of orphaned runs, as this host sees them: dead hosts, and none for unowned runs."""

    silent_s: dict[HostId, float]
    """The dead hosts, and how long each has been silent."""
    others: tuple[HostId, ...]
    """The living hosts besides this one."""
    has_unowned: bool

    @property
    def owners(self) -> set[HostId | None]:
        return {*self.silent_s, None} if self.has_unowned else {*self.silent_s}


class Takeover:
    """Judges which hosts are dead, and takes over this host's share of their runs."""

    def __init__(
        self, dispatcher: Dispatcher, stale_after_ms: int, on_batch: Callable[[], None]
    ) -> None:
        """`on_batch` is called after each batch of runs: messages and timers for them may be due."""
        self._dispatcher = dispatcher
        self._context = dispatcher.context
        self._on_batch = on_batch
        self._watch = HostWatch(stale_after_ms)
        self._times_left: Counter[HostId | None] = Counter()
        """At how many polls in a row this host left runs of each owner to the others: after some, it takes them."""
        self._unshared = 0
        """At how many polls more this host does not share unowned runs: the others don't take them. They may lack the
        programs, or slots."""
        self._taken_singly: Counter[HostId] = Counter()
        """Runs of dead hosts that were taken over for a caller; the next log line about that host counts them."""
        self.is_stopping = False
        """Whether the host is closing, and takes no further batch."""

    def stop(self) -> None:
        """Take no further batch: the host is closing."""
        self.is_stopping = True

    def see(self, snapshot: HostSnapshot, at_ms: int) -> None:
        """Note which hosts were alive at `at_ms` of the steady clock. The takeover itself may come later."""
        self._watch.look(snapshot.peers, snapshot.holders, at_ms)

    async def take(self, snapshot: HostSnapshot) -> bool:
        """Take over this host's share of the orphaned runs. Returns whether it took runs, or put work back."""
        return await self.take_from(self.judge(snapshot))

    def judge(self, snapshot: HostSnapshot) -> Orphans:
        """Which owners' runs this host may take over, by the latest observations."""
        context, watch = self._context, self._watch
        # A later heartbeat may have seen that a host of this snapshot is gone: then a peer has completed its takeover.
        seen = {peer.host for peer in snapshot.peers} | snapshot.holders
        others = {each for each in seen - {context.host_id} if watch.sees(each)}
        registered = {peer.host for peer in snapshot.peers} & others
        gone = {each for each in others if is_dead(each) or watch.is_gone(each)}
        silent_s = {each: watch.silent_ms(each) / 1000 for each in gone}
        return Orphans(silent_s, tuple(sorted(registered - gone)), snapshot.has_unowned)

    async def take_from(self, orphans: Orphans) -> bool:
        """Take over this host's share of each owner's runs. Returns whether it took runs, or put work back."""
        others = orphans.others
        self._times_left = Counter({owner: self._times_left[owner] for owner in orphans.owners})
        self._unshared = max(0, self._unshared - 1)
        took = False
        for dead in sorted(orphans.silent_s):
            if self.is_stopping:
                return took
            took |= await self._take_from_dead(dead, others, orphans.silent_s[dead])
        if orphans.has_unowned:
            took |= await self._take_share(None, others, self._claim) > 0
        return took

    async def _claim(self, limit: int) -> list[Run]:
        """Claim unowned runs of programs that this host has: fewer, once a run has turned out to need more."""
        context, programs = self._context, self._dispatcher.programs
        return await context.store.claim_runs(context.host_id, limit, programs=programs.names())

    async def take_back(self, former: HostId) -> None:
        """Take over all runs that this host has left under its former id, regardless of free slots."""
        context, store = self._context, self._context.store
        while runs := await store.take_over(former, context.host_id, BATCH):
            await self._dispatcher.resume(runs)
        await store.return_work(former, at_once(context.sources.now_ms()))
        await store.remove_host(former)

    async def _take_from_dead(
        self, dead: HostId, others: Sequence[HostId], silent_s: float
    ) -> bool:
        """Take over from a dead host: a share of its runs, then its work. Removes its row once it owns no open run."""
        context, store = self._context, self._context.store
        take = partial(store.take_over, dead, context.host_id)
        took = await self._take_share(dead, others, take)
        took += self._taken_singly.pop(dead, 0)
        returned = await store.return_work(dead, at_once(context.sources.now_ms()))
        if took or returned:
            log.warning(
                "host %s is dead (silent for %.1f s): this host took over %d of its runs and requeued %d of its tasks",
                *(dead, silent_s, took, returned),
                extra={
                    "event": "host_gone",
                    "former_host_id": dead,
                    "runs": took,
                    "tasks": returned,
                },
            )
        if not await store.count_open(dead):
            await store.remove_host(dead)
        return bool(took or returned)

    def note_single(self, run: Run, former: HostId | None) -> None:
        """A run was taken over ahead of the others, for a caller."""
        note_taken([run], former)
        if former is not None:
            self._taken_singly[former] += 1

    async def _take_share(self, owner: HostId | None, others: Sequence[HostId], take: Take) -> int:
        """Take over this host's share of an owner's runs in batches, as far as it has slots. Returns how many."""
        slots, taken = self._dispatcher.executor.free_slots, 0
        room = free = slots()
        looks = self._times_left[owner] + 1
        has_waited = looks > FAIR_LOOKS
        if owner is None and self._unshared:
            looks = FAIR_LOOKS + 1
        while not self.is_stopping:
            left, count = await self._next_batch(owner, others, room, looks)
            runs = await take(count) if count else []
            if not runs:
                self._times_left[owner] = looks if left and not count else 0
                break
            note_taken(runs, owner)
            await self._dispatcher.resume(runs)
            self._on_batch()
            taken += len(runs)
            before, free = free, slots()
            room = room_after(count, before, free)
        if taken and owner is None and has_waited and others:
            self._unshared = UNSHARED_LOOKS
        return taken

    async def _next_batch(
        self, owner: HostId | None, others: Sequence[HostId], room: int, looks: int
    ) -> tuple[int, int]:
        """How many of an owner's runs are left, and how many of them this host takes next."""
        context, store = self._context, self._context.store
        if not others:
            left = await store.count_open(owner)
            return left, allowance(left, 0, (), room, looks=looks)
        # First what the hosts have, then what is left: what a host takes in between is missing in both, and a batch is
        # rather too small.
        owned = await store.count_open_of([context.host_id, *others], MOST_COUNTED)
        left = await store.count_open(owner)
        shares = [owned[each] for each in others]
        return left, allowance(left, owned[context.host_id], shares, room, looks=looks)
