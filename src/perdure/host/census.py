"""Runs that nobody advances: those of hosts that are gone, and those of nobody.

Any host may find them, and no host decides for others. Taking a run bumps its epoch, so that whatever its old owner
still commits of it is rejected. Interrupted at any point it is begun again by whoever looks next: the row of a dead
host goes last.
"""

import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from perdure.core.hosts.sharing import BATCH, allowance, room_after
from perdure.core.hosts.watch import Watch
from perdure.core.ids import HostId
from perdure.host.host import Host
from perdure.host.identity import is_dead
from perdure.store.hosts import Glance
from perdure.store.records import Run

log = logging.getLogger("perdure.host")

Take = Callable[[int], Awaitable[Sequence[Run]]]
"""Takes so many runs of a pile."""


class Census:
    """What one host knows of the others, and what it takes from those that are gone."""

    def __init__(self, host: Host, stale_after_ms: int) -> None:
        self._host = host
        self._watch = Watch(stale_after_ms)
        self._looks: Counter[HostId | None] = Counter()
        """How often this host has looked at what is left of whom."""

    def see(self, glance: Glance, at_ms: int) -> None:
        """Take note of who gave a sign of life, by the steady clock. What follows from it may have to wait."""
        self._watch.look(glance.peers, glance.holders, at_ms)

    async def take(self, glance: Glance) -> bool:
        """Take what this host may take, given what was seen last. Returns whether there was anything.

        Who waits here for a run of another host looks at the same time.
        """
        host, watch = self._host, self._watch
        host.watchers.look(host.residents)
        registered = {peer.host for peer in glance.peers} - {host.host_id}
        others = registered | glance.holders - {host.host_id}
        gone = {each for each in others if is_dead(each) or watch.is_gone(each)}
        silent_s = {each: watch.silent_ms(each) / 1000 for each in gone}
        alive = 1 + len(registered - gone)
        piles = {*gone, None} if glance.has_unowned else gone
        self._looks = Counter({pile: self._looks[pile] + 1 for pile in piles})
        took = False
        for dead in sorted(gone):
            took |= await self._succeed(dead, alive, silent_s[dead])
        if glance.has_unowned:
            claim = partial(host.store.claim_runs, host.host_id, programs=host.programs.names())
            took |= await self._share(None, alive, claim) > 0
        return took

    async def inherit(self, former: HostId) -> None:
        """Take all that this host itself still had under a name that it has given up, whatever room it has."""
        host, store = self._host, self._host.store
        while runs := await store.take_over(former, host.host_id, BATCH):
            await host.resume(runs)
        await store.return_work(former, host.sources.now_ms())
        await store.remove_host(former)

    async def _succeed(self, dead: HostId, alive: int, silent_s: float) -> bool:
        """Go on with what a dead host had. Its row goes when nothing of it is left."""
        host, store = self._host, self._host.store
        took = await self._share(dead, alive, partial(store.take_over, dead, host.host_id))
        returned = await store.return_work(dead, host.sources.now_ms())
        if took or returned:
            log.info(
                "host %s is gone (silent for %.1f s): %d of its runs go on here, %d of its tasks are on their queues",
                *(dead, silent_s, took, returned),
            )
        if not await store.count_open(dead):
            await store.remove_host(dead)
        return bool(took or returned)

    async def _share(self, owner: HostId | None, alive: int, take: Take) -> int:
        """Take this host's share of a pile, batch by batch, as far as it has slots. Returns how many it took."""
        host, taken = self._host, 0
        left = await host.store.count_open(owner)
        room = free = host.bodies.free_slots()
        while count := allowance(left, alive, taken, room, looks=self._looks[owner]):
            runs = await take(count)
            if not runs:
                break
            await host.resume(runs)
            taken, left = taken + len(runs), left - len(runs)
            before, free = free, host.bodies.free_slots()
            room = room_after(count, before, free)
        return taken
