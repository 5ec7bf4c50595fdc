"""Log output of `perdure worker` on standard error: text, or one JSON object per line."""

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any, Final

from perdure import InputError

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


def configure(level: str | None, name: str | None) -> None:
    """Configures logging to standard error.

    A program that has configured logging itself keeps its handlers and levels unless `level` or `name` is given.
    """
    root = logging.getLogger()
    if root.handlers and level is None and name is None:
        return
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if name == "json" else TextFormatter())
    for former in list(root.handlers):
        root.removeHandler(former)
    root.addHandler(handler)
    root.setLevel((level or DEFAULT_LEVEL).upper())


def supervisor_line(text: str, number: int | None, pid: int | None, name: str) -> str:
    """A log line of the supervisor in format `name`; about one worker if `number` is given."""
    if name == "json":
        fields: dict[str, Any] = {"name": "perdure.worker", "levelname": "INFO", "msg": text}
        if number is not None:
            fields["worker"] = number
        if pid is not None:
            fields["process"] = pid
        return JsonFormatter().format(logging.makeLogRecord(fields))
    subject = "" if number is None else f" {number}"
    subject += "" if pid is None else f" (pid {pid})"
    return f"perdure worker{subject}: {text}"


def _utc(seconds: float) -> str:
    moment = datetime.fromtimestamp(seconds, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
