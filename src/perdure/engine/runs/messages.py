"""Feeds a run the messages that are addressed to it: signals, cancellations, timers, retries, outcomes.

A message that is a duplicate, or that was received after its step ended, is refused: the host then marks it. So a host
may deliver the same message again after a crash.
"""

from collections.abc import Sequence
from functools import partial

from perdure.authoring.program import Program
from perdure.core.ids import RunId, guid_run
from perdure.core.journal import events as e
from perdure.core.ledger import MessageLedger, message_account
from perdure.core.messages import OUTCOMES, Message, is_outcome
from perdure.core.replay.doubt import reconciled_entry
from perdure.core.replay.identity import child_run_id, parent_address, result_guid, retry_guid
from perdure.engine.runs.acts import release_effects, take_act
from perdure.engine.runs.attempt_outcome import AttemptOutcome, unpack_outcome
from perdure.engine.runs.attempts import note_retry, retry_due_ms
from perdure.engine.runs.doubts import journal_reported_doubts
from perdure.engine.runs.effects import Acknowledge, Enqueue, PutWork, RunEffect, SpawnChild
from perdure.engine.runs.failing import note_failure, park_step, parks_failure
from perdure.engine.runs.handover import pass_to_next_run
from perdure.engine.runs.machine import RunMachine
from perdure.engine.runs.prefetched import NO_MESSAGES, PrefetchedMessages
from perdure.engine.runs.promise import DurablePromise, PromiseKind
from perdure.engine.runs.warm import WarmRun
from perdure.engine.runs.work_payload import work_of


def take_messages(warm: WarmRun, first: Message, behind: Sequence[Message]) -> int:
    """Feed `first`, then those `behind` it, in order, as long as the turn can take more. Returns how many were taken.

    Stops at the first message that `take_message` refuses, so none overtakes another. 0 if that is `first`.
    """
    machine = warm.machine
    if not behind:
        return int(take_message(warm, first))
    prefetched = machine.prefetched = PrefetchedMessages(behind, partial(was_received, warm))
    try:
        if not take_message(warm, first):
            return 0
        taken = 1 + prefetched.taken
        while machine.takes_more and (message := prefetched.take()) is not None:
            if is_hook_timeout(machine, message) or not take_message(warm, message):
                break
            taken = 1 + prefetched.taken
        return taken
    finally:
        machine.prefetched = NO_MESSAGES


def take_message(warm: WarmRun, message: Message) -> bool:
    """Feed one message. False if it is a duplicate, or was received after its step ended."""
    machine = warm.machine
    kind, _, detail = message.kind.partition(":")
    if was_received(warm, message):
        return False
    if machine.is_over:
        return pass_to_next_run(machine, message)
    if kind == "cancel":
        return _take_cancel(machine, message, detail)
    if kind == "act":
        return take_act(warm, message)
    return not machine.is_paused and _take_other(warm, message, kind)


def _take_other(warm: WarmRun, message: Message, kind: str) -> bool:
    """Feed a signal, or a message that concerns a step."""
    machine = warm.machine
    if kind == "signal":
        return _take_signal(machine, message)
    promise = None if message.step is None else machine.promises.get(message.step)
    if promise is None:
        return False
    if kind == "timer":
        machine.feed(e.TimerFired(promise.step, message.guid), Acknowledge(message.guid))
        return True
    if kind == "retry":
        return _take_retry(machine, promise, message)
    return kind in OUTCOMES and _take_outcome(warm, promise, message)


def is_held(warm: WarmRun, message: Message) -> bool:
    """Whether the run is paused and takes the message only once it resumes: the message stays pending."""
    machine = warm.machine
    is_for_paused = message.kind.startswith(("cancel", "act:"))
    return machine.is_paused and not is_for_paused and not was_received(warm, message)


def is_hook_timeout(machine: RunMachine, message: Message) -> bool:
    """Whether the message ends the wait of a hook by topic and key.

    Signals in the hook's mailbox go first, so the host matches those before it delivers this message.
    """
    return message.kind == "timer" and machine.has_key(message.step)


def is_for_next_hook(warm: WarmRun, message: Message) -> bool:
    """Whether a refused message is a signal by topic and key whose hook had closed: the next hook may take it."""
    return is_matched(message, warm.chain or warm.run_id) and not was_received(warm, message)


def is_matched(message: Message, origin: RunId) -> bool:
    """Whether a hook brought the message from a mailbox to its run, of the chain that began with `origin`."""
    return message.step is not None and guid_run(message.guid) not in (message.run_id, origin)


def was_received(warm: WarmRun, message: Message) -> bool:
    """Whether the run has taken the message in before."""
    return _is_done(warm, message) or warm.machine.has_unread(message.guid)


