"""Describes a run: its status and its waits, from its journal and rows alone.

This needs neither the program nor a host, so every process gives the same description.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from perdure.core.ids import HostId, RunId, StepId
from perdure.core.journal import events as e
from perdure.core.journal.entry import Entry
from perdure.core.journal.state import State, apply_event
from perdure.core.replay.identity import child_run_id
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
    format_time,
)

GRAPH_LEG_1 = "leg 1"
"""The label of the entry by which a graph's hook without a timeout begins to wait."""


class QueuedWork(NamedTuple):
    """A task on its queue; `host` has claimed it, if one has."""

    step: StepId
    queue: str
    host: HostId | None


class WaitingHook(NamedTuple):
    """A graph's step that a signal to topic and key finds; or a signal to its run, without a key."""

    step: StepId
    topic: str
    key: str | None
    since_ms: int


class RunRows(NamedTuple):
    """The store's rows of a run, beside its journal."""

    work: Mapping[StepId, QueuedWork] = {}
    hooks: Mapping[StepId, WaitingHook] = {}
    joins: Sequence[JoinWait] = ()
    reported: frozenset[StepId] = frozenset()
    """Steps whose outcome is in a pending message."""
    children: Mapping[RunId, str] = {}
    """The status of each existing child run."""
    answers: frozenset[StepId] = frozenset()
    """Steps of a graph whose task responded with 202."""
    topics: Mapping[str, str] = {}
    """The topic of each activity of a graph that waits for a signal, as far as the graph is known here."""


class Description(msgspec.Struct, frozen=True, kw_only=True):
    """Status and waits of a run, in step order. `str()` gives a text for humans.

    `status` is as `RunStatus` has it. `owner` is the host that advances the run; `parked` says why none does.
    """

    run_id: RunId
    program: str
    version: str
    key: str | None
    status: str
    owner: HostId | None
    created_at_ms: int
    closed_at_ms: int | None
    parked: str | None
    cancel_reason: str | None
    waits: tuple[AnyWait, ...]
    pause_reason: str | None = None
    """Why the run is paused; `None` if it is not."""

    def __str__(self) -> str:
        version = f" version {self.version!r}" if self.version else ""
        lines = [f"run {self.run_id} of {self.program!r}{version} is {self.status}"]
        if self.closed_at_ms is not None:
            lines[0] += f", since {format_time(self.closed_at_ms)}"
        elif self.parked is not None:
            lines.append(f"  parked: {self.parked}")
        elif self.pause_reason is not None:
            lines.append(f"  paused: {self.pause_reason}" if self.pause_reason else "  paused")
        elif self.status == "pending":
            lines.append("  it has not begun: it waits for its limit, for a time or for approval")
        elif self.owner is None:
            lines.append("  no host owns it: it resumes when a host with its program takes it over")
        if self.cancel_reason is not None:
            lines.append(
                f"  cancelled: {self.cancel_reason}" if self.cancel_reason else "  cancelled"
            )
        lines += [f"  {wait}" for wait in self.waits]
        return "\n".join(lines)


