"""The machine that runs one graph: facts go in, decisions come out. It does no I/O.

Hosts feed it and commit its decisions as they do with the machine of workflows. Here the program is data, so there are
no coroutines: a fact leads to a walk (`core/graph/walk.py`), and the walk to the next activities. Replay does the same:
the machine feeds the journal's facts in their order and compares every decision.

An activity's phases are those of the ledger. Each is an event with its own digit: an attempt, leg 1, the entry of an
answer, its work, the spawning of children, completion. Fused commits contain several phases, stepwise commits one
each; after a crash the next host decides only the missing ones.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import msgspec

from perdure.authoring.context import Info
from perdure.authoring.graphs.program import GraphProgram
from perdure.core.codec import Codec
from perdure.core.errors import AttemptsExhausted, InputError, UnknownName, UnreadableProgram
from perdure.core.graph.identity import ENTERED, NO_KEY, RESPOND
from perdure.core.graph.state import GraphState
from perdure.core.graph.step_error import step_error_from
from perdure.core.graph.transition import PASSED, StartingStep, StepResponse
from perdure.core.graph.vertex import SignalRequest, Vertex
from perdure.core.graph.walk import Walk
from perdure.core.ids import Guid, StepId
from perdure.core.journal import events as e
from perdure.core.ledger import (
    CLOSED,
    ENTRY,
    SPAWNED,
    AccountId,
    message_account,
    settle,
    step_account,
)
from perdure.engine.graph.active_step import ActiveStep
from perdure.engine.graph.answers import failed_answer, returned_answer, timeout_answer
from perdure.engine.graph.beginning import begin_activity, fail_activity
from perdure.engine.graph.effects import hook, index_effects, job_effects
from perdure.engine.graph.ending import (
    complete_run,
    end_as_requested,
    end_graph_at_once,
    fail_run,
    is_finishing,
    stop_run,
)
from perdure.engine.graph.entering import STAGED, staged_form
from perdure.engine.graph.labels import posted
from perdure.engine.graph.pending_transition import Continuation, PendingTransition
from perdure.engine.graph.receiving import receive_signal, settle_answer
from perdure.engine.graph.reindexing import reindex
from perdure.engine.graph.signals import GraphSignals
from perdure.engine.graph.triggering import trigger_run
from perdure.engine.known_programs import KnownPrograms
from perdure.engine.runs.effects import AddHook, RecordedChange, RemoveHook, RunEffect, UntrackAll
from perdure.engine.runs.machine import COMMON_FACTS, HELD, Handlers, HeldOutcome, RunMachine
from perdure.engine.runs.parameters import RunParameters
from perdure.engine.runs.promise import DurablePromise, PromiseKind
from perdure.engine.sources import Sources
from perdure.store.commit.bundle import Bundle
from perdure.store.commit.fence import Fence
from perdure.store.rows.records import StoredRun

LONGEST_TURN = 1_000
"""Events in one commit before the rest waits for the next: a graph's loop may cycle without ever waiting."""


