"""Errors of runs and steps as text: what lists of errors, steps and results show."""

import msgspec

from perdure.authoring.values.failures import failure_text
from perdure.core.codec import Codec
from perdure.core.ids import RunId, StepId
from perdure.core.journal import events as e
from perdure.core.runs.fingerprint import error_text
from perdure.core.runs.snapshot import ApplicationError
from perdure.store.store import Store

LAST_ENTRIES = 500
"""Entries from the end in which an error of a run is looked for."""


class ErrorDetail(msgspec.Struct, frozen=True, kw_only=True):
    """A stored error with its traceback."""

    code: str
    message: str
    fingerprint: str = ""
    traceback: str = ""


class ErrorExample(msgspec.Struct, frozen=True):
    """Where an error was met."""

    program: str
    code: str
    message: str
    step: StepId | None


def application_error(codec: Codec, payload: bytes | None) -> ApplicationError:
    """A stored error. Never raises."""
    text = None if payload is None else error_text(codec, payload)
    if text is None:
        what = "it was erased" if payload is None else "it can't be read"
        return ApplicationError("unreadable", what)
    return ApplicationError(text.code, text.message, fingerprint=text.fingerprint)


def error_detail(codec: Codec, payload: bytes | None) -> ErrorDetail:
    """A stored error with its traceback. Never raises."""
    error = application_error(codec, payload)
    traceback = failure_text(codec, payload).traceback
    return ErrorDetail(
        code=error.code, message=error.message, fingerprint=error.fingerprint, traceback=traceback
    )


async def last_error(store: Store, codec: Codec, run_id: RunId, fingerprint: str) -> ErrorExample:
    """The last error of the run that has the fingerprint: its own, or that of a parked step."""
    run = await store.run(run_id)
    if run is None:
        return ErrorExample("", "", "", None)
    for entry in reversed(await store.entries(run_id, max(0, run.seq - LAST_ENTRIES), run.seq)):
        event = entry.event
        if not isinstance(event, e.ExecutionFailed | e.InvokeRetrying | e.InvokeCompleted):
            continue
        error = application_error(codec, event.payload) if event.payload else None
        if error is not None and error.fingerprint == fingerprint:
            step = None if isinstance(event, e.ExecutionFailed) else event.promise_id
            return ErrorExample(run.program, error.code, error.message, step)
    return ErrorExample(run.program, "", "", None)
