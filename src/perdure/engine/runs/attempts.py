"""Feeds a run the outcomes of attempts, and decides whether a failed attempt is retried.

An outcome counts only while its attempt is the one under way. A duplicate or late outcome has no effect, so a host may
report the same outcome again after a crash.
"""

from collections.abc import Iterable

from perdure.authoring.values.failures import decode_failure
from perdure.core.errors import RunCancelled
from perdure.core.ids import StepId
from perdure.core.journal import events as e
from perdure.core.messages import Message
from perdure.core.replay.doubt import reconciled_entry
from perdure.core.replay.identity import retry_guid
from perdure.core.replay.retry_delay import retry_at
from perdure.engine.runs.attempt_outcome import AttemptOutcome
from perdure.engine.runs.effects import Enqueue, Publish
from perdure.engine.runs.failing import note_failure, park_step, parks_failure
from perdure.engine.runs.log_notes import RetryScheduled
from perdure.engine.runs.machine import RunMachine
from perdure.engine.runs.promise import DurablePromise, PromiseKind
from perdure.engine.runs.warm import WarmRun

_CHANCES = 1 << 16


def running_promise(warm: WarmRun, step: StepId, attempt: int) -> DurablePromise | None:
    """The promise of `step`, if that attempt of it is under way."""
    promise = warm.machine.promises.get(step)
    if promise is None or not promise.is_running or promise.attempt != attempt:
        return None
    return promise


def complete_attempt(
    warm: WarmRun,
    step: StepId,
    attempt: int,
    outcome: AttemptOutcome,
    published: Iterable[Publish] = (),
) -> None:
    """An attempt on this host ended. `published` values may not be durable yet; they commit with the outcome."""
    machine = warm.machine
    promise = running_promise(warm, step, attempt)
    if promise is None:
        return
    due = None if outcome.ok else retry_due_ms(machine, promise, outcome)
    if due is None:
        if outcome.is_reconciled:
            machine.feed(reconciled_entry(step))
        if not outcome.ok:
            if parks_failure(machine, promise):
                park_step(machine, promise, attempt, outcome.payload, *published)
                return
            note_failure(machine, promise, attempt, outcome.payload)
        completed = e.InvokeCompleted(
            step, attempt, outcome.ok, payload=outcome.payload, artifacts=outcome.artifacts
        )
        machine.feed(completed, *published)
        return
    guid = retry_guid(warm.run_id, step, attempt)
    message = Message(warm.run_id, guid, "retry", due, due, step)
    retrying = e.InvokeRetrying(step, attempt, due, payload=outcome.payload)
    note_retry(machine, promise, retrying)
    machine.feed(retrying, Enqueue(message), *published)


def retry_due_ms(
    machine: RunMachine, promise: DurablePromise, outcome: AttemptOutcome
) -> int | None:
    """When the next attempt is due; `None` if this outcome is the step's last."""
    if outcome.ok or promise.is_finishing:
        return None
    if promise.kind is PromiseKind.CHILD:
        return _child_retry_due_ms(machine, promise, outcome)
    if not outcome.may_retry:
        return None
    task, chance = promise.task, _chance(machine)
    # A doubt is not a failure, but it gives a local task a new attempt number.
    failures = promise.attempt - promise.earlier_attempts
    failures -= promise.doubts if promise.kind is PromiseKind.LOCAL else 0
    return retry_at(task.policy, failures, machine.sources.now_ms(), task.retry.jitter, chance)


def _child_retry_due_ms(
    machine: RunMachine, promise: DurablePromise, outcome: AttemptOutcome
) -> int | None:
    """When another run replaces a failed child. A cancelled child is not replaced."""
    retry = promise.retry
    if retry is None or promise.is_unwanted:
        return None
    what = f"run {promise.child_run!r} (step {promise.step})"
    failure = decode_failure(machine.codec, outcome.payload, what=what)
    if isinstance(failure, RunCancelled) or not retry.covers(failure):
        return None
    now = machine.sources.now_ms()
    return retry_at(retry.policy, promise.attempt, now, retry.jitter, _chance(machine))


def _chance(machine: RunMachine) -> float:
    return int.from_bytes(machine.sources.entropy(2), "big") / _CHANCES


def note_retry(machine: RunMachine, promise: DurablePromise, event: e.InvokeRetrying) -> None:
    is_child = promise.kind is PromiseKind.CHILD
    queue = None if is_child else promise.task.queue
    retry = promise.retry or promise.task.retry
    error = event.payload or b"null"
    machine.log_notes.append(
        RetryScheduled(
            "child run" if is_child else "task",
            *(promise.step, promise.name, event.failed_attempt, retry.attempts),
            *(event.retry_at_ms, error, queue),
        )
    )
