"""Feeds a run the doubts about its steps: attempts that started and whose outcome is unknown.

The effect of such an attempt may have happened. The task's `on_doubt` policy decides whether the step gets another
attempt, under the same idempotency key, or fails.
"""

from collections.abc import Callable

from perdure.authoring.values.failures import encode_failure
from perdure.core.ids import RunId, StepId
from perdure.core.journal import events as e
from perdure.core.ledger import ActivityLedger, step_account
from perdure.core.limits import MAX_ATTEMPTS
from perdure.core.replay.doubt import (
    MOST_DOUBTS,
    Doubt,
    Resolution,
    attempts_used_up,
    doubt_entry,
    parse_doubt,
    resolve,
    step_in_doubt,
)
from perdure.engine.runs.attempts import running_promise
from perdure.engine.runs.failing import note_failure, park_step, parks_failure
from perdure.engine.runs.log_notes import StepDoubted
from perdure.engine.runs.machine import RunMachine
from perdure.engine.runs.promise import DurablePromise, PromiseKind
from perdure.engine.runs.warm import WarmRun

IsRunning = Callable[[RunId, StepId, int], bool]
"""Whether this host is executing that attempt of a step."""


def recover_attempts(warm: WarmRun, is_running_here: IsRunning, max_doubts: int) -> None:
    """Settle the local tasks that the run's last host left open, after this host has loaded the run.

    A task that started and does not run on this host is in doubt; after `max_doubts` doubts its step fails. Tasks that
    never started, or whose retry is due, start.
    """
    machine = warm.machine
    now = machine.sources.now_ms()
    machine.unstarted = []
    for promise in list(machine.promises.values()):
        if promise.kind is not PromiseKind.LOCAL or promise.is_unwanted or promise.is_parked:
            continue
        if promise.is_given_up:
            _fail_in_doubt(machine, promise)
        elif promise.is_running:
            if not is_running_here(warm.run_id, promise.step, promise.attempt):
                _doubt(warm, promise, max_doubts)
        elif not promise.attempt or promise.retry_at_ms <= now:
            machine.unstarted.append(promise)


def _doubt(warm: WarmRun, promise: DurablePromise, max_doubts: int) -> None:
    machine, step = warm.machine, promise.step
    left = _attempts_left(warm, step)
    resolution = resolve(promise.task.on_doubt, promise.doubts + 1, max_doubts, promise.stops)
    if left <= 1:
        resolution = Resolution.FAIL  # the step's account can't count another attempt
    _note_doubt(machine, promise, promise.attempt, Doubt(promise.doubts + 1, resolution))
    if left:
        machine.feed(doubt_entry(step, 1, resolution))
    if resolution is Resolution.FAIL:
        _fail_in_doubt(machine, promise, is_used_up=left <= 1)
    else:
        machine.unstarted.append(promise)


def _attempts_left(warm: WarmRun, step: StepId) -> int:
    """How many more attempts the step's account can count."""
    balance = warm.journal.state.balances.get(step_account(step), 0)
    return MAX_ATTEMPTS - ActivityLedger(balance).attempts


def _fail_in_doubt(
    machine: RunMachine, promise: DurablePromise, *, is_used_up: bool = False
) -> None:
    step, policy = promise.step, promise.task.on_doubt
    if policy is not Resolution.FAIL and (is_used_up or promise.doubts >= MOST_DOUBTS):
        run_id, stops = machine.info.run_id, promise.stops
        error = attempts_used_up(run_id, step, promise.name, stops, promise.deaths)
    else:
        error = step_in_doubt(step, promise.name, policy, promise.deaths)
    payload = encode_failure(machine.codec, error)
    if parks_failure(machine, promise):
        park_step(machine, promise, promise.attempt, payload)
        return
    note_failure(machine, promise, promise.attempt, payload)
    machine.feed(e.InvokeCompleted(step, promise.attempt, False, payload=payload))


def stop_attempt(warm: WarmRun, step: StepId, attempt: int) -> None:
    """This host ended an attempt in order to stop. The doubt does not count as a death of the host.

    If the step may not get another attempt nothing is journaled: the next host finds the doubt and fails the step.
    """
    promise = running_promise(warm, step, attempt)
    if promise is None:
        return
    policy = promise.task.on_doubt
    # The last doubt that the account can count is reserved for one that fails the step.
    has_room = promise.doubts + 1 < MOST_DOUBTS and _attempts_left(warm, step) > 1
    if policy is not Resolution.FAIL and has_room:
        warm.machine.feed(doubt_entry(step, 1, policy, is_stopped=True))


def restart_attempt(warm: WarmRun, step: StepId, attempt: int) -> None:
    """The store cut off an attempt on this host after it had begun. The doubt does not count as a death of the host.

    The step gets another attempt, unless its account can count no more doubts.
    """
    machine = warm.machine
    promise = running_promise(warm, step, attempt)
    if promise is None:
        return
    total, stops = promise.doubts + 1, promise.stops + 1
    resolution = resolve(promise.task.on_doubt, total, MOST_DOUBTS, stops)
    machine.feed(doubt_entry(step, 1, resolution, is_stopped=True))
    if resolution is Resolution.FAIL:
        _fail_in_doubt(machine, promise)
    else:
        machine.unstarted.append(promise)


def journal_reported_doubts(
    warm: WarmRun, promise: DurablePromise, attempt: int, reported: str
) -> None:
    """Journal the doubts that a queue's host reports with the outcome of an attempt.

    The report counts all doubts of the step; only those that the journal does not have yet are added.
    """
    machine = warm.machine
    doubt = total, resolution, stops = parse_doubt(reported)
    left = _attempts_left(warm, promise.step)
    count = min(left, max(0, min(total, MOST_DOUBTS) - promise.doubts))
    stopped = min(count, stops - promise.stops)
    if stopped > 0:
        policy = promise.task.on_doubt
        machine.feed(doubt_entry(promise.step, stopped, policy, is_stopped=True))
        count -= stopped
    if count > 0:
        _note_doubt(machine, promise, attempt, doubt)
        machine.feed(doubt_entry(promise.step, count, resolution))


def _note_doubt(machine: RunMachine, promise: DurablePromise, attempt: int, doubt: Doubt) -> None:
    total, resolution, queue = doubt.total, doubt.resolution, promise.task.queue
    machine.log_notes.append(
        StepDoubted(promise.step, promise.name, attempt, total, resolution, queue)
    )
