"""The machine that runs one graph: facts go in, what follows from them comes out. It does no I/O.

It has the same place as the machine of workflows: hosts feed both alike, and commit what both decide. Here the program
is data, so there are no coroutines to keep: a fact leads to a walk (`core/graph/walk.py`), and the walk to the next
activities. Replay is the same thing: the journal's facts are fed in their order, and every decision is compared.

An activity's phases are those of the ledger. Each is an event with its own digit: an attempt, leg 1, the entry of an
answer, its work, the spawning of children, completion. Where commits are fused they go together; stepwise
each is alone, and whoever comes back after a crash decides only what is missing.
"""

from collections import deque
from collections.abc import Sequence
from typing import Any

from perdure.authoring.context import Info
from perdure.authoring.graphs.program import GraphProgram
from perdure.core.codec import Codec
from perdure.core.errors import InputError, UnknownName, UnreadableProgram
from perdure.core.graph.identity import RESPOND
from perdure.core.graph.state import GraphState
from perdure.core.graph.trouble import trouble_of
from perdure.core.graph.vertex import NO_PLANE, SignalRequest, Vertex
from perdure.core.graph.walk import PASSED, Answer, Begun, Walk
from perdure.core.ids import Guid, StepId, message_guid
from perdure.core.journal import events as e
from perdure.core.ledger import (
    ATTEMPT,
    CLOSED,
    COMPLETED,
    ENTRY,
    SPAWNED,
    AccountId,
    message_account,
    settle,
    step_account,
)
from perdure.engine.graph.answers import (
    answer_of,
    failure_of,
    timed_out,
)
from perdure.engine.graph.beginning import begin, stumble
from perdure.engine.graph.effects import hook, index_effects, key_effects
from perdure.engine.graph.ending import complete, fail, stop
from perdure.engine.graph.labels import ENTERED, posted
from perdure.engine.graph.signals import Waiting
from perdure.engine.graph.step import Step
from perdure.engine.machine import Handlers, RunMachine
from perdure.engine.programs import Programs
from perdure.engine.replay.abandoning import undo
from perdure.engine.replay.effects import Change, Effect, Hook, Publish, Unhook, UntrackAll
from perdure.engine.replay.promise import Place
from perdure.engine.sources import Sources

LONGEST_TURN = 1_000
"""Events that one commit may hold before the rest waits for the next: a loop may turn without ever waiting."""


