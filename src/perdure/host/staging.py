"""Staging: from facts to a batch. What a run's turn writes is decided here; nothing is let out before it is durable."""

from collections.abc import Callable, Sequence

from perdure.authoring.context import Info
from perdure.core.codec import Codec
from perdure.core.ids import HostId, RunId, StepId, new_run_id
from perdure.core.journal import events as e
from perdure.engine.programs import Programs
from perdure.engine.replay import facts
from perdure.engine.replay.effects import Birth, Change
from perdure.engine.replay.programs import new_machine
from perdure.engine.replay.warm import WarmRun
from perdure.engine.sources import Sources
from perdure.host.batch import Batch, Start, start_of
from perdure.host.bodies import Bodies
from perdure.host.residents import Residents
from perdure.host.waiting import WaitingSteps
from perdure.host.watching import Ending

Act = Callable[[WarmRun], None]


class Staging:
    """The phases of a turn: feed, reserve, write. One that fails undoes the batch."""

    def __init__(
        self,
        host_id: HostId,
        codec: Codec,
        sources: Sources,
        programs: Programs,
        residents: Residents,
        bodies: Bodies,
        waiting: WaitingSteps,
    ) -> None:
        self.host_id = host_id
        self._codec = codec
        self._sources = sources
        self._programs = programs
        self._residents = residents
        self._bodies = bodies
        self._waiting = waiting

    def new_run_id(self) -> RunId:
        return new_run_id(self._sources.now_ms(), self._sources.entropy(10))

    def new_run(self, run_id: RunId, start: Start) -> WarmRun:
        """A run in memory, at its first wait. It is in the store when its first batch is."""
        workflow, event = start.workflow, start.event(run_id)
        key = event.idempotency_key
        info = Info(run_id, workflow.name, workflow.version, key, StepId("root"))
        machine = new_machine(workflow, info, self._codec, self._sources, self._programs)
        machine.feed(event)
        for fact in start.heritage.inherited:
            machine.feed(fact)
        run = WarmRun(machine, start.row(run_id, self._sources.now_ms(), self.host_id))
        self._residents.add(run)
        return run

    def begin_run(self, run_id: RunId, start: Start) -> Batch:
        """A new run, of which nothing is written yet."""
        return Batch(self.new_run(run_id, start))

    def turn(self, run: WarmRun, act: Act) -> Batch:
        """Let `act` feed facts, and write what follows into a batch, to be committed."""
        return self.write(self.reserve(self.feed(run, act)))

    def feed(self, run: WarmRun, act: Act) -> Batch:
        """Let `act` feed facts. What the program decides on them is still to be written."""
        batch = Batch(run)
        try:
            act(run)
        except BaseException:
            self.undo(batch)
            raise
        return batch

    def reserve(self, batch: Batch) -> Batch:
        """Reserve slots for what the run wants to execute; what finds none waits for one."""
        try:
            self._reserve(batch.run, batch)
        except BaseException:
            self.undo(batch)
            raise
        return batch

    def _reserve(self, run: WarmRun, batch: Batch) -> None:
        machine = run.machine
        machine.go_on()
        for promise in machine.unstarted:
            if promise.is_settled or promise.is_running:
                continue
            if self._waiting.reserve(run.run_id, promise):
                batch.starts.append((run, promise, facts.start(machine, promise)))
        machine.unstarted.clear()
        if machine.unwanted:
            unwanted, machine.unwanted = machine.unwanted, []
            batch.unwanted = [*batch.unwanted, *((run.run_id, step) for step in unwanted)]

    def write(self, batch: Batch) -> Batch:
        """Write what is decided into the batch's bundle."""
        try:
            if changes := batch.run.machine.take_changes():
                self.write_changes(batch.run, changes, batch)
        except BaseException:
            self.undo(batch)
            raise
        return batch

    def write_changes(self, run: WarmRun, changes: Sequence[Change], batch: Batch) -> None:
        """Write some changes, and with them the runs that they spawn."""

        def adopt(birth: Birth) -> None:
            child = self.new_run(birth.run_id, start_of(run, birth))
            child.in_flight += 1
            batch.children = [*batch.children, child]
            self._reserve(child, batch)
            changes = child.machine.take_changes()
            if isinstance(changes[-1].event, e.RunContinued):
                # Continued at once, and so may the next one be: each link of a chain has its own commit.
                child.machine.record.changes.append(changes.pop())
                batch.unfinished = [*batch.unfinished, child]
            self.write_changes(child, changes, batch)

        sent = run.write(batch.bundle, changes, self._sources, adopt)
        if sent:
            batch.messages = [*batch.messages, *sent]
        if run.machine.has_more:
            batch.unfinished = [*batch.unfinished, run]
        last = changes[-1].event
        if isinstance(last, e.Terminal):
            status = run.journal.state.status
            batch.endings = [*batch.endings, (run, Ending.of(status, last))]

    def undo(self, batch: Batch) -> None:
        """Nothing of the batch is durable: memory is wrong."""
        for _, promise, _ in batch.starts:
            self._bodies.give_back(promise.task)
        for child in batch.children:
            self._residents.evict(child)
        self._residents.evict(batch.run)
