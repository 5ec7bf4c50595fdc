"""The queues that an engine serves, and warnings for those that no registered task names."""

import logging
from collections.abc import Sequence

from perdure.authoring.definition import require_name
from perdure.authoring.registry import known_queues
from perdure.core.errors import InputError
from perdure.core.graph.suggestions import did_you_mean

log = logging.getLogger("perdure.client")


def unknown_queues(queues: Sequence[str]) -> dict[str, str]:
    """The queues that no registered task names, each with a remedy."""
    known = known_queues()
    otherwise = "check its name, or import the module that has its tasks"
    return {name: did_you_mean(name, known, otherwise) for name in queues if name not in known}


def require_queue_names(queues: Sequence[str]) -> tuple[str, ...]:
    if isinstance(queues, str):
        raise InputError(f"queues is {queues!r}", f"pass a sequence: [{queues!r}]")
    return tuple(require_name("queue", queue) for queue in queues)


def warn_of_unknown_queues(queues: Sequence[str]) -> None:
    """Log a warning for each. Unknown queues are allowed, because their tasks may be defined later."""
    for queue, remedy in unknown_queues(queues).items():
        log.warning("no task that is registered here names queue %r: %s", queue, remedy)