class GraphMachine(RunMachine):
    """One graph run in memory."""

    __slots__ = (
        "_facts",
        "_graph",
        "_inherits",
        "_is_indexed",
        "_now",
        "_pending",
        "_queue",
        "is_turn_over",
        "programs",
        "published",
        "signals",
        "state",
        "steps",
        "stopping",
        "workflow",
    )  # fmt: skip

    def __init__(
        self,
        program: GraphProgram[..., Any],
        info: Info,
        codec: Codec,
        sources: Sources,
        programs: KnownPrograms,
        recorded: Sequence[e.Event] = (),
    ) -> None:
        super().__init__(program, info, codec, sources, recorded, _never_same)
        self.workflow = program
        self.programs = programs
        self.signals = GraphSignals()
        self.state = GraphState()
        self.steps: dict[StepId, ActiveStep] = {}
        """Activities under way: each waits for an answer."""
        self._inherits = 0
        """Facts that must come before the graph's first activity."""
        self._graph = program.lowered
        self._queue: deque[StartingStep] = deque()
        """Activities to begin."""
        self._pending = PendingTransition()
        """The rest of the last transition; it is decided before any activity in the queue begins."""
        self._facts: Iterator[e.Event] | None = None
        """The facts still to be replayed."""
        self.is_turn_over = False
        """Whether the rest waits for the next commit: the receivers of a broadcast must not depend on later decisions,
        and a new run is stored before it is parked."""
        self._is_indexed = False
        """Whether the run may have index rows in the store."""
        self._now = "its trigger"
        self.stopping: e.CancelRequested | None = None
        """The request to end the run once all finishing attempts have ended; no activity begins any more."""
        self.published: dict[str, Any] = {}
        """The job data last published to clients."""

    # Facts

    def replay(self) -> None:
        """Feed the recorded facts. Raises `Diverged` where the graph takes another path."""
        while not self.replay_some():
            pass

    def replay_some(self) -> bool:
        """Feed recorded facts up to one turn's work. Returns whether the replay is complete."""
        pending = self._pending
        pending.renew()
        if self._facts is None:
            self._facts = self.record.facts(_FACTS)
        while True:
            self._drive()
            if pending.work <= 0 and self.has_more:
                return False
            event = next(self._facts, None)
            if event is None:
                self.record.forget()
                self._facts = None
                return True
            self._learn(event)

    def feed(self, event: e.Event, *effects: RunEffect) -> None:
        """Add a fact with its effects, and decide what follows, up to one turn's work.

        While the run `is_busy` a host feeds only cancellations. Before any other fact the machine completes the pending
        transition.
        """
        if isinstance(event, e.CancelRequested) and not self.released:
            self._pending.stop_walking()
        while self.is_busy:
            self._pending.renew()
            self._follow_transition()
        if self.is_over:
            return
        if isinstance(event, STAGED):
            event = staged_form(self, event)
        self.record.add(event, effects)
        self._learn(event)
        self._drive()

    def _learn(self, event: e.Event) -> None:
        """Handle a fact; while the run is paused, hold outcomes."""
        self._inherits = max(0, self._inherits - 1)
        if self.is_paused and isinstance(event, HELD):
            self._hold(event)
        else:
            _FACTS[type(event)](self, event)

    def feed_skip(self, promise: DurablePromise, event: e.StepSkipped, *effects: RunEffect) -> None:
        guid = self.steps[promise.step].guid
        self.feed(msgspec.structs.replace(event, released=0, guid=guid, staged=True), *effects)

    def take_changes(self) -> list[RecordedChange]:
        self.is_turn_over = False
        self._pending.renew()
        return super().take_changes()

    def continue_turn(self) -> None:
        """Continue a turn that was cut short, after its first part went into a bundle."""
        self._drive()

    @property
    def has_more(self) -> bool:
        has_queue = bool(self._queue) and not self.is_paused
        return (has_queue or self.is_busy) and self.stopping is None

    @property
    def is_busy(self) -> bool:
        return not self._inherits and (self._pending.is_busy or bool(self.released))

    @property
    def is_closing(self) -> bool:
        """Whether the transition under way ends the run."""
        return self._pending.is_closing

    @property
    def is_walking(self) -> bool:
        return self._pending.is_walking and not self.released

    @property
    def takes_more(self) -> bool:
        return not (self.is_over or self.is_turn_over or self.has_more)

    def close(self) -> None:
        """Release the run from memory: a graph holds nothing else."""

    def signal_name(self, topic: str, step: StepId | None) -> str:
        """The name under which the journal has a signal: a signal by topic and key is for one step only."""
        return topic if step is None else f"{topic}@{step}"

    def takes_signal(self, step: StepId | None) -> bool:
        """Whether the run still accepts a signal for that step: not after the step ended or its timeout was entered."""
        if step is None:
            return True
        found = self.steps.get(step)
        if found is None:
            return False
        return not (found.is_entered and isinstance(found.vertex.request, SignalRequest))

    def next_delivery(self, name: str) -> int:
        return self.signals.next_delivery(name)

    def has_unread(self, guid: Guid) -> bool:
        return self.signals.has_unread(guid)

    def entry(self, step: ActiveStep, guid: Guid) -> e.Posted:
        """The entry of leg 2: the step counts it, and the message gets its ordinal."""
        account = step_account(step.step)
        return posted(ENTERED, (account, ENTRY), (message_account(guid), step.entries + 1))

    def on_entered(self, step: ActiveStep) -> None:
        step.entries += 1
        step.is_entered = True

    def _on_started(self, event: e.ExecutionStarted) -> None:
        self.begin_as(event)
        self._inherits = event.inherited
        self.state.semaphore = 1
        trigger_run(self, event)

    def on_completed(self, event: HeldOutcome) -> None:
        """A step returned or failed; or an operator skipped it, and its value counts as what it returned."""
        step = self.steps[event.promise_id]
        promise = self.promises.pop(event.promise_id)
        promise.is_settled = True
        promise.is_running = False
        if self.stopping is not None:
            if not is_finishing(self):
                end_as_requested(self, self.stopping)
            return
        if isinstance(event, e.StepSkipped) or event.ok:
            answer = returned_answer(self.codec, event.payload)
        else:
            what = f"{'run' if promise.kind is PromiseKind.CHILD else 'task'} {promise.name!r} (step {step.step})"
            answer = failed_answer(self.codec, event.payload, what, self.program.fn.__module__)
        assert event.guid is not None  # noqa: S101 - `_enter` gave it one
        walk = self.leave(step, answer)
        if walk.stays:
            # Its further answers arrive as signals to the step itself.
            self.signals.expect(step.step, (self.signal_name(RESPOND, step.step),))
        self.walk(walk, partial(settle_answer, self, step, event.guid))

    def _on_fired(self, event: e.TimerFired) -> None:
        step = self.steps[event.promise_id]
        assert event.guid is not None  # noqa: S101 - `_enter` gave it one
        self.promises.pop(event.promise_id).is_settled = True
        if self.stopping is not None:
            return
        is_limit = step.step in self.signals
        self.signals.give_up(step.step)
        answer = timeout_answer(f"hook {step.step}") if is_limit else PASSED
        self.walk(self.leave(step, answer), partial(self.answered, step, event.guid))

    def _on_delivered(self, event: e.SignalDelivered) -> None:
        waiting = self.signals.deliver(event)
        if waiting is not None and self.stopping is None and not self.steps[waiting].is_entered:
            receive_signal(self, self.steps[waiting])

    def on_parameters(self, parameters: RunParameters) -> None:
        self.state.params = parameters.read()

    def stop_at_once(self, event: e.SignalAccepted) -> None:
        end_graph_at_once(self, event)

    def _on_cancel(self, event: e.CancelRequested) -> None:
        for held in self._release():  # the run ends: they have no effect any more
            self.promises.pop(held.promise_id).is_settled = True
        self.cancel_reason = event.reason
        stop_run(self, event)

    def on_posted(self, event: e.Posted) -> None:
        if event.label == ENTERED:
            self.on_entered(self.steps[_step_of(event.postings[0].account)])
            return
        super().on_posted(event)

    # Driving

    def _drive(self) -> None:
        """Complete the pending transition and begin queued activities, within the limits of one turn.

        Where a turn was cut short, the journal may have other facts before the later decisions: replay takes those
        first.
        """
        queue, record, pending = self._queue, self.record, self._pending
        while not (self.is_over or self.stopping or self._inherits):
            is_enough = pending.work <= 0 or len(record.changes) >= LONGEST_TURN
            if is_enough and not pending.is_closing:  # the end of a run is in one commit
                return
            if self.is_busy:
                self._follow_transition()
            elif self.is_paused:
                return
            elif queue and not self.is_turn_over and not record.is_fact_next(_FACTS, _DECIDED):
                self._begin(queue.popleft())
            else:
                return

    def _follow_transition(self) -> None:
        """Do the next part of the pending transition; then learn the next outcome that a pause held."""
        if self._pending.is_busy:
            self._pending.advance(self.record)
        else:
            self._learn(self.released.popleft())

    def walk(self, walk: Walk, then: Continuation) -> None:
        """Walk next; then `then` decides on what the walk found."""
        self._pending.walk(walk, then)

    def _begin(self, begun: StartingStep) -> None:
        step = begun.vertex.step(begun.plane)
        self._now = step
        try:
            begin_activity(self, begun, step)
        except (UnknownName, UnreadableProgram):
            # This process lacks a definition; the graph is valid. A new run is stored first: its next turn raises this
            # again, and the host parks the run.
            if not self._is_being_born:
                raise
            self._queue.appendleft(begun)
            self.is_turn_over = True
        except AttemptsExhausted as error:
            # The step can't be entered, so none of its edges can handle the error.
            fail_run(self, step_error_from(error))
        except InputError as error:  # before anything was decided
            fail_activity(self, begun, step, error)

    @property
    def _is_being_born(self) -> bool:
        """Whether this turn contains the first event of the run."""
        return e.started_of([change.event for change in self.record.changes[:2]]) is not None

    def ask(self, begun: StartingStep, step: StepId) -> ActiveStep:
        """Register an activity as under way."""
        found = self.steps[step] = ActiveStep(begun, step)
        return found

    def has_key(self, step: StepId | None) -> bool:
        found = None if step is None else self.steps.get(step)
        return found is not None and found.key is not None

    def hook_again(self, step: StepId | None) -> AddHook | None:
        return self.hook_of(self.steps[step]) if step is not None and self.has_key(step) else None

    def reindex(self, bundle: Bundle, fence: Fence, stored: StoredRun) -> bool:
        return reindex(self, bundle, fence, stored)

    def hook_of(self, step: ActiveStep) -> AddHook:
        """The hook by which signals to the step's topic and key reach it. Without a key only lists use it."""
        self._is_indexed = True
        return hook(self, step.step, "wait", step.topic, step.key or NO_KEY)

    def leave(self, step: ActiveStep, answer: StepResponse) -> Walk:
        """The walk from the step's answer; it also decides whether the step stays for another answer."""
        vertex = step.vertex
        plane = (*step.plane, step.entries - 1) if vertex.opens_planes else step.plane
        walk = Walk(self.state, self.codec)
        walk.leave(vertex, plane, step.scope, answer)
        return walk

    def answered(self, step: ActiveStep, guid: Guid, walk: Walk) -> None:
        """Leg 2, after the walk from an answer: close the step unless it stays, and spawn its children."""
        step.is_entered = False
        effects: tuple[RunEffect, ...] = ()
        if not walk.stays:
            del self.steps[step.step]
            self.signals.forget(self.signal_name(RESPOND, step.step))
            if isinstance(step.vertex.request, SignalRequest):
                effects = (RemoveHook(step.step),)
        elif step.key is not None:
            effects = (self.hook_of(step),)  # the match removed the hook from the index
        self.spawn(step.vertex, step.step, guid, walk, effects)

    def spawn(
        self,
        vertex: Vertex,
        step: StepId,
        guid: Guid,
        walk: Walk,
        effects: tuple[RunEffect, ...] = (),
    ) -> None:
        """Steps 2 and 3 of leg 2: open the children, close the step, and with the last step the run."""
        if walk.error is not None:
            fail_run(self, walk.error)
            return
        # One that stays is among its own children.
        opened = len(walk.begun) + walk.stays
        settlement = settle(self.state.semaphore, opened, self._graph.threshold)
        self.state.semaphore = settlement.after
        # A run that never had as many obligations as its threshold closes with the last one.
        is_closed = settlement.closed or settlement.after == 0
        digits = SPAWNED + is_closed * CLOSED
        self.record.emit(
            posted("spawn", (message_account(guid), digits), semaphore=settlement.delta),
            *effects,
            *self.indexed(walk),
            *job_effects(self),
        )
        closing = None
        if is_closed:
            closing = partial(complete_run, self, guid, None if vertex.is_reentrant else step)
        self.decide(walk, closing)

    def decide(self, walk: Walk, closing: Callable[[], None] | None) -> None:
        """Emit the walk's skips, then what `closing` emits; then begin the activities that the walk reached."""
        self._queue.extend(walk.begun)
        self._pending.decide(walk.skipped, closing)

    def indexed(self, walk: Walk) -> list[RunEffect]:
        self._is_indexed = self._is_indexed or bool(walk.tracked)
        return index_effects(walk)

    # The end

    def finish(self, ending: e.Terminal, effects: Sequence[RunEffect]) -> None:
        """End the run with this event."""
        self.is_over = True
        self.state.semaphore = 0
        self._queue.clear()
        self._pending.clear()
        self.released.clear()
        self.steps.clear()
        if self._is_indexed:
            effects = (*effects, UntrackAll())
        self.record.emit(ending, *effects)

    def _place(self) -> str:
        """The graph's current step, for error texts."""
        return f"graph {self.workflow.name!r} at {self._now}"


_DECIDED = frozenset({"attempt"})
"""The label of the first event of an activity. Where an activity may begin, a `Posted` with another label is a fact."""


def _step_of(account: AccountId) -> StepId:
    return StepId(account.partition(":")[2])


def _never_same(_: e.Event, __: e.Event) -> bool:
    return False


_FACTS: Handlers = {
    **COMMON_FACTS,
    e.ExecutionStarted: GraphMachine._on_started,
    e.InvokeCompleted: GraphMachine.on_completed,
    e.TimerFired: GraphMachine._on_fired,
    e.SignalDelivered: GraphMachine._on_delivered,
    e.CancelRequested: GraphMachine._on_cancel,
    e.Posted: GraphMachine.on_posted,
    e.StepSkipped: GraphMachine.on_completed,
}
