"""Doubt: a step was running when its host died, so its effect may have happened. How doubts are resolved and journaled.

In the journal a doubt is a `Posted` entry whose label says how it was resolved.
"""

from enum import StrEnum
from typing import Final, NamedTuple

from perdure.core.errors import StepInDoubt
from perdure.core.ids import RunId, StepId
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
    """It is repeated."""

    FAIL = "fail"
    """It is failed with `StepInDoubt`."""

    RECONCILE = "reconcile"
    """The task's reconcile function says whether its effect happened; the step is repeated only if not."""


class Doubt(NamedTuple):
    """How often a step was in doubt in total, and how the last doubt was resolved.

    In `stops` of these cases its host was stopped in order and had ended the step.
    """

    total: int
    resolution: Resolution
    stops: int = 0

    def __str__(self) -> str:
        return f"{self.total}:{self.resolution}:{self.stops}"


def parse_doubt(text: str) -> Doubt:
    """Parse the doubts of a queued step as its host sent them; the host may run a newer Perdure.

    A resolution that this code does not know counts as a retry, since there is an outcome; fields beyond the known ones
    are left out.
    """
    total, resolution, stops = [*text.split(":"), "0"][:3]
    known = resolution in list(Resolution)
    return Doubt(int(total), Resolution(resolution) if known else Resolution.RETRY, int(stops))


def resolve(policy: Resolution, total: int, max_doubts: int, stops: int = 0) -> Resolution:
    """The resolution for a step that was in doubt `total` times, this time included.

    In `stops` of these cases its host was stopped in order: that is no sign that the step kills its host.
    """
    is_over = total - stops > max_doubts or total >= MOST_DOUBTS
    return Resolution.FAIL if is_over else policy


def doubt_entry(
    step: StepId, count: int, resolution: Resolution, *, is_stopped: bool = False
) -> Posted:
    """The entry for `count` doubts of a step and their resolution."""
    label = f"{_STOPPED if is_stopped else _IN_DOUBT}: {resolution}"
    return Posted(label, (Posting(step_account(step), count * ATTEMPT),))


def resolution_of(event: Posted) -> Resolution | None:
    """The resolution in a doubt entry; `None` for other entries."""
    known = _RESOLUTIONS.get(event.label)
    reason, _, word = event.label.partition(": ")
    if known is None and reason in (_IN_DOUBT, _STOPPED) and word:
        # Written by a newer Perdure: its digit counts all the same.
        return Resolution.RETRY
    return known


def is_stopped(event: Posted) -> bool:
    """Whether a doubt entry says that the host was stopped and did not die."""
    return event.label.startswith(_STOPPED)


def doubted_steps(event: Posted) -> list[tuple[StepId, int]]:
    """The steps of a doubt entry, each with its number of doubts."""
    return [
        (StepId(posting.account.partition(":")[2]), posting.increment // ATTEMPT)
        for posting in event.postings
    ]


def reconciled_entry(step: StepId) -> Posted:
    """The entry that marks the following outcome as reconciled, not executed."""
    return Posted(f"reconciled:{step}", ())


def attempts_used_up(
    run_id: RunId, step: StepId, name: str, stops: int, deaths: int
) -> StepInDoubt:
    """The failure of a step whose attempt digits are full: its last attempt may have had its effect.

    A stop has no digit left for the last attempt, so that one is among the `deaths`, however its host ended.
    """
    return StepInDoubt(
        f"entry attempts exhausted ({MOST_DOUBTS + 1} of {MOST_DOUBTS + 1}) for step {step} ({name})"
        f" of run {run_id!r}: its host ended {stops + deaths} times while it was under way, at least {stops} of"
        " them by an orderly stop",
        "find out why it never ends before its host does, and what of its effect happened; then start a new run",
    )


def step_in_doubt(step: StepId, name: str, policy: Resolution, total: int) -> StepInDoubt:
    """The failure of a step that is not repeated."""
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
    # The label from when there was only one resolution.
    _IN_DOUBT: Resolution.RETRY,
    **{
        f"{reason}: {resolution}": resolution
        for reason in (_IN_DOUBT, _STOPPED)
        for resolution in Resolution
    },
}
