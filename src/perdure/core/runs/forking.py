"""Forks: the journal of a new run that begins like another one and then takes another way.

A fork keeps the entries of its source before a *cut*: the turn in which the chosen step ended, or one of the steps
whose values are replaced. Behind the cut stand the values that replace outcomes, and the outcomes that other steps of
that moment had later, so that finished work is not done again. All of them are facts that the program has not heard
of, which is legal in a journal only while the run is paused: so they stand between a pause and a resumption.
"""

from collections.abc import Iterable, Mapping, Sequence, Set
from hashlib import sha256
from typing import Final, TypeGuard

import msgspec

from perdure.core.errors import InputError
from perdure.core.graph import identity
from perdure.core.ids import Guid, RunId, StepId, guid_run, new_run_id
from perdure.core.journal import events as e
from perdure.core.ledger import ENTRY, AccountId, message_account, step_account
from perdure.core.replay.doubt import reconciled_entry
from perdure.core.replay.identity import result_guid

START: Final = StepId("root")
"""In place of a step: the fork keeps nothing but the input."""

_TIME_HEX: Final = 12
_SETTLING: Final = (e.InvokeCompleted, e.StepSkipped, e.TimerFired, e.SignalReceived)
_FACTS: Final = (
    e.InvokeStarted,
    e.InvokeRetrying,
    e.InvokeCompleted,
    e.TimerFired,
    e.SignalDelivered,
    e.CancelRequested,
    e.RunPaused,
    e.RunResumed,
    e.StepSkipped,
    e.SignalAccepted,
    e.SignalRejected,
)
"""Events that happen to a run, besides its start. All others are decisions of its program."""


class ForkRequest(msgspec.Struct, frozen=True):
    """What to fork: the journal of `source`, of the chain that began with `origin`, at `step`, as the run `fork`.

    `values` are the outcomes that replace those of steps. `act` identifies the operator's act. `lost_child` is the
    error, as bytes, with which an attempt ends whose child run belongs to the source: the fork starts its own.
    """

    source: RunId
    origin: RunId
    fork: RunId
    step: StepId
    values: Mapping[StepId, bytes]
    act: str
    reason: str
    now_ms: int
    lost_child: bytes


class ForkPlan(msgspec.Struct, frozen=True):
    """The journal of a fork, and what it means for the steps that the source had begun.

    `cut` is how many entries of the source it keeps. Steps that are `repeated` were begun before the cut, and begin
    again; those that are `kept` ended behind it, by themselves or by an operator's skip, and their outcomes are carried
    over; `doubted` ones had started, and the fork does not know what of their effect happened. `signals` were delivered
    to the source behind the cut; `lost` ones were for steps that the fork has not begun, so that they can't be sent to
    it.
    """

    cut: int
    events: tuple[e.Event, ...]
    repeated: tuple[StepId, ...]
    kept: tuple[StepId, ...]
    doubted: tuple[StepId, ...]
    signals: tuple[e.SignalDelivered, ...]
    lost: tuple[e.SignalDelivered, ...]
    is_paused: bool
    """Whether the fork holds outcomes, so that it has to be resumed."""


def fork_id(origin: RunId, act: str) -> RunId:
    """The id of the fork that an act on the chain of `origin` makes: an act that is repeated makes the same run."""
    at_ms = int(origin[2 : 2 + _TIME_HEX], 16)
    return new_run_id(at_ms, sha256(f"{origin}/fork/{act}".encode()).digest()[:10])


