"""Durations in the public API: seconds, or a timedelta."""

from datetime import timedelta
from typing import TypeAlias

from perdure.core.errors import InputError

Duration: TypeAlias = float | timedelta
"""Seconds, or a timedelta."""

_LONGEST_MS = 1 << 52
"""A longer duration, added to a time, would not fit the journal's integers."""


def milliseconds(duration: Duration, what: str) -> int:
    """The duration in whole milliseconds, rounded up: a timer never fires early."""
    seconds = duration.total_seconds() if isinstance(duration, timedelta) else duration
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        raise InputError(f"{what} is {duration!r}", "pass seconds as a number, or a timedelta")
    if not 0 <= seconds * 1000 <= _LONGEST_MS:
        raise InputError(f"{what} is {duration!r}", "pass a duration of at least 0 that is finite")
    whole = int(seconds * 1000)
    return whole if whole >= seconds * 1000 else whole + 1
