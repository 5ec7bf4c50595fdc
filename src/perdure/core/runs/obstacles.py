"""Why a run does not move: its causes, from what the store knows of it, its hosts and its queues."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import StrEnum

import msgspec

from perdure.core.admission.place import PlaceInLine
from perdure.core.errors import RunDiverged, UnknownName
from perdure.core.ids import HostId, RunId, StepId
from perdure.core.runs.description import Description
from perdure.core.runs.pausing import PauseRecord
from perdure.core.runs.spans import span_text
from perdure.core.runs.waits import (
    AnswerWait,
    AnyWait,
    ChildWait,
    JoinWait,
    OperatorWait,
    RetryWait,
    SignalWait,
    TaskState,
    TaskWait,
    TimerWait,
)


class CauseKind(StrEnum):
    """Why a run does not move."""

    FINISHED = "finished"
    STORE_LOCKED = "store-locked"
    DIVERGED = "diverged"
    UNKNOWN_PROGRAM = "unknown-program"
    PARKED = "parked"
    PAUSED = "paused"
    PENDING = "pending"
    APPROVAL = "pending-approval"
    DELAYED = "delayed"
    RUN_LIMIT = "run-limit"
    RATE = "rate"
    STEP_PARKED = "step-parked"
    HOST_DEAD = "host-dead"
    NO_HOST = "no-host"
    SIGNAL = "signal"
    EARLY_SIGNAL = "early-signal"
    TIMER = "timer"
    RETRY = "retry"
    CHILD = "child"
    JOIN = "join"
    ANSWER = "answer"
    TASK_RUNNING = "task-running"
    TASK_STARTING = "task-starting"
    TASK_REPORTED = "task-reported"
    TASK_INTERRUPTED = "task-interrupted"
    QUEUE_UNSERVED = "queue-unserved"
    QUEUE_BUSY = "queue-busy"
    WORKER_DEAD = "worker-dead"
    DEAD_LETTER = "dead-letter"
    CANCELLING = "cancelling"
    RUNNING = "running"


class Cause(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One cause. `command` moves it; `until_ms` is when it ends by itself, and `then` says what happens then."""

    kind: CauseKind
    text: str
    run_id: RunId
    step: StepId | None = None
    since_ms: int | None = None
    until_ms: int | None = None
    then: str = ""
    command: str = ""


class HostFact(msgspec.Struct, frozen=True):
    """A host, as the caller sees it."""

    host: HostId
    is_alive: bool
    queues: tuple[str, ...] = ()


class QueueFact(msgspec.Struct, frozen=True):
    """A queue: tasks that are due and unclaimed, and tasks that hosts have claimed."""

    due: int
    claimed: int


class EarlySignal(msgspec.Struct, frozen=True):
    """A signal that the run has received, and does not wait for."""

    name: str
    since_ms: int


class RunSituation(msgspec.Struct, frozen=True, kw_only=True):
    """What the store knows of a run that does not move."""

    description: Description
    now_ms: int
    error: str = ""
    """The error that ended the run."""
    hosts: Mapping[HostId, HostFact] = {}
    queues: Mapping[str, QueueFact] = {}
    early: Sequence[EarlySignal] = ()
    dead_letters: Sequence[str] = ()
    """Why messages to the run were put aside."""
    pause: PauseRecord | None = None
    place: PlaceInLine | None = None
    """Its place in line, while it is pending."""
    children: Mapping[RunId, tuple[Cause, ...]] = {}
    """Why the child runs that it waits for do not move."""
    locked_ms: int | None = None
    """How long another program has held the store's write lock."""


def causes_of(situation: RunSituation) -> list[Cause]:
    """Why the run does not move: at least one cause, the one that explains most first."""
    found = [cause for part in _parts(situation) for cause in part(situation)]
    text = f"is {situation.description.status}"
    return found or [_cause(situation, CauseKind.RUNNING, text, then="it continues")]


def _parts(situation: RunSituation) -> Sequence[Callable[[RunSituation], Iterator[Cause]]]:
    """The parts of the explanation that apply, in the order of their weight."""
    description = situation.description
    if description.closed_at_ms is not None:
        return (_finished,)
    if description.parked is not None:
        return (_locked, _parked)
    return (_locked, _paused, _pending, _cancelling, _hosts, _waits, _early, _dead)