def plan_fork(request: ForkRequest, journal: Sequence[e.Event], times: Sequence[int]) -> ForkPlan:
    """The fork of `journal`, whose entries have these times.

    Raises `InputError` if the step is unknown, or a value fits no step.
    """
    # A fork needs no approval: it is an operator's act itself.
    before = int(bool(journal) and isinstance(journal[0], e.RunApproved))
    journal, times = journal[before:], times[before:]
    targets = {request.step, *request.values}
    _require_known(request, journal, targets)
    cut = 1 if request.step == START else _cut(journal, targets)
    later = journal[cut:]
    skips = later_skips(later, steps_of(journal[:cut]).keys() - targets)
    tasks = {each.promise_id for each in journal if _is_task(each)} & (targets | skips.keys())
    if any(isinstance(event, e.CancelRequested) for event in journal[:cut]):
        # What a cancelled run waits for depends on which attempts are under way.
        tasks, skips = set(), {}
    kept = (_without_attempts(event, tasks) for event in journal[:cut])
    prefix = _with_open_timers(
        [event for event in kept if event is not None], request.now_ms - times[cut - 1]
    )
    steps = OpenSteps()
    for event in prefix:
        steps.take(event)
    _require_replaceable(request, steps)
    outcomes = {} if steps.is_cancelling else later_outcomes(later, steps, targets)
    skipped = [*skips.values(), *_replacements(request)]
    settled = outcomes.keys() | {skip.promise_id for skip in skipped}
    behind = [*_restarted(request, steps, settled), *_facts(request, steps, outcomes, skipped)]
    cut += before
    whole = [_renamed(event, request) for event in [*_forked(prefix, request, cut), *behind]]
    return ForkPlan(
        cut,
        tuple(whole),
        tuple(
            step for step in steps.open if step in targets - steps.doubted - request.values.keys()
        ),
        (*outcomes, *skips),
        tuple(sorted(steps.doubted - settled)),
        *_signals(later, steps.begun),
        steps.is_paused or bool(settled),
    )


class OpenSteps:
    """The steps that are open after some events: scheduled and not settled."""

    def __init__(self) -> None:
        self.open: dict[StepId, e.InvokeScheduled] = {}
        self.started: dict[StepId, int] = {}
        """The last attempt of open steps that have started."""
        self.delayed: set[StepId] = set()
        """Steps whose last attempt failed, and that wait for the next."""
        self.entries: dict[StepId, int] = {}
        """How many answers a graph has entered for each step."""
        self.entered: set[StepId] = set()
        """Steps whose answer is entered and not taken in."""
        self.begun: set[str] = set()
        """Steps of a graph that have begun, ended ones too."""
        self.is_cancelling = False
        self.is_paused = False

    def take(self, event: e.Event) -> None:
        match event:
            case e.InvokeScheduled(promise_id=step):
                self.open[step] = event
            case e.InvokeStarted(promise_id=step, attempt=attempt):
                self.started[step] = attempt
                self.delayed.discard(step)
            case e.InvokeRetrying(promise_id=step):
                self.delayed.add(step)
            case e.InvokeCompleted(promise_id=step) | e.StepSkipped(promise_id=step):
                self.open.pop(step, None)
                self.started.pop(step, None)
                self.entered.discard(step)
            case e.TimerFired(promise_id=step) | e.SignalReceived(promise_id=step):
                self.entered.discard(step)
            case e.Posted(label="attempt"):
                self.begun.add(_step_of(event.postings[0].account))
            case e.Posted(label=identity.ENTERED):
                step = StepId(_step_of(event.postings[0].account))
                self.entries[step] = self.entries.get(step, 0) + 1
                self.entered.add(step)
            case e.RunPaused() | e.RunResumed():
                self.is_paused = isinstance(event, e.RunPaused)
            case e.CancelRequested():
                self.is_cancelling, self.is_paused = True, False
            case _:
                pass

    def is_under_way(self, step: StepId) -> bool:
        """Whether an attempt of the step has started and not ended."""
        return step in self.started and step not in self.delayed

    @property
    def doubted(self) -> set[StepId]:
        """Tasks with an attempt under way."""
        started = filter(self.is_under_way, self.started)
        return {step for step in started if _is_task(self.open[step])}

    def attempt(self, step: StepId) -> int:
        """The number of the attempt under way, or of the next one."""
        return self.started.get(step, 0) + (not self.is_under_way(step))


