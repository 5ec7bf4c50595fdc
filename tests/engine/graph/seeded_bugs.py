"""Deliberate bugs in how graphs are run. The explorer must catch each one.

A bug is a context in which a piece of the engine is replaced by one that is wrong in a way that a real engine might be.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, NamedTuple

import msgspec
import pytest

from perdure.core.graph import walk as walks
from perdure.core.graph.state import CycleHook
from perdure.core.graph.transition import StartingStep, StepResponse
from perdure.core.graph.vertex import SignalRequest, ToAll, Vertex
from perdure.core.graph.walk import Walk
from perdure.core.ids import Guid, StepId
from perdure.core.journal import events as e
from perdure.core.ledger import message_account, settle
from perdure.core.messages import Message
from perdure.core.replay.identity import timer_guid
from perdure.engine.graph import beginning, ending, machine
from perdure.engine.graph.active_step import ActiveStep
from perdure.engine.graph.effects import index_effects
from perdure.engine.graph.machine import GraphMachine
from perdure.engine.graph.signals import GraphSignals
from perdure.engine.runs import messages
from perdure.engine.runs.effects import Acknowledge, RunEffect, SendBroadcast, TrackJoin
from perdure.engine.runs.record import Record
from perdure.engine.runs.warm import WarmRun


@contextmanager
def spawn_without_closed_bit() -> Iterator[None]:
    """The message that closed the run does not say so."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(machine, "CLOSED", 0)
        yield


@contextmanager
def parent_stays_open() -> Iterator[None]:
    """A step that has children counts them, and not its own end."""
    spawn = GraphMachine.spawn

    def forgetful(self: GraphMachine, *args: Any) -> None:
        walk: Walk = args[3]
        walk.stays = bool(walk.begun)
        spawn(self, *args)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(GraphMachine, "spawn", forgetful)
        yield


@contextmanager
def skip_not_propagated() -> Iterator[None]:
    """A skip is not propagated to the steps after it."""

    def silent(self: Walk, vertex: Vertex, plane: Any, _: Any) -> None:
        if vertex.primitive is not None:
            self.skipped.append(vertex.step(plane))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Walk, "_skip", silent)
        yield


class _Uncounted(CycleHook):
    """Counts one entry, however many there are."""

    entries = property(lambda _: 1, lambda *_: None)


@contextmanager
def re_entry_without_its_counter() -> Iterator[None]:
    """How often a hook was cycled back to is not counted: each turn is in the same plane."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(beginning, "CycleHook", _Uncounted)
        yield


@contextmanager
def message_taken_twice() -> Iterator[None]:
    """A duplicate signal is received again."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(messages, "_is_done", lambda *_: False)
        patch.setattr(GraphSignals, "has_unread", lambda *_: False)
        yield


@contextmanager
def entry_taken_for_the_answer() -> Iterator[None]:
    """A message whose entry is durable counts as done, though its work is not."""

    def is_known(warm: WarmRun, message: Message) -> bool:
        return message_account(message.guid) in warm.journal.state.balances

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(messages, "_is_done", is_known)
        yield


@contextmanager
def broadcast_before_its_digit() -> Iterator[None]:
    """A signal to all is sent when its step is entered, under GUIDs that are new each time."""
    begin = beginning._pass

    def hasty(of: GraphMachine, begun: StartingStep, step: StepId) -> None:
        if not isinstance(begun.vertex.sending, ToAll):
            begin(of, begun, step)
            return
        plain = Record.emit

        def misplaced(record: Record, event: e.Event, *effects: RunEffect) -> None:
            label = event.label if isinstance(event, e.Posted) else ""
            kept: list[RunEffect] = [
                each for each in effects if not isinstance(each, SendBroadcast)
            ]
            if label == "attempt":
                (sent,) = beginning._send(of, begun, step)
                assert isinstance(sent, SendBroadcast)
                kept.append(sent._replace(suffix=of.sources.entropy(16).hex()))
            plain(record, event, *kept)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Record, "emit", misplaced)
            begin(of, begun, step)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(beginning, "_pass", hasty)
        yield


@contextmanager
def turn_not_over_after_a_broadcast() -> Iterator[None]:
    """A signal to all commits with runs that are made after it, and finds them."""
    with pytest.MonkeyPatch.context() as patch:
        never = property(lambda _: False, lambda *_: None)
        patch.setattr(GraphMachine, "is_turn_over", never, raising=False)
        yield


@contextmanager
def readiness_counted_twice() -> Iterator[None]:
    """A join's row counts each predecessor again."""

    def doubled(walk: Walk) -> list[RunEffect]:
        effects = index_effects(walk)
        return [*effects, *(each for each in effects if isinstance(each, TrackJoin))]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(machine, "index_effects", doubled)
        yield


