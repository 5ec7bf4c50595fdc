"""Staging: turns the facts for a run into a batch to commit. It has no effect outside the host's memory."""

import asyncio
from collections.abc import Callable, Sequence
from logging import INFO
from typing import NamedTuple

from perdure.authoring.context import Info
from perdure.authoring.interruption import PayloadUnavailable
from perdure.core.ids import RunId, StepId, new_run_id
from perdure.core.journal import events as e
from perdure.engine.known_programs import KnownPrograms
from perdure.engine.programs.rebuilding import new_machine
from perdure.engine.runs.effects import CreateRun, RecordedChange
from perdure.engine.runs.log_notes import PauseEnded, RunStarted
from perdure.engine.runs.warm import WarmRun
from perdure.host.context import HostContext
from perdure.host.logs import run_log
from perdure.host.runs.batch import Batch, RunStart, start_of
from perdure.host.runs.cache import RunCache
from perdure.host.runs.configuring import configure
from perdure.host.tasks.executor import Executor
from perdure.host.tasks.slots import WaitingSteps
from perdure.host.watchers import RunEnding
from perdure.store.commit.committer import settle_future

Act = Callable[[WarmRun], None]


class Staging:
    """The phases of a turn: feed, reserve, write. One that fails undoes the batch."""

    def __init__(
        self,
        context: HostContext,
        programs: KnownPrograms,
        cache: RunCache,
        executor: Executor,
        waiting: WaitingSteps,
    ) -> None:
        self._context = context
        self._codec = context.codec
        self._sources = context.sources
        self._programs = programs
        self._cache = cache
        self._executor = executor
        self._waiting = waiting

    def new_run_id(self) -> RunId:
        return new_run_id(self._sources.now_ms(), self._sources.entropy(10))

    def new_run(self, run_id: RunId, start: RunStart) -> WarmRun:
        """A run in memory, at its first wait. It is in the store when its first batch is."""
        workflow, event = start.workflow, start.event(run_id)
        key = event.idempotency_key
        info = Info(run_id, workflow.name, workflow.version, key, StepId("root"))
        machine = new_machine(workflow, info, self._codec, self._sources, self._programs)
        configure(machine, self._context.settings)
        machine.feed(event)
        for fact in start.heritage.inherited:
            machine.feed(fact)
        if run_log.isEnabledFor(INFO):
            machine.log_notes.append(RunStarted(event.parent_id, event.continues))
        context, now_ms = self._context, self._sources.now_ms()
        enrolments = context.enrolments and context.enrolments.of(
            run_id, workflow.name, now_ms, is_owned=True
        )
        run = WarmRun(machine, start.row(run_id, now_ms, context.host_id, enrolments or ()))
        self._cache.add(run)
        return run

    def begin_run(self, run_id: RunId, start: RunStart) -> Batch:
        """A new run, of which nothing is written yet."""
        return Batch(self.new_run(run_id, start))

    def turn(self, run: WarmRun, act: Act) -> Batch:
        """Let `act` feed facts, and write what follows into a batch, to be committed."""
        return self.write(self.reserve(self.feed(run, act)))

    def feed(self, run: WarmRun, act: Act) -> Batch:
        """Let `act` feed facts. What the program decides is not written yet."""
        batch = Batch(run)
        try:
            act(run)
        except BaseException as error:
            self.undo(batch)
            raise_cause(error)
            raise
        return batch

    def reserve(self, batch: Batch) -> Batch:
        """Reserve slots for the attempts that the run wants to start; those without one wait."""
        try:
            self._reserve(batch.run, batch)
        except BaseException as error:
            self.undo(batch)
            raise_cause(error)
            raise
        return batch

    def _reserve(self, run: WarmRun, batch: Batch) -> None:
        machine = run.machine
        machine.continue_turn()
        if not machine.is_paused:  # otherwise they begin when the run resumes
            for promise in machine.unstarted:
                if promise.is_settled or promise.is_running or promise.is_parked:
                    continue
                has_slot = not promise.doubts and (
                    (batch.keepers and self._executor.take_over(batch.keepers, promise.task))
                    or self._executor.reserve(promise.task)
                )
                if has_slot or self._waiting.reserve(run, promise):
                    batch.starts.append((run, promise, machine.start_attempt(promise)))
            machine.unstarted.clear()
        for attempt in batch.keepers:
            self._executor.release_kept(attempt)
        if machine.unwanted:
            unwanted, machine.unwanted = machine.unwanted, []
            batch.unwanted = [*batch.unwanted, *((run.run_id, step) for step in unwanted)]
        if machine.log_notes:
            notes, machine.log_notes = machine.log_notes, []
            batch.has_resumed = batch.has_resumed or any(isinstance(n, PauseEnded) for n in notes)
            batch.log_notes = [*batch.log_notes, (run, notes)]

    def write(self, batch: Batch) -> Batch:
        """Write what is decided into the batch's bundle."""
        try:
            if changes := batch.run.machine.take_changes():
                self.write_changes(batch.run, changes, batch)
            else:
                self.note_unfinished(batch)
        except BaseException as error:
            self.undo(batch)
            raise_cause(error)
            raise
        return batch

    def write_changes(self, run: WarmRun, changes: Sequence[RecordedChange], batch: Batch) -> None:
        """Write some changes, and with them the runs that they spawn."""

        def adopt(birth: CreateRun) -> None:
            child = self.new_run(birth.run_id, start_of(run, birth))
            child.pin()
            batch.children = [*batch.children, child]
            self._reserve(child, batch)
            changes = child.machine.take_changes()
            if isinstance(changes[-1].event, e.RunContinued):
                # The child continued as another run at once, and that may do the same: each gets its own commit.
                child.machine.record.changes.append(changes.pop())
                batch.unfinished = [*batch.unfinished, child]
            self.write_changes(child, changes, batch)

        if self._context.payloads is not None:
            # Before the references to them can be committed.
            self._context.payloads.store_noted(run.run_id)
        sent = run.write(batch.bundle, changes, self._sources, adopt)
        if sent:
            batch.messages = [*batch.messages, *sent]
        if run.machine.has_more and run not in batch.unfinished:
            batch.unfinished = [*batch.unfinished, run]
        last = changes[-1].event
        if isinstance(last, e.Terminal):
            status = run.journal.state.status
            batch.endings = [*batch.endings, (run, RunEnding.of(status, last, run.machine.slot))]

    def note_unfinished(self, batch: Batch) -> None:
        """Note that the run has more to decide, even if this turn wrote nothing."""
        if batch.run.machine.has_more and batch.run not in batch.unfinished:
            batch.unfinished = [*batch.unfinished, batch.run]

    def undo(self, batch: Batch) -> None:
        """Nothing of the batch is durable: free its slots and evict its runs."""
        for _, promise, _ in batch.starts:
            self._executor.give_back(promise.task)
        for run in (*batch.children, batch.run):
            self._cache.evict(run)
            if self._context.payloads is not None:
                self._context.payloads.forget_noted(run.run_id)


class StartTurn(NamedTuple):
    """The first turn of a new run, in a round; `started` gets its id when that is durable."""

    staging: Staging
    run_id: RunId
    start: RunStart
    started: asyncio.Future[RunId]

    def begin(self) -> Batch:
        return self.staging.begin_run(self.run_id, self.start)

    def __call__(self, outcome: BaseException | None) -> None:
        settle_future(self.started, self.run_id, outcome)


def raise_cause(error: BaseException) -> None:
    """Raise the store's error if a large payload could not be read: the turn is repeated when the store answers."""
    if isinstance(error, PayloadUnavailable) and error.__cause__ is not None:
        raise error.__cause__
