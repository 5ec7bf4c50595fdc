"""Takes over runs of dead hosts and unowned runs in the background, while the host serves.

One takeover at a time: a snapshot that arrives during one starts no second. If a takeover fails, the host logs it and
keeps the runs that it has taken; the next snapshot starts it again. A run that a caller asks for meanwhile is taken
over at once, ahead of the others.
"""

import asyncio
from collections.abc import Callable

from perdure.core.errors import CommitRejected, StoreClosed, StoreError
from perdure.core.ids import RunId
from perdure.host.backoff import Backoff
from perdure.host.cluster.takeover import Orphans, Takeover
from perdure.host.runs.dispatcher import Dispatcher, nothing
from perdure.store.rows.hosts import HostSnapshot
from perdure.store.rows.records import Run


class TakeoverLoop:
    """Belongs to the event loop in which it starts. `on_taken` is called when runs or work were taken over."""

    def __init__(
        self, dispatcher: Dispatcher, takeover: Takeover, on_taken: Callable[[], None]
    ) -> None:
        self._dispatcher = dispatcher
        self._context = dispatcher.context
        self._takeover = takeover
        self._backoff = Backoff(dispatcher.context.outage)
        self._on_taken = on_taken
        self._task: asyncio.Task[None] | None = None
        self._orphans: Orphans | None = None
        """What the takeover under way takes over; `None` if there is none."""
        self._single: dict[RunId, asyncio.Task[None]] = {}
        """Takeovers of single runs, for callers."""
        self.ended = 0
        """The number of takeovers that have ended."""

    def begin(self, snapshot: HostSnapshot) -> None:
        """Start a takeover in the background, unless one is under way."""
        if self._task is None or self._task.done():
            self._orphans = self._takeover.judge(snapshot)
            self._task = asyncio.get_running_loop().create_task(self._take(self._orphans))

    async def _take(self, orphans: Orphans) -> None:
        try:
            took = await self._takeover.take_from(orphans)
        except StoreClosed:
            return
        except StoreError as error:
            self._backoff.blame(error, "the takeover of runs without a living owner")
        except Exception as error:  # the next snapshot starts it again
            self._context.fail(error)
        else:
            self._backoff.renew()
            if took:
                self._on_taken()
        finally:
            self._orphans = None
            self.ended += 1

    async def take_over_now(self, run: Run) -> bool:
        """Take over a run at once if the takeover under way would reach it later. Returns whether it did."""
        task = self._single.get(run.run_id)
        if task is None and not self._would_take(run):
            return False
        if task is None:
            task = asyncio.get_running_loop().create_task(self._take_single(run))
            self._single[run.run_id] = task
        # Shielded: if the caller is cancelled, this host must not own a run that it does not advance.
        await asyncio.shield(task)
        return True

    def _would_take(self, run: Run) -> bool:
        dispatcher, context, orphans = self._dispatcher, self._context, self._orphans
        if orphans is None or not orphans.owners or run.closed_at_ms is not None:
            return False
        if run.owner == context.host_id:
            # Taken over, and maybe not loaded yet: only then does the row say whether it is parked.
            return run.run_id not in dispatcher.cache
        if run.owner not in orphans.owners:
            return False
        if self._takeover.is_stopping or not dispatcher.executor.free_slots():
            return False
        return run.owner is not None or run.program in dispatcher.programs.names()

    async def _take_single(self, run: Run) -> None:
        dispatcher, context = self._dispatcher, self._context
        try:
            taken = None
            if run.owner != context.host_id:
                taken = await context.store.take_run(run.run_id, run.owner, context.host_id)
            if taken is not None:
                self._takeover.note_single(taken, run.owner)
                await dispatcher.resume([taken])
                self._on_taken()
            else:  # the takeover has reached the run, or another host has
                await dispatcher.advance(run.run_id, nothing)
        except (StoreError, CommitRejected) as error:
            # The caller reads the row as it is, and the takeover reaches the run later.
            if not isinstance(error, StoreClosed):
                self._backoff.blame(error, f"the takeover of run {run.run_id}")
        finally:
            del self._single[run.run_id]

    @property
    def tasks(self) -> set[asyncio.Task[None]]:
        """The takeovers under way."""
        return {task for task in (self._task, *self._single.values()) if task and not task.done()}

    async def wait(self) -> None:
        """Wait until no takeover is under way."""
        if tasks := self.tasks:
            await asyncio.wait(tasks)

    def stop(self) -> None:
        """Take no further batch. The batch under way is not interrupted: that would leave steps in doubt that never
        began."""
        self._takeover.stop()

    def kill(self) -> None:
        self.stop()
        for task in self.tasks:
            task.cancel()