def steps_of(journal: Iterable[e.Event]) -> dict[StepId, str]:
    """The steps that a run has begun, in order, each with the name of what it calls; empty for timers and signals."""
    found: dict[StepId, str] = {}
    for event in journal:
        match event:
            case e.InvokeScheduled(promise_id=step, function_name=name):
                found[step] = name
            case e.TimerScheduled(promise_id=step) | e.SignalReceived(promise_id=step):
                found.setdefault(step, "")
            case e.ExecutionAwaiting(waiting_on=steps):
                for step in steps:
                    found.setdefault(step, "")
            case e.Posted(label="attempt"):
                found.setdefault(StepId(_step_of(event.postings[0].account)), "")
            case _:
                pass
    return found


def _require_known(
    request: ForkRequest, journal: Sequence[e.Event], targets: Iterable[StepId]
) -> None:
    known = steps_of(journal).keys() | {START}
    for step in targets:
        if step not in known:
            raise InputError(
                f"run {request.source!r} has begun no step {step!r}",
                "name a step of its history, or 'root' to fork at its start",
            )


def _require_replaceable(request: ForkRequest, steps: OpenSteps) -> None:
    if request.values and steps.is_cancelling:
        raise InputError(
            f"run {request.source!r} is being cancelled at {request.step!r}, where no outcome can be set",
            "fork before the cancellation, or let the clean-up step be executed again",
        )
    for step in request.values:
        scheduled = steps.open.get(step)
        if scheduled is None or scheduled.kind is e.InvokeKind.BRANCH:
            raise InputError(
                f"the value of step {step!r} can't be set in a fork of run {request.source!r} at {request.step!r}: "
                "no task or child run of that id is open there",
                "set values of tasks that had begun at that moment; fork once more for later ones",
            )


def _cut(journal: Sequence[e.Event], targets: Iterable[StepId]) -> int:
    """The last boundary between turns before one of the steps settles, or the run ends."""
    wanted = set(targets)
    last = 1
    for place in _boundaries(journal):
        if any(_ends(event, wanted) for event in journal[last:place]):
            break
        last = place
    return last


def _ends(event: e.Event, steps: set[StepId]) -> bool:
    if isinstance(event, e.Terminal):
        return True
    return isinstance(event, _SETTLING) and event.promise_id in steps


def _boundaries(journal: Sequence[e.Event]) -> Iterable[int]:
    """The places between turns, in order: where the program has decided on all facts before, and none is missing."""
    first = journal[0]
    is_graph = isinstance(first, e.ExecutionStarted) and first.trigger is not None
    return _boundaries_of_graph(journal) if is_graph else _boundaries_of_workflow(journal)


def _boundaries_of_workflow(journal: Sequence[e.Event]) -> Iterable[int]:
    """A workflow has decided on all facts while it waits."""
    waits = False
    for place, event in enumerate(journal):
        if waits and isinstance(event, (*_FACTS, e.Posted)):
            yield place
        if isinstance(event, e.ExecutionAwaiting):
            waits = True
        elif isinstance(event, e.ExecutionResumed | e.CancelRequested):
            waits = False
    if waits:
        yield len(journal)


def _boundaries_of_graph(journal: Sequence[e.Event]) -> Iterable[int]:
    """A graph decides on each fact before it takes the next. The entry of an answer precedes the answer.

    Within the turn that begins a child run, its start is a decision, and so is its end if the graph does not wait.
    """
    children: set[StepId] = set()
    for place in range(1, len(journal)):
        event = journal[place]
        if isinstance(event, e.InvokeScheduled) and event.place is e.InvokePlace.RUN:
            children.add(event.promise_id)
        if not isinstance(event, _FACTS) or _is_own_interruption(event):
            continue
        is_answer = isinstance(event, e.InvokeCompleted | e.TimerFired)
        first = place - 1 if is_answer and _is_entry(journal[place - 1]) else place
        before = journal[first - 1]
        if isinstance(event, e.InvokeStarted | e.InvokeCompleted) and event.promise_id in children:
            if isinstance(before, e.InvokeScheduled | e.InvokeStarted):
                if before.promise_id == event.promise_id:
                    continue
        yield first
    if not isinstance(journal[-1], e.Terminal):
        yield len(journal)


