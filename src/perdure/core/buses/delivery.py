"""When an event that a bus did not take is tried again."""

from typing import Final

FIRST_DELAY_MS: Final = 500
LONGEST_DELAY_MS: Final = 60_000
MOST_RETRY_AFTER_MS: Final = 3_600_000
"""A bus that asks for a longer pause is tried again after this one."""

_SHARE: Final = 0.5
"""How much of a delay the jitter takes away at most, so that hosts don't try at the same moments."""


def delay_ms(failures: int, chance: float, retry_after: float | None = None) -> int:
    """How long to wait after so many failures in a row; `chance`, in [0, 1), is drawn for the jitter.

    Not less than what the bus asked for (`retry_after`, in seconds), within bounds.
    """
    longest = FIRST_DELAY_MS << min(max(failures - 1, 0), 16)
    delay = round(min(longest, LONGEST_DELAY_MS) * (1 - _SHARE * chance))
    if retry_after is None or not retry_after > 0:
        return delay
    return max(delay, round(min(retry_after * 1000, MOST_RETRY_AFTER_MS)))
