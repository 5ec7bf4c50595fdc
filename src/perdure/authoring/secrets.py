"""Secrets in tasks: `await perdure.secret(ref)`, and the filter that keeps their values out of logs."""

import logging
from traceback import format_exception

from perdure.authoring.context import HostRequest, task_context
from perdure.core.secrets import REVEALED, SecretRef, require_secret_name

OUR_LOGGERS = tuple(f"perdure.{name}" for name in ("run", "task", "host", "client", "store", "log"))


def secret(ref: SecretRef | str) -> HostRequest[str]:
    """The value of a secret, in a task: `token = await perdure.secret(ref)`; in a sync task `secret(ref).wait()`.

    The providers of the engine are asked in their order, for the scope of the run. From then on the value is masked in
    errors and in log lines of Perdure. The attempt fails if its result, or a value that it sends, holds the value.
    """
    name = ref.name if isinstance(ref, SecretRef) else require_secret_name(ref)
    return task_context("perdure.secret").secret(name)


class SecretFilter(logging.Filter):
    """Masks the values of secrets that tasks of this process have read: `handler.addFilter(SecretFilter())`.

    Perdure's own loggers have it. Add it to the handlers of your program, so that lines of other loggers pass it too.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        if not REVEALED:
            return True
        record.msg, record.args = REVEALED.masked(record.getMessage()), None
        if record.exc_info and record.exc_info[0] is not None:
            record.exc_text = (
                record.exc_text or "".join(format_exception(*record.exc_info)).rstrip()
            )
            if REVEALED.found_in("".join(format_exception(*record.exc_info))) is not None:
                # A handler that formats the exception itself would write the value.
                record.exc_info = None
        for name, value in vars(record).items():
            if isinstance(value, str):
                setattr(record, name, REVEALED.masked(value))
        return True


_FILTER = SecretFilter()


def reveal(value: str, name: str) -> None:
    """Mask this value from now on."""
    REVEALED.add(value, name)
    for each in OUR_LOGGERS:
        logging.getLogger(each).addFilter(_FILTER)
