"""Decides on due ticks of schedules, and starts their runs.

Any number of hosts may do so at once. Each decision replaces the revision of the schedule that it was made on, so one
of them counts; each run is started under a key that its tick determines, so it starts once.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec

from perdure.authoring.program import Program
from perdure.core.errors import PerdureError, RunExists, StoreDamaged, StoreError
from perdure.core.ids import RunId
from perdure.core.journal.state import TERMINAL, Status
from perdure.core.messages import AT_ONCE, Message
from perdure.core.replay.identity import cancel_guid
from perdure.core.schedules.schedule import (
    SCHEDULE_TAG,
    Advanced,
    PlannedStart,
    Schedule,
    Tick,
    advance,
    carried_out,
    look_at_ms,
)
from perdure.host.context import HostContext
from perdure.host.runs.batch import RunStart
from perdure.host.runs.dispatcher import Dispatcher
from perdure.store.commit.bundle import Bundle
from perdure.store.schedule_table import MOST_DUE, StoredSchedule

log = logging.getLogger("perdure.schedules")

BeginSoon = Callable[[RunStart], Awaitable[RunId]]

WORK_PER_POLL: Final = 100
"""How many schedules and starts of runs one poll serves."""

_REPLACED = "its schedule ticked again (overlap 'replace')"


class Ticker:
    """Looks at the schedules of the programs that this process has."""

    def __init__(self, context: HostContext, dispatcher: Dispatcher, begin_soon: BeginSoon) -> None:
        self._context = context
        self._dispatcher = dispatcher
        self._begin_soon = begin_soon
        self.next_due_ms: int | None = None
        """When to look next; `None` if no snapshot of the store shows a schedule."""
        self._reported: set[str] = set()
        self._left = WORK_PER_POLL
        """What this poll may still do: a schedule counts 1, and each start 1."""

    def note_next_due(self, due_ms: int | None) -> None:
        """A snapshot of the store shows when a schedule is due."""
        self.next_due_ms = due_ms

    async def tick(self) -> None:
        """Decide on ticks that are due, and start their runs: so many that messages and work don't wait for long.

        The next poll continues with the others.
        """
        self.next_due_ms = None
        self._left = WORK_PER_POLL
        schedules, programs = self._context.store.schedules, self._dispatcher.programs.names()
        stuck = 0  # schedules that this host can't serve: they stay in front of the others
        while due := await schedules.due(programs, self._context.sources.now_ms(), stuck):
            for stored in due:
                stuck += not await self._try_to_serve(stored)
                if self._left <= 0:
                    self.next_due_ms = AT_ONCE
                    return
            if len(due) < MOST_DUE:
                return

    async def _try_to_serve(self, stored: StoredSchedule | StoreDamaged) -> bool:
        """Serve the schedule, if possible. One that can't be served must not keep the host from everything else."""
        if isinstance(stored, StoreDamaged):
            self._report(stored)
            return False
        try:
            return await self._serve(stored)
        except StoreError:
            raise
        except PerdureError as error:
            self._report(error)
            return False

    def _report(self, problem: PerdureError) -> None:
        """Log each schedule that can't be served once."""
        if problem.what not in self._reported:
            self._reported.add(problem.what)
            log.error("%s", problem)

    async def _serve(self, stored: StoredSchedule) -> bool:
        """Carry out what is decided, and decide on what is due. Stops if another host is faster, and at the limit.

        Returns whether this host has the program.
        """
        program = self._dispatcher.programs.find(stored.program)
        if program is None:
            return False  # another host has it
        self._left -= 1
        while True:
            schedule = stored.schedule
            if schedule.starts:
                advanced = await self._carry_out(stored, program)
            else:
                is_open = schedule.asks_for_last_run and await self._is_open(schedule.last_run)
                now = self._context.sources.now_ms()
                advanced = advance(stored.name, schedule, now, is_open=is_open)
            changed = await self._write(stored, advanced)
            if changed is None or not (changed.schedule.starts or schedule.starts):
                return True
            if self._left <= 0:
                return True
            stored = changed

    async def _carry_out(self, stored: StoredSchedule, program: Program[..., Any]) -> Advanced:
        """Start the runs of planned starts, as many as the limit leaves, with shared commits."""
        schedule, ticks = stored.schedule, list[Tick]()
        planned = schedule.starts[: max(1, self._left)]
        self._left -= len(planned)
        outcomes = await asyncio.gather(*(self._start(stored, program, each) for each in planned))
        for start, (run_id, problem) in zip(planned, outcomes, strict=True):
            schedule, more = msgspec.structs.astuple(carried_out(schedule, start, run_id, problem))
            ticks += more
        return Advanced(schedule, tuple(ticks))

    async def _write(self, stored: StoredSchedule, advanced: Advanced) -> StoredSchedule | None:
        """Commits: the next revision. `None` if another host made it first, or deleted the schedule."""
        changed = with_state(stored, advanced.schedule, self._context.sources.now_ms())
        is_first = await self._context.store.schedules.write(changed, advanced.ticks)
        return changed if is_first else None

    async def _is_open(self, run_id: str | None) -> bool:
        if run_id is None:
            return False
        first = RunId(run_id)
        end = await self._context.store.chain_end(first) or await self._context.store.run(first)
        return end is not None and end.status not in TERMINAL

    async def _start(
        self, stored: StoredSchedule, program: Program[..., Any], start: PlannedStart
    ) -> tuple[RunId | None, str]:
        """The run of a tick, which another host may have started; or why it can't be started."""
        if start.replaces is not None:
            await self._cancel(RunId(start.replaces))
        key = start.key(stored.name)
        try:
            program.check_input(self._context.codec, stored.payload)
            traced = self._context.services.tracing is not None
            begun = RunStart(
                *(program, stored.payload, key, stored.scope),
                tags={SCHEDULE_TAG: stored.name},
                trace="" if traced else None,
            )
            return await self._begin_soon(begun), ""
        except RunExists as taken:
            return RunId(taken.run_id), ""
        except StoreError:
            raise
        except PerdureError as error:
            log.warning("schedule %s can't start a run: %s", stored.name, error)
            return None, error.what

    async def _cancel(self, run_id: RunId) -> None:
        """Commits: a request to cancel the run, or the last run of its chain."""
        store, sources = self._context.store, self._context.sources
        end = await store.chain_end(run_id) or await store.run(run_id)
        if end is None or end.status in TERMINAL or end.status is Status.CANCELLING:
            return
        guid, arrival = cancel_guid(end.origin), sources.arrival(end.origin)
        message = Message(end.origin, guid, "cancel", AT_ONCE, arrival, payload=_REPLACED.encode())
        if end.epoch == 0 and await store.admission.call_up(message):
            return  # it was pending, and leaves the line to end
        bundle = Bundle()
        bundle.enqueue(message)
        if end.chain is not None:
            bundle.forward(end.origin, guid, end.run_id)
        await store.commit(bundle)
        sent = msgspec.structs.replace(message, run_id=end.run_id)
        self._context.listener.message_sent(sent, end.owner)


def with_state(stored: StoredSchedule, schedule: Schedule, now_ms: int) -> StoredSchedule:
    """The next revision of a schedule, with this state."""
    return msgspec.structs.replace(
        stored,
        schedule=schedule,
        look_at_ms=look_at_ms(stored.name, schedule, now_ms),
        revision=stored.revision + 1,
    )
