"""Log lines of users' code: which run, step and attempt each comes from."""

import logging
from collections.abc import MutableMapping
from typing import Any

from perdure.authoring.context import TASK, WORKFLOW
from perdure.core.runs.tracing import trace_context


class RunLogger(logging.LoggerAdapter[logging.Logger]):
    """A logger that is silent during replay and adds run, program, step and trace to each record."""

    def isEnabledFor(self, level: int) -> bool:  # noqa: N802 - overrides logging's
        context = WORKFLOW.get()
        return not (context is not None and context.is_replaying) and super().isEnabledFor(level)

    def process(
        self, msg: Any, kwargs: MutableMapping[str, Any]
    ) -> tuple[Any, MutableMapping[str, Any]]:
        fields = current_fields()
        if fields:
            kwargs["extra"] = fields | dict(kwargs.get("extra") or {})
        return msg, kwargs


class RunFieldsFilter(logging.Filter):
    """Adds run, program, step, attempt and trace to the log lines of tasks and workflows, whichever library logs them.

    Add it to a handler: `handler.addFilter(RunFieldsFilter())`. A field that a record has already stays as it is.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        for name, value in current_fields().items():
            if not hasattr(record, name):
                setattr(record, name, value)
        return True


def current_fields() -> dict[str, Any]:
    """The fields of a line that is logged here; none outside tasks and workflows."""
    context = WORKFLOW.get() or TASK.get()
    if context is None:
        return {}
    info = context.info
    fields: dict[str, Any] = {
        "run_id": info.run_id,
        "program": info.program,
        "step": info.step,
        "trace_id": trace_context(info.run_id, info.trace).trace_id,
    }
    if WORKFLOW.get() is None:
        fields["attempt"] = info.attempt
    return fields


log = RunLogger(logging.getLogger("perdure.log"))