def _is_own_interruption(event: e.Event) -> bool:
    """Whether a graph interrupts itself, which is a decision; every other request to cancel comes with a message."""
    return isinstance(event, e.CancelRequested) and event.guid is None and event.signal_id is None


def _is_entry(event: e.Event) -> bool:
    return isinstance(event, e.Posted) and event.label == identity.ENTERED


def _without_attempts(event: e.Event, tasks: set[StepId]) -> e.Event | None:
    """The event without what it says of attempts of these steps; `None` if nothing is left."""
    if isinstance(event, e.InvokeStarted | e.InvokeRetrying):
        return None if event.promise_id in tasks else event
    if isinstance(event, e.SignalAccepted | e.SignalRejected):
        return None if event.step in tasks else event
    if isinstance(event, e.Posted) and ":" in event.label:
        if any(event == reconciled_entry(step) for step in tasks):
            return None
        postings = tuple(each for each in event.postings if _step_of(each.account) not in tasks)
        if event.postings and not postings:
            return None
        return msgspec.structs.replace(event, postings=postings)
    return event


def _with_open_timers(prefix: Sequence[e.Event], passed_ms: int) -> list[e.Event]:
    """The events with open timers later by the time that has passed: what was left of them is left in the fork."""
    settled = {event.promise_id for event in prefix if isinstance(event, _SETTLING)}
    return [
        msgspec.structs.replace(event, fire_at_ms=event.fire_at_ms + passed_ms)
        if isinstance(event, e.TimerScheduled) and event.promise_id not in settled
        else event
        for event in prefix
    ]


def _is_task(event: e.Event) -> TypeGuard[e.InvokeScheduled]:
    """Whether the event schedules a task. The first attempt of a branch or a child run is the program's decision."""
    return (
        isinstance(event, e.InvokeScheduled)
        and event.kind is not e.InvokeKind.BRANCH
        and event.place is not e.InvokePlace.RUN
    )


def _step_of(account: AccountId) -> str:
    kind, _, name = account.partition(":")
    return name if kind == "step" else ""


def later_outcomes(
    later: Sequence[e.Event], steps: OpenSteps, targets: set[StepId]
) -> dict[StepId, e.InvokeCompleted]:
    """The good outcomes that steps which are open at the cut had behind it."""
    found: dict[StepId, e.InvokeCompleted] = {}
    for event in later:
        if not isinstance(event, e.InvokeCompleted) or not event.ok:
            continue
        step = event.promise_id
        scheduled = steps.open.get(step)
        if scheduled is None or step in targets or scheduled.kind is e.InvokeKind.BRANCH:
            continue
        found.setdefault(step, event)
    return found


def later_skips(later: Sequence[e.Event], steps: Set[StepId]) -> dict[StepId, e.StepSkipped]:
    """What operators settled some of these steps with, behind the cut."""
    return {
        event.promise_id: event
        for event in later
        if isinstance(event, e.StepSkipped) and event.signal_id and event.promise_id in steps
    }


def _signals(
    later: Sequence[e.Event], begun: set[str]
) -> tuple[tuple[e.SignalDelivered, ...], tuple[e.SignalDelivered, ...]]:
    """The later signals that can be sent again, and those that can't. In a graph a signal may be for one step."""
    sent: list[e.SignalDelivered] = []
    lost: list[e.SignalDelivered] = []
    for event in later:
        if isinstance(event, e.SignalDelivered) and event.guid is not None:
            step = step_of_signal(event)
            (sent if step is None or step in begun else lost).append(event)
    return tuple(sent), tuple(lost)


def step_of_signal(event: e.SignalDelivered) -> StepId | None:
    """The step of a graph that the signal is for; `None` if it is for the run."""
    _, at, step = event.signal_name.partition("@")
    return StepId(step) if at and event.staged else None


