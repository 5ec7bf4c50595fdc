"""Limits the decisions of one workflow turn: a workflow that never waits would block its host for ever."""

import sys
from types import FrameType
from typing import Final

from perdure.authoring.values.failures import OUR_FILES
from perdure.core.errors import TurnTooLong
from perdure.core.limits import MAX_DECISIONS

_REMEDY = "wait in the loop, with `await perdure.sleep(...)` or for a signal; split a large loop among child runs"

CLEAN_UP: Final = 1_000
"""Verbs that the turn may call for its clean-up after the refusal. A wait in the clean-up ends the turn."""

MAX_REFUSALS: Final = 100
"""Calls of verbs that a coroutine may make while it is closed or unwound; each is refused."""


def refuse_more(name: str, decisions: int, place: str | None) -> None:
    """Raise `TurnTooLong` at the first decision over the limit, and again when the clean-up exceeds its own.

    `place` is the program's position, needed only if Perdure's own code calls the verb. The count of decisions is the
    same in a replay.
    """
    if MAX_DECISIONS + 1 < decisions <= MAX_DECISIONS + 1 + CLEAN_UP:
        return
    verb, line = _caller() if place is None else ("a verb", place)
    raise TurnTooLong(
        f"workflow {name!r} decided {MAX_DECISIONS:,} times and never waited: now it calls {verb} ({line})",
        _REMEDY,
    )


def too_long(name: str, line: str) -> TurnTooLong:
    """The error for coroutines that resume each other again and again, for example with `asyncio.sleep(0)`."""
    return TurnTooLong(
        f"workflow {name!r} resumed its coroutines {MAX_DECISIONS:,} times and never waited ({line})",
        _REMEDY,
    )


def _caller() -> tuple[str, str]:
    """The verb that the program calls, and the line of the call."""
    frame: FrameType | None = sys._getframe(1)
    verb = ""
    while frame is not None and frame.f_code.co_filename.startswith(OUR_FILES):
        verb = frame.f_code.co_qualname
        frame = frame.f_back
    assert frame is not None  # noqa: S101 - for the type checker
    named = "await" if verb.endswith("__await__") else f"perdure.{verb}"
    return named, f"{frame.f_code.co_filename}:{frame.f_lineno} in {frame.f_code.co_name}"
