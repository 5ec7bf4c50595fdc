"""Journal events: 28 immutable structures with a stable JSON form.

Twenty describe an execution, in five groups; seven more serve the run contract (approval, pause,
skips, authorization, continuation); `Posted` records digits that change no state. The name of a
class is the `type` in its JSON form and never changes; a new field has a default, and JSON omits
fields that have their default.

`payload` holds user data (an input, a result, an error, a signal's value) as codec bytes. It is
stored apart from the rest of the event, so that it can be erased without breaking the hash chain.

`guid` names the message that brought the event. `staged` marks an event of the three-step
protocol: it posts its own digit only, because the step's entry and the spawning of children have
entries of their own.
"""

from collections.abc import Sequence
from enum import StrEnum
from math import isfinite
from typing import Final

import msgspec

from perdure.core.errors import NotEncodable
from perdure.core.ids import Guid, RunId, SetId, StepId
from perdure.core.ledger import AccountId


class Event(msgspec.Struct, frozen=True, omit_defaults=True, tag=True, gc=False):
    """Base of all events."""


class Carrier(Event, frozen=True, kw_only=True):
    """An event with a payload; `None` means that there is none, or that it was erased."""

    payload: bytes | None = None


# Lifecycle


class ExecutionStarted(Carrier, frozen=True):
    """The first event; only an approval may precede it. The payload is the input; the program is an open obligation.

    `root` is the promise root in hex. A graph names its `trigger` and the `guid` that started the run. A run that
    `continues` another one begins with `inherited` entries for events of that run; the program starts after them.
    Entries older than the field `scope` have `None` there. A fork names in `forks` the run and the entry where it was
    cut (`run@seq`), and in `seed` what its random ids derive from: those of the run that it forks. The run starts with
    the `tags`, and while it is open it holds the `slot` of a limit. A run that was cancelled before it began has
    `inherited` entries too: those that end it before its program starts. Of a traced run `trace` is the context that it
    belongs to, in the form of W3C Trace Context.
    """

    program: str
    component_digest: str
    root: str
    version: str = ""
    parent_id: str | None = None
    idempotency_key: str | None = None
    trigger: StepId | None = None
    guid: Guid | None = None
    continues: RunId | None = None
    inherited: int = 0
    scope: str | None = None
    forks: str | None = None
    seed: str | None = None
    tags: dict[str, str] | None = None
    trace: str | None = None
    slot: str | None = None


class Terminal(Carrier, frozen=True, kw_only=True):
    """The last event. It closes `released` obligations, so that the semaphore ends at 0.

    In a graph `guid` is the message that closed the run, and `step` the step that is finalized.
    """

    released: int
    guid: Guid | None = None
    step: StepId | None = None


class ExecutionCompleted(Terminal, frozen=True):
    """The program returned; the payload is its result."""


class ExecutionFailed(Terminal, frozen=True):
    """The program raised; the payload is the error."""


class CancelRequested(Event, frozen=True):
    """A client or a graph asked the run to stop; clean-up steps may still run.

    A graph that is interrupted with a `code` fails with it; `descends`: its children stop too. `signal_id` is the
    operator's act that asks for it.
    """

    reason: str = ""
    guid: Guid | None = None
    code: int = 0
    descends: bool = True
    signal_id: str | None = None


class ExecutionCancelled(Terminal, frozen=True):
    """The cancellation is complete."""

    reason: str = ""


# Side effects: scheduled, started, completed


class InvokeKind(StrEnum):
    FUNCTION = "function"
    HTTP = "http"
    BRANCH = "branch"


class InvokePlace(StrEnum):
    QUEUE = "queue"
    RUN = "run"


class RetryPolicy(msgspec.Struct, frozen=True, omit_defaults=True):
    """Number of attempts and backoff of a step."""

    attempts: int = 1
    first_ms: int = 1000
    factor: float = 2.0
    ceiling_ms: int = 60_000

    def __post_init__(self) -> None:
        if not isfinite(self.factor):
            raise NotEncodable(f"a retry factor of {self.factor}", "use a finite number")


class InvokeScheduled(Carrier, frozen=True):
    """The intent, durable before the effect. The payload is the input.

    `place` says what the same commit wrote besides: work for a queue (`queue`), a child run (`run`), or nothing.
    `queue` is the name of that queue. Entries older than these fields have `None`.
    """

    promise_id: StepId
    function_name: str
    kind: InvokeKind = InvokeKind.FUNCTION
    retry_policy: RetryPolicy | None = None
    staged: bool = False
    place: InvokePlace | None = None
    queue: str | None = None


