"""The admission of one host: starts of limited programs, and the runs that leave their lines.

Every host may admit at any time, and so may front ends, which admit runs without an owner. The store decides under a
lock of the limit, so a run is admitted once and no limit is exceeded. A host looks when a run that held a slot ends,
and with every snapshot of the store that shows a run that may begin; whatever one misses the next one finds.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress

from perdure.core.admission.deciding import Fate
from perdure.core.admission.input import StartInput, pack_input, start_guid
from perdure.core.admission.rules import NO_SLOT, Rules, parse_slot
from perdure.core.errors import LimitReached, PerdureError, RunJoined, StoreClosed
from perdure.core.ids import HostId, RunId
from perdure.core.journal.entry import genesis
from perdure.core.journal.state import Status
from perdure.core.messages import START, Message
from perdure.host.context import HostContext
from perdure.host.runs.batch import NO_TERMS, RunStart
from perdure.host.runs.beginning import begin_admitted
from perdure.host.runs.dispatcher import Dispatcher, nothing
from perdure.store.admission_table import (
    DELAYED,
    MOST_SLOTS,
    NEVER_DUE_MS,
    READY,
    WAITING,
    Entered,
    Entrant,
)
from perdure.store.commit.bundle import FIRST_EPOCH
from perdure.store.commit.rejections import run_exists
from perdure.store.rows.records import Run, StoredRun

Entering = tuple[Entrant, "asyncio.Future[Entered]"]


class Admissions:
    """Belongs to the event loop that made it. `owner` is the host that gets the admitted runs, if it may own any."""

    def __init__(self, dispatcher: Dispatcher, owner: Callable[[], HostId | None]) -> None:
        self._dispatcher = dispatcher
        self._context: HostContext = dispatcher.context
        self._owner = owner
        self._entering: list[Entering] = []
        self._freed: set[str] = set()
        """Slots in which a run may begin."""
        self._must_look = False
        self._is_looking = False
        self._next_ms: int | None = None
        """When the timer looks."""
        self._timer: asyncio.TimerHandle | None = None

    # Starting

    async def start(self, start: RunStart) -> RunId:
        """The run of a start, which begins now or waits.

        Raises `RunExists` if its key is taken, `RunJoined` if it joins another run, and `LimitReached`.
        """
        entrant = self.entrant(start)
        entered = await self._enter(entrant)
        for message, owner in entered.cancels:
            self._context.listener.message_sent(message, owner)
        match entered.fate:
            case Fate.ADMIT:
                await self._begin_admitted(entrant)
            case Fate.REJECT:
                raise _refused(entrant, entered.retry_ms)
            case Fate.JOIN if entered.run_id != entrant.run.run_id:
                raise RunJoined(entered.run_id, *_joined(entrant, entered.run_id))
            case None:
                await self._resolve(entrant, entered.run_id, start)
                return entered.run_id
            case Fate.DELAY:
                self.note_next(self._context.sources.now_ms() + entered.retry_ms)
            case _ if entrant.state == DELAYED:
                self.note_next(entrant.ready_at_ms)
            case _:
                self.look_soon(entrant.slot)
        return entrant.run.run_id

    def entrant(self, start: RunStart) -> Entrant:
        """The start as admission sees it: its slot, its place in the line, and the message with its input."""
        context, limit = self._context, start.workflow.limit
        terms = start.terms or NO_TERMS
        now = context.sources.now_ms()
        run_id = start.run_id or self._dispatcher.staging.new_run_id()
        slot, name, rules = NO_SLOT, "", Rules()
        if limit is not None:
            args, kwargs = start.workflow.call_arguments(context.codec, start.payload)
            slot, name, rules = limit.slot(start.scope, args, kwargs), limit.name, limit.rules
        delay_ms = terms.debounce_ms or terms.delay_ms
        state = DELAYED if delay_ms else READY
        tags = dict(start.own_tags)
        packed = pack_input(StartInput(tags, start.payload, start.trace))
        guid = start_guid(run_id)
        enrolments = context.enrolments.of(run_id, start.workflow.name, now)
        return Entrant(
            start._replace(slot=slot or None).row(run_id, now, None, enrolments),
            Message(run_id, guid, START, NEVER_DUE_MS, now, payload=packed),
            *(slot, name, rules, terms.priority),
            WAITING if terms.needs_approval else state,
            now + delay_ms,
            now + max(terms.max_wait_ms, delay_ms) if terms.debounce_ms else None,
            () if terms.debounce_ms else tuple(tags.items()),
        )

    async def _enter(self, entrant: Entrant) -> Entered:
        """Starts of one iteration of the event loop share a transaction."""
        decided: asyncio.Future[Entered] = asyncio.get_running_loop().create_future()
        self._entering.append((entrant, decided))
        if len(self._entering) == 1:
            self._context.spawn(self._enter_all())
        return await decided

    async def _enter_all(self) -> None:
        entering, self._entering = self._entering, []
        entrants = [entrant for entrant, _ in entering]
        try:
            now = self._context.sources.now_ms()
            entered = await self._context.store.admission.enter(entrants, self._owner(), now)
        except BaseException as error:
            for _, decided in entering:
                if not decided.done():
                    decided.set_exception(error)
            if not isinstance(error, Exception):
                raise
            return
        for (_, decided), outcome in zip(entering, entered, strict=True):
            if not decided.done():
                decided.set_result(outcome)

    async def _resolve(self, entrant: Entrant, holder: RunId, start: RunStart) -> None:
        """The run exists: an earlier try of this start made it, or another start has the key."""
        if holder == entrant.run.run_id:
            await self._begin_own(holder)
            return
        terms = start.terms or NO_TERMS
        if terms.debounce_ms:
            now, guid = self._context.sources.now_ms(), start_guid(holder)
            again = Message(holder, guid, START, NEVER_DUE_MS, now, payload=entrant.message.payload)
            if await self._context.store.admission.put_off(again, now + terms.debounce_ms):
                raise RunJoined(holder, f"run {holder!r} has this start's key", "use that run")
        raise run_exists(entrant.run, holder)

    async def _begin_admitted(self, entrant: Entrant) -> None:
        """Begin a run that this host has just admitted, from what it knows: without reading it."""
        run_id, owner = entrant.run.run_id, self._owner()
        if owner is not None and run_id not in self._dispatcher.cache:
            known = entrant.message, entrant.slot or None
            stored = StoredRun(_admitted_run(entrant, owner), [])
            # What goes wrong here goes wrong again after a load, and there the run is parked.
            with suppress(PerdureError):
                programs = self._dispatcher.programs
                warm = await begin_admitted(self._context, programs, stored, known)
                self._dispatcher.cache.add(warm)
        await self._begin_own(run_id)

    async def _begin_own(self, run_id: RunId) -> None:
        if self._owner() is None:
            self._context.listener.runs_released()
        else:
            await self._dispatcher.advance(run_id, nothing)

    # The line

    def look_soon(self, slot: str = NO_SLOT) -> None:
        """Admit waiting runs soon: those of this slot among them."""
        self._freed.add(slot)
        self._look()

    def note_next(self, due_ms: int | None) -> None:
        """A snapshot of the store shows when a waiting run may begin."""
        if due_ms is None:
            return
        wait_ms = due_ms - self._context.sources.now_ms()
        if wait_ms <= 0:
            self._look()
        elif self._next_ms is None or due_ms < self._next_ms or self._is_past(self._next_ms):
            self._next_ms = due_ms
            if self._timer is not None:
                self._timer.cancel()
            # A snapshot would show it, too, but up to a heartbeat later.
            self._timer = asyncio.get_running_loop().call_later(wait_ms / 1000, self._look)

    def _is_past(self, at_ms: int) -> bool:
        return at_ms <= self._context.sources.now_ms()

    def _look(self) -> None:
        self._must_look = True
        is_over = self._context.is_killed or self._context.stopping.is_set()
        if not self._is_looking and not is_over:
            self._is_looking = True
            self._context.spawn(self._look_until_done())

    async def _look_until_done(self) -> None:
        try:
            while self._must_look and not self._context.stopping.is_set():
                self._must_look = False
                await self._dequeue_all()
        except StoreClosed:
            return
        finally:
            self._is_looking = False

    async def _dequeue_all(self) -> list[Run]:
        """Admit the runs that may begin now, and begin those of this host."""
        freed, self._freed = sorted(self._freed), set()
        admitted: list[Run] = []
        after = NO_SLOT
        has_more = True
        while has_more:
            slots, freed = freed[:MOST_SLOTS], freed[MOST_SLOTS:]
            found = await self._context.store.admission.dequeue(
                self._owner(),
                self._dispatcher.programs.names(),
                self._context.sources.now_ms(),
                slots,
                after,
            )
            self._begin(found.runs)
            admitted += found.runs
            after = found.last_slot
            has_more = bool(freed) or found.has_more
        return admitted

    async def start_waiting(self) -> list[tuple[RunId, str]]:
        """Admit the runs that may begin now, and wait until those of this host have begun. Returns their outcomes."""
        admitted = await self._dequeue_all()
        await asyncio.gather(
            *(
                self._dispatcher.advance(run.run_id, nothing)
                for run in admitted
                if run.owner == self._context.host_id
            )
        )
        stored = await self._context.store.runs([run.run_id for run in admitted])
        return [(run.run_id, _outcome(run, self._context.host_id)) for run in stored]

    def _begin(self, runs: Sequence[Run]) -> None:
        mine = [run for run in runs if run.owner == self._context.host_id]
        if len(mine) < len(runs):
            self._context.listener.runs_released()
        if mine:
            self._context.spawn(self._dispatcher.resume(mine))

    # Ending and approving pending runs

    async def call_up(self, message: Message) -> bool:
        """Commits: a message that ends a pending run. False if the run is not pending: send it as any message."""
        is_pending = await self._context.store.admission.call_up(message)
        if is_pending:
            self.look_soon()
        return is_pending

    async def approve(self, message: Message) -> bool:
        """Commits: the approval of a pending run. False if the run waits for none."""
        now = self._context.sources.now_ms()
        was_waiting = await self._context.store.admission.approve(message, now)
        if was_waiting:
            self.look_soon()
        return was_waiting


def _admitted_run(entrant: Entrant, owner: HostId) -> Run:
    """The row of a run that was admitted as it entered."""
    new = entrant.run
    names = new.scope, new.program, new.version, new.digest, new.key, owner
    return Run(
        new.run_id,
        *names,
        FIRST_EPOCH,
        0,
        genesis(new.run_id),
        0,
        Status.PENDING,
        new.created_at_ms,
        None,
    )


def _outcome(run: Run, host: HostId) -> str:
    """What became of an admitted run, by its row."""
    if run.parked is not None:
        return "FAILED"
    return "STARTED" if run.seq or run.owner == host else "SKIPPED"


def _named(entrant: Entrant) -> str:
    _, scope, key = parse_slot(entrant.slot)
    of = f" for {key!r}" if key else ""
    return f"limit {entrant.name!r}{of}" + (f" in scope {scope!r}" if scope else "")


def _refused(entrant: Entrant, retry_ms: int) -> LimitReached:
    return LimitReached(
        f"a start of {entrant.run.program!r} is over {_named(entrant)}",
        f"start it again in {retry_ms / 1000:g} s, or see 'perdure limits show {entrant.name}'",
        retry_ms / 1000,
    )


def _joined(entrant: Entrant, run_id: RunId) -> tuple[str, str]:
    return f"{_named(entrant)} is held by run {run_id!r}", "use that run"