def _cause(
    situation: RunSituation,
    kind: CauseKind,
    text: str,
    *,
    wait: AnyWait | None = None,
    then: str = "",
    until_ms: int | None = None,
    command: str = "",
) -> Cause:
    step = None if wait is None else wait.step
    since_ms = getattr(wait, "since_ms", None)
    return Cause(
        kind=kind,
        text=text,
        run_id=situation.description.run_id,
        step=step,
        since_ms=since_ms,
        until_ms=until_ms,
        then=then,
        command=command,
    )


def _finished(situation: RunSituation) -> Iterator[Cause]:
    description = situation.description
    ended_ms = description.closed_at_ms or 0
    took = span_text(ended_ms - description.created_at_ms)
    text = f"is over: it was {description.status} after {took}"
    if description.status == "completed":
        text = f"is over: it completed after {took}"
    elif description.status == "failed":
        text = f"is over: it failed after {took} with {situation.error}"
    elif description.status == "cancelled" and description.cancel_reason:
        text += f" ({description.cancel_reason})"
    cause = _cause(situation, CauseKind.FINISHED, text)
    yield msgspec.structs.replace(cause, since_ms=None)


def _locked(situation: RunSituation) -> Iterator[Cause]:
    if situation.locked_ms is not None:
        held = span_text(situation.locked_ms)
        yield _cause(
            situation,
            CauseKind.STORE_LOCKED,
            f"can't write: another program has held the write lock of the store for {held}",
            then="it continues when that program ends its transaction",
        )


def _parked(situation: RunSituation) -> Iterator[Cause]:
    description = situation.description
    reason = (description.parked or "").partition("\n")[0]
    run = description.run_id
    if reason.startswith(UnknownName.code):
        kind, text = CauseKind.UNKNOWN_PROGRAM, "is parked: a host lacks a name that it needs"
        command = "perdure worker MODULE:ENGINE, with the module that defines it"
    elif reason.startswith(RunDiverged.code):
        kind, text = CauseKind.DIVERGED, "is parked: the code is not what wrote its journal"
        command = f"perdure replay {run} MODULE:ENGINE"
    else:
        kind, text, command = CauseKind.PARKED, "is parked", "perdure audit --run " + run
    yield _cause(situation, kind, f"{text} ({reason})", command=command)


def _paused(situation: RunSituation) -> Iterator[Cause]:
    pause = situation.pause
    if pause is None:
        return
    by = f" by {pause.by}" if pause.by else ""
    why = f" ({pause.reason})" if pause.reason else ""
    command = f"perdure runs resume {situation.description.run_id}"
    cause = _cause(situation, CauseKind.PAUSED, f"is paused{by}{why}", command=command)
    yield msgspec.structs.replace(cause, since_ms=pause.since_ms)


def _pending(situation: RunSituation) -> Iterator[Cause]:
    place = situation.place
    if place is None:
        if situation.description.status in ("pending", "approved"):
            text = f"is {situation.description.status}, and has not begun"
            yield _cause(situation, CauseKind.PENDING, text, then="its host begins it")
    elif place.needs_approval:
        command = f"perdure runs approve {situation.description.run_id}"
        yield _cause(situation, CauseKind.APPROVAL, "waits for approval", command=command)
    elif place.ready_at_ms is not None:
        yield _until(situation, CauseKind.DELAYED, "is delayed", place.ready_at_ms)
    else:
        yield from _limited(situation, place)


def _limited(situation: RunSituation, place: PlaceInLine) -> Iterator[Cause]:
    """A pending run that is ready, and waits for a slot of its limit."""
    of = f" for {place.key!r}" if place.key else ""
    limit = f"limit {place.limit!r}{of}"
    line = "1 run waits" if place.waiting == 1 else f"{place.waiting:,} runs wait"
    line += " for it"
    if place.running is not None and place.holding >= place.running:
        yield _cause(
            situation,
            CauseKind.RUN_LIMIT,
            f"waits for {limit}: {place.holding:,} of {place.running:,} runs are open, and {line}",
            then="it begins in its turn, when one of them ends",
            command=f"perdure limits set {place.limit} --running {place.running + 1}",
        )
    elif place.rate_until_ms is not None:
        what = f"waits for the rate of {limit}, and {line}"
        yield _until(situation, CauseKind.RATE, what, place.rate_until_ms)
    else:
        yield _cause(situation, CauseKind.PENDING, "may begin", then="the next host begins it")