class DescribedSteps:
    """The open steps of a run, by its journal."""

    def __init__(self, entries: Sequence[Entry]) -> None:
        self.state = State()
        self.scheduled: dict[StepId, tuple[e.InvokeScheduled, int]] = {}
        self.started: dict[StepId, tuple[int, int]] = {}
        """The last attempt, and when it started."""
        self.retrying: dict[StepId, tuple[e.InvokeRetrying, int]] = {}
        """The last failure, if no attempt has started since."""
        self.timers: dict[StepId, tuple[e.TimerScheduled, int]] = {}
        self.hooked: dict[StepId, int] = {}
        """Hooks of a graph that wait without a timeout, since when."""
        self.ended: dict[StepId, int] = {}
        """When each ended invoke ended."""
        self.awaited_since: dict[StepId, int] = {}
        self.signals: dict[StepId, e.AwaitSignal] = {}
        """The signals that the program has waited for."""
        self.cancel_reason: str | None = None
        self.pause_reason: str | None = None
        for entry in entries:
            event = entry.event
            apply_event(self.state, event)
            self._take(event, entry.at_ms)

    @property
    def awaited(self) -> tuple[StepId, ...]:
        wait = self.state.wait
        return () if wait is None else wait.waiting_on

    def is_open(self, step: StepId) -> bool:
        return step not in self.state.completed

    def open_invokes(self) -> list[StepId]:
        """Tasks and child runs that have not ended. Branches wait for steps of their own."""
        return [
            step
            for step, (event, _) in self.scheduled.items()
            if event.kind is not e.InvokeKind.BRANCH and self.is_open(step)
        ]

    def possible_children(self, run_id: RunId) -> dict[StepId, RunId]:
        """The child runs that open steps may have started: older journals do not say which steps did."""
        return {step: self.child_of(run_id, step) for step in self.open_invokes()}

    def child_of(self, run_id: RunId, step: StepId) -> RunId:
        """The id of the child run of a step's last attempt, if the step starts one."""
        attempt, _ = self.started.get(step, (1, 0))
        return child_run_id(run_id, step, attempt)

    def _take(self, event: e.Event, at_ms: int) -> None:
        match event:
            case e.InvokeScheduled():
                self.scheduled[event.promise_id] = event, at_ms
            case e.InvokeStarted():
                self.started[event.promise_id] = event.attempt, at_ms
                self.retrying.pop(event.promise_id, None)
            case e.InvokeRetrying():
                self.retrying[event.promise_id] = event, at_ms
            case e.InvokeCompleted():
                self.ended[event.promise_id] = at_ms
            case e.TimerScheduled():
                self.timers[event.promise_id] = event, at_ms
            case e.ExecutionAwaiting():
                for step in event.waiting_on:
                    self.awaited_since.setdefault(step, at_ms)
                self.signals.update({signal.promise_id: signal for signal in event.signals})
            case e.Posted(label=label) if label == GRAPH_LEG_1:
                steps = (posting.account.partition(":")[2] for posting in event.postings)
                self.hooked.update((StepId(step), at_ms) for step in steps)
            case _:
                self._take_request(event)  # other events open no step

    def _take_request(self, event: e.Event) -> None:
        if isinstance(event, e.CancelRequested):
            self.cancel_reason, self.pause_reason = event.reason, None
        elif isinstance(event, e.RunPaused):
            self.pause_reason = event.reason
        elif isinstance(event, e.RunResumed):
            self.pause_reason = None


def waits_of(
    run_id: RunId,
    owner: HostId | None,
    steps: DescribedSteps,
    rows: RunRows,
    error_text: Callable[[bytes | None], str],
    now_ms: int,
) -> tuple[AnyWait, ...]:
    """The waits of a run. `error_text` gives the text of a stored error."""
    if steps.state.is_terminal:
        return ()
    is_graph = any(staged for staged in steps.state.scheduled.values()) or bool(steps.hooked)
    awaited = frozenset(steps.awaited)
    found: dict[StepId, AnyWait] = {}
    limits = {each.timer for each in steps.signals.values()}
    signals = [step for step in steps.awaited if _is_signal(steps, step)]
    for step in (*signals, *(hook for hook in steps.hooked if steps.is_open(hook))):
        found[step] = _signal(steps, rows, step)
    for step, (timer, since_ms) in steps.timers.items():
        if steps.is_open(step) and step not in limits:
            if timer.staged and (step in rows.hooks or _activity(step) in rows.topics):
                found[step] = _signal(steps, rows, step)
            else:
                is_awaited = is_graph or step in awaited
                found[step] = TimerWait(
                    step=step, since_ms=since_ms, until_ms=timer.fire_at_ms, awaited=is_awaited
                )
    for step in steps.open_invokes():
        invoke = _Invoke(run_id, owner, step, is_graph or step in awaited)
        found[step] = _invoked(invoke, steps, rows, error_text, now_ms)
    for step in rows.answers:
        task, since_ms = steps.scheduled[step][0].function_name, steps.ended.get(step, 0)
        found[step] = AnswerWait(step=step, task=task, since_ms=since_ms)
    return (*(found[step] for step in sorted(found, key=_order)), *rows.joins)


class _Invoke(NamedTuple):
    run_id: RunId
    owner: HostId | None
    step: StepId
    awaited: bool


def _is_signal(steps: DescribedSteps, step: StepId) -> bool:
    """An awaited step of a workflow without an entry is a signal that has not arrived."""
    has_entry = step in steps.scheduled or step in steps.timers
    return not has_entry and steps.is_open(step)


