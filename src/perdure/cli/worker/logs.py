"""Log output of `perdure worker` on standard error: text, or one JSON object per line."""

import json
import logging
import sys
import traceback
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Final

from perdure import InputError, RunFieldsFilter

LEVELS: Final = ("debug", "info", "warning", "error", "critical")
FORMATS: Final = ("text", "json")

DEFAULT_LEVEL: Final = "info"
DEFAULT_FORMAT: Final = "text"

_STANDARD: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
"""Attributes of every log record. All others come from `extra`."""

_NAMES: Final = {"time": "time_", "level": "level_", "logger": "logger_", "message": "message_"}
"""New names for `extra` fields that would overwrite a standard field."""


class JsonFormatter(logging.Formatter):
    """One JSON object per line: time, level, logger, message, every extra field, and the traceback if there is one."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": _utc(record.created),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            "pid": record.process,
        }
        for name, value in vars(record).items():
            if name not in _STANDARD:
                line[_NAMES.get(name, name)] = value
        if record.exc_info and not record.exc_text:
            record.exc_text = self.formatException(record.exc_info)
        if record.exc_text:
            line["exception"] = record.exc_text
        return json.dumps(line, default=str)


class TextFormatter(logging.Formatter):
    """Time in UTC, level, logger, message."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:  # noqa: ARG002, N802 - overrides logging's
        return _utc(record.created)


def check_level(level: str) -> str:
    """The level in lower case. Raises `InputError`."""
    if level.lower() not in LEVELS:
        raise InputError(f"--log-level is {level!r}", f"pass one of {', '.join(LEVELS)}")
    return level.lower()


def check_format(name: str) -> str:
    if name not in FORMATS:
        raise InputError(f"--log-format is {name!r}", f"pass {' or '.join(FORMATS)}")
    return name


def configure_logging(level: str | None, name: str | None) -> None:
    """Configures logging to standard error.

    A program that has configured logging itself keeps its handlers and levels unless `level` or `name` is given.
    """
    root = logging.getLogger()
    if root.handlers and level is None and name is None:
        return
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if name == "json" else TextFormatter())
    handler.addFilter(RunFieldsFilter())
    for former in list(root.handlers):
        root.removeHandler(former)
    root.addHandler(handler)
    root.setLevel((level or DEFAULT_LEVEL).upper())
    if name == "json":
        logging.captureWarnings(capture=True)
        sys.excepthook = _print_uncaught


def supervisor_line(text: str, number: int | None, pid: int | None, name: str) -> str:
    """A log line of the supervisor in format `name`; about one worker if `number` is given."""
    if name == "json":
        fields: dict[str, Any] = {} if number is None else {"worker": number}
        if pid is not None:
            fields["process"] = pid
        return _json_line("INFO", text, **fields)
    subject = "" if number is None else f" {number}"
    subject += "" if pid is None else f" (pid {pid})"
    return f"perdure worker{subject}: {text}"


def print_error(error: Exception, cause: BaseException | None, name: str | None) -> None:
    """Prints why a worker ends, in format `name`, with the traceback of its `cause`, if there is one."""
    trace = "" if cause is None else "".join(traceback.format_exception(cause))
    if name == "json":
        line = _json_line("ERROR", str(error), exc_text=trace.rstrip("\n") or None)
    else:
        line = f"{trace}perdure worker: {error}"
    print(line, file=sys.stderr, flush=True)


def _print_uncaught(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    """Prints an exception that ends the process as JSON. For `sys.excepthook`."""
    text = "".join(traceback.format_exception(kind, error, trace)).rstrip("\n")
    line = _json_line("CRITICAL", f"ended by {kind.__name__}: {error}", exc_text=text)
    print(line, file=sys.stderr, flush=True)


def _json_line(level: str, text: str, **fields: Any) -> str:
    record = {"name": "perdure.worker", "levelname": level, "msg": text, **fields}
    return JsonFormatter().format(logging.makeLogRecord(record))


def _utc(seconds: float) -> str:
    moment = datetime.fromtimestamp(seconds, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
