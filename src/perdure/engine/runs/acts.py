"""Feeds a run the acts of operators: the decision, and its effect if the act is accepted.

Decision, effect and acknowledgement commit together, also where commits are stepwise (`atomic_parts`): after a crash
between them the act would count as received, and have no effect.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import takewhile
from typing import Final

import msgspec

from perdure.core.errors import NotDecodable
from perdure.core.ids import StepId
from perdure.core.journal import events as e
from perdure.core.journal.entry import Entry
from perdure.core.journal.events import ActType
from perdure.core.journal.state import Status
from perdure.core.messages import Message
from perdure.core.replay.identity import retry_guid
from perdure.core.runs.acts import (
    EXPLANATIONS,
    RETRY_AT_ONCE_MS,
    WINDOW_MS,
    Act,
    Code,
    StepStanding,
    act_message,
    act_of,
    is_over_limit,
    verdict,
)
from perdure.engine.runs.effects import (
    Acknowledge,
    Enqueue,
    HoldWork,
    PutWork,
    RecordedChange,
    RunEffect,
    UnparkStep,
)
from perdure.engine.runs.log_notes import PauseBegun, PauseEnded
from perdure.engine.runs.machine import RunMachine
from perdure.engine.runs.promise import DurablePromise, PromiseKind
from perdure.engine.runs.warm import WarmRun
from perdure.engine.runs.work_payload import work_of

_UNLIMITED: Final = (ActType.CANCEL, ActType.EMERGENCY_STOP)
"""Acts that no flood of others can keep from a run. Each is accepted once."""

_EFFECTS: Final[dict[str, type[e.Event]]] = {
    ActType.PAUSE: e.RunPaused,
    ActType.RESUME: e.RunResumed,
    ActType.CANCEL: e.CancelRequested,
    ActType.SKIP_STEP: e.StepSkipped,
    ActType.EMERGENCY_STOP: e.ExecutionCancelled,
}
"""The event that is the effect of an accepted act, if the acceptance itself is not."""


def take_act(warm: WarmRun, message: Message) -> bool:
    """Feed the decision on an act and its effect. False if it is set aside without an entry (`act_refusal`)."""
    act = act_of(message)
    if act is None:
        return False
    machine, now = warm.machine, warm.machine.sources.now_ms()
    code = _decide(warm, act)
    is_urgent = code is None and act.type in _UNLIMITED
    if is_over_limit(warm.act_times, now, warm.machine.acts_per_minute) and not is_urgent:
        return False
    warm.act_times.append(now)
    acknowledge = Acknowledge(message.guid)
    if code is not None:
        machine.feed(rejection_of(act, message, code), acknowledge)
        return True
    machine.feed(acceptance_of(act, message), acknowledge)
    _apply(machine, act)
    return True


def act_refusal(message: Message) -> str:
    """Why an open run took an act in without an entry."""
    if act_of(message) is None:
        return f"{Code.UNSUPPORTED}: the act can't be read"
    return f"{Code.RATE_LIMITED}: {EXPLANATIONS[Code.RATE_LIMITED]}"


def acceptance_of(act: Act, message: Message) -> e.SignalAccepted:
    values = act.value if act.type is ActType.UPDATE_PARAMS else None
    return e.SignalAccepted(
        *(act.id, act.type, act.by, message.guid, act.role, act.step, act.reason), payload=values
    )


def rejection_of(act: Act, message: Message, code: str) -> e.SignalRejected:
    return e.SignalRejected(
        *(act.id, act.type, act.by, act.reason, message.guid, act.role, act.step, code)
    )


def atomic_parts(changes: Sequence[RecordedChange]) -> Iterator[list[RecordedChange]]:
    """The smallest commits that the changes may be divided into: an accepted act is one with its effect, and so is the
    approval of a run with its start."""
    left = iter(changes)
    for change in left:
        part = [change]
        if isinstance(change.event, e.SignalAccepted):
            effect = _EFFECTS.get(change.event.signal_type)
            while effect is not None and not isinstance(part[-1].event, effect):
                part.append(next(left))
        elif isinstance(change.event, e.RunApproved):
            part.append(next(left))
        yield part


def decision_times(entries: Sequence[Entry], now_ms: int) -> list[int]:
    """When acts were decided in the last minute, by the journal: they count towards the limit."""
    decisions = ('"type":"SignalAccepted"', '"type":"SignalRejected"')
    recent = takewhile(lambda entry: entry.at_ms > now_ms - WINDOW_MS, reversed(entries))
    return [entry.at_ms for entry in recent if any(each in entry.body for each in decisions)]


def release_effects(machine: RunMachine) -> tuple[RunEffect, ...]:
    """What ends with the pause of the run, if it is paused: hosts may claim its tasks again, and deliver to it."""
    if not machine.is_paused:
        return ()
    machine.log_notes.append(PauseEnded())
    return (HoldWork(False),) if _is_queued(machine) else ()


def _is_queued(machine: RunMachine) -> bool:
    return any(each.kind is PromiseKind.QUEUED for each in machine.promises.values())


def _decide(warm: WarmRun, act: Act) -> str | None:
    machine = warm.machine
    status = Status.PAUSED if machine.is_paused else Status.RUNNING
    step = None if act.step is None else _standing(warm, act.step)
    code = verdict(act, status, is_cancelled=machine.cancel_reason is not None, step=step)
    if code is None and act.type is ActType.SKIP_STEP and act.step is not None:
        return None if _fits(machine, machine.promises[act.step], act.value) else Code.VALUE_MISFIT
    if code is None and act.type is ActType.UPDATE_PARAMS:
        parameters = machine.parameters
        return Code.NO_PARAMETERS if parameters is None else parameters.refusal(act.value)
    return code


def _standing(warm: WarmRun, step: StepId) -> StepStanding:
    # The machine is ahead of the journal by the decisions of this turn.
    state, promise = warm.journal.state, warm.machine.promises.get(step)
    is_known = promise is not None or step in state.scheduled or step in state.timers
    return StepStanding(is_known, promise is None, promise is not None and promise.is_parked)


def _fits(machine: RunMachine, promise: DurablePromise, value: bytes | None) -> bool:
    """Whether the value is one that the step may have as its result; a skip without a value gives `None`."""
    try:
        promise.call.definition.signature.unpack_result(machine.codec, value or b"null")
    except NotDecodable:
        return False
    return True


def _apply(machine: RunMachine, act: Act) -> None:
    match act.type:
        case ActType.PAUSE:
            hold = (HoldWork(True),) if _is_queued(machine) else ()
            machine.log_notes.append(PauseBegun(act.by, act.reason))
            paused = e.RunPaused(act.reason, act.id)
            machine.feed(paused, *hold, *_descend(machine, act))
        case ActType.RESUME:
            effects = (*release_effects(machine), *_descend(machine, act))
            machine.feed(e.RunResumed(act.id), *effects)
        case ActType.CANCEL:
            effects = release_effects(machine)
            machine.feed(e.CancelRequested(act.reason, signal_id=act.id), *effects)
        case ActType.SKIP_STEP if act.step is not None:
            skipped = e.StepSkipped(act.step, act.reason, 1, act.id, payload=act.value or b"null")
            machine.feed_skip(machine.promises[act.step], skipped, UnparkStep(act.step))
        case ActType.RETRY_STEP if act.step is not None:
            _begin_again(machine, machine.promises[act.step])
        case _:
            pass  # the acceptance was the effect


def _begin_again(machine: RunMachine, promise: DurablePromise) -> None:
    """The effects of the acceptance just fed: they need the promise as that left it."""
    step, run_id = promise.step, machine.info.run_id
    again: tuple[RunEffect, ...]
    if promise.kind is PromiseKind.QUEUED:
        work = work_of(machine, promise, promise.attempt + 1, RETRY_AT_ONCE_MS)
        again = (PutWork(work), HoldWork(True)) if machine.is_paused else (PutWork(work),)
    else:
        guid = retry_guid(run_id, step, promise.attempt)
        due = RETRY_AT_ONCE_MS
        again = (Enqueue(Message(run_id, guid, "retry", due, due, step)),)
    accepted = machine.record.changes[-1]
    effects = (*accepted.effects, UnparkStep(step), *again)
    machine.record.changes[-1] = RecordedChange(accepted.event, effects)


def _descend(machine: RunMachine, act: Act) -> Iterable[RunEffect]:
    """The same act for the open child runs, if it descends."""
    children = [
        promise.child_run
        for promise in machine.promises.values()
        if act.descends and promise.child_run is not None and not promise.retry_at_ms
    ]
    plain = msgspec.structs.replace(act, step=None, value=None)
    return [Enqueue(act_message(child, plain, machine.arrival())) for child in children]
