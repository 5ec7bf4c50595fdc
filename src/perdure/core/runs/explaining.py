"""Explains why a run does not move: the causes, what happens next by itself and when, and the command that moves it.

Pure: it decides on what the store knows of the run, its hosts and its queues. The command line, the API and the
dashboard show the same explanation.
"""

from collections.abc import Sequence

import msgspec

from perdure.core.ids import RunId
from perdure.core.runs.obstacles import Cause, CauseKind, RunSituation, causes_of
from perdure.core.runs.spans import span_text


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """Why a run does not move. `causes` is the chain, the nearest first: those of a child run follow that it waits for.

    `next_text` says what happens by itself, at `next_at_ms` if that is known; it is empty if nothing does. `command`
    moves the run; it is empty if none is needed.
    """

    run_id: RunId
    program: str
    status: str
    summary: str
    causes: tuple[Cause, ...]
    next_text: str
    next_at_ms: int | None
    command: str

    def __str__(self) -> str:
        return self.summary


def explain(situation: RunSituation) -> Explanation:
    """The explanation of a run. It always has a cause."""
    description = situation.description
    causes = tuple(causes_of(situation))
    first = causes[0]
    following = [cause for cause in causes if cause.until_ms is not None or cause.then]
    # A run that is finished, paused or parked stays so, whatever its timers do.
    soonest = None if first.kind in _STUCK else _soonest(following)
    command = next((cause.command for cause in causes if cause.command), "")
    return Explanation(
        run_id=description.run_id,
        program=description.program,
        status=description.status,
        summary=_summary(situation, causes, soonest, command),
        causes=causes,
        next_text="" if soonest is None else soonest.then,
        next_at_ms=None if soonest is None else soonest.until_ms,
        command=command,
    )


_STUCK = frozenset(
    {
        CauseKind.FINISHED,
        CauseKind.DIVERGED,
        CauseKind.UNKNOWN_PROGRAM,
        CauseKind.PARKED,
        CauseKind.PAUSED,
        CauseKind.PENDING,
        CauseKind.APPROVAL,
    }
)


def _soonest(causes: Sequence[Cause]) -> Cause | None:
    dated = [cause for cause in causes if cause.until_ms is not None]
    if dated:
        return min(dated, key=lambda cause: cause.until_ms or 0)
    return causes[0] if causes else None


def _summary(
    situation: RunSituation, causes: Sequence[Cause], soonest: Cause | None, command: str
) -> str:
    """One paragraph."""
    description, now_ms = situation.description, situation.now_ms
    run_id = description.run_id
    first = causes[0]
    since = "" if first.since_ms is None else f", for {span_text(now_ms - first.since_ms)}"
    said = [f"Run {run_id} of {description.program!r} {first.text}{since}."]
    others = [cause for cause in causes[1:] if cause.run_id != run_id]
    said += [f"Run {cause.run_id} {cause.text}." for cause in others[:3]]
    rest = [cause for cause in causes[1:] if cause.run_id == run_id]
    if rest:
        said.append(f"Also: it {'; it '.join(cause.text for cause in rest[:3])}.")
    if soonest is not None and soonest.then:
        when = ""
        if soonest.until_ms is not None:
            left_ms = soonest.until_ms - now_ms
            when = f" in {span_text(left_ms)}" if left_ms > 0 else " now"
        said.append(f"By itself: {soonest.then}{when}.")
    elif first.kind is not CauseKind.FINISHED:
        said.append("Nothing happens by itself.")
    if command:
        said.append(f"To move it: {command}")
    return " ".join(said)
