"""The legs of a step and the three steps of a transition, as lists of digit-labelled parts.

A step has two legs: the first asks (it schedules work, or passes through), the second takes the answer.
Taking an answer is three steps: do the work, spawn the children, and, if that closed the run, complete it.
Each part certifies itself with a digit, in the same commit as what it does. So the host that resumes reads the
digits and plans only the parts that are missing; whether the parts before were committed together or
one by one makes no difference.

Everything here is pure: digits in, parts out.
"""

from enum import StrEnum

import msgspec

from perdure.core.ids import Guid, StepId
from perdure.core.journal.events import (
    Event,
    ExecutionCompleted,
    ExecutionStarted,
    InvokeCompleted,
    InvokeScheduled,
    InvokeStarted,
    Posted,
    Posting,
)
from perdure.core.journal.state import State
from perdure.core.ledger import (
    ATTEMPT,
    CLOSED,
    ENTRY,
    LEG1_DONE,
    SPAWNED,
    WORK_DONE,
    ActivityLedger,
    MessageLedger,
    Settlement,
    message_account,
    settle,
    step_account,
)
from perdure.core.messages import Message, Work


class Digit(StrEnum):
    """What a part proves."""

    ATTEMPT = "attempt"
    LEG1 = "leg 1 done"
    ENTRY = "entry"
    WORK = "work done"
    SPAWN = "children spawned"
    COMPLETE = "run completed"
    ACKNOWLEDGE = "acknowledged"


class Part(msgspec.Struct, frozen=True):
    """One indivisible piece of a transition: its entries, and what commits with them."""

    digit: Digit
    events: tuple[Event, ...] = ()
    messages: tuple[Message, ...] = ()
    work: tuple[Work, ...] = ()
    settlement: Settlement | None = None
    """How the semaphore moves, if this is step 2."""
    acknowledges: bool = False
    mark: str | None = None
    """Instead of being acknowledged, the message is kept as `stale` or `dead`."""


class Transition(msgspec.Struct, frozen=True):
    """One message on its way through a step: what it asks for, and what follows from it.

    `children` are the messages to the step's successors; `result` is what the run returns if this
    transition closes it. A re-entrant step admits more than one message, and is never finalized.
    """

    step: StepId
    guid: Guid
    children: tuple[Message, ...] = ()
    result: bytes | None = None
    reentrant: bool = False


_DONE = Part(Digit.ACKNOWLEDGE, acknowledges=True)
"""Nothing is left to do for the message."""

_LATE = Part(Digit.ACKNOWLEDGE, mark="dead")
"""To a run that is over: kept for inspection, never journaled."""


def step_ledger(state: State, step: StepId) -> ActivityLedger:
    return ActivityLedger(state.balances.get(step_account(step), 0))


def message_ledger(state: State, guid: Guid) -> MessageLedger:
    return MessageLedger(state.balances.get(message_account(guid), 0))


def plan_leg1(state: State, ask: Transition, scheduled: InvokeScheduled, work: Work) -> list[Part]:
    """The first leg of a step that responds later: count the attempt, put the work on its queue."""
    if state.is_terminal:
        return [_LATE]
    attempt = Part(Digit.ATTEMPT, (Posted("attempt", (Posting(step_account(ask.step), ATTEMPT),)),))
    if step_ledger(state, ask.step).leg1_done:
        return [attempt, _DONE]
    return [
        attempt,
        Part(Digit.LEG1, (scheduled,), work=(work,)),
        _DONE,
    ]


def plan_passthrough(state: State, ask: Transition) -> list[Part]:
    """A step with one leg: it does its work at once and continues with the three steps."""
    message = message_ledger(state, ask.guid)
    if message.settled:
        return [_DONE]
    if state.is_terminal:
        return [_LATE]
    step = step_account(ask.step)
    entered = [Posting(step, ATTEMPT)]
    if not message:
        entered.append(Posting(message_account(ask.guid), ENTRY))
    parts = [Part(Digit.ATTEMPT, (Posted("attempt", tuple(entered)),))]
    if message.needs_work:
        done = Posting(message_account(ask.guid), WORK_DONE)
        posted = Posted("work", (done, Posting(step, LEG1_DONE)))
        parts.append(Part(Digit.WORK, (posted,)))
    return parts + _spawn_and_complete(state, ask)


def plan_leg2(state: State, answer: Transition, outcome: InvokeCompleted) -> list[Part]:
    """The second leg: enter once per message, take the outcome, spawn, and complete if it closes."""
    message = message_ledger(state, answer.guid)
    if message.settled:
        return [_DONE]
    if state.is_terminal:
        return [_LATE]
    parts = []
    if not message:
        step = step_ledger(state, answer.step)
        if step.is_finalized or (step.entries and not answer.reentrant):
            return [Part(Digit.ACKNOWLEDGE, mark="stale")]
        seed = Posting(message_account(answer.guid), step.entries + 1)
        posted = Posted("entry", (Posting(step_account(answer.step), ENTRY), seed))
        parts.append(Part(Digit.ENTRY, (posted,)))
    if message.needs_work:
        started = InvokeStarted(outcome.promise_id, outcome.attempt)
        parts.append(Part(Digit.WORK, (started, outcome)))
    return parts + _spawn_and_complete(state, answer)


def plan_trigger(state: State, start: Transition, inception: ExecutionStarted) -> list[Part]:
    """The birth of a run: inception, the first children, completion if there are none.

    A trigger has no closed bit: it closes the run exactly if it has no children, and a semaphore
    at 0 does not tell that, because the last step leaves it so too. It is never finalized.
    """
    parts = []
    message = message_ledger(state, start.guid)
    if not message:
        parts.append(Part(Digit.WORK, (inception,)))
    if not message.spawned:
        posting = Posting(message_account(start.guid), SPAWNED)
        posted = Posted("spawn", (posting,), len(start.children) - 1)
        parts.append(Part(Digit.SPAWN, (posted,), messages=start.children))
    if not start.children and not message.completed:
        completed = ExecutionCompleted(payload=start.result, released=0, guid=start.guid)
        parts.append(Part(Digit.COMPLETE, (completed,)))
    return parts


def _spawn_and_complete(state: State, transition: Transition) -> list[Part]:
    """Steps 2 and 3, as far as the message's digits show them missing."""
    parts = []
    message = message_ledger(state, transition.guid)
    closed = message.closed
    if not message.spawned:
        settlement = settle(state.semaphore, len(transition.children))
        closed = settlement.closed
        posting = Posting(message_account(transition.guid), SPAWNED + closed * CLOSED)
        posted = Posted("spawn", (posting,), settlement.delta)
        parts.append(Part(Digit.SPAWN, (posted,), transition.children, settlement=settlement))
    if closed and not message.completed:
        step = None if transition.reentrant else transition.step
        completed = ExecutionCompleted(
            payload=transition.result, released=0, guid=transition.guid, step=step
        )
        parts.append(Part(Digit.COMPLETE, (completed,)))
    return [*parts, _DONE]
