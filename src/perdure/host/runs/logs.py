"""Log lines about runs and their steps, each logged when the commit behind it is durable."""

import logging
from collections.abc import Sequence
from typing import Any

from perdure.authoring.context import Info
from perdure.authoring.values.failures import failure_text, traceback_text
from perdure.core.codec import Codec
from perdure.core.ids import HostId, RunId
from perdure.core.journal.state import Status
from perdure.core.replay.doubt import Resolution
from perdure.engine.runs.log_notes import (
    LogNote,
    PauseBegun,
    PauseEnded,
    RetryScheduled,
    RunStarted,
    StepDoubted,
    StepFailed,
    StepParked,
)
from perdure.host.context import HostContext
from perdure.host.logs import log_error, run_fields, run_log, short_text, task_log
from perdure.host.runs.batch import Batch
from perdure.host.watchers import RunEnding
from perdure.store.rows.records import Run


def note_batch(batch: Batch, context: HostContext) -> None:
    """Log what a commit made durable, and report the spans of the runs that it ended."""
    codec, tracing = context.codec, context.services.tracing
    for run, notes in batch.log_notes:
        _log_notes(run.machine.info, notes, codec)
    for run, ending in batch.endings:
        machine = run.machine
        note_ending(machine.info, ending, codec)
        if tracing is not None:
            tracing.run_ended(machine.info, run.created_at_ms, machine.links, ending)


def _log_notes(info: Info, notes: Sequence[LogNote], codec: Codec) -> None:
    for each in notes:
        match each:
            case RunStarted():
                _note_started(info, each)
            case RetryScheduled():
                _note_retry(info, each, codec)
            case StepFailed() | StepParked():
                _note_step_failed(info, each, codec)
            case PauseBegun() | PauseEnded():
                _note_pause(info, each)
            case StepDoubted():
                _note_doubt(info, each)


def note_ending(info: Info, ending: RunEnding, codec: Codec) -> None:
    """Log how a run ended."""
    level = logging.WARNING if ending.status is Status.FAILED else logging.INFO
    if not run_log.isEnabledFor(level):
        return
    fields = run_fields(info, f"run_{ending.status}")
    if ending.status is Status.FAILED:
        error = failure_text(codec, ending.payload)
        fields["error_type"] = error.type_name
        text = f" failed: {short_text(error)}"
    elif ending.status is Status.CANCELLED:
        text = f" was cancelled: {ending.reason}" if ending.reason else " was cancelled"
    elif ending.status is Status.CONTINUED:
        text = " ended and continues as a new run"
    else:
        text = " completed"
    run_log.log(level, "run %s of %r%s", info.run_id, info.program, text, extra=fields)


def note_taken(runs: Sequence[Run], former: HostId | None) -> None:
    """Log that this host owns these runs now: those of a dead host, or runs without an owner."""
    if not run_log.isEnabledFor(logging.INFO):
        return
    for run in runs:
        event = "run_claimed" if former is None else "run_taken_over"
        fields = {"event": event, "run_id": run.run_id, "program": run.program}
        if former is None:
            run_log.info(
                "run %s of %r had no owner and resumes here", run.run_id, run.program, extra=fields
            )
        else:
            run_log.info(
                "run %s of %r is taken over from host %s",
                *(run.run_id, run.program, former),
                extra=fields | {"former_host_id": former},
            )


def note_parked(run_id: RunId, program: str, reason: str, level: int) -> None:
    """Log that this host can't advance a run, and why."""
    fields = {"event": "run_parked", "run_id": run_id, "program": program}
    run_log.log(level, "run %s of %r is parked: %s", run_id, program, reason, extra=fields)


def note_unwritable(run_id: RunId, program: str, problem: Exception) -> None:
    """Log what keeps the decisions of a program from being written."""
    fields = {"event": "run_unwritable", "run_id": run_id, "program": program}
    text = traceback_text(problem)
    log_error(run_log, logging.ERROR, f"run {run_id} can't be written", problem, text, fields)


def note_unparked(run_id: RunId, program: str) -> None:
    fields = {"event": "run_unparked", "run_id": run_id, "program": program}
    run_log.info("run %s of %r is no longer parked", run_id, program, extra=fields)


def _note_started(info: Info, note: RunStarted) -> None:
    fields = run_fields(info, "run_started")
    if note.parent is not None:
        fields["parent"] = note.parent
    if note.continues is not None:
        fields["continues"] = note.continues
    run_log.info("run %s of %r started", info.run_id, info.program, extra=fields)


def _note_retry(info: Info, note: RetryScheduled, codec: Codec) -> None:
    if not task_log.isEnabledFor(logging.INFO):
        return
    error = failure_text(codec, note.payload)
    fields = _step_fields(info, note, "retry_scheduled")
    fields |= {"error_type": error.type_name, "retry_at_ms": note.retry_at_ms}
    task_log.info(
        "attempt %d of %d of %s %r (step %s of run %s) failed and is retried: %s",
        *(
            note.attempt,
            note.attempts,
            note.noun,
            note.task,
            note.step,
            info.run_id,
            short_text(error),
        ),
        extra=fields,
    )


def _note_pause(info: Info, note: PauseBegun | PauseEnded) -> None:
    if isinstance(note, PauseBegun):
        fields = run_fields(info, "run_paused") | {"by": note.by}
        text = f" is paused: {note.reason}" if note.reason else " is paused"
    else:
        fields = run_fields(info, "run_resumed")
        text = " is no longer paused"
    run_log.info("run %s of %r%s", info.run_id, info.program, text, extra=fields)


def _note_step_failed(info: Info, note: StepFailed | StepParked, codec: Codec) -> None:
    """A parked step is a warning: it waits until an operator acts."""
    is_parked = isinstance(note, StepParked)
    level = logging.WARNING if is_parked else logging.INFO
    if not task_log.isEnabledFor(level):
        return
    error = failure_text(codec, note.payload)
    event = "step_parked" if is_parked else "step_failed"
    fields = _step_fields(info, note, event) | {"error_type": error.type_name}
    end = ", and waits for an operator" if is_parked else ""
    task_log.log(
        level,
        "%s %r (step %s of run %s) failed for good at attempt %d%s: %s",
        *(note.noun, note.task, note.step, info.run_id, note.attempt, end, short_text(error)),
        extra=fields,
    )


_RESOLVED = {
    Resolution.RETRY: "it is started again",
    Resolution.RECONCILE: "its reconcile function is asked",
    Resolution.FAIL: "the step fails",
}


_RESOLVED_BEFORE = {
    Resolution.RETRY: "it was started again",
    Resolution.RECONCILE: "its reconcile function was asked",
    Resolution.FAIL: "the step fails",
}
"""What the next host of a queued task did; the run learns of it with the outcome."""


def _note_doubt(info: Info, note: StepDoubted) -> None:
    resolved = (_RESOLVED if note.queue is None else _RESOLVED_BEFORE)[note.resolution]
    fields = _step_fields(info, note, "step_in_doubt")
    fields |= {"doubts": note.total, "resolution": note.resolution.value}
    task_log.warning(
        "attempt %d of task %r (step %s of run %s) had started when its host ended: %s",
        *(note.attempt, note.task, note.step, info.run_id, resolved),
        extra=fields,
    )


def _step_fields(
    info: Info, note: RetryScheduled | StepFailed | StepParked | StepDoubted, event: str
) -> dict[str, Any]:
    fields = run_fields(info, event)
    fields |= {"step": note.step, "task": note.task, "attempt": note.attempt}
    if note.queue is not None:
        fields["queue"] = note.queue
    return fields