def _until(situation: RunSituation, kind: CauseKind, text: str, until_ms: int) -> Cause:
    cause = _cause(situation, kind, text, then="it begins, or takes its place in line")
    return msgspec.structs.replace(cause, until_ms=until_ms)


def _cancelling(situation: RunSituation) -> Iterator[Cause]:
    if situation.description.status == "cancelling":
        reason = situation.description.cancel_reason
        why = f" ({reason})" if reason else ""
        yield _cause(situation, CauseKind.CANCELLING, f"is being cancelled{why}, and cleans up")


def _hosts(situation: RunSituation) -> Iterator[Cause]:
    """A dead owner; or none, if there is something to do now."""
    description = situation.description
    owner = description.owner
    alive = [host for host in situation.hosts.values() if host.is_alive]
    if owner is not None:
        known = situation.hosts.get(owner)
        if known is None or not known.is_alive:
            then = "a live host takes it over" if alive else ""
            command = "" if alive else "perdure worker MODULE:ENGINE"
            yield _cause(
                situation,
                CauseKind.HOST_DEAD,
                f"belongs to host {owner}, which is dead",
                then=then,
                command=command,
            )
    elif situation.place is not None and alive:
        return
    elif not alive:
        yield _cause(
            situation,
            CauseKind.NO_HOST,
            "has no owner, and no host is alive",
            command="perdure worker MODULE:ENGINE",
        )
    elif _has_work(situation):
        yield _cause(
            situation,
            CauseKind.NO_HOST,
            f"has no owner: none of {len(alive)} live hosts has its program",
            command="perdure worker MODULE:ENGINE, with the module that defines it",
        )


def _has_work(situation: RunSituation) -> bool:
    """Whether an owner would do something now."""
    waits = situation.description.waits
    return not waits or any(
        (isinstance(wait, TaskWait) and wait.state in (TaskState.STARTING, TaskState.INTERRUPTED))
        or (isinstance(wait, TimerWait) and wait.until_ms <= situation.now_ms)
        for wait in waits
    )


def _waits(situation: RunSituation) -> Iterator[Cause]:
    """The waits, those that the program awaits first."""
    waits = situation.description.waits
    awaited = [wait for wait in waits if getattr(wait, "awaited", True)]
    for wait in awaited or waits:
        yield from _waiting(situation, wait)


def _waiting(situation: RunSituation, wait: AnyWait) -> Iterator[Cause]:
    match wait:
        case SignalWait():
            yield _signal(situation, wait)
        case TimerWait():
            yield _cause(
                situation,
                CauseKind.TIMER,
                f"sleeps at {wait.step}",
                wait=wait,
                until_ms=wait.until_ms,
                then="it wakes",
            )
        case RetryWait():
            yield _cause(
                situation,
                CauseKind.RETRY,
                f"waits to try task {wait.task!r} again after {wait.error}",
                wait=wait,
                until_ms=wait.until_ms,
                then=f"attempt {wait.attempt} begins",
            )
        case OperatorWait():
            run = situation.description.run_id
            yield _cause(
                situation,
                CauseKind.STEP_PARKED,
                f"waits for an operator at {wait.step}: task {wait.task!r} failed with {wait.error}",
                wait=wait,
                command=f"perdure runs retry-step {run} {wait.step}",
            )
        case ChildWait():
            yield _cause(
                situation,
                CauseKind.CHILD,
                f"waits for its child run {wait.run_id} of {wait.program!r}, which is {wait.status}",
                wait=wait,
            )
            yield from situation.children.get(wait.run_id, ())
        case AnswerWait():
            run = situation.description.run_id
            yield _cause(
                situation,
                CauseKind.ANSWER,
                f"waits for an answer to task {wait.task!r}, which responded with 202",
                wait=wait,
                command=f"perdure runs respond {run} {wait.step} VALUE",
            )
        case JoinWait():
            missing = wait.required - wait.resolved
            yield _cause(
                situation,
                CauseKind.JOIN,
                f"joins at {wait.step}: {missing} of {wait.required} predecessors are not resolved",
                wait=wait,
            )
        case TaskWait():
            yield _task(situation, wait)


