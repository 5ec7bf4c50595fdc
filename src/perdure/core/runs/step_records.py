"""The steps of a run with their times: how long each was queued, executing, waiting to be retried, in doubt. Pure.

A fold over the entries of a journal. It keeps no payloads, so that a run of many steps stays small in memory.
"""

from collections.abc import Callable, Iterator
from enum import StrEnum

import msgspec

from perdure.core.errors import LedgerError
from perdure.core.ids import RunId, StepId
from perdure.core.journal import events as e
from perdure.core.journal.entry import Entry
from perdure.core.journal.postings import effect_of
from perdure.core.replay.identity import child_run_id
from perdure.core.runs.description import GRAPH_LEG_1
from perdure.core.runs.snapshot import ApplicationError, StepStatus

ErrorOf = Callable[[bytes | None], ApplicationError]
"""Reads a stored error."""


class TimeKind(StrEnum):
    """What a step does with its time."""

    QUEUED = "queued"
    """Scheduled, and not started yet."""

    EXECUTING = "executing"

    BACKOFF = "backoff"
    """Between two attempts."""

    IN_DOUBT = "in_doubt"
    """An attempt that had started and had no outcome when its host died."""

    WAITING = "waiting"
    """A timer, a signal, a child run, a branch; or a parked step."""


class AttemptRecord(msgspec.Struct):
    """A physical attempt. `outcome` is `ok`, `failed`, `in doubt`, or empty while it executes."""

    engine_attempt: int
    logical_attempt: int
    started_at_ms: int
    ended_at_ms: int | None = None
    outcome: str = ""
    retry_at_ms: int | None = None
    ended: int | None = None
    """The entry with its error."""


class StepRecord(msgspec.Struct, kw_only=True):
    """A step. `phases` are the times at which it began to be what they say; the last one ends with `completed_at_ms`.

    `scheduled`, `completed` and `outcome`, which has the value, are entries. `obligations` is its part of the
    semaphore.
    """

    step: StepId
    run_id: RunId
    name: str = ""
    kind: str = ""
    status: StepStatus = StepStatus.PENDING
    logical_attempt: int = 1
    engine_attempt: int | None = None
    scheduled_at_ms: int
    started_at_ms: int | None = None
    completed_at_ms: int | None = None
    error: ApplicationError | None = None
    reason: str = ""
    child_run_id: RunId | None = None
    is_parked: bool = False
    artifacts: tuple[e.ArtifactRef, ...] = ()
    scheduled: int
    completed: int | None = None
    outcome: int | None = None
    obligations: int = 0
    phases: list[tuple[TimeKind, int]] = []
    attempts: list[AttemptRecord] = []

    @property
    def is_open(self) -> bool:
        return self.completed_at_ms is None

    def spans(self, end_ms: int) -> Iterator[tuple[TimeKind, int, int]]:
        """What it did from when to when; an open step until `end_ms`."""
        last_ms = end_ms if self.completed_at_ms is None else self.completed_at_ms
        for number, (kind, from_ms) in enumerate(self.phases):
            is_last = number + 1 == len(self.phases)
            yield kind, from_ms, max(from_ms, last_ms if is_last else self.phases[number + 1][1])


