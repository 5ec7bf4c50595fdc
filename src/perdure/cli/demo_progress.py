"""How far a run has come: its steps, as the entries of its journal tell."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from enum import Enum

from perdure.core.ids import StepId
from perdure.core.journal import events as e
from perdure.core.journal.entry import Entry
from perdure.core.journal.postings import effect_of
from perdure.core.ledger import AccountId, post_to, step_account
from perdure.core.replay.doubt import doubted_steps, resolution_of


class State(Enum):
    SCHEDULED = "scheduled"
    WAITING = "waiting"
    RUNNING = "running"
    RETRYING = "failed, will be tried again"
    DOUBT = "in doubt: begun again"
    DONE = "done"
    FAILED = "failed"


@dataclass(frozen=True)
class Step:
    """One step. `attempt` is the last that has begun."""

    id: StepId
    name: str
    state: State
    attempt: int = 0
    is_doubted: bool = False

    def __str__(self) -> str:
        if self.attempt > 1 and self.state in (State.RUNNING, State.DONE):
            return f"{self.state.value}, attempt {self.attempt}"
        return self.state.value


@dataclass(frozen=True)
class Line:
    """An entry, the step that it is about as it was then, and that step's account before and after."""

    entry: Entry
    step: Step | None
    before: int = 0
    after: int = 0


@dataclass
class Progress:
    """A fold over the entries of one run."""

    steps: dict[StepId, Step] = field(default_factory=dict)
    lines: list[Line] = field(default_factory=list)
    balances: dict[AccountId, int] = field(default_factory=dict)
    messages: dict[AccountId, StepId] = field(default_factory=dict)
    """The accounts of messages, with the step that each was for."""
    is_over: bool = False

    @property
    def seq(self) -> int:
        """The number of the next entry."""
        return len(self.lines)

    def add(self, entries: Iterable[Entry]) -> list[Line]:
        """Take new entries in; returns what they say."""
        lines = [self._line(entry) for entry in entries]
        self.lines += lines
        return lines

    def running(self, name: str) -> Step | None:
        """The step of that name, while it is under way."""
        steps = (step for step in self.steps.values() if step.name == name)
        return next((step for step in steps if step.state is State.RUNNING), None)

    def _line(self, entry: Entry) -> Line:
        event = entry.event
        step = self._step(event)
        account = None if step is None else step_account(step.id)
        before = 0 if account is None else self.balances.get(account, 0)
        for name, increment in effect_of(event)[0]:
            self.balances[name] = post_to(name, self.balances.get(name, 0), increment)
            if step is not None and name != account:
                self.messages[name] = step.id
        after = 0 if account is None else self.balances.get(account, 0)
        self.is_over |= isinstance(event, e.Terminal)
        return Line(entry, step, before, after)

    def _step(self, event: e.Event) -> Step | None:
        """The step that `event` is about, as it is now."""
        steps = self.steps
        match event:
            case e.InvokeScheduled(promise_id=step_id, function_name=name):
                steps[step_id] = Step(step_id, name, State.SCHEDULED)
            case e.TimerScheduled(promise_id=step_id):
                steps[step_id] = Step(step_id, "sleep", State.WAITING)
            case e.InvokeStarted(promise_id=step_id, attempt=attempt):
                steps[step_id] = replace(steps[step_id], state=State.RUNNING, attempt=attempt)
            case e.InvokeRetrying(promise_id=step_id):
                steps[step_id] = replace(steps[step_id], state=State.RETRYING)
            case e.InvokeCompleted(promise_id=step_id, ok=ok):
                state = State.DONE if ok else State.FAILED
                steps[step_id] = replace(steps[step_id], state=state)
            case e.TimerFired(promise_id=step_id):
                steps[step_id] = replace(steps[step_id], state=State.DONE)
            case e.Posted() if resolution_of(event) is not None:
                ((step_id, _),) = doubted_steps(event)
                steps[step_id] = replace(steps[step_id], state=State.DOUBT, is_doubted=True)
            case _:
                return None
        return steps[step_id]
