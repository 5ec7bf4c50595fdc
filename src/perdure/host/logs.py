"""Loggers, fields and error texts shared by the log lines about runs and tasks.

`docs/how-to/logging.md` lists all lines. A host logs a line about a run when the commit behind it is durable, and one
about an attempt where the attempt ran. No line holds an input, a result or a signal's value.
"""

import logging
from typing import Any

from perdure.authoring.context import Info
from perdure.authoring.values.failures import FailureText

run_log = logging.getLogger("perdure.run")
task_log = logging.getLogger("perdure.task")

LONGEST_TEXT = 500
"""How many characters of an exception's text a log line holds."""


def run_fields(info: Info, event: str) -> dict[str, Any]:
    return {
        "event": event,
        "run_id": info.run_id,
        "program": info.program,
        "version": info.version,
    }


def short_text(error: FailureText) -> str:
    text = f"{error.type_name}: {error.message}" if error.message else error.type_name
    return text if len(text) <= LONGEST_TEXT else f"{text[:LONGEST_TEXT]}..."


def log_error(
    logger: logging.Logger,
    level: int,
    message: str,
    error: BaseException | None,
    traceback: str,
    fields: dict[str, Any],
) -> None:
    """Log an exception with a traceback that is formatted already.

    Formatters use that text as it is: formatting the exception again could run the user's code, and the result might
    not be valid UTF-8.
    """
    raised = None if error is None else (type(error), error, error.__traceback__)
    place = __file__, 0
    record = logger.makeRecord(logger.name, level, *place, message, (), raised, extra=fields)
    record.exc_text = traceback.rstrip("\n") or None
    logger.handle(record)
