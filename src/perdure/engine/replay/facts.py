"""What a host tells a warm run: bodies that ended, messages that came, steps that a crash left behind.

Each function looks at what is open and feeds the facts that follow, or nothing: a fact that comes late, or
twice, is not a fact any more. So a host may tell the same thing again after a crash.
"""

from collections.abc import Callable, Iterable
from functools import partial

import msgspec

from perdure.authoring.failures import encode_failure
from perdure.core.ids import RunId, StepId, guid_run
from perdure.core.journal import events as e
from perdure.core.ledger import MessageLedger, message_account
from perdure.core.messages import Message
from perdure.core.replay.doubt import (
    MOST_DOUBTS,
    Doubt,
    Resolution,
    doubt_entry,
    parse_doubt,
    reconciled_entry,
    resolve,
    step_in_doubt,
)
from perdure.core.replay.identity import result_guid, retry_guid
from perdure.core.replay.retrying import retry_at
from perdure.engine.machine import RunMachine
from perdure.engine.replay.beginning import work_of
from perdure.engine.replay.continuing import pass_on
from perdure.engine.replay.effects import Acknowledge, Effect, Enqueue, Publish, PutWork
from perdure.engine.replay.mail import NO_MAIL, MailAtHand, delivered
from perdure.engine.replay.promise import DurablePromise, Place
from perdure.engine.replay.warm import WarmRun

IsRunning = Callable[[RunId, StepId, int], bool]
"""Whether this host executes that attempt of a step now."""

_CHANCES = 1 << 16


class Outcome(msgspec.Struct, frozen=True, gc=False):
    """How an attempt ended. `may_retry` says that the task's policy covers this failure.

    A result that `is_reconciled` was found by the task's reconcile function: the task itself did not run.
    """

    ok: bool
    payload: bytes
    may_retry: bool = False
    is_reconciled: bool = False

    @property
    def kind(self) -> str:
        """What a message that carries it is called."""
        if self.ok:
            return "reconciled" if self.is_reconciled else "completed"
        return "failed" if self.may_retry else "gave-up"

    def kind_by(self, claim: int, doubt: Doubt | None) -> str:
        """The same, of a queued task. One that was in doubt was claimed before: it says so, and which claim this is."""
        return self.kind if doubt is None else f"{self.kind}:{claim}:{doubt}"


OUTCOMES = ("completed", "reconciled", "failed", "gave-up")


def start(machine: RunMachine, promise: DurablePromise) -> int:
    """The next attempt of a local task begins with the next commit. Returns its number."""
    attempt = promise.attempt + 1
    effects: tuple[Effect, ...] = ()
    if promise.retry_at_ms:
        # Its delay ends here and not before, so that a crash finds the message or the attempt.
        delay = retry_guid(machine.info.run_id, promise.step, promise.attempt)
        effects = (Acknowledge(delay),)
    machine.feed(e.InvokeStarted(promise.step, attempt), *effects)
    return attempt


def complete(
    warm: WarmRun, step: StepId, attempt: int, outcome: Outcome, published: Iterable[Publish] = ()
) -> None:
    """A body of this host ended. What it has `published` and may not be durable yet goes with its outcome."""
    promise = warm.machine.promises.get(step)
    if promise is None or not promise.is_running or promise.attempt != attempt:
        return
    again_at = None if outcome.ok else _retry_at(warm.machine, promise, outcome)
    if again_at is None:
        if outcome.is_reconciled:
            warm.machine.feed(reconciled_entry(step))
        completed = e.InvokeCompleted(step, attempt, outcome.ok, payload=outcome.payload)
        warm.machine.feed(completed, *published)
        return
    guid = retry_guid(warm.run_id, step, attempt)
    message = Message(warm.run_id, guid, "retry", again_at, again_at, step)
    retrying = e.InvokeRetrying(step, attempt, again_at, payload=outcome.payload)
    warm.machine.feed(retrying, Enqueue(message), *published)