@contextmanager
def inbox_not_cleared() -> Iterator[None]:
    """A join that is ready leaves its rows behind."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(walks.Walk, "_forget", lambda self, _, step: self.tracked.pop(step, None))
        yield


@contextmanager
def signal_and_limit_both_win() -> Iterator[None]:
    """A hook that has its signal still takes the end of its time."""
    answered = GraphMachine.answered

    def greedy(self: GraphMachine, step: ActiveStep, guid: Guid, walk: Walk) -> None:
        promise = step.promise
        answered(self, step, guid, walk)
        if isinstance(step.vertex.request, SignalRequest) and promise and not self.is_over:
            if guid != timer_guid(self.info.run_id, step.step):
                self.steps[step.step] = step
                self.promises[step.step] = promise

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(GraphMachine, "answered", greedy)
        patch.setattr(GraphSignals, "give_up", lambda *_: None)
        yield


@contextmanager
def failed_answer_leaves_step_open() -> Iterator[None]:
    """A step whose answer says that more will come stays, though what was made of the answer failed."""
    leave = GraphMachine.leave

    def credulous(self: GraphMachine, step: ActiveStep, answer: StepResponse) -> Walk:
        walk = leave(self, step, answer)
        walk.stays = answer.is_pending
        return walk

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(GraphMachine, "leave", credulous)
        yield


@contextmanager
def in_flight_not_cancelled() -> Iterator[None]:
    """A run that fails leaves its timers and its queued work behind."""

    def careless(of: GraphMachine, _: Any) -> RunEffect:
        return Acknowledge(Guid(f"m_{of.info.run_id[2:]}_{'0' * 32}"))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ending, "undo_effect", careless)
        yield


@contextmanager
def threshold_forgotten() -> Iterator[None]:
    """A run continues until no step is open, whatever its threshold is."""

    def stubborn(before: int, opened: int, _: int) -> Any:
        return settle(before, opened, 0)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(machine, "settle", stubborn)
        yield


@contextmanager
def threshold_forgotten_in_replay() -> Iterator[None]:
    """A loaded run continues until no step is open, whatever its threshold is."""
    spawn = GraphMachine.spawn
    replaying: list[bool] = [False]

    def note(self: GraphMachine, *args: Any) -> None:
        replaying[0] = self.record.is_replaying
        spawn(self, *args)

    def forgetful(before: int, opened: int, threshold: int) -> Any:
        return settle(before, opened, 0 if replaying[0] else threshold)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(GraphMachine, "spawn", note)
        patch.setattr(machine, "settle", forgetful)
        yield


@contextmanager
def name_computed_otherwise_in_replay() -> Iterator[None]:
    """What a graph computes a name from is not what it was when the name was first computed."""

    def confused(of: GraphMachine, begun: StartingStep, step: StepId) -> None:
        if begun.name and of.record.is_replaying:
            begun = msgspec.structs.replace(begun, name=f"{begun.name}?")
        beginning.begin_activity(of, begun, step)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(machine, "begin_activity", confused)
        yield


class Bug(NamedTuple):
    """A bug, the case and the mode that meet it, and what the explorer then says."""

    seed: Callable[[], AbstractContextManager[None]]
    case: str
    symptom: str
    mode: str = "warm"


BUGS = {
    bug.seed.__name__: bug
    for bug in (
        Bug(
            spawn_without_closed_bit, "worker", "completed by a message that did not close the run"
        ),
        Bug(parent_stays_open, "worker", "nothing is due and nothing runs"),
        Bug(skip_not_propagated, "join: a path is skipped", "must not end completed null"),
        Bug(re_entry_without_its_counter, "cycle", "is taken"),
        Bug(message_taken_twice, "signal to all, once each", "the ordinal is seeded when"),
        Bug(
            entry_taken_for_the_answer,
            "await a graph",
            "nothing is due and nothing runs",
            "stepwise",
        ),
        Bug(
            broadcast_before_its_digit,
            "signal to all, once each",
            "without faults it ends",
            "stepwise",
        ),
        Bug(
            turn_not_over_after_a_broadcast,
            "signal to all, before one is born",
            "must not end completed 6",
        ),
        Bug(readiness_counted_twice, "spread: in order", "has the rows"),
        Bug(inbox_not_cleared, "join: one is late", "has the rows"),
        Bug(signal_and_limit_both_win, "hook: signal and limit at once", "TimerFired is refused"),
        Bug(
            failed_answer_leaves_step_open,
            "202 whose output fails: hook that is not said to be pending",
            "j,0,0,0 is taken",
        ),
        Bug(threshold_forgotten, "threshold: what waits is given up", "nothing is due"),
        Bug(
            threshold_forgotten_in_replay,
            "threshold: what has not begun is given up",
            "run-diverged",
            "stepwise",
        ),
        Bug(name_computed_otherwise_in_replay, "names that are computed", "graph_add[?]"),
        Bug(in_flight_not_cancelled, "failure: what is in flight is cancelled", "is left"),
    )
}