def _restarted(request: ForkRequest, steps: OpenSteps, settled: Set[StepId]) -> Iterable[e.Event]:
    """Child runs of the source are not the fork's: each open one ends an attempt, and the next starts another run."""
    for step, scheduled in steps.open.items():
        is_child = scheduled.place is e.InvokePlace.RUN
        if is_child and step not in settled and step not in steps.delayed:
            payload = request.lost_child
            yield e.InvokeRetrying(step, steps.attempt(step), request.now_ms, payload=payload)


def _replacements(request: ForkRequest) -> Iterable[e.StepSkipped]:
    """The values that replace outcomes."""
    for step, value in request.values.items():
        yield e.StepSkipped(
            step, request.reason or "set by a fork", signal_id=request.act, payload=value
        )


def _facts(
    request: ForkRequest,
    steps: OpenSteps,
    outcomes: Mapping[StepId, e.InvokeCompleted],
    skipped: Sequence[e.StepSkipped],
) -> Iterable[e.Event]:
    """The outcomes, and the values of skipped steps, which a pause holds."""
    if not outcomes and not skipped:
        return
    for step in outcomes:
        if not steps.is_under_way(step):
            yield e.InvokeStarted(step, steps.attempt(step))
    if not steps.is_paused:
        yield e.RunPaused(request.reason, request.act)
    for step, outcome in outcomes.items():
        attempt = steps.attempt(step)
        guid = None if outcome.guid is None else result_guid(request.fork, step, attempt)
        yield from _entry(steps, step, guid)
        yield msgspec.structs.replace(outcome, attempt=attempt, guid=guid, claim=1)
    for skip in skipped:
        step = skip.promise_id
        is_staged = steps.open[step].staged
        guid = result_guid(request.fork, step, steps.attempt(step)) if is_staged else None
        yield from _entry(steps, step, guid)
        yield msgspec.structs.replace(
            skip, released=int(not is_staged), guid=guid, staged=is_staged
        )


def _entry(steps: OpenSteps, step: StepId, guid: Guid | None) -> Iterable[e.Event]:
    """In a graph the entry of an answer precedes it, unless the source has entered it already."""
    if guid is not None and steps.open[step].staged and step not in steps.entered:
        ordinal = steps.entries.get(step, 0) + 1
        postings = (
            e.Posting(step_account(step), ENTRY),
            e.Posting(message_account(guid), ordinal),
        )
        yield e.Posted(identity.ENTERED, postings)


def _forked(prefix: Sequence[e.Event], request: ForkRequest, cut: int) -> Iterable[e.Event]:
    """The entries that are kept. The first says what the fork was made of; the fork has no parent."""
    for event in prefix:
        if isinstance(event, e.ExecutionStarted):
            yield msgspec.structs.replace(
                event,
                parent_id=None,
                continues=None,
                forks=f"{request.source}@{cut}",
                seed=event.seed or request.source,
                inherited=event.inherited if event.continues is not None else 0,
                slot=None,  # an operator asked for the fork, whatever limits say
            )
        else:
            yield event


def _renamed(event: e.Event, request: ForkRequest) -> e.Event:
    """The event with the GUIDs of messages to the source as GUIDs of messages to the fork."""
    guid = getattr(event, "guid", None)
    if guid is not None:
        return msgspec.structs.replace(event, guid=renamed_guid(guid, request))
    if isinstance(event, e.Posted) and event.postings:
        postings = tuple(
            e.Posting(_account(each.account, request), each.increment) for each in event.postings
        )
        return msgspec.structs.replace(event, postings=postings)
    return event


def own_guid(guid: Guid, fork: RunId) -> Guid:
    """The GUID with which a message to the source is sent to the fork."""
    return Guid(f"m_{fork[2:]}_{guid.rpartition('_')[2]}")


def renamed_guid(guid: Guid, request: ForkRequest) -> Guid:
    """The GUID of the same message to the fork. A GUID that names neither the source nor its chain stays."""
    origin = guid_run(guid)
    if origin not in (request.source, request.origin):
        return guid
    return own_guid(guid, request.fork)


def _account(account: AccountId, request: ForkRequest) -> AccountId:
    kind, _, name = account.partition(":")
    return message_account(renamed_guid(Guid(name), request)) if kind == "message" else account