def _signal(steps: DescribedSteps, rows: RunRows, step: StepId) -> SignalWait:
    hook = rows.hooks.get(step)
    until_ms = _limit_of(steps, step)
    if hook is not None:
        return SignalWait(
            step=step, name=hook.topic, key=hook.key, since_ms=hook.since_ms, until_ms=until_ms
        )
    named = steps.signals.get(step)
    name = rows.topics.get(_activity(step)) if named is None else named.name
    since_ms = steps.awaited_since.get(step) or steps.hooked.get(step) or steps.timers[step][1]
    wait = SignalWait(step=step, name=name, since_ms=since_ms, until_ms=until_ms)
    if named is None or named.ask is None:
        return wait
    schema = None if named.schema is None else msgspec.json.decode(named.schema)
    return msgspec.structs.replace(wait, ask=named.ask, who=named.who, schema=schema)


def _activity(step: StepId) -> str:
    """The name of a graph's step."""
    return step.partition(",")[0]


def _limit_of(steps: DescribedSteps, step: StepId) -> int | None:
    """When the wait for a signal times out."""
    named = steps.signals.get(step)
    timer = step if named is None else named.timer
    return steps.timers[timer][0].fire_at_ms if timer in steps.timers else None


def _invoked(
    invoke: _Invoke,
    steps: DescribedSteps,
    rows: RunRows,
    error_text: Callable[[bytes | None], str],
    now_ms: int,
) -> TaskWait | RetryWait | OperatorWait | ChildWait:
    step = invoke.step
    event, since_ms = steps.scheduled[step]
    name = event.function_name
    child = steps.child_of(invoke.run_id, step)
    if child in rows.children and step not in steps.retrying:
        return ChildWait(
            step=step,
            program=name,
            run_id=child,
            status=rows.children[child],
            since_ms=since_ms,
            awaited=invoke.awaited,
        )
    work = rows.work.get(step)
    queue = None if work is None else work.queue
    if steps.state.parked_steps.get(step):
        return _parked(invoke, steps, error_text)
    if step in steps.retrying:
        retrying, since_ms = steps.retrying[step]
        attempt = retrying.failed_attempt + 1
        is_claimed = work is not None and work.host is not None
        if retrying.retry_at_ms > now_ms and not is_claimed and step not in rows.reported:
            return RetryWait(
                step=step,
                task=name,
                since_ms=since_ms,
                until_ms=retrying.retry_at_ms,
                attempt=attempt,
                error=error_text(retrying.payload),
                queue=queue,
                awaited=invoke.awaited,
            )
        begun = None
    else:
        begun = steps.started.get(step)
        attempt, since_ms = begun or (1, since_ms)
    state, host = _standing(invoke, work, begun is not None, step in rows.reported)
    return TaskWait(
        step=step,
        task=name,
        state=state,
        since_ms=since_ms,
        attempt=attempt,
        queue=queue,
        host=host,
        awaited=invoke.awaited,
    )


def _parked(
    invoke: _Invoke, steps: DescribedSteps, error_text: Callable[[bytes | None], str]
) -> OperatorWait:
    step = invoke.step
    failed, since_ms = steps.retrying[step]
    return OperatorWait(
        step=step,
        task=steps.scheduled[step][0].function_name,
        since_ms=since_ms,
        attempt=failed.failed_attempt,
        logical_attempt=steps.state.logical_attempts.get(step, 1),
        error=error_text(failed.payload),
        queue=failed.queue,
        awaited=invoke.awaited,
    )


def _standing(
    invoke: _Invoke, work: QueuedWork | None, has_begun: bool, is_reported: bool
) -> tuple[TaskState, HostId | None]:
    if is_reported:
        return TaskState.REPORTED, None
    if work is not None:
        return (TaskState.QUEUED, None) if work.host is None else (TaskState.RUNNING, work.host)
    if not has_begun:
        return TaskState.STARTING, invoke.owner
    if invoke.owner is None:
        return TaskState.INTERRUPTED, None
    return TaskState.RUNNING, invoke.owner


def _order(step: StepId) -> tuple[tuple[int, int, str], ...]:
    """Steps in the order of their numbers: `root.10` after `root.9`."""
    parts = step.replace(",", ".").split(".")
    return tuple((1, int(part), "") if part.isdigit() else (0, 0, part) for part in parts)