def _signal(situation: RunSituation, wait: SignalWait) -> Cause:
    run = situation.description.run_id
    what = "a signal" if wait.name is None else f"signal {wait.name!r}"
    name = wait.name or "NAME"
    command = f"perdure runs signal {run} {name} VALUE"
    if wait.key is not None:
        what += f" with key {wait.key}"
        command = f"perdure send {name} {wait.key} VALUE"
    asked = "" if wait.ask is None else f", which asks {wait.who or 'a person'}: {wait.ask!r},"
    then = "" if wait.until_ms is None else "the wait times out"
    return _cause(
        situation,
        CauseKind.SIGNAL,
        f"waits for {what}{asked} at {wait.step}",
        wait=wait,
        until_ms=wait.until_ms,
        then=then,
        command=command,
    )


def _task(situation: RunSituation, wait: TaskWait) -> Cause:
    match wait.state:
        case TaskState.QUEUED:
            return _queued(situation, wait)
        case TaskState.RUNNING:
            host = situation.hosts.get(wait.host) if wait.host is not None else None
            if wait.queue is not None and (host is None or not host.is_alive):
                return _cause(
                    situation,
                    CauseKind.WORKER_DEAD,
                    f"waits for task {wait.task!r} on queue {wait.queue!r}, whose worker {wait.host} is dead",
                    wait=wait,
                    then="another worker of the queue claims it",
                    command="" if _serving(situation, wait) else _serve(wait),
                )
            attempt = f", attempt {wait.attempt}" if wait.attempt > 1 else ""
            return _cause(
                situation,
                CauseKind.TASK_RUNNING,
                f"waits for task {wait.task!r}, which is running at host {wait.host}{attempt}",
                wait=wait,
                then="it continues when the task ends",
            )
        case TaskState.REPORTED:
            return _cause(
                situation,
                CauseKind.TASK_REPORTED,
                f"has not taken in the outcome of task {wait.task!r} yet",
                wait=wait,
                then="its owner takes it in",
            )
        case TaskState.INTERRUPTED:
            return _cause(
                situation,
                CauseKind.TASK_INTERRUPTED,
                f"waits for task {wait.task!r}, which was running when its host died",
                wait=wait,
                then="the next owner finds the step in doubt",
            )
        case TaskState.STARTING:
            return _cause(
                situation,
                CauseKind.TASK_STARTING,
                f"waits for task {wait.task!r}, which has not started: its host has no free slot",
                wait=wait,
                then="it starts when another task ends",
            )


def _queued(situation: RunSituation, wait: TaskWait) -> Cause:
    serving = _serving(situation, wait)
    if not serving:
        return _cause(
            situation,
            CauseKind.QUEUE_UNSERVED,
            f"waits for task {wait.task!r} on queue {wait.queue!r}, which no live host serves",
            wait=wait,
            command=_serve(wait),
        )
    queue = situation.queues.get(wait.queue or "")
    ahead = "" if queue is None else f": {queue.due} tasks are due, {queue.claimed} are claimed"
    return _cause(
        situation,
        CauseKind.QUEUE_BUSY,
        f"waits for task {wait.task!r} on queue {wait.queue!r}, served by {serving} hosts{ahead}",
        wait=wait,
        then="a host claims it when it has a free slot",
    )


def _serving(situation: RunSituation, wait: TaskWait) -> int:
    return sum(host.is_alive and wait.queue in host.queues for host in situation.hosts.values())


def _serve(wait: TaskWait) -> str:
    return f"perdure worker MODULE:ENGINE --queues {wait.queue}"


def _early(situation: RunSituation) -> Iterator[Cause]:
    for signal in situation.early:
        cause = _cause(
            situation,
            CauseKind.EARLY_SIGNAL,
            f"has received signal {signal.name!r}, and does not wait for it",
        )
        yield msgspec.structs.replace(cause, since_ms=signal.since_ms)


def _dead(situation: RunSituation) -> Iterator[Cause]:
    for reason in situation.dead_letters:
        yield _cause(situation, CauseKind.DEAD_LETTER, f"did not take a message: {reason}")