class StepRecords:
    """The steps of a chain of runs, in the order in which they began."""

    def __init__(self, error_of: ErrorOf) -> None:
        self.records: list[StepRecord] = []
        self.run_obligations = 0
        """What the entries of the run itself have added to the semaphore of the last run."""
        self._error_of = error_of
        self._run_id = RunId("")
        self._by_step: dict[StepId, StepRecord] = {}
        self._awaited: tuple[StepId, ...] = ()
        self._delivered: dict[tuple[str, int], int] = {}
        """The entries of signals that the program has not received, by name and number."""

    @property
    def awaited(self) -> tuple[StepId, ...]:
        """The steps that the program waits for now."""
        return self._awaited

    def begin(self, run_id: RunId) -> None:
        """The next run of the chain begins."""
        self._run_id, self._by_step, self._awaited = run_id, {}, ()
        self._delivered = {}
        self.run_obligations = 0

    def find(self, step: str) -> StepRecord | None:
        """The step of that id; in a chain, that of the last run that has it."""
        return next((each for each in reversed(self.records) if each.step == step), None)

    def apply(self, entry: Entry) -> None:
        """Take in the next entry."""
        event = entry.event
        self._open(event, entry)
        self._attempt(event, entry)
        self._close(event, entry)
        self._oblige(event)

    def _open(self, event: e.Event, entry: Entry) -> None:
        match event:
            case e.InvokeScheduled(promise_id=step):
                is_child = event.place is e.InvokePlace.RUN
                kind = "run" if is_child else event.kind.value
                waits = is_child or event.kind is e.InvokeKind.BRANCH
                phase = TimeKind.WAITING if waits else TimeKind.QUEUED
                record = self._add(step, event.function_name, kind, entry, phase)
                if is_child:
                    record.child_run_id = child_run_id(self._run_id, step)
                    record.status = StepStatus.RUNNING
            case e.TimerScheduled(promise_id=step):
                if step not in self._by_step:
                    self._add(step, "timer", "timer", entry, TimeKind.WAITING)
            case e.ExecutionAwaiting():
                self._awaited = event.waiting_on
                for signal in event.signals:
                    self._await_signal(signal.promise_id, signal.name, entry)
            case e.ExecutionResumed():
                self._awaited = ()
            case e.Posted(label=label) if label == GRAPH_LEG_1:
                for posting in event.postings:
                    step = StepId(posting.account.partition(":")[2])
                    self._await_signal(step, step.partition(",")[0], entry)
            case _:
                pass  # opens no step

    def _await_signal(self, step: StepId, name: str, entry: Entry) -> None:
        if step not in self._by_step:
            self._add(step, name, "signal", entry, TimeKind.WAITING)

    def _attempt(self, event: e.Event, entry: Entry) -> None:
        match event:
            case e.InvokeStarted(promise_id=step) if (
                record := self._by_step.get(step)
            ) is not None:
                self._doubt(record, entry)
                record.engine_attempt, record.status = event.attempt, StepStatus.RUNNING
                record.started_at_ms, record.is_parked = entry.at_ms, False
                record.attempts.append(
                    AttemptRecord(event.attempt, record.logical_attempt, entry.at_ms)
                )
                record.phases.append((TimeKind.EXECUTING, entry.at_ms))
            case e.InvokeRetrying(promise_id=step) if record := self._by_step.get(step):
                self._end_attempt(record, event.failed_attempt, entry, "failed")
                record.error = self._error_of(event.payload)
                record.is_parked = event.parks
                record.status = StepStatus.FAILED if event.parks else StepStatus.RUNNING
                if not event.parks and record.attempts:
                    record.attempts[-1].retry_at_ms = event.retry_at_ms
                kind = TimeKind.WAITING if event.parks else TimeKind.BACKOFF
                record.phases.append((kind, entry.at_ms))
            case e.SignalAccepted(signal_type=e.ActType.RETRY_STEP, step=step) if (
                step is not None and (record := self._by_step.get(step)) is not None
            ):
                record.logical_attempt += 1
                record.is_parked, record.status = False, StepStatus.PENDING
                record.phases.append((TimeKind.QUEUED, entry.at_ms))
            case _:
                pass  # begins and ends no attempt

    def _close(self, event: e.Event, entry: Entry) -> None:
        match event:
            case e.InvokeCompleted(promise_id=step) if record := self._by_step.get(step):
                self._end_attempt(record, event.attempt, entry, "ok" if event.ok else "failed")
                record.artifacts = event.artifacts
                record.error = None if event.ok else self._error_of(event.payload)
                _end(record, entry, StepStatus.SUCCESS if event.ok else StepStatus.FAILED)
            case e.TimerFired(promise_id=step) if record := self._by_step.get(step):
                _end(record, entry, StepStatus.SUCCESS)
            case e.SignalDelivered():
                self._delivered[event.signal_name, event.delivery_id] = entry.seq
            case e.SignalReceived(promise_id=step):
                record = self._by_step.get(step)
                if record is None:
                    name = event.signal_name
                    record = self._add(step, name, "signal", entry, TimeKind.WAITING)
                record.kind = "signal"
                delivered = self._delivered.pop((event.signal_name, event.delivery_id), None)
                if not event.stays:
                    _end(record, entry, StepStatus.SUCCESS)
                    record.outcome = entry.seq if delivered is None else delivered
            case e.StepSkipped(promise_id=step):
                record = self._by_step.get(step)
                if record is None:
                    record = self._add(step, step.partition(",")[0], "", entry, TimeKind.WAITING)
                record.reason = event.reason
                _end(record, entry, StepStatus.SKIPPED)
            case _:
                pass  # ends no step

    def _oblige(self, event: e.Event) -> None:
        try:
            postings, change = effect_of(event)
        except LedgerError:
            return  # the audit names it
        if not change:
            return
        step = getattr(event, "promise_id", None)
        if step is None and len(postings) == 1:
            step = StepId(postings[0][0].partition(":")[2])
        record = None if step is None else self._by_step.get(step)
        if record is None:
            self.run_obligations += change
        else:
            record.obligations += change

    def _add(self, step: StepId, name: str, kind: str, entry: Entry, phase: TimeKind) -> StepRecord:
        record = StepRecord(
            step=step,
            run_id=self._run_id,
            name=name,
            kind=kind,
            status=StepStatus.PENDING if phase is TimeKind.QUEUED else StepStatus.RUNNING,
            scheduled_at_ms=entry.at_ms,
            scheduled=entry.seq,
            phases=[(phase, entry.at_ms)],
            attempts=[],
        )
        self._by_step[step] = record
        self.records.append(record)
        return record

    @staticmethod
    def _doubt(record: StepRecord, entry: Entry) -> None:
        """An attempt that starts while one is under way: that one's host has died."""
        if not record.phases or record.phases[-1][0] is not TimeKind.EXECUTING:
            return
        record.phases[-1] = (TimeKind.IN_DOUBT, record.phases[-1][1])
        if record.attempts:
            record.attempts[-1].outcome, record.attempts[-1].ended_at_ms = "in doubt", entry.at_ms

    @staticmethod
    def _end_attempt(record: StepRecord, attempt: int, entry: Entry, outcome: str) -> None:
        if not record.attempts or record.attempts[-1].outcome:
            # Work on a queue: its owner may hear of the start and the end at once.
            record.attempts.append(AttemptRecord(attempt, record.logical_attempt, entry.at_ms))
        last = record.attempts[-1]
        last.ended_at_ms, last.outcome, last.ended = entry.at_ms, outcome, entry.seq


def _end(record: StepRecord, entry: Entry, status: StepStatus) -> None:
    record.status, record.completed_at_ms, record.completed = status, entry.at_ms, entry.seq
    record.outcome = entry.seq
    record.is_parked = False
