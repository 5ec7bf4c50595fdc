"""The fold from contract events to the state that snapshots show."""

from collections.abc import Callable, Iterable
from typing import Any, Final

import msgspec

from perdure.core.errors import InputError
from perdure.core.ids import RunId, StepId
from perdure.core.journal.contract import EventType
from perdure.core.journal.events import ActType, ArtifactRef, InvokeKind, InvokePlace
from perdure.core.replay.identity import child_run_id
from perdure.core.runs.contract_event import ContractEvent
from perdure.core.runs.snapshot import (
    ApplicationError,
    RootCause,
    RunSnapshot,
    SequenceGap,
    SnapshotStatus,
    StepSnapshot,
    StepStatus,
)

_replace = msgspec.structs.replace

CHILD: Final = "run"
"""The kind of a step that starts another run."""


class Projection:
    """Applies events in order, and makes snapshots. It can begin with any snapshot.

    Events that a snapshot has are passed over. If one is missing, nothing is applied until it comes.
    """

    def __init__(self, snapshot: RunSnapshot) -> None:
        self._snapshot = snapshot
        """All but the steps."""
        self._steps = list(snapshot.steps)
        self._places = {(each.run_id, each.step): at for at, each in enumerate(self._steps)}
        self._is_changed = False

    @property
    def last_event_seq(self) -> int:
        return self._snapshot.last_event_seq

    @property
    def size(self) -> int:
        """How many steps it holds."""
        return len(self._steps)

    def snapshot(self) -> RunSnapshot:
        """The state now. Without an event since the last call it is the same object."""
        if self._is_changed:
            self._snapshot = _replace(self._snapshot, steps=tuple(self._steps))
            self._is_changed = False
        return self._snapshot

    def apply(self, events: Iterable[ContractEvent]) -> bool:
        """Apply events up to the first gap. Returns whether there was none."""
        for event in events:
            last = self._snapshot.last_event_seq
            if event.offset <= last:
                continue
            if has_gap(last, event.offset):
                self.halt(SequenceGap(last + 1, event.offset))
                return False
            self._require_same_run(event)
            self._advance(event)
        return True

    def halt(self, gap: SequenceGap) -> None:
        """The event `gap.expected` is missing."""
        self._set(gap=gap)

    def _advance(self, event: ContractEvent) -> None:
        self._set(last_event_seq=event.offset, gap=None)
        rule = _RULES.get(event.type)
        if rule is not None:
            rule(self, event)

    def _require_same_run(self, event: ContractEvent) -> None:
        current = self._snapshot.current_run_id
        if current is not None and event.run_id != current and event.seq != 0:
            raise InputError(
                f"event {event.seq} of run {event.run_id!r} is applied to a snapshot of {current!r}",
                "pass the events of one run, or of one chain in their order",
            )

    def _set(self, **fields: Any) -> None:
        self._snapshot = _replace(self._snapshot, **fields)
        self._is_changed = True

    # Steps

    def _step(self, run_id: RunId, step: StepId) -> tuple[int, StepSnapshot]:
        """The step and its place; a new one if it has none."""
        place = self._places.get((run_id, step))
        if place is None:
            place = self._places[run_id, step] = len(self._steps)
            self._steps.append(StepSnapshot(step=step, run_id=run_id))
        return place, self._steps[place]

    def _has(self, event: ContractEvent, step: str) -> bool:
        return (event.run_id, StepId(step)) in self._places

    def _set_step(self, event: ContractEvent, step: StepId, **fields: Any) -> None:
        place, before = self._step(event.run_id, step)
        after = self._steps[place] = _replace(before, **{"is_parked": False, **fields})
        failed = (after.status is StepStatus.FAILED) - (before.status is StepStatus.FAILED)
        if failed:
            self._set(failed_steps=self._snapshot.failed_steps + failed)

    # Rules

    def _approved(self, _: ContractEvent) -> None:
        self._set(status=SnapshotStatus.APPROVED)

    def _started(self, event: ContractEvent) -> None:
        began_ms = self._snapshot.started_at_ms
        self._set(
            status=SnapshotStatus.RUNNING,
            started_at_ms=event.emitted_at_ms if began_ms is None else began_ms,
            current_run_id=event.run_id,
            engine_run_ref=event.engine_run_ref,
        )

    def _paused(self, _: ContractEvent) -> None:
        self._set(status=SnapshotStatus.PAUSED)

    def _resumed(self, _: ContractEvent) -> None:
        self._set(status=SnapshotStatus.RUNNING)

    def _cancel_requested(self, event: ContractEvent) -> None:
        # It ends a pause: the run cleans up.
        self._set(
            status=SnapshotStatus.RUNNING,
            cancel_reason=self._snapshot.cancel_reason or event.data.get("reason", ""),
        )

    def _end(self, event: ContractEvent, status: SnapshotStatus) -> None:
        ended_ms, began_ms = event.emitted_at_ms, self._snapshot.started_at_ms
        duration_ms = None if began_ms is None else max(0, ended_ms - began_ms)
        self._set(status=status, completed_at_ms=ended_ms, total_duration_ms=duration_ms)

    def _completed(self, event: ContractEvent) -> None:
        self._end(event, SnapshotStatus.COMPLETED)

    def _cancelled(self, event: ContractEvent) -> None:
        self._end(event, SnapshotStatus.CANCELLED)

    def _failed(self, event: ContractEvent) -> None:
        self._end(event, SnapshotStatus.FAILED)
        error = _error_of(event)
        if error is not None:
            self._set(error=error, root_cause=self._root_cause(event.run_id, error))

    def _root_cause(self, run_id: RunId, error: ApplicationError) -> RootCause:
        """The first failed step with the error that the run ended with."""
        for step in self._steps:
            found = step.error
            if found is not None and (found.code, found.message) == (error.code, error.message):
                return RootCause(found, step.run_id, step.step)
        return RootCause(error, run_id)

    def _decided(self, event: ContractEvent) -> None:
        """A retry begins the next logical attempt of the step. Other acts have events of their own."""
        step = event.data.get("step")
        if event.data.get("signal_type") != ActType.RETRY_STEP or step is None:
            return
        _, before = self._step(event.run_id, step)
        self._set_step(
            *(event, step),
            status=StepStatus.PENDING,
            logical_attempt=before.logical_attempt + 1,
            started_at_ms=None,
            completed_at_ms=None,
            error=None,
        )

    def _scheduled(self, event: ContractEvent) -> None:
        if event.step is not None:
            data = event.data
            starts_run = data.get("place") == InvokePlace.RUN
            kind = CHILD if starts_run else data.get("kind", InvokeKind.FUNCTION.value)
            self._set_step(event, event.step, name=data.get("function_name", ""), kind=kind)

    def _timer_scheduled(self, event: ContractEvent) -> None:
        if event.step is not None:
            self._begin(event, event.step, name="timer", kind="timer")

    def _awaiting(self, event: ContractEvent) -> None:
        found = event.data.get("signal")
        for signal in [found] if isinstance(found, dict) else found or ():
            step = StepId(signal["promise_id"])
            if not self._has(event, step):
                self._begin(event, step, name=signal["name"], kind="signal")

    def _begin(self, event: ContractEvent, step: StepId, **fields: Any) -> None:
        began_ms = event.emitted_at_ms
        self._set_step(event, step, status=StepStatus.RUNNING, started_at_ms=began_ms, **fields)

    def _received(self, event: ContractEvent) -> None:
        if event.step is None:
            return
        fields: dict[str, Any] = {}
        if not self._has(event, event.step):
            name = event.data.get("signal_name", "")
            fields = {"name": name, "kind": "signal", "started_at_ms": event.emitted_at_ms}
        if event.data.get("stays"):
            self._set_step(event, event.step, status=StepStatus.RUNNING, **fields)
        else:
            self._succeed(event, **fields)

    def _succeed(self, event: ContractEvent, **fields: Any) -> None:
        if event.step is not None:
            ended_ms = event.emitted_at_ms
            self._set_step(
                *(event, event.step),
                status=StepStatus.SUCCESS,
                completed_at_ms=ended_ms,
                error=None,
                **fields,
            )

    def _step_started(self, event: ContractEvent) -> None:
        if event.step is None:
            return
        _, before = self._step(event.run_id, event.step)
        began_ms, attempt = before.started_at_ms, event.engine_attempt or 1
        child = None
        if before.kind == CHILD:
            child = child_run_id(event.run_id, event.step, attempt)
        self._set_step(
            *(event, event.step),
            status=StepStatus.RUNNING,
            child_run_id=child,
            logical_attempt=event.logical_attempt,
            engine_attempt=event.engine_attempt,
            started_at_ms=event.emitted_at_ms if began_ms is None else began_ms,
        )

    def _step_completed(self, event: ContractEvent) -> None:
        artifacts = _artifacts_of(event)
        fields: dict[str, Any] = {"artifacts": artifacts} if artifacts else {}
        self._succeed(event, engine_attempt=event.engine_attempt, **fields)
        if artifacts:
            self._add_artifacts(artifacts)

    def _step_failed(self, event: ContractEvent) -> None:
        if event.step is not None:
            self._set_step(
                *(event, event.step),
                status=StepStatus.FAILED,
                engine_attempt=event.engine_attempt,
                completed_at_ms=event.emitted_at_ms,
                error=_error_of(event),
                is_parked=bool(event.data.get("parked")),
            )
            self._add_artifacts(_artifacts_of(event))

    def _settled(self, event: ContractEvent) -> None:
        """A step that has failed under its logical attempt is settled: it keeps the error that it failed with."""
        if event.step is not None:
            _, before = self._step(event.run_id, event.step)
            if before.status is StepStatus.FAILED:
                self._set_step(event, event.step)
            else:
                self._step_failed(event)

    def _step_skipped(self, event: ContractEvent) -> None:
        if event.step is not None:
            self._set_step(
                *(event, event.step),
                status=StepStatus.SKIPPED,
                completed_at_ms=event.emitted_at_ms,
                reason=event.data.get("reason", ""),
                error=None,
            )

    def _add_artifacts(self, artifacts: tuple[ArtifactRef, ...]) -> None:
        known = self._snapshot.artifacts
        new = tuple(each for each in artifacts if each not in known)
        if new:
            self._set(artifacts=known + new)


