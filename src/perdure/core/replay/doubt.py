"""Doubt: a step had begun when its host died, so its effect may have happened. What is done about it, and its words.

The words are those of the journal: a doubt is a `Posted` entry whose label says how it was resolved.
"""

from enum import StrEnum
from typing import Final, NamedTuple

from perdure.core.errors import StepInDoubt
from perdure.core.ids import StepId
from perdure.core.journal.events import Posted, Posting
from perdure.core.ledger import ATTEMPT, step_account
from perdure.core.ledger.digits import ATTEMPTS

MAX_DOUBTS: Final = 3
"""A step that was in doubt more often than this is failed: it may be what kills the host. A setting."""

MOST_DOUBTS: Final = ATTEMPTS.maximum - 1
"""What the attempt digits of a step can count besides its first entry."""


class Resolution(StrEnum):
    """What is done with a step in doubt; also the policy of a task."""

    RETRY = "retry"
    """It is begun again."""

    FAIL = "fail"
    """It is failed with `StepInDoubt`."""

    RECONCILE = "reconcile"
    """Somebody is asked whether its effect happened, and it is begun again only if not."""


class Doubt(NamedTuple):
    """How often a step was in doubt, all told, and what was done about it the last time.

    In `stops` of them its host was stopped and had ended it.
    """

    total: int
    resolution: Resolution
    stops: int = 0

    def __str__(self) -> str:
        return f"{self.total}:{self.resolution}:{self.stops}"


def parse_doubt(text: str) -> Doubt:
    total, resolution, stops = text.split(":")
    return Doubt(int(total), Resolution(resolution), int(stops))


def resolve(policy: Resolution, total: int, max_doubts: int, stops: int = 0) -> Resolution:
    """What is to be done now that a step was in doubt `total` times, this one included.

    In `stops` of them its host was stopped and had ended it: that is no sign that the step ends its host.
    """
    is_over = total - stops > max_doubts or total >= MOST_DOUBTS
    return Resolution.FAIL if is_over else policy


def doubt_entry(
    step: StepId, count: int, resolution: Resolution, *, is_stopped: bool = False
) -> Posted:
    """The entry that says: the step was in doubt so often, and this was done about it."""
    label = f"{_STOPPED if is_stopped else _IN_DOUBT}: {resolution}"
    return Posted(label, (Posting(step_account(step), count * ATTEMPT),))


def resolution_of(event: Posted) -> Resolution | None:
    """How the doubt was resolved that the entry is about; `None` if it is about something else."""
    return _RESOLUTIONS.get(event.label)


def is_stopped(event: Posted) -> bool:
    """Whether an entry of that kind says that the host was stopped, and had not died."""
    return event.label.startswith(_STOPPED)


def doubted_steps(event: Posted) -> list[tuple[StepId, int]]:
    """Which steps were in doubt, as an entry of that kind says, and how often."""
    return [
        (StepId(posting.account.partition(":")[2]), posting.increment // ATTEMPT)
        for posting in event.postings
    ]


def reconciled_entry(step: StepId) -> Posted:
    """The entry that says: the outcome of the step that follows was found, and not made."""
    return Posted(f"reconciled:{step}", ())


def step_in_doubt(step: StepId, name: str, policy: Resolution, total: int) -> StepInDoubt:
    """The failure of a step that is not begun again."""
    remedy = "find out what of its effect happened"
    if policy is Resolution.FAIL:
        return StepInDoubt(f"step {step} ({name}) was under way when its host died", remedy)
    times = "once" if total == 1 else f"{total} times"
    return StepInDoubt(
        f"step {step} ({name}) was under way {times} when its host died",
        f"find out whether it kills its process, or outlasts each stop of it as a thread can; {remedy}",
    )


_IN_DOUBT: Final = "in doubt"
_STOPPED: Final = "stopped"

_RESOLUTIONS: Final = {
    # So it was called while there was only one.
    _IN_DOUBT: Resolution.RETRY,
    **{
        f"{reason}: {resolution}": resolution
        for reason in (_IN_DOUBT, _STOPPED)
        for resolution in Resolution
    },
}