def _is_done(warm: WarmRun, message: Message) -> bool:
    """Whether the message's work is done. With stepwise commits a crash may leave its entry without the work."""
    balance = warm.journal.state.balances.get(message_account(message.guid))
    return balance is not None and MessageLedger(balance).work_done


def _take_signal(machine: RunMachine, message: Message) -> bool:
    if not machine.takes_signal(message.step):
        return False
    machine.feed(machine.delivery_of(message), Acknowledge(message.guid))
    return True


def _take_cancel(machine: RunMachine, message: Message, detail: str) -> bool:
    """`detail` belongs to an interruption: the code that a graph fails with, and whether its children stop."""
    if machine.cancel_reason is not None:
        return False
    reason = (message.payload or b"").decode(errors="replace")
    code, _, descends = detail.partition(":")
    requested = e.CancelRequested(reason, message.guid, int(code or 0), descends != "0")
    machine.feed(requested, Acknowledge(message.guid), *release_effects(machine))
    return True


def _take_retry(machine: RunMachine, promise: DurablePromise, message: Message) -> bool:
    due = retry_guid(machine.info.run_id, promise.step, promise.attempt)
    if promise.is_running or promise.is_unwanted or message.guid != due:
        return False
    if promise.kind is PromiseKind.CHILD:
        _start_next_child(machine, promise, message)
    else:
        machine.unstarted.append(promise)
    return True


def _start_next_child(machine: RunMachine, promise: DurablePromise, delay: Message) -> None:
    """Start the next attempt of a step that waits for a child run: a new run."""
    run_id, step, attempt = machine.info.run_id, promise.step, promise.attempt + 1
    program = promise.call.definition
    assert isinstance(program, Program)  # noqa: S101 - the promise's kind implies it
    spawn = SpawnChild(
        child_run_id(run_id, step, attempt),
        program,
        promise.input,
        parent_address(run_id, step, attempt),
        machine.tags,
    )
    machine.feed(e.InvokeStarted(step, attempt), Acknowledge(delay.guid), spawn)


def _take_outcome(warm: WarmRun, promise: DurablePromise, message: Message) -> bool:
    """The outcome of a queued task or of a child run. The message's GUID names the attempt."""
    machine = warm.machine
    step, run_id = promise.step, machine.info.run_id
    is_child = promise.kind is PromiseKind.CHILD
    if is_child and promise.retry_at_ms:
        return False  # the attempt has ended: a duplicate
    # With stepwise commits a crash may leave the start of this attempt without its outcome.
    is_begun = is_child or promise.is_running
    attempt = promise.attempt if is_begun else promise.attempt + 1
    if promise.kind is PromiseKind.LOCAL or message.guid != result_guid(run_id, step, attempt):
        return False
    if not is_outcome(message.kind):
        return False  # a damaged row: the next load of the run reports it
    kind, _, claimed = message.kind.partition(":")
    claim, _, doubts = claimed.partition(":")
    payload, artifacts = unpack_outcome(message.payload or b"null")
    outcome = AttemptOutcome(
        kind in ("completed", "reconciled"),
        payload,
        kind == "failed",
        kind == "reconciled",
        artifacts,
    )
    if doubts:
        # Before the attempt's start: the doubts are about earlier claims, not about this outcome.
        journal_reported_doubts(warm, promise, attempt, doubts)
    if not is_begun:
        machine.feed(e.InvokeStarted(step, attempt))
    acknowledge = Acknowledge(message.guid)
    due = retry_due_ms(machine, promise, outcome)
    if due is None:
        if outcome.is_reconciled:
            machine.feed(reconciled_entry(step))
        if not outcome.ok:
            if parks_failure(machine, promise):
                park_step(machine, promise, attempt, outcome.payload, acknowledge)
                return True
            note_failure(machine, promise, attempt, outcome.payload)
        completed = e.InvokeCompleted(
            step,
            attempt,
            outcome.ok,
            message.guid,
            claim=int(claim or 1),
            payload=outcome.payload,
            artifacts=outcome.artifacts,
        )
        machine.feed(completed, acknowledge)
        return True
    effects: tuple[RunEffect, ...] = (acknowledge, _next_attempt(machine, promise, due))
    queue = None if is_child else promise.task.queue
    retrying = e.InvokeRetrying(step, attempt, due, queue, payload=outcome.payload)
    note_retry(machine, promise, retrying)
    machine.feed(retrying, *effects)
    return True


def _next_attempt(machine: RunMachine, promise: DurablePromise, due_ms: int) -> RunEffect:
    """The effect that starts the next attempt of a queued task or of a step that waits for a child run."""
    attempt, step = promise.attempt, promise.step
    if promise.kind is PromiseKind.QUEUED:
        return PutWork(work_of(machine, promise, attempt + 1, due_ms))
    run_id = machine.info.run_id
    guid = retry_guid(run_id, step, attempt)
    return Enqueue(Message(run_id, guid, "retry", due_ms, due_ms, step))
