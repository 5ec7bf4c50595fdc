"""Log lines of a host that stops: which tasks it waits for, and which did not end in time."""

import logging
from collections.abc import Sequence

from perdure.host.tasks.attempt import Attempt

log = logging.getLogger("perdure.host")

MOST_NAMED = 3
"""How many tasks a line names; the others are counted."""


def note_stopping(attempts: Sequence[Attempt], grace_s: float) -> None:
    """Log which tasks a stop waits for. A warning, so that a user who pressed Ctrl-C sees it without logging set up."""
    if attempts:
        log.warning(
            "stopping: waiting up to %g s for %s; a second interrupt ends the process at once",
            *(grace_s, _named(attempts)),
            extra={"event": "host_stopping", "tasks": len(attempts), "grace_s": grace_s},
        )


def note_not_awaited(attempts: Sequence[Attempt], grace_s: float) -> None:
    """Log which tasks did not end in time."""
    if attempts:
        log.warning(
            "stopping: %s did not end within %g s: each is in doubt, and by default the next host starts it again",
            *(_named(attempts), grace_s),
            extra={"event": "tasks_interrupted", "tasks": len(attempts), "grace_s": grace_s},
        )


def _named(attempts: Sequence[Attempt]) -> str:
    shown = ", ".join(
        f"{attempt.task.name} of run {attempt.info.run_id}" for attempt in attempts[:MOST_NAMED]
    )
    more = len(attempts) - MOST_NAMED
    rest = f" and {more} more" if more > 0 else ""
    return f"{len(attempts)} task{'' if len(attempts) == 1 else 's'} ({shown}{rest})"
