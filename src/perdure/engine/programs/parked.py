"""A run whose program can't be replayed: journals outcomes of its steps, and its cancellation, without the program."""

from collections.abc import Sequence

from perdure.authoring.values.failures import encode_failure
from perdure.core.codec import Codec
from perdure.core.errors import RunCancelled
from perdure.core.graph.identity import ENTERED
from perdure.core.ids import RunId, StepId
from perdure.core.journal import events as e
from perdure.core.journal.entry import Entry
from perdure.core.ledger import ENTRY, MessageLedger, message_account, step_account
from perdure.core.messages import AT_ONCE, Message
from perdure.core.replay.doubt import reconciled_entry
from perdure.core.replay.identity import (
    cancel_guid,
    child_run_id,
    parse_parent,
    result_guid,
    timer_guid,
)
from perdure.core.runs.acts import Act, Code, act_of, is_act, is_over_limit
from perdure.engine.graph.labels import posted
from perdure.engine.runs.acts import acceptance_of, act_refusal, decision_times, rejection_of
from perdure.engine.runs.attempt_outcome import AttemptOutcome
from perdure.engine.runs.warm import rebuild_run
from perdure.engine.sources import Sources
from perdure.store.commit.bundle import Bundle
from perdure.store.rows.records import Run


class ParkedRun:
    """A run's journal without a machine."""

    def __init__(self, run: Run, entries: Sequence[Entry]) -> None:
        self._run_id = run.run_id
        self._entries = entries
        self._loaded, events = rebuild_run(run, entries)
        self._state = self._loaded.journal.state
        started = e.started_of(events)
        self._parent = None if started is None else started.parent_id
        self._is_graph = started is not None and started.trigger is not None

    def _open(self, steps: Sequence[StepId]) -> list[StepId]:
        return [step for step in steps if step not in self._state.completed]

    def possible_children(self) -> list[RunId]:
        """The ids that its open steps would have as child runs; the journal does not say which steps are child runs."""
        return [
            child_run_id(self._run_id, step, self._state.started.get(step, 1))
            for step in self._open(list(self._state.scheduled))
        ]

    def complete(
        self, step: StepId, attempt: int, outcome: AttemptOutcome, sources: Sources
    ) -> Bundle | None:
        """The bundle that journals the outcome of an attempt. The program gets it once the run can be replayed.

        `None` if the attempt is not the one under way, or the failed task may be retried: then nothing is journaled.
        """
        is_awaited = self._state.started.get(step) == attempt and step not in self._state.completed
        if not is_awaited or (outcome.may_retry and not outcome.ok):
            return None
        events: list[e.Event] = [reconciled_entry(step)] if outcome.is_reconciled else []
        if self._state.scheduled[step]:
            events += self._staged(step, attempt, outcome)
        else:
            completed = e.InvokeCompleted(
                *(step, attempt, outcome.ok), payload=outcome.payload, artifacts=outcome.artifacts
            )
            events.append(completed)
        bundle = Bundle()
        bundle.append(self._loaded.fence, self._loaded.append(events, sources))
        return bundle

    def _staged(self, step: StepId, attempt: int, outcome: AttemptOutcome) -> list[e.Event]:
        """The events for a graph's step: the answer's entry, if that is missing, and the answer."""
        guid = result_guid(self._run_id, step, 1)
        answer = e.InvokeCompleted(
            *(step, attempt, outcome.ok, guid, True),
            payload=outcome.payload,
            artifacts=outcome.artifacts,
        )
        if message_account(guid) in self._state.balances:
            return [answer]
        entry = posted(ENTERED, (step_account(step), ENTRY), (message_account(guid), ENTRY))
        return [entry, answer]

    def refusal_of(self, act: Act | None, message: Message) -> str | None:
        """Why an act does not apply to the parked run. `None` if it ends the run."""
        balance = self._state.balances.get(message_account(message.guid), 0)
        if act is None or MessageLedger(balance).work_done:
            return Code.UNSUPPORTED
        if act.type not in (e.ActType.CANCEL, e.ActType.EMERGENCY_STOP):
            return act.refusal or Code.PARKED
        return act.refusal

    def reject(self, act: Act | None, message: Message, code: str, sources: Sources) -> Bundle:
        """The bundle that journals the rejection of an act, or sets it aside if the journal has its decision or must
        take no more."""
        bundle, fence = Bundle(), self._loaded.fence
        balance = self._state.balances.get(message_account(message.guid), 0)
        if act is None or MessageLedger(balance).work_done:
            bundle.mark(fence, message.guid, "stale", "duplicate, or it can't be read")
        elif is_over_limit(decision_times(self._entries, sources.now_ms()), sources.now_ms()):
            bundle.mark(fence, message.guid, "dead", act_refusal(message))
        else:
            bundle.append(fence, self._loaded.append([rejection_of(act, message, code)], sources))
            bundle.acknowledge(fence, message.guid)
        return bundle

    def reason_of(self, message: Message) -> str:
        """The reason of a cancel, or of an act that ends the run."""
        act = self._act_of(message)
        return (message.payload or b"").decode(errors="replace") if act is None else act.reason

    def _act_of(self, message: Message) -> Act | None:
        return act_of(message) if is_act(message.kind) else None

    def cancel(
        self, message: Message, children: Sequence[RunId], codec: Codec, sources: Sources
    ) -> Bundle:
        """The bundle that cancels the run, its open steps and its `children`, and sends the result to its parent.

        No clean-up step runs, because there is no program to run it.
        """
        reason, act = self.reason_of(message), self._act_of(message)
        closing: list[e.Event] = []
        if act is not None:
            closing.append(acceptance_of(act, message))
        if not self._state.cancel_requested:
            guid = message.guid if act is None else None
            requested = e.CancelRequested(reason, guid, signal_id=None if act is None else act.id)
            closing.append(requested)
        closing.append(e.ExecutionCancelled(reason=reason, released=self._state.semaphore))
        fence, now = self._loaded.fence, sources.now_ms()
        bundle = Bundle()
        bundle.append(fence, self._loaded.append(closing, sources))
        bundle.acknowledge(fence, message.guid)
        bundle.park(fence, None)
        if self._is_graph:
            bundle.untrack_all(fence)
        for step in self._open(list(self._state.timers)):
            bundle.acknowledge(fence, timer_guid(self._run_id, step))
        for step in self._open(list(self._state.scheduled)):
            bundle.drop_work(fence, step)
        for step in self._open([each for each, now in self._state.parked_steps.items() if now]):
            bundle.unpark_step(fence, step)
        for child in children:
            guid = cancel_guid(child)
            bundle.enqueue(Message(child, guid, "cancel", AT_ONCE, now, payload=reason.encode()))
        if self._parent is not None:
            parent, step, attempt = parse_parent(self._parent)
            cancelled = RunCancelled.of(self._run_id, reason)
            guid, payload = result_guid(parent, step, attempt), encode_failure(codec, cancelled)
            bundle.enqueue(Message(parent, guid, "gave-up", AT_ONCE, now, step, payload))
        return bundle
