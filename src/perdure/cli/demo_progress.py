"""The progress of a run: its steps and accounts, computed from its journal entries."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from enum import Enum

from perdure.core.ids import StepId
from perdure.core.journal import events as e
from perdure.core.journal.entry import Entry
from perdure.core.journal.postings import effect_of
from perdure.core.ledger import AccountId, post_to, step_account
from perdure.core.replay.doubt import doubted_steps, resolution_of


class StepState(Enum):
    SCHEDULED = "scheduled"
    WAITING = "waiting"
    RUNNING = "running"
    RETRYING = "failed, will be retried"
    DOUBT = "in doubt, will be retried"
    DONE = "done"
    FAILED = "failed"


@dataclass(frozen=True)
class StepProgress:
    """The current state of one step. `attempt` is the newest started attempt."""

    id: StepId
    name: str
    state: StepState
    attempt: int = 0
    is_doubted: bool = False

    def __str__(self) -> str:
        if self.attempt > 1 and self.state in (StepState.RUNNING, StepState.DONE):
            return f"{self.state.value}, attempt {self.attempt}"
        return self.state.value


@dataclass(frozen=True)
class JournalLine:
    """An entry, the state of its step after it, and the balance of the step's account before and after."""

    entry: Entry
    step: StepProgress | None
    before: int = 0
    after: int = 0


@dataclass
class RunProgress:
    """The steps and account balances of one run, updated entry by entry."""

    steps: dict[StepId, StepProgress] = field(default_factory=dict)
    lines: list[JournalLine] = field(default_factory=list)
    balances: dict[AccountId, int] = field(default_factory=dict)
    messages: dict[AccountId, StepId] = field(default_factory=dict)
    """Message accounts and the step of each message."""
    is_over: bool = False

    @property
    def seq(self) -> int:
        """The `seq` of the next entry."""
        return len(self.lines)

    def add(self, entries: Iterable[Entry]) -> list[JournalLine]:
        """Applies new entries and returns a line for each."""
        lines = [self._line(entry) for entry in entries]
        self.lines += lines
        return lines

    def running(self, name: str) -> StepProgress | None:
        """The running step of that name."""
        steps = (step for step in self.steps.values() if step.name == name)
        return next((step for step in steps if step.state is StepState.RUNNING), None)

    def _line(self, entry: Entry) -> JournalLine:
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
        return JournalLine(entry, step, before, after)

    def _step(self, event: e.Event) -> StepProgress | None:
        """Updates the step of `event`; `None` if the event has no step."""
        steps = self.steps
        match event:
            case e.InvokeScheduled(promise_id=step_id, function_name=name):
                steps[step_id] = StepProgress(step_id, name, StepState.SCHEDULED)
            case e.TimerScheduled(promise_id=step_id):
                steps[step_id] = StepProgress(step_id, "sleep", StepState.WAITING)
            case e.InvokeStarted(promise_id=step_id, attempt=attempt):
                steps[step_id] = replace(steps[step_id], state=StepState.RUNNING, attempt=attempt)
            case e.InvokeRetrying(promise_id=step_id):
                steps[step_id] = replace(steps[step_id], state=StepState.RETRYING)
            case e.InvokeCompleted(promise_id=step_id, ok=ok):
                state = StepState.DONE if ok else StepState.FAILED
                steps[step_id] = replace(steps[step_id], state=state)
            case e.TimerFired(promise_id=step_id):
                steps[step_id] = replace(steps[step_id], state=StepState.DONE)
            case e.Posted() if resolution_of(event) is not None:
                ((step_id, _),) = doubted_steps(event)
                steps[step_id] = replace(steps[step_id], state=StepState.DOUBT, is_doubted=True)
            case _:
                return None
        return steps[step_id]
