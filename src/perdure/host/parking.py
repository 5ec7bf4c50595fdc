"""Parked runs: those that this host can't advance, why, and what of them must not be lost all the same."""

import logging
from collections.abc import Callable
from typing import TypeGuard

from perdure.core.errors import BundleRefused, PerdureError, StaleFence, UnknownName
from perdure.core.ids import HostId, RunId
from perdure.engine.replay.facts import Outcome
from perdure.engine.replay.parked import ParkedRun
from perdure.engine.sources import Sources
from perdure.host.body import Body
from perdure.host.watching import Watchers
from perdure.store.bundle import Bundle
from perdure.store.primitives import Fence
from perdure.store.records import Run
from perdure.store.store import Store

log = logging.getLogger("perdure.host")

Told = tuple[Body, Outcome]
"""How a body of this host ended. Nobody else knows."""

LONGEST_REASON = 4000
"""Characters of why a run is parked: what it raised may be any text."""


class Parking:
    """Parks the runs of one host. Those that are *set aside* it leaves alone until it is started again.

    Whether a run can be replayed is known when it is loaded, and is tried again each time. One that is set aside can
    be: it is what its program asks for next that can't be written. To try again would fail again.
    """

    def __init__(
        self,
        store: Store,
        host_id: HostId,
        watchers: Watchers,
        sources: Sources,
        claims: Callable[[str], bool],
    ) -> None:
        """`claims` tells whether this host takes up runs of a program."""
        self._store = store
        self.host_id = host_id
        self._watchers = watchers
        self._sources = sources
        self._claims = claims
        self._set_aside: dict[RunId, int] = {}
        """Under which epoch."""

    def leaves_alone(self, run: Run) -> bool:
        """Whether it is set aside, and still as it was then."""
        is_same = run.parked is not None and self._set_aside.get(run.run_id) == run.epoch
        if not is_same:
            self._set_aside.pop(run.run_id, None)
        return is_same

    async def park(self, run: Run, reason: str | None, bundle: Bundle | None = None) -> None:
        """Commits: why the run is not advanced, or that it is again; and what is in the bundle."""
        if reason is not None:
            reason = _plain(reason)
        if run.parked == reason and bundle is None:
            return
        if reason is not None:
            # What is unknown here may be known to another process.
            level = logging.WARNING if reason.startswith(UnknownName.code) else logging.ERROR
            log.log(level, "run %s is parked: %s", run.run_id, reason)
        bundle = bundle or Bundle()
        bundle.park(Fence(run.run_id, run.epoch), reason)
        await self._store.commit(bundle)
        self._watchers.grown(run.run_id)
        if reason is not None:
            # Who waits for its result is not told in vain to look: it may never come.
            self._watchers.ended(run.run_id, None)

    async def give_up(self, run: Run, problem: PerdureError, bundle: Bundle | None = None) -> None:
        """Commits: this host can't advance the run, and why; and what is in the bundle.

        Another host may have what is unknown here. Unless this one would claim the run again, it is nobody's.
        """
        await self.park(run, f"{problem.code}: {problem}", bundle)
        if self._is_for_others(problem, run):
            await self._store.release_run(Fence(run.run_id, run.epoch))

    def _is_for_others(self, problem: Exception, run: Run) -> TypeGuard[UnknownName]:
        return isinstance(problem, UnknownName) and not self._claims(run.program)

    async def set_aside(self, run_id: RunId, problem: Exception, told: Told | None = None) -> None:
        """Commits: what the program of a run decided can't be written, and the outcome that it was told.

        It waits for another program, or to be cancelled. What else of it is under way is in doubt: no second outcome
        can be written before the program has answered to the first.
        """
        while (run := await self._store.run(run_id)) is not None:
            if run.owner != self.host_id or run.closed_at_ms is not None:
                return
            kept = None if told is None else await self.completion(*told)
            try:
                if self._is_for_others(problem, run):
                    await self.give_up(run, problem, kept)
                    return
                log.error("run %s can't be written", run_id, exc_info=problem)
                await self.park(run, _unwritable(run, problem), kept)
            except StaleFence:
                # A commit that was under way came between, or another host.
                continue
            except BundleRefused:
                if kept is None:
                    raise
                told = None
                continue
            self._set_aside[run_id] = run.epoch
            return

    async def completion(self, body: Body, outcome: Outcome) -> Bundle | None:
        """The outcome of a body, to be committed without what its program makes of it. `None` if nobody wants it."""
        info = body.info
        for run, entries in await self._store.load([info.run_id]):
            if run.owner == self.host_id and run.closed_at_ms is None:
                parked = ParkedRun(run, entries)
                bundle = parked.complete(info.step, info.attempt, outcome, self._sources)
                if bundle is not None:
                    for said in body.unheard(run.epoch):
                        bundle.publish(info.run_id, *said)
                return bundle
        return None


def _unwritable(run: Run, problem: Exception) -> str:
    return (
        f"unwritable: what {run.program!r} does after entry {run.seq - 1} can't be written "
        f"({type(problem).__name__}: {problem}): mend it, and start the engine again; or cancel the run"
    )


def _plain(reason: str) -> str:
    """The text as a store can keep it."""
    plain = reason.encode(errors="backslashreplace").decode().replace("\0", "\\x00")
    return plain if len(plain) <= LONGEST_REASON else f"{plain[:LONGEST_REASON]}..."