class InvokeStarted(Event, frozen=True):
    promise_id: StepId
    attempt: int


class ArtifactRef(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where a large result is stored, outside the journal."""

    uri: str
    kind: str
    sha256: str | None = None
    size_bytes: int | None = None
    expires_at_ms: int | None = None


class InvokeCompleted(Carrier, frozen=True):
    """The outcome, cached for replay. The payload is the result, or the error if not `ok`.

    A queued attempt is executed once per claim of its work; `claim` is the claim that gave this outcome. `artifacts`
    are those that the attempt stored.
    """

    promise_id: StepId
    attempt: int
    ok: bool = True
    guid: Guid | None = None
    staged: bool = False
    claim: int = 1
    artifacts: tuple[ArtifactRef, ...] = ()


NEVER: Final = -1
"""As the time of a retry: the step is parked until an operator retries or skips it."""


class InvokeRetrying(Carrier, frozen=True):
    """An attempt failed, and another follows at `retry_at_ms`. The payload is the error. `queue` is as in
    `InvokeScheduled`.

    At `NEVER` the step is parked: its logical attempt has failed, and an operator decides what follows.
    """

    promise_id: StepId
    failed_attempt: int
    retry_at_ms: int
    queue: str | None = None

    @property
    def parks(self) -> bool:
        """Whether the step is parked."""
        return self.retry_at_ms == NEVER


# Nondeterminism: a value captured once


class RandomGenerated(Event, frozen=True):
    promise_id: StepId
    value: int


class TimeRecorded(Event, frozen=True):
    promise_id: StepId
    time_us: int


# Control flow


class TimerScheduled(Event, frozen=True):
    promise_id: StepId
    duration_ms: int
    fire_at_ms: int
    staged: bool = False


class TimerFired(Event, frozen=True):
    promise_id: StepId
    guid: Guid | None = None
    staged: bool = False


class SignalDelivered(Carrier, frozen=True):
    """A signal reached the run and is buffered. `delivery_id` counts from 1 for each name.

    A staged one posts nothing: the step that consumes it posts the digits.
    """

    signal_name: str
    delivery_id: int
    guid: Guid | None = None
    staged: bool = False


class SignalReceived(Carrier, frozen=True):
    """The program consumed the oldest buffered delivery of that name.

    A staged one belongs to a graph's hook and has the `guid` of the delivery. A hook that `stays` takes more signals.
    """

    promise_id: StepId
    signal_name: str
    delivery_id: int
    guid: Guid | None = None
    staged: bool = False
    stays: bool = False


class AwaitKind(StrEnum):
    SINGLE = "single"
    ANY = "any"
    ALL = "all"
    SIGNAL = "signal"


class AwaitSignal(msgspec.Struct, frozen=True, omit_defaults=True):
    """A signal that the program waits for. `timer`, if set, ends the wait too.

    If a person answers, `ask` is what the person should see, `who` is the person or group, and `schema` the JSON Schema
    of the answer. A replay may give other texts.
    """

    name: str
    promise_id: StepId
    timer: StepId | None = None
    ask: str | None = None
    who: str | None = None
    schema: str | None = None

    @property
    def bare(self) -> "AwaitSignal":
        """What a replay compares."""
        return AwaitSignal(self.name, self.promise_id, self.timer)


class ExecutionAwaiting(Event, frozen=True):
    """The program is blocked until the steps in `waiting_on` complete: any of them, or all.

    For kind `signal`, `signal` is the awaited signal. For other kinds it names the signals among `waiting_on`; older
    entries of these kinds name none.
    """

    waiting_on: tuple[StepId, ...]
    kind: AwaitKind = AwaitKind.SINGLE
    signal: AwaitSignal | tuple[AwaitSignal, ...] | None = None

    @property
    def signals(self) -> tuple[AwaitSignal, ...]:
        """The named signals as a tuple."""
        signal = self.signal
        if signal is None:
            return ()
        return signal if isinstance(signal, tuple) else (signal,)

    @property
    def is_consistent(self) -> bool:
        """Whether `waiting_on` contains all named signals; for kind `signal`, exactly that one."""
        if self.kind is AwaitKind.SIGNAL:
            signal = self.signal
            return isinstance(signal, AwaitSignal) and self.waiting_on == (signal.promise_id,)
        if isinstance(self.signal, AwaitSignal):
            return False
        return all(
            signal.promise_id in self.waiting_on
            and (signal.timer is None or signal.timer in self.waiting_on)
            for signal in self.signals
        )


class ExecutionResumed(Event, frozen=True):
    """The wait is satisfied and the program resumes."""


# Concurrency: which result was consumed, in which order


class JoinSetCreated(Event, frozen=True):
    join_set_id: SetId


class JoinSetSubmitted(Event, frozen=True):
    join_set_id: SetId
    promise_id: StepId


class JoinSetAwaited(Event, frozen=True):
    """The program consumed this member's result. The result is only in the member's `InvokeCompleted`, so erasing it
    there erases it everywhere."""

    join_set_id: SetId
    promise_id: StepId


# The run contract


class RunApproved(Event, frozen=True):
    """The run is admitted but not started. The only event that may precede `ExecutionStarted`."""

    by: str = ""


class ActType(StrEnum):
    """What an operator can do to a run."""

    PAUSE = "PAUSE"
    RESUME = "RESUME"
    CANCEL = "CANCEL"
    APPROVE = "APPROVE"
    RETRY_STEP = "RETRY_STEP"
    SKIP_STEP = "SKIP_STEP"
    RETRY_RUN = "RETRY_RUN"
    FORK = "FORK"
    UPDATE_PARAMS = "UPDATE_PARAMS"
    EMERGENCY_STOP = "EMERGENCY_STOP"


class RunPaused(Event, frozen=True):
    """The program is paused: it does not advance, and nothing begins. Outcomes of attempts under way are journaled and
    held until the run is resumed. `signal_id` is the operator's act."""

    reason: str = ""
    signal_id: str | None = None


class RunResumed(Event, frozen=True):
    """The program is no longer paused, and gets the outcomes that were held, in their order."""

    signal_id: str | None = None


class StepSkipped(Carrier, frozen=True):
    """The step will never run and counts as completed. `released` is 1 if it was scheduled and not staged.

    If an operator skipped it, `signal_id` is that act, and the payload is the value that the program gets. A staged
    step names the `guid` of its answer and posts as `InvokeCompleted` does.
    """

    promise_id: StepId
    reason: str = ""
    released: int = 0
    signal_id: str | None = None
    guid: Guid | None = None
    staged: bool = False


class SignalAccepted(Carrier, frozen=True):
    """An operator's act is accepted; its effect follows in the same commit. `signal_type` is an `ActType`.

    Two acts have their effect here: with `RETRY_STEP` the next logical attempt of `step` begins, and with
    `UPDATE_PARAMS` the parameters in the payload have new values.
    """

    signal_id: str
    signal_type: str
    by: str = ""
    guid: Guid | None = None
    role: str = ""
    step: StepId | None = None
    reason: str = ""


class SignalRejected(Event, frozen=True):
    """An operator's act has no effect: it was denied, or does not fit the run. `code` says why."""

    signal_id: str
    signal_type: str
    by: str = ""
    reason: str = ""
    guid: Guid | None = None
    role: str = ""
    step: StepId | None = None
    code: str = ""


class RunContinued(Terminal, frozen=True):
    """The run ends, and `next_run` continues it with a fresh journal."""

    next_run: RunId


# Digits without a state change


class Posting(msgspec.Struct, frozen=True, array_like=True):
    """An increment to one account."""

    account: AccountId
    increment: int


class Posted(Event, frozen=True):
    """Digits that certify work without changing the state: an entry attempt, a spawn.

    `semaphore` is the change in open obligations.
    """

    label: str
    postings: tuple[Posting, ...]
    semaphore: int = 0


def started_of(events: Sequence[Event]) -> ExecutionStarted | None:
    """The event with which a journal began: the first, or the second after an approval. `None` if it is neither."""
    for event in events[:2]:
        if isinstance(event, ExecutionStarted):
            return event
        if not isinstance(event, RunApproved):
            break
    return None


EVENTS: tuple[type[Event], ...] = (
    ExecutionStarted,
    ExecutionCompleted,
    ExecutionFailed,
    CancelRequested,
    ExecutionCancelled,
    InvokeScheduled,
    InvokeStarted,
    InvokeCompleted,
    InvokeRetrying,
    RandomGenerated,
    TimeRecorded,
    TimerScheduled,
    TimerFired,
    SignalDelivered,
    SignalReceived,
    ExecutionAwaiting,
    ExecutionResumed,
    JoinSetCreated,
    JoinSetSubmitted,
    JoinSetAwaited,
    RunApproved,
    RunPaused,
    RunResumed,
    StepSkipped,
    SignalAccepted,
    SignalRejected,
    RunContinued,
    Posted,
)
