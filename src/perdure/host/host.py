"""A host: it owns runs and advances them, one turn at a time, one commit for each.

Every change of a run goes the same way: load it if it is not warm, feed the fact, commit what the program decided,
and only then let anything out: bodies start, results are told, messages are passed on.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from perdure.authoring.context import Info
from perdure.core.codec import Codec
from perdure.core.errors import (
    BundleRefused,
    CommitRejected,
    RunExists,
    StaleFence,
    StoreClosed,
    StoreError,
)
from perdure.core.ids import HostId, RunId, StepId
from perdure.core.journal.entry import Entry
from perdure.core.messages import Message, Work
from perdure.engine.programs import Programs
from perdure.engine.replay import facts
from perdure.engine.replay.programs import explain, program_of, rebuild
from perdure.engine.replay.promise import DurablePromise
from perdure.engine.replay.record import Diverged
from perdure.engine.replay.warm import WarmRun
from perdure.engine.runs import Mode
from perdure.engine.sources import Sources
from perdure.host.background import Background
from perdure.host.batch import Batch, Start
from perdure.host.bodies import Bodies
from perdure.host.body import Body
from perdure.host.catalogue import Catalogue
from perdure.host.loading import Loader
from perdure.host.parking import Parking, Told
from perdure.host.patience import Patience
from perdure.host.reports import Reports
from perdure.host.residents import Residents
from perdure.host.rounds import Rounds
from perdure.host.settings import Settings
from perdure.host.staging import Act, Staging
from perdure.host.stopping import note_stopped
from perdure.host.waiting import WaitingSteps
from perdure.host.watching import Watchers
from perdure.store.bundle import Bundle
from perdure.store.committer import Decided, settle_future
from perdure.store.records import Run
from perdure.store.store import Store

log = logging.getLogger("perdure.host")

LONGEST_CLEAN_UP_S = 5.0
"""How long a stop waits for bodies that were cancelled: one may refuse to end."""


class Host:
    """One per engine. Everything here runs in the event loop that made it."""

    def __init__(
        self,
        store: Store,
        host_id: HostId,
        codec: Codec,
        sources: Sources,
        bodies: Bodies,
        residents: Residents,
        *,
        settings: Settings,
    ) -> None:
        self.store = store
        self.host_id = host_id
        self.codec = codec
        self.sources = sources
        self.bodies = bodies
        self.residents = residents
        self.programs = Programs()
        self.watchers = Watchers()
        self.on_message: Callable[[Message], None] = lambda _: None
        """Called with each message that this host sent and that is durable."""
        self._mode = Mode.STEPWISE if settings.stepwise else Mode.FUSED
        self.max_doubts = settings.max_doubts
        self.catalogue = Catalogue(store, self.programs)
        self.parking = Parking(store, host_id, self.watchers, sources, self.catalogue.claims)
        self.loader = Loader(store, host_id, residents, self.parking, self._replay, self.catalogue)
        self.on_work: Callable[[Work], None] = lambda _: None
        """Called with each task that this host put on a queue, when that is durable."""
        self.on_hooks: Callable[[], None] = lambda: None
        """Called when a hook waits, or a signal for one, that is durable and may not have met the other."""
        self.waiting = WaitingSteps(bodies, self.advance, self.spawn, settings.probation)
        self.probation = self.waiting.probation
        self.staging = Staging(
            host_id, codec, sources, self.programs, residents, bodies, self.waiting
        )
        self._rounds = Rounds(self.staging, self._submit)
        rounds = self._rounds if self._mode is Mode.FUSED else None
        self._reports = Reports(bodies, residents, self.staging, rounds, self.advance, self.spawn)
        self.on_unfinished: Callable[[Sequence[WarmRun]], None] = lambda _: None
        """Called with the runs that are durable and of which more is decided: `advance` writes it."""
        self.on_return: Callable[[Body], None] = lambda _: None
        """Called with a body that goes on, and whose run or work was lost meanwhile and came back."""
        self._background = Background(self._failed)
        self._undecided = 0
        """Commits that bodies' ends and messages have led to, and that are under way."""
        self._all_decided = asyncio.Event()
        self.stopping = (
            asyncio.Event()
        )  # from then on nothing waits for a store that does not answer
        self._is_killed = False
        self.on_failure: Callable[[BaseException], None] = _log_failure
        """Called with what nobody waits for and should not have happened."""
        bodies.on_free = self.waiting.fill
        bodies.on_failure = self._failed

    # Starting

    async def start(self, start: Start) -> RunId:
        """Create a run and take its first turn, in one commit. Raises `RunExists` if its key is taken."""
        if self._mode is Mode.STEPWISE:
            return await self._start_stepwise(start)
        return await self._start_with_others(start)

    def start_soon(self, start: Start) -> asyncio.Future[RunId]:
        """The same, begun at once, whether or not it is awaited yet: many that are begun so share commits."""
        if self._mode is Mode.STEPWISE:
            return asyncio.ensure_future(self._start_stepwise(start))
        return self._start_with_others(start)

    def _start_with_others(self, start: Start) -> asyncio.Future[RunId]:
        run_id = self.staging.new_run_id()
        started: asyncio.Future[RunId] = asyncio.get_running_loop().create_future()
        begin = partial(self.staging.begin_run, run_id, start)
        self._rounds.add(begin, partial(settle_future, started, run_id))
        return started

    async def _start_stepwise(self, start: Start) -> RunId:
        run = self.staging.new_run(self.staging.new_run_id(), start)
        try:
            async with run.turn:
                await self._commit_stepwise(run)
        except StaleFence:
            # It was created, part by part, and somebody else has it before its first turn is over.
            log.info("run %s was taken over while it started", run.run_id)
        return run.run_id

    def stage_start(self, start: Start) -> Batch:
        """A new run and its first turn, for whoever commits them and then settles the batch or undoes it."""
        run = self.staging.new_run(self.staging.new_run_id(), start)
        return self.staging.turn(run, nothing)

    # Advancing

    async def advance(self, run_id: RunId, act: Act, told: Told | None = None) -> bool:
        """Let `act` feed facts to the run, and commit what follows. False if the run is not ours, or can't go on.

        `act` may be called again, on a fresh load, if the commit did not come about. What is `told` with it is
        kept even if the run can't go on.
        """
        try:
            return await self.try_to_advance(run_id, act)
        except Exception as error:
            if is_passing(error):
                raise
            await self.set_aside(run_id, error, told)
            return False

    async def set_aside(self, run_id: RunId, problem: Exception, told: Told | None = None) -> None:
        """What the run decided can't be written: park it, and end what it executes."""
        await self.parking.set_aside(run_id, problem, told)
        self.bodies.cancel_run(run_id)

    async def try_to_advance(self, run_id: RunId, act: Act) -> bool:
        """The same, but a run whose decisions can't be written is left as it was, and the reason is raised."""
        patience = Patience()
        while True:
            run = self.residents.get(run_id)
            try:
                if run is None:
                    run = await self.loader.load(run_id)
                if run is None:
                    self.bodies.cancel_run(run_id)
                    return False
                if run.is_held:
                    async with run.turn:
                        pass  # whoever holds it is through; it may have left memory meanwhile
                elif await self._act(run, act):
                    return True
            except (StaleFence, RunExists):
                # Somebody else has the run, or had it and made its children: the next load tells.
                pass
            except StoreClosed:
                raise
            except (StoreError, CommitRejected) as error:
                if self.stopping.is_set() or isinstance(error, BundleRefused):
                    raise
                log.warning(
                    "run %s waits %.2f s for its store: %s", run_id, patience.delay_s, error
                )
                await patience.wait(self.stopping)

    async def _act(self, run: WarmRun, act: Act) -> bool:
        """False if the run left memory meanwhile."""
        if self._mode is Mode.STEPWISE:
            async with run.turn:
                if self.residents.get(run.run_id) is not run:
                    return False
                try:
                    act(run)
                except BaseException:
                    self.evict(run)
                    raise
                await self._commit_stepwise(run)
            return True
        if self.residents.get(run.run_id) is not run:
            return False
        decision: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._take_turn(run, act, partial(settle_future, decision, None))
        await decision
        return True

    def _take_turn(self, run: WarmRun, act: Act, told: Decided) -> None:
        """Let `act` feed facts, and submit what follows; `told` hears what became of it.

        Nobody needs to wait: what must not happen before the commit is done when it is decided.
        """
        self._submit(self.staging.turn(run, act), told)

    def _submit(self, batch: Batch, told: Decided) -> None:
        """Hand a batch to the store; one that is empty is settled."""
        if not batch.bundle.fences:
            self.settle(batch)
            told(None)
            return
        try:
            self.store.submit(batch.bundle, partial(self._decided, batch, told))
        except BaseException:
            self.undo(batch)
            raise
        batch.run.in_flight += 1
        self._undecided += 1

    def _decided(self, batch: Batch, told: Decided, failure: BaseException | None) -> None:
        if self._is_killed:
            return
        batch.run.in_flight -= 1
        self._undecided -= 1
        if not self._undecided:
            self._all_decided.set()
        try:
            if failure is None:
                self.settle(batch)
            else:
                self.undo(batch)
            told(failure)
        except Exception as error:  # those that are decided with it must hear of it all the same
            self.on_failure(error)

    async def _commit_stepwise(self, run: WarmRun) -> None:
        """Commit the run's changes, each by itself, and do what was waiting for them to be durable."""
        batch = Batch(run)
        self.staging.reserve(batch)
        run.in_flight += 1
        try:
            for change in run.machine.take_changes():
                batch.bundle = Bundle()
                self.staging.write_changes(run, [change], batch)
                await self.store.commit(batch.bundle)
        except BaseException:
            self.undo(batch)
            raise
        finally:
            run.in_flight -= 1
        self.settle(batch)

    def undo(self, batch: Batch) -> None:
        """Nothing of the batch is durable: memory is wrong."""
        self.staging.undo(batch)

    def settle(self, batch: Batch) -> None:
        """The batch is durable: let it out."""
        for child in batch.children:
            child.in_flight -= 1
        for run_id, step in batch.unwanted:
            self._drop(run_id, step)
        for run, promise, attempt in batch.starts:
            self._execute(run, promise, attempt)
        for run, ending in batch.endings:
            self.residents.remove(run)
            self.watchers.ended(run.run_id, ending)
        self._grown(batch.run)
        for run in batch.children:
            self._grown(run)
        for victim in self.residents.excess():
            self.evict(victim)
        if batch.unfinished:
            self.on_unfinished(batch.unfinished)
        for message in batch.messages:
            self.on_message(message)
        for work in batch.bundle.work:
            self.on_work(work)

    def _grown(self, run: WarmRun) -> None:
        self.watchers.grown(run.run_id)
        if run.may_meet:
            run.may_meet = False
            self.on_hooks()

    def _drop(self, run_id: RunId, step: StepId) -> None:
        """Nobody wants the step any more, whether it runs or waits for a slot."""
        self.bodies.cancel(run_id, step)
        self.waiting.drop(run_id, step)

    def _execute(self, run: WarmRun, promise: DurablePromise, attempt: int) -> None:
        task = promise.task
        if promise.is_settled:
            self.bodies.give_back(task)
            return
        whose = run.machine.info
        info = Info(whose.run_id, whose.program, whose.version, whose.key, promise.step, attempt)
        is_doubted = promise.doubts > 0
        self.bodies.start(
            Body(
                *(info, task, promise.input, self._reports.take),
                is_doubted=is_doubted,
                epoch=run.fence.epoch,
            )
        )

    # Memory

    def evict(self, run: WarmRun) -> None:
        """Take a run out of memory; whatever concerns it next brings it back."""
        self.residents.evict(run)

    def forget(self, run_id: RunId, *, before_epoch: int) -> None:
        """Evict what is in memory of a run under an earlier epoch: it is not the run any more."""
        warm = self.residents.get(run_id)
        if warm is not None and not warm.is_new and warm.fence.epoch < before_epoch:
            self.evict(warm)

    def _replay(self, run: Run, entries: Sequence[Entry]) -> WarmRun:
        workflow = program_of(run, self.programs)
        try:
            warm = rebuild(run, entries, workflow, self.codec, self.sources, self.programs)
        except Diverged as diverged:
            raise explain(run, workflow, diverged.divergence) from None
        self.probation.hear(warm.machine)
        facts.resume(warm, partial(self._runs_on, run.epoch), self.max_doubts)
        return warm

    def _runs_on(self, epoch: int, run_id: RunId, step: StepId, attempt: int) -> bool:
        """Whether that attempt runs here, or its outcome is on its way. Its run is loaded under this epoch."""
        body = self.bodies.find(run_id, step)
        if body is None or body.info.attempt != attempt:
            return False
        if body.unheard(epoch):
            self.on_return(body)
        return True

    async def resume(self, runs: Sequence[Run]) -> None:
        """Take up runs that are this host's from now on.

        One that it had before, and lost meanwhile, may be in memory yet, as it was then.
        """
        for run in runs:
            self.loader.outdate(run.run_id)
            self.forget(run.run_id, before_epoch=run.epoch)
        resuming = (self.advance(run.run_id, nothing) for run in runs)
        for outcome in await asyncio.gather(*resuming, return_exceptions=True):
            if isinstance(outcome, Exception):
                self.on_failure(outcome)

    def become(self, host_id: HostId) -> None:
        """Go on as another host: whatever is in memory may be somebody else's by now."""
        self.host_id = self.staging.host_id = host_id
        self.loader.host_id = self.parking.host_id = host_id
        for run in self.residents:
            self.evict(run)

    # Life

    def spawn(self, work: Coroutine[Any, Any, Any]) -> None:
        """Let something go on by itself; what it raises is logged."""
        self._background.spawn(work)

    def _failed(self, error: BaseException) -> None:
        if self._is_killed and isinstance(error, StoreClosed):
            # A body that outlives its host has nobody to tell: whoever has the run next finds the step in doubt.
            return
        self.on_failure(error)

    @property
    def tasks(self) -> set[asyncio.Task[Any]]:
        """Everything that goes on in this host by itself."""
        return self._background.tasks | self.bodies.tasks

    async def stop(self, grace_s: float) -> None:
        """Finish what runs, as far as the time allows."""
        self.stopping.set()
        self.bodies.drain()
        await self._quiet(grace_s)
        self.bodies.close()
        await self._quiet(LONGEST_CLEAN_UP_S)
        for failure in await note_stopped(self.bodies.stopped, self.advance, LONGEST_CLEAN_UP_S):
            self.on_failure(failure)
        for run in self.residents:
            self.evict(run)

    async def _quiet(self, limit_s: float) -> None:
        """Wait until nothing goes on by itself, up to a time. A commit that ends may begin a body yet."""
        with suppress(TimeoutError):
            async with asyncio.timeout(limit_s):
                while (tasks := self.tasks) or self._undecided or self._rounds:
                    if tasks:
                        await asyncio.wait(tasks)
                    elif self._rounds:
                        await asyncio.sleep(0)
                    else:
                        self._all_decided.clear()
                        await self._all_decided.wait()

    def kill(self) -> None:
        """Stop at once and tell nobody, as a crash would."""
        self._is_killed = True
        self._rounds.close()
        self.bodies.close()
        for task in self.tasks:
            task.cancel()
        for run in self.residents:
            self.evict(run)


def is_passing(error: Exception) -> bool:
    """Whether it is the store's, and what it was asked for may succeed later."""
    is_its_own = isinstance(error, StoreError | CommitRejected)
    return is_its_own and not isinstance(error, BundleRefused)


def _log_failure(error: BaseException) -> None:
    log.error("the host failed at something", exc_info=error)


def nothing(_: WarmRun) -> None:
    """Loading it is enough: what a crash left behind is settled then."""
