"""Log lines about the attempts that run on this host."""

import logging
from typing import Any

from perdure.authoring.values.failures import failure_text
from perdure.core.codec import Codec
from perdure.engine.runs.attempt_outcome import AttemptOutcome
from perdure.host.logs import log_error, run_fields, short_text, task_log
from perdure.host.tasks.attempt import Attempt


def note_start(attempt: Attempt) -> None:
    """Log that an attempt starts here."""
    fields = _attempt_fields(attempt, "attempt_started")
    task_log.debug("%s started", _named(attempt), extra=fields)


def note_outcome(attempt: Attempt, outcome: AttemptOutcome, codec: Codec) -> None:
    """Log how an attempt ended here."""
    if outcome.ok:
        fields = _attempt_fields(attempt, "attempt_completed")
        task_log.debug("%s completed", _named(attempt), extra=fields)
    else:
        _note_failed_attempt(attempt, outcome.payload, codec)


def _note_failed_attempt(attempt: Attempt, payload: bytes, codec: Codec) -> None:
    """Log an attempt that failed here, with its traceback."""
    error, attempt.error = attempt.error, None
    if not task_log.isEnabledFor(logging.WARNING):
        return
    text = failure_text(codec, payload)
    fields = _attempt_fields(attempt, "attempt_failed") | {"error_type": text.type_name}
    line = f"{_named(attempt)} failed: {short_text(text)}"
    log_error(task_log, logging.WARNING, line, error, text.traceback, fields)


def note_lost_lease(attempt: Attempt) -> None:
    """Log that an attempt is cancelled because another host may have claimed its work."""
    fields = _attempt_fields(attempt, "lease_lost")
    task_log.warning("%s is cancelled: its lease was lost", _named(attempt), extra=fields)


def _named(attempt: Attempt) -> str:
    info = attempt.info
    return f"attempt {info.attempt} of task {attempt.task.name!r} (step {info.step} of run {info.run_id})"


def _attempt_fields(attempt: Attempt, event: str) -> dict[str, Any]:
    info = attempt.info
    fields = run_fields(info, event)
    fields |= {"step": info.step, "task": attempt.task.name, "attempt": info.attempt}
    if attempt.task.queue is not None:
        fields["queue"] = attempt.task.queue
    return fields
