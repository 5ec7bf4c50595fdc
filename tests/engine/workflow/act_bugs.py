"""Deliberate bugs of operator acts, as switches: the explorer must catch each."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, NamedTuple

import msgspec
import pytest

from perdure.core.ids import RunId, StepId
from perdure.core.journal.events import RunPaused, SignalAccepted
from perdure.core.replay.identity import idempotency_text
from perdure.core.runs.acts import Act, verdict
from perdure.engine.runs import acts
from perdure.engine.runs.machine import HeldOutcome, RunMachine
from perdure.engine.runs.parameters import RunParameters
from perdure.engine.runs.promise import DurablePromise
from perdure.engine.runs.record import Record
from perdure.engine.workflow import machine
from perdure.host.runs import dispatcher
from perdure.host.tasks import attempt


@contextmanager
def effect_apart_from_decision() -> Iterator[None]:
    """Step by step, decision and effect are commits of their own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dispatcher, "atomic_parts", lambda changes: [[each] for each in changes])
        yield


@contextmanager
def decision_without_effect() -> Iterator[None]:
    """An accepted act is forgotten."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(acts, "_apply", lambda *_: None)
        yield


@contextmanager
def effect_without_decision() -> Iterator[None]:
    """An act has its effect, and the journal does not say who asked for it."""
    add = Record.add

    def silent(self: Record, event: Any, effects: Any) -> None:
        if type(event).__name__ != "SignalAccepted":
            add(self, event, effects)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Record, "add", silent)
        yield


@contextmanager
def held_outcome_lost() -> Iterator[None]:
    """Outcomes that came in a pause are forgotten when it ends."""
    release = RunMachine._release

    def forgetful(self: RunMachine) -> list[HeldOutcome]:
        release(self)
        return []

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RunMachine, "_release", forgetful)
        yield


@contextmanager
def held_outcome_doubted() -> Iterator[None]:
    """The step of a held outcome stays open: the next host takes its attempt for interrupted."""

    def careless(self: RunMachine, event: HeldOutcome) -> None:
        self._held.append((event, self.promises[event.promise_id]))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RunMachine, "_hold", careless)
        yield


@contextmanager
def begun_while_paused() -> Iterator[None]:
    """Steps that had not begun when the run was paused begin all the same."""
    paused = RunMachine.on_paused

    def eager(self: RunMachine, event: Any) -> None:
        paused(self, event)
        self.is_paused = False

    facts: dict[Any, Any] = machine._FACTS
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(facts, RunPaused, eager)
        yield


@contextmanager
def logical_attempt_repeated() -> Iterator[None]:
    """A retried step begins its first logical attempt again."""
    begin = DurablePromise.begin_logical_attempt

    def again(self: DurablePromise) -> None:
        begin(self)
        self.logical_attempt = 1

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DurablePromise, "begin_logical_attempt", again)
        yield


@contextmanager
def key_reused() -> Iterator[None]:
    """All logical attempts of a step have one key."""

    def same(run_id: RunId, step: StepId, _: int = 1) -> str:
        return idempotency_text(run_id, step)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(attempt, "idempotency_text", same)
        yield


@contextmanager
def parameters_forgotten() -> Iterator[None]:
    """A replay does not apply the acts that changed parameters."""
    accepted = RunMachine.on_accepted

    def forgetful(self: RunMachine, event: Any) -> None:
        if event.payload is None or not self.record.is_replaying:
            accepted(self, event)

    facts: dict[Any, Any] = machine._FACTS
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(facts, SignalAccepted, forgetful)
        yield


@contextmanager
def parameters_left_behind() -> Iterator[None]:
    """A continued run begins with the first values of the chain."""
    begin = RunParameters.begin

    def forgetful(self: RunParameters, payload: bytes | None) -> None:
        begin(self, payload)
        self.given = {}

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RunParameters, "begin", forgetful)
        yield


@contextmanager
def denied_act_applies() -> Iterator[None]:
    """The owner does not look at the authorizer's denial."""

    def generous(act: Act, *rest: Any, **named: Any) -> str | None:
        return verdict(msgspec.structs.replace(act, refusal=None), *rest, **named)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(acts, "verdict", generous)
        yield


class Bug(NamedTuple):
    """A bug, the case that shows it, when its acts come, the mode, and what the explorer says."""

    seed: Callable[[], AbstractContextManager[None]]
    case: str
    moment: int
    symptom: str
    mode: str = "warm"


BUGS = {
    bug.seed.__name__: bug
    for bug in (
        Bug(effect_apart_from_decision, "racing", 2, "without its effect", "stepwise"),
        Bug(decision_without_effect, "racing", 2, "without its effect"),
        Bug(effect_without_decision, "racing", 2, "without its decision"),
        Bug(held_outcome_lost, "racing", 2, "nothing is due and nothing runs"),
        Bug(held_outcome_doubted, "racing", 2, "again after its completion|can't be written"),
        Bug(begun_while_paused, "racing", 1, "comes while the run is paused|can't be written"),
        Bug(logical_attempt_repeated, "graph retried", 1, "has the key of attempt 1"),
        Bug(key_reused, "graph retried", 1, "has the key of attempt 1"),
        Bug(parameters_forgotten, "tuned", 2, "is not what run"),
        Bug(parameters_left_behind, "chain tuned", 1, "2 == 51"),
        Bug(denied_act_applies, "denied", 1, "'cancelled' == 'completed'"),
    )
}