def has_gap(last_seq: int, next_seq: int) -> bool:
    """Whether events are missing between the last that was applied and the next that came."""
    return next_seq > last_seq + 1


def _error_of(event: ContractEvent) -> ApplicationError | None:
    found = event.data.get("error")
    return None if found is None else msgspec.convert(found, ApplicationError)


def _artifacts_of(event: ContractEvent) -> tuple[ArtifactRef, ...]:
    return msgspec.convert(event.data.get("artifacts", ()), tuple[ArtifactRef, ...])


_RULES: Final[dict[EventType, Callable[[Projection, ContractEvent], None]]] = {
    EventType.RUN_APPROVED: Projection._approved,
    EventType.RUN_STARTED: Projection._started,
    EventType.STEP_STARTED: Projection._step_started,
    EventType.STEP_COMPLETED: Projection._step_completed,
    EventType.STEP_FAILED: Projection._step_failed,
    EventType.STEP_SKIPPED: Projection._step_skipped,
    EventType.SIGNAL_ACCEPTED: Projection._decided,
    EventType.RUN_PAUSED: Projection._paused,
    EventType.RUN_RESUMED: Projection._resumed,
    EventType.RUN_COMPLETED: Projection._completed,
    EventType.RUN_FAILED: Projection._failed,
    EventType.RUN_CANCELLED: Projection._cancelled,
    EventType.CANCEL_REQUESTED: Projection._cancel_requested,
    EventType.INVOKE_COMPLETED: Projection._settled,
    EventType.INVOKE_SCHEDULED: Projection._scheduled,
    EventType.TIMER_SCHEDULED: Projection._timer_scheduled,
    EventType.TIMER_FIRED: Projection._succeed,
    EventType.SIGNAL_RECEIVED: Projection._received,
    EventType.EXECUTION_AWAITING: Projection._awaiting,
}
"""Other events change no snapshot but its watermark."""