def _retry_at(machine: RunMachine, promise: DurablePromise, outcome: Outcome) -> int | None:
    if outcome.ok or not outcome.may_retry or promise.place is Place.CHILD:
        return None
    task = promise.task
    chance = int.from_bytes(machine.sources.entropy(2), "big") / _CHANCES
    # Doubts are not failures; only a local attempt gets a new number from one.
    failures = promise.attempt - (promise.doubts if promise.place is Place.LOCAL else 0)
    return retry_at(task.policy, failures, machine.sources.now_ms(), task.retry.jitter, chance)


def resume(warm: WarmRun, is_running_here: IsRunning, max_doubts: int) -> None:
    """Settle what the host that last had this run left behind.

    A local task that had started and is not running here is in doubt: its effect may have happened. Its policy
    says whether it is begun again, under the same idempotency key, until it was in doubt too often.
    """
    machine = warm.machine
    now = machine.sources.now_ms()
    machine.unstarted = []
    for promise in list(machine.promises.values()):
        if promise.place is not Place.LOCAL:
            continue
        if promise.is_given_up:
            _give_up(machine, promise)
        elif promise.is_running:
            if not is_running_here(warm.run_id, promise.step, promise.attempt):
                _doubt(machine, promise, max_doubts)
        elif not promise.attempt or promise.retry_at_ms <= now:
            machine.unstarted.append(promise)


def _doubt(machine: RunMachine, promise: DurablePromise, max_doubts: int) -> None:
    total = promise.doubts + 1
    resolution = resolve(promise.task.on_doubt, total, max_doubts, promise.stops)
    machine.feed(doubt_entry(promise.step, 1, resolution))
    if resolution is Resolution.FAIL:
        _give_up(machine, promise)
    else:
        machine.unstarted.append(promise)


def _give_up(machine: RunMachine, promise: DurablePromise) -> None:
    step = promise.step
    error = step_in_doubt(step, promise.name, promise.task.on_doubt, promise.deaths)
    payload = encode_failure(machine.codec, error)
    machine.feed(e.InvokeCompleted(step, promise.attempt, False, payload=payload))


def stop(warm: WarmRun, step: StepId, attempt: int) -> None:
    """A body of this host was ended, because the host stops. Its step is in doubt, but not as what ends its host.

    One that is not begun again is left to the next host, which fails it.
    """
    promise = warm.machine.promises.get(step)
    if promise is None or not promise.is_running or promise.attempt != attempt:
        return
    policy = promise.task.on_doubt
    # The last doubt that the digits can count is that of a failure.
    if policy is not Resolution.FAIL and promise.doubts + 1 < MOST_DOUBTS:
        warm.machine.feed(doubt_entry(step, 1, policy, is_stopped=True))


def take(warm: WarmRun, message: Message) -> bool:
    """Take a message in. False if it comes too late, or again: then it is to be marked."""
    machine = warm.machine
    kind, _, detail = message.kind.partition(":")
    if _has_come(warm, message):
        return False
    if machine.is_over:
        return pass_on(machine, message)
    if kind == "signal":
        return _take_signal(machine, message)
    if kind == "cancel":
        return _take_cancel(machine, message, detail)
    promise = None if message.step is None else machine.promises.get(message.step)
    if promise is None:
        return False
    if kind == "timer":
        machine.feed(e.TimerFired(promise.step, message.guid), Acknowledge(message.guid))
        return True
    if kind == "retry":
        return _take_retry(machine, promise, message)
    return kind in OUTCOMES and _take_result(machine, promise, message)


def take_in_line(warm: WarmRun, first: Message, behind: Iterable[Message]) -> int:
    """Take a message in, and of those behind it in line as many as this turn can. Returns how many in all.

    None is passed over: the first that is not simply taken in ends it. 0 if it is the very first, as `take` says.
    """
    machine = warm.machine
    mail = machine.mail = MailAtHand(behind, partial(_has_come, warm))
    try:
        if not take(warm, first):
            return 0
        taken = 1 + mail.taken
        while machine.takes_more and (message := mail.take()) is not None:
            if is_after_mail(machine, message) or not take(warm, message):
                break
            taken = 1 + mail.taken
        return taken
    finally:
        machine.mail = NO_MAIL


def is_after_mail(machine: RunMachine, message: Message) -> bool:
    """Whether signals go before it that may not have found their hook: it says that the hook's time is over."""
    return message.kind == "timer" and machine.has_key(message.step)


