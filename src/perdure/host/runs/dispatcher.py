"""The dispatcher of a host: it loads runs, feeds them facts, and commits what they decide.

Every change of a run takes the same way: load the run if it is not in memory, feed it the fact, commit what its program
decided. Only when the commit is durable do effects leave the host: attempts start, waiters get results, messages leave.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from perdure.authoring.context import Info
from perdure.core.agreement import require_ledger
from perdure.core.errors import (
    BundleRefused,
    CommitRejected,
    RunExists,
    StaleFence,
    StoreClosed,
    StoreError,
)
from perdure.core.ids import HostId, RunId, StepId
from perdure.engine.known_programs import KnownPrograms
from perdure.engine.programs.rebuilding import Rebuilding, divergence_error, program_for
from perdure.engine.runs.acts import atomic_parts, decision_times
from perdure.engine.runs.commit_mode import CommitMode
from perdure.engine.runs.doubts import recover_attempts
from perdure.engine.runs.promise import DurablePromise
from perdure.engine.runs.record import Diverged
from perdure.engine.runs.warm import WarmRun
from perdure.host.backoff import Backoff, is_transient
from perdure.host.context import HostContext
from perdure.host.runs.batch import Batch, RunStart
from perdure.host.runs.beginning import begin_admitted
from perdure.host.runs.cache import RunCache
from perdure.host.runs.catalogue import Catalogue
from perdure.host.runs.configuring import configure
from perdure.host.runs.loading import Loader
from perdure.host.runs.logs import note_batch
from perdure.host.runs.outcomes import Outcomes
from perdure.host.runs.parking import FinishedAttempt, Parking
from perdure.host.runs.repair import Repair
from perdure.host.runs.rounds import Rounds
from perdure.host.runs.staging import Act, Staging, StartTurn
from perdure.host.runs.stopped import note_stopped
from perdure.host.runs.transitions import LongTransitions
from perdure.host.tasks.attempt import Attempt
from perdure.host.tasks.draining import note_not_awaited
from perdure.host.tasks.executor import Executor
from perdure.host.tasks.quarantine import Quarantine
from perdure.host.tasks.slots import WaitingSteps
from perdure.store.commit.bundle import Bundle
from perdure.store.commit.committer import OnDecided, settle_future
from perdure.store.rows.records import Run, StoredRun

log = logging.getLogger("perdure.host")

LONGEST_CLEAN_UP_S = 5.0
"""How long a stop waits for cancelled attempts, which may refuse to end."""


class Dispatcher:
    """Advances the runs of one host. Everything here runs in the event loop that made it."""

    def __init__(
        self,
        context: HostContext,
        executor: Executor,
        cache: RunCache,
        on_regained: Callable[[Attempt], None],
        programs: KnownPrograms,
    ) -> None:
        """`on_regained` gets each running attempt whose run this host lost and has again."""
        self.context = context
        self.store, self.codec, self.sources = context.store, context.codec, context.sources
        self.executor = executor
        self.cache = cache
        self.programs = programs
        self.watchers = context.watchers
        settings = context.settings
        self._mode = CommitMode.STEPWISE if settings.stepwise else CommitMode.FUSED
        self.catalogue = Catalogue(context.store, self.programs)
        self.parking = Parking(context, self.catalogue.lacks_definition_of)
        self.loader = Loader(context, cache, self.parking, self._replay, self.catalogue)
        self.waiting = WaitingSteps(
            executor, self.advance, self._begin_together, context, settings.probation
        )
        self.staging = Staging(context, self.programs, cache, executor, self.waiting)
        self._rounds = Rounds(self.staging, self._submit)
        rounds = self._rounds if self._mode is CommitMode.FUSED else None
        self._outcomes = Outcomes(
            executor, cache, self.staging, rounds, self.advance, context.spawn
        )
        self._on_regained = on_regained
        # Bound once: methods bound at each step would be objects for the garbage collector to look at.
        self._bound_decided, self._take_outcome = self._decided, self._outcomes.take
        self.transitions = LongTransitions(
            cache, partial(self.advance, act=nothing), context.stopping
        )

    @property
    def host_id(self) -> HostId:
        return self.context.host_id

    @property
    def quarantine(self) -> Quarantine:
        return self.waiting.quarantine

    # Starting

    async def start(self, start: RunStart) -> RunId:
        """Create a run and take its first turn, in one commit. Raises `RunExists` if its key is taken."""
        if self._mode is CommitMode.STEPWISE:
            return await self._start_stepwise(start)
        return await self._start_with_others(start)

    def start_soon(self, start: RunStart) -> asyncio.Future[RunId]:
        """The same, begun at once, whether or not it is awaited yet: many that are begun so share commits."""
        if self._mode is CommitMode.STEPWISE:
            return asyncio.ensure_future(self._start_stepwise(start))
        return self._start_with_others(start)

    def _start_with_others(self, start: RunStart) -> asyncio.Future[RunId]:
        run_id = start.run_id or self.staging.new_run_id()
        started: asyncio.Future[RunId] = asyncio.get_running_loop().create_future()
        self._rounds.add(StartTurn(self.staging, run_id, start, started))
        return started

    async def _start_stepwise(self, start: RunStart) -> RunId:
        run = self.staging.new_run(start.run_id or self.staging.new_run_id(), start)
        try:
            async with run.lock:
                await self._commit_stepwise(run)
        except StaleFence:
            # The run was created part by part, and another host took it over before its first turn ended.
            log.info("run %s was taken over while it started", run.run_id)
        return run.run_id

    def stage_start(self, start: RunStart) -> Batch:
        """A new run and its first turn. The caller commits the batch, then settles or undoes it."""
        run = self.staging.new_run(start.run_id or self.staging.new_run_id(), start)
        return self.staging.turn(run, nothing)

    # Advancing

    def _begin_together(
        self, run_id: RunId, steps: Sequence[StepId], on_decided: Callable[[], None]
    ) -> bool:
        return self._outcomes.begin_steps(run_id, steps, on_decided)

    async def advance(
        self, run_id: RunId, act: Act, finished: FinishedAttempt | None = None
    ) -> bool:
        """Let `act` feed facts to the run, and commit what follows. False if the run is not this host's, or is parked.

        The dispatcher calls `act` again, on a fresh load, if the commit failed. The outcome of a `finished` attempt
        is kept even if the run has to be parked.
        """
        try:
            return await self.try_to_advance(run_id, act)
        except Exception as error:
            if is_transient(error):
                raise
            await self.park_unwritable(run_id, error, finished)
            return False

    async def park_unwritable(
        self, run_id: RunId, problem: Exception, finished: FinishedAttempt | None = None
    ) -> None:
        """Park a run whose decisions can't be written, and cancel its attempts."""
        self.context.listener.advance_failed(run_id, problem)
        await self.parking.park_unwritable(run_id, problem, finished)
        self.executor.cancel_run(run_id)

    async def try_to_advance(self, run_id: RunId, act: Act, *, may_cut_in: bool = False) -> bool:
        """As `advance`, but if the run's decisions can't be written, raise the reason and leave the run as it was.

        A busy run takes the facts of `act` in when it has finished its transition, or between two parts of it if
        `may_cut_in`.
        """
        try:
            return await self._try_to_advance(run_id, act, may_cut_in=may_cut_in)
        except Exception as problem:
            self.context.listener.advance_failed(run_id, problem)
            raise

    async def _try_to_advance(self, run_id: RunId, act: Act, *, may_cut_in: bool) -> bool:
        backoff: Backoff | None = None
        while True:
            try:
                run = self.cache.get(run_id) or await self.loader.load(run_id)
                if run is None:
                    self.executor.cancel_run(run_id)
                if run is None or await self._try_to_act(run, act, may_cut_in=may_cut_in):
                    if backoff is not None:
                        backoff.renew()
                    return run is not None
            except (StaleFence, RunExists):
                # Another host owns the run, or owned it and started its children: the next load shows it.
                pass
            except StoreClosed:
                raise
            except (StoreError, CommitRejected) as error:
                if self.context.stopping.is_set() or isinstance(error, BundleRefused):
                    raise
                backoff = backoff or Backoff(self.context.outage)
                backoff.blame(error, f"run {run_id}")
                await backoff.wait(self.context.stopping)

    async def _try_to_act(self, run: WarmRun, act: Act, *, may_cut_in: bool) -> bool:
        """False if the run had to finish a transition first, or left memory meanwhile."""
        if _must_wait(run, act, may_cut_in=may_cut_in):
            await self.transitions.wait(run)
            return False
        return await self._act(run, act)

    async def _act(self, run: WarmRun, act: Act) -> bool:
        """False if the run left memory meanwhile."""
        if run.is_held:
            async with run.lock:
                return False  # the holder has released it; it may have left memory meanwhile
        if self._mode is CommitMode.STEPWISE:
            async with run.lock:
                if self.cache.get(run.run_id) is not run:
                    return False
                try:
                    act(run)
                except BaseException:
                    self.evict(run)
                    raise
                await self._commit_stepwise(run)
            return True
        if self.cache.get(run.run_id) is not run:
            return False
        decision: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._take_turn(run, act, partial(settle_future, decision, None))
        await decision
        return True

    def _take_turn(self, run: WarmRun, act: Act, on_decided: OnDecided) -> None:
        """Let `act` feed facts, and submit what follows. `on_decided` is called when the commit is decided.

        The caller need not wait: what must not happen before the commit happens in `settle`.
        """
        self._submit(self.staging.turn(run, act), on_decided)

    def _submit(self, batch: Batch, on_decided: OnDecided) -> None:
        """Hand a batch to the store; an empty one is settled at once."""
        bundle = batch.bundle
        if not (bundle.appends or bundle.other_fences):
            self.settle(batch)
            on_decided(None)
            return
        # Before it is submitted: a store may decide at once.
        batch.run.pin()
        self.context.undecided.begin()
        try:
            batch.on_decided, batch.decide = on_decided, self._bound_decided
            self.store.submit(batch.bundle, batch)
        except BaseException:
            batch.run.unpin()
            self.context.undecided.end()
            self.undo(batch)
            raise

    def _decided(self, batch: Batch, failure: BaseException | None) -> None:
        if self.context.is_killed:
            return
        batch.run.unpin()
        self.context.undecided.end()
        try:
            if failure is None:
                self.settle(batch)
            else:
                self.undo(batch)
            batch.on_decided(failure)
        except Exception as error:  # bundles decided with it must still be reported
            self.context.fail(error)

    async def _commit_stepwise(self, run: WarmRun) -> None:
        """Commit the run's changes one by one, then settle them."""
        batch = Batch(run)
        self.staging.reserve(batch)
        run.pin()
        try:
            for part in atomic_parts(run.machine.take_changes()):
                batch.bundle = Bundle()
                self.staging.write_changes(run, part, batch)
                await self.store.commit(batch.bundle)
        except BaseException:
            self.undo(batch)
            raise
        finally:
            run.unpin()
        self.staging.note_unfinished(batch)
        self.settle(batch)

    def undo(self, batch: Batch) -> None:
        """Nothing of the batch is durable: evict its runs, whose memory is ahead of the store."""
        self.staging.undo(batch)

    def settle(self, batch: Batch) -> None:
        """The batch is durable: start its attempts, answer its waiters, pass its messages on."""
        listener = self.context.listener
        if batch.log_notes or batch.endings:
            note_batch(batch, self.context)
        if batch.has_resumed:
            listener.run_resumed()
        for run_id, step in batch.unwanted:
            self._drop(run_id, step)
        for run, promise, attempt in batch.starts:
            self._execute(run, promise, attempt)
        for run, ending in batch.endings:
            self.cache.remove(run)
            self.watchers.ended(run.run_id, ending)
        self._grown(batch.run)
        for child in batch.children:
            child.unpin()
            self._grown(child)
        self.cache.trim()
        if batch.unfinished:
            listener.runs_unfinished(batch.unfinished)
        if batch.messages or batch.bundle.has_more:
            self._pass_on(batch)

    def _pass_on(self, batch: Batch) -> None:
        """Report what the batch left for other runs and for queues."""
        listener = self.context.listener
        for message in batch.messages:
            listener.message_sent(message)
        for work in batch.bundle.work:
            listener.work_queued(work)
        if batch.bundle.is_broadcast:
            listener.signals_broadcast()

    def _grown(self, run: WarmRun) -> None:
        self.cache.weigh(run)
        self.watchers.grown(run.run_id)
        if run.needs_matching:
            run.needs_matching = False
            self.context.listener.hooks_changed()

    def _drop(self, run_id: RunId, step: StepId) -> None:
        """Cancel a step that its run no longer needs, whether it runs or waits for a slot."""
        self.executor.cancel(run_id, step)
        self.waiting.drop(run_id, step)

    def _execute(self, run: WarmRun, promise: DurablePromise, attempt: int) -> None:
        task = promise.task
        if promise.is_settled:
            self.executor.give_back(task)
            return
        whose = run.machine.info
        info = Info(
            *(whose.run_id, whose.program, whose.version, whose.key, promise.step, attempt),
            logical_attempt=promise.logical_attempt,
            trace=whose.trace,
        )
        self.executor.start(
            Attempt(
                *(info, task, promise.input, self._take_outcome),
                is_doubted=promise.doubts > 0,
                epoch=run.fence.epoch,
            )
        )

    # Memory

    def evict(self, run: WarmRun) -> None:
        """Take a run out of memory. The next fact for it loads it again."""
        self.cache.evict(run)

    def forget(self, run_id: RunId, *, before_epoch: int) -> None:
        """Evict a run that is in memory under an earlier epoch: another host may have advanced it since."""
        warm = self.cache.get(run_id)
        if warm is not None and not warm.is_new and warm.fence.epoch < before_epoch:
            self.evict(warm)

    async def _replay(self, stored: StoredRun) -> WarmRun:
        """The run in memory, after its books balance and its rows are what its journal demands."""
        run = stored.run
        if not run.seq:
            return await begin_admitted(self.context, self.programs, stored)
        workflow = program_for(run, self.programs)
        rebuilding = Rebuilding(
            run, stored.entries, workflow, self.codec, self.sources, self.programs
        )
        try:
            while (warm := rebuilding.advance()) is None:  # noqa: ASYNC110 - other runs take their turns
                await asyncio.sleep(0)
        except Diverged as diverged:
            reveal = self.context.settings.reveal_payloads
            raise divergence_error(
                run, workflow, diverged.divergence, self.codec, reveal=reveal
            ) from None
        try:
            require_ledger(run.run_id, stored.balances, warm.journal.state.balances)
            await Repair(self.context).repair(warm, stored)
        except BaseException:
            warm.machine.close()
            raise
        configure(warm.machine, self.context.settings)
        warm.act_times = decision_times(stored.entries, self.sources.now_ms())
        self.quarantine.note_starts(warm.machine)
        recover_attempts(warm, partial(self._runs_on, run.epoch), self.context.settings.max_doubts)
        return warm

    def _runs_on(self, epoch: int, run_id: RunId, step: StepId, attempt: int) -> bool:
        """Whether that attempt runs here, or its outcome is on its way. The run is being loaded under this epoch."""
        running = self.executor.find(run_id, step)
        if running is None or running.info.attempt != attempt:
            return False
        if running.unconfirmed(epoch):
            self._on_regained(running)
        return True

    async def resume(self, runs: Sequence[Run]) -> None:
        """Advance runs that this host has just taken over.

        If it had owned one before and lost it, memory may still hold an outdated copy, which is evicted first.
        """
        for run in runs:
            self.loader.outdate(run.run_id)
            self.forget(run.run_id, before_epoch=run.epoch)
        resuming = (self.advance(run.run_id, nothing) for run in runs)
        for outcome in await asyncio.gather(*resuming, return_exceptions=True):
            if isinstance(outcome, Exception):
                self.context.fail(outcome)

    def become(self, host_id: HostId) -> None:
        """Continue under another id. Runs in memory may have another owner by now, so none stays."""
        self.context.host_id = host_id
        for run in self.cache:
            self.evict(run)

    # Life

    @property
    def tasks(self) -> set[asyncio.Task[Any]]:
        """The background tasks and attempts of this host."""
        return self.context.tasks | self.executor.tasks

    async def stop(self, grace_s: float) -> None:
        """Let running attempts finish within the grace time, then cancel the rest."""
        self.context.stopping.set()
        self.executor.drain()
        await self._quiet(grace_s)
        note_not_awaited(self.executor.under_way, grace_s)
        self.executor.close()
        await self._quiet(LONGEST_CLEAN_UP_S)
        for failure in await note_stopped(self.executor.stopped, self.advance, LONGEST_CLEAN_UP_S):
            self.context.fail(failure)
        for run in self.cache:
            self.evict(run)

    async def _quiet(self, limit_s: float) -> None:
        """Wait until the host is quiet, up to a time."""
        with suppress(TimeoutError):
            async with asyncio.timeout(limit_s):
                await self.quiesce()

    @property
    def is_quiet(self) -> bool:
        """Whether the host has no background task, no attempt and no commit under way."""
        return not (self.tasks or self.context.undecided or self._rounds)

    async def quiesce(self) -> None:
        """Wait until the host is quiet. A commit that ends may still start an attempt."""
        while not self.is_quiet:
            if tasks := self.tasks:
                await asyncio.wait(tasks)
            elif self._rounds:
                await asyncio.sleep(0)
            else:
                await self.context.undecided.wait()

    def kill(self) -> None:
        """Stop at once, as a crash would: no commit, no release of runs."""
        self.context.is_killed = True
        self._rounds.close()
        self.executor.close()
        for task in self.tasks | self.context.endless:
            task.cancel()
        for run in self.cache:
            self.evict(run)


def _must_wait(run: WarmRun, act: Act, *, may_cut_in: bool) -> bool:
    """Whether the run must finish an earlier fact before it can take in what `act` feeds it."""
    if act is nothing or not run.machine.is_busy:
        return False
    return not (may_cut_in and run.machine.is_walking)


def nothing(_: WarmRun) -> None:
    """Feeds no fact. Loading the run is enough to settle what a crash left behind."""