class GraphMachine(RunMachine):
    """One graph run in memory."""

    def __init__(
        self,
        program: GraphProgram[..., Any],
        info: Info,
        codec: Codec,
        sources: Sources,
        programs: Programs,
        recorded: Sequence[e.Event] = (),
    ) -> None:
        super().__init__(program, info, codec, sources, recorded, _never_same)
        self.workflow = program
        self.programs = programs
        self.signals = Waiting()
        self.state = GraphState()
        self.steps: dict[StepId, Step] = {}
        """Activities that wait for an answer."""
        self._graph = program.lowered
        self._queue: deque[Begun] = deque()
        """Activities that are to begin."""
        self.is_turn_over = False
        """Whether the rest waits for the next commit: who is signalled now must not depend on what is decided next."""
        self._is_indexed = False
        """Whether there may be rows that tell what the run waits for."""
        self._now = "its trigger"

    # Facts

    def replay(self) -> None:
        """Feed the recorded facts. Raises `Diverged` where the graph takes another path."""
        for event in self.record.facts(_FACTS):
            _FACTS[type(event)](self, event)
            self._drive()
        self.record.forget()

    def feed(self, event: e.Event, *effects: Effect) -> None:
        """Take a fact in, and go on as far as it leads."""
        if isinstance(event, e.InvokeCompleted | e.TimerFired):
            event = self._enter(event)
        elif isinstance(event, e.SignalDelivered):
            event = e.SignalDelivered(
                event.signal_name, event.delivery_id, event.guid, staged=True, payload=event.payload
            )
        self.record.add(event, effects)
        _FACTS[type(event)](self, event)
        self._drive()

    def take_changes(self) -> list[Change]:
        self.is_turn_over = False
        return super().take_changes()

    def go_on(self) -> None:
        """Decide more where a turn was cut short, now that what was decided before is on its way."""
        self._drive()

    @property
    def has_more(self) -> bool:
        return bool(self._queue) and not self.is_over

    @property
    def takes_more(self) -> bool:
        return not (self.is_over or self.is_turn_over or self._queue)

    def close(self) -> None:
        """Take the run out of memory: nothing of it is elsewhere."""

    def signal_name(self, topic: str, step: StepId | None) -> str:
        """What a signal is called in the journal: one that was sent to topic and key is for one step alone."""
        return topic if step is None else f"{topic}@{step}"

    def takes_signal(self, step: StepId | None) -> bool:
        """Whether there is any use in it: for a step that is through it comes late, and so it does for a hook whose
        time limit is entered."""
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

    def _enter(self, event: e.InvokeCompleted | e.TimerFired) -> e.Event:
        """The answer of a step as the ledger counts it: its entry is posted, then it is staged."""
        step = self.steps[event.promise_id]
        guid = step.guid if isinstance(event, e.InvokeCompleted) else event.guid
        assert guid is not None  # noqa: S101 - a timer's message has one, and so has an invoke's step
        if not step.is_entered:
            self.record.add(self.entry(step, guid), ())
            self._on_entered(step)
        if isinstance(event, e.TimerFired):
            return e.TimerFired(event.promise_id, guid, staged=True)
        return e.InvokeCompleted(
            event.promise_id,
            event.attempt,
            event.ok,
            guid,
            True,
            event.claim,
            payload=event.payload,
        )

    def entry(self, step: Step, guid: Guid) -> e.Posted:
        """Leg 2 is entered: the step counts it, and the message gets its ordinal."""
        account = step_account(step.step)
        return posted(ENTERED, (account, ENTRY), (message_account(guid), step.entries + 1))

    def _on_entered(self, step: Step) -> None:
        step.entries += 1
        step.is_entered = True

    def _on_started(self, event: e.ExecutionStarted) -> None:
        self.parent = event.parent_id
        self.state.semaphore = 1
        trigger = self._graph.trigger
        guid = event.guid or message_guid(self.info.run_id, "start")
        walk = Walk(self.state, self.codec)
        effects: tuple[Effect, ...] = ()
        emitted: list[Effect] = []
        try:
            scope = self.workflow.scope(self.codec, event.payload or b"{}")
            effects = key_effects(self, walk, scope)
            walk.leave(trigger, NO_PLANE, scope, PASSED)
            emitted = self._emitted(walk, scope)
        except Exception as error:  # an input that does not fit, or an expression that raises
            walk.trouble = trouble_of(error)
        if walk.trouble is not None:
            fail(self, walk.trouble)
            return
        count = len(walk.begun)
        spawned = posted("spawn", (message_account(guid), SPAWNED), semaphore=count - 1)
        self.record.emit(spawned, *effects, *self._indexed(walk))
        self._skip(walk)
        if emitted:
            # Step 3 before the end: clients may read this from now on.
            done = posted("emit", (message_account(guid), COMPLETED))
            self.record.emit(done, *emitted)
        self.state.semaphore = count
        self._queue.extend(walk.begun)
        if not count:
            complete(self, None if emitted else guid, None)

    def _emitted(self, walk: Walk, scope: dict[str, Any]) -> list[Effect]:
        found: list[Effect] = []
        if self._graph.emit is not None:
            found.append(Publish("emitted", self.codec.encode(walk.value(self._graph.emit, scope))))
        if self._graph.persists:
            found.append(Publish("job", self.codec.encode(self.state.job)))
        return found

    def on_completed(self, event: e.InvokeCompleted) -> None:
        step = self.steps[event.promise_id]
        promise = self.promises.pop(event.promise_id)
        promise.is_settled = True
        promise.is_running = False
        if event.ok:
            answer = answer_of(self.codec, event.payload)
        else:
            what = f"{'run' if promise.place is Place.CHILD else 'task'} {promise.name!r} (step {step.step})"
            answer = failure_of(self.codec, event.payload, what)
        assert event.guid is not None  # noqa: S101 - `_enter` gave it one
        walk = self._leave(step, answer)
        if walk.stays:
            # Whatever else it has to say comes as a signal to the step itself.
            self.signals.expect(step.step, (self.signal_name(RESPOND, step.step),))
        self.answered(step, event.guid, walk)
        self.receive(step)

    def _on_fired(self, event: e.TimerFired) -> None:
        step = self.steps[event.promise_id]
        assert event.guid is not None  # noqa: S101 - `_enter` gave it one
        self.promises.pop(event.promise_id).is_settled = True
        is_limit = step.step in self.signals
        self.signals.give_up(step.step)
        answer = timed_out(f"hook {step.step}") if is_limit else PASSED
        self.answered(step, event.guid, self._leave(step, answer))

    def _on_delivered(self, event: e.SignalDelivered) -> None:
        waiting = self.signals.deliver(event)
        if waiting is not None and not self.steps[waiting].is_entered:
            self.receive(self.steps[waiting])

    def _on_cancel(self, event: e.CancelRequested) -> None:
        self.cancel_reason = event.reason
        stop(self, event)

    def on_posted(self, event: e.Posted) -> None:
        if event.label == ENTERED:
            self._on_entered(self.steps[_step_of(event.postings[0].account)])
            return
        super().on_posted(event)

    # Going on

    def _drive(self) -> None:
        """Begin what is to begin, as far as one commit may go."""
        queue, record = self._queue, self.record
        while queue and not self.is_over:
            if self.is_turn_over or len(record.changes) >= LONGEST_TURN:
                return
            begun = queue.popleft()
            step = begun.vertex.step(begun.plane)
            self._now = step
            try:
                begin(self, begun, step)
            except (UnknownName, UnreadableProgram):
                raise  # it is this process that lacks something, and not the graph that is wrong
            except InputError as error:  # before anything was decided
                stumble(self, begun, step, error)

    def attempt(self, step: StepId, *seeds: tuple[AccountId, int]) -> None:
        """Leg 1 is entered. Whoever finds that it was, and no more, enters it once more and counts that."""
        account = step_account(step)
        was_recorded = self.record.is_replaying
        self.record.emit(posted("attempt", (account, ATTEMPT), *seeds))
        if was_recorded:
            again = posted("attempt", (account, ATTEMPT))
            while self.record.is_next(again):
                self.record.emit(again)
            if not self.record.is_replaying:
                self.record.emit(again)

    def ask(self, begun: Begun, step: StepId) -> Step:
        """The activity is under way from now on."""
        found = self.steps[step] = Step(begun, step)
        return found

    def has_key(self, step: StepId | None) -> bool:
        found = None if step is None else self.steps.get(step)
        return found is not None and found.key is not None

    def hook_again(self, step: StepId | None) -> Hook | None:
        return self.hook_of(self.steps[step]) if step is not None and self.has_key(step) else None

    def hook_of(self, step: Step) -> Hook:
        """How others find the step: by topic and key."""
        request = step.vertex.request
        assert isinstance(request, SignalRequest)  # noqa: S101 - only those have a key
        self._is_indexed = True
        return hook(self, step.step, "wait", request.topic, step.key)

    def receive(self, step: Step) -> None:
        """Take the oldest signal that the step waits for, if there is one; if it stays, the next one too."""
        while step.step in self.steps and not self.is_over:
            event = self.signals.take(step.step)
            if event is None:
                return
            guid = event.guid or message_guid(self.info.run_id, "signal", event.signal_name)
            if not step.is_entered:
                self.record.emit(self.entry(step, guid))
            self._on_entered(step)
            walk = self._leave(step, answer_of(self.codec, event.payload))
            received = e.SignalReceived(
                step.step,
                event.signal_name,
                event.delivery_id,
                guid,
                True,
                walk.stays,
                payload=event.payload,
            )
            promise = self.promises.get(step.step)
            effects: tuple[Effect, ...] = ()
            if not walk.stays:
                self.signals.give_up(step.step)
                if promise is not None:  # its time limit
                    del self.promises[step.step]
                    promise.is_settled = True
                    effects = (undo(self, promise),)
            self.record.emit(received, *effects)
            self.answered(step, guid, walk)

    def _leave(self, step: Step, answer: Answer) -> Walk:
        """What follows from the answer, and whether the step stays for another one."""
        vertex = step.vertex
        plane = (*step.plane, step.entries - 1) if vertex.opens_planes else step.plane
        walk = Walk(self.state, self.codec)
        walk.leave(vertex, plane, step.scope, answer)
        return walk

    def answered(self, step: Step, guid: Guid, walk: Walk) -> None:
        """Leg 2: the answer is known, and leads to what follows."""
        step.is_entered = False
        effects: tuple[Effect, ...] = ()
        if not walk.stays:
            del self.steps[step.step]
            self.signals.forget(self.signal_name(RESPOND, step.step))
            if step.key is not None:
                effects = (Unhook(step.step),)
        elif step.key is not None:
            effects = (self.hook_of(step),)  # whoever found it took it out of the index
        self.spawn(step.vertex, step.step, guid, walk, effects)

    def spawn(
        self,
        vertex: Vertex,
        step: StepId,
        guid: Guid,
        walk: Walk,
        effects: tuple[Effect, ...] = (),
    ) -> None:
        """Steps 2 and 3: the children open, the step closes, and with the last one the run."""
        if walk.trouble is not None:
            fail(self, walk.trouble)
            return
        # One that stays is among its own children.
        settlement = settle(self.state.semaphore, len(walk.begun) + walk.stays)
        self.state.semaphore = settlement.after
        digits = SPAWNED + settlement.closed * CLOSED
        self.record.emit(
            posted("spawn", (message_account(guid), digits), semaphore=settlement.delta),
            *effects,
            *self._indexed(walk),
        )
        self._skip(walk)
        self._queue.extend(walk.begun)
        if settlement.closed:
            complete(self, guid, None if vertex.is_reentrant else step)

    def _indexed(self, walk: Walk) -> list[Effect]:
        self._is_indexed = self._is_indexed or bool(walk.tracked)
        return index_effects(walk)

    def _skip(self, walk: Walk) -> None:
        for skipped in walk.skipped:
            self.record.emit(e.StepSkipped(skipped, "no path leads to it"))

    # The end

    def finish(self, ending: e.Terminal, effects: Sequence[Effect]) -> None:
        """The run is over with this entry."""
        self.is_over = True
        self.state.semaphore = 0
        self._queue.clear()
        self.steps.clear()
        if self._is_indexed:
            effects = (*effects, UntrackAll())
        self.record.emit(ending, *effects)

    def _place(self) -> str:
        """Where the graph is, for people."""
        return f"graph {self.workflow.name!r} at {self._now}"


def _step_of(account: AccountId) -> StepId:
    return StepId(account.partition(":")[2])


def _never_same(_: e.Event, __: e.Event) -> bool:
    return False


_FACTS: Handlers = {
    e.ExecutionStarted: GraphMachine._on_started,
    e.InvokeStarted: GraphMachine.on_invoke_started,
    e.InvokeRetrying: GraphMachine.on_retrying,
    e.InvokeCompleted: GraphMachine.on_completed,
    e.TimerFired: GraphMachine._on_fired,
    e.SignalDelivered: GraphMachine._on_delivered,
    e.CancelRequested: GraphMachine._on_cancel,
    e.Posted: GraphMachine.on_posted,
    e.RunApproved: GraphMachine.ignore,
    e.RunPaused: GraphMachine.ignore,
    e.RunResumed: GraphMachine.ignore,
    e.SignalAccepted: GraphMachine.ignore,
    e.SignalRejected: GraphMachine.ignore,
}