def is_for_next_hook(warm: WarmRun, message: Message) -> bool:
    """Whether a message that was refused is a signal to topic and key, whose hook was gone when it came."""
    return is_matched(message, warm.chain or warm.run_id) and not _has_come(warm, message)


def is_matched(message: Message, origin: RunId) -> bool:
    """Whether it came to its run, of a chain that began with `origin`, by a hook: it was sent to a mailbox."""
    return message.step is not None and guid_run(message.guid) not in (message.run_id, origin)


def _has_come(warm: WarmRun, message: Message) -> bool:
    return _is_taken(warm, message) or warm.machine.has_unread(message.guid)


def _is_taken(warm: WarmRun, message: Message) -> bool:
    """Whether its work is done. Where parts commit apart, a crash may have left its entry alone."""
    balance = warm.journal.state.balances.get(message_account(message.guid), 0)
    return MessageLedger(balance).work_done


def _take_signal(machine: RunMachine, message: Message) -> bool:
    if not machine.takes_signal(message.step):
        return False
    machine.feed(delivered(machine, message), Acknowledge(message.guid))
    return True


def _take_cancel(machine: RunMachine, message: Message, detail: str) -> bool:
    """`detail` is an interruption's: with which code a graph fails, and whether its children stop."""
    if machine.cancel_reason is not None:
        return False
    reason = (message.payload or b"").decode(errors="replace")
    code, _, descends = detail.partition(":")
    requested = e.CancelRequested(reason, message.guid, int(code or 0), descends != "0")
    machine.feed(requested, Acknowledge(message.guid))
    return True


def _take_retry(machine: RunMachine, promise: DurablePromise, message: Message) -> bool:
    due = retry_guid(machine.info.run_id, promise.step, promise.attempt)
    if promise.is_running or message.guid != due:
        return False
    machine.unstarted.append(promise)
    return True


def _take_result(machine: RunMachine, promise: DurablePromise, message: Message) -> bool:
    """A queued task's outcome, or a child's. The message names the attempt by its GUID."""
    step, run_id = promise.step, machine.info.run_id
    is_child = promise.place is Place.CHILD
    # Where parts commit apart, a crash may have left the start of this attempt without its outcome.
    is_begun = is_child or promise.is_running
    attempt = promise.attempt if is_begun else promise.attempt + 1
    if promise.place is Place.LOCAL or message.guid != result_guid(run_id, step, attempt):
        return False
    kind, _, told = message.kind.partition(":")
    claim, _, doubt = told.partition(":")
    outcome = Outcome(
        kind in ("completed", "reconciled"),
        message.payload or b"null",
        kind == "failed",
        kind == "reconciled",
    )
    if doubt:
        # Before the attempt: what was in doubt is what earlier claims did, not what this outcome is of.
        _take_doubt(machine, promise, doubt)
    if not is_begun:
        machine.feed(e.InvokeStarted(step, attempt))
    acknowledge = Acknowledge(message.guid)
    again_at = _retry_at(machine, promise, outcome)
    if again_at is None:
        if outcome.is_reconciled:
            machine.feed(reconciled_entry(step))
        completed = e.InvokeCompleted(
            step,
            attempt,
            outcome.ok,
            message.guid,
            claim=int(claim or 1),
            payload=outcome.payload,
        )
        machine.feed(completed, acknowledge)
        return True
    effects: tuple[Effect, ...] = (
        acknowledge,
        PutWork(work_of(machine, promise, attempt + 1, again_at)),
    )
    retrying = e.InvokeRetrying(step, attempt, again_at, payload=outcome.payload)
    machine.feed(retrying, *effects)
    return True


def _take_doubt(machine: RunMachine, promise: DurablePromise, told: str) -> None:
    """Journal what the host of a queue tells. It counts all doubts, so what is journaled already is not again."""
    total, resolution, stops = parse_doubt(told)
    count = max(0, min(total, MOST_DOUBTS) - promise.doubts)
    stopped = min(count, stops - promise.stops)
    if stopped > 0:
        policy = promise.task.on_doubt
        machine.feed(doubt_entry(promise.step, stopped, policy, is_stopped=True))
        count -= stopped
    if count > 0:
        machine.feed(doubt_entry(promise.step, count, resolution))
