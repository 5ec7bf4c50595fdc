"""How many requests a caller may send: a bucket of requests each, which fills again at a steady rate."""

from collections import OrderedDict
from math import ceil
from typing import Final

from perdure.api.problems import Refusal

PER_SECOND: Final = 1000.0
"""Requests of one token in the long run."""

BURST: Final = 5000.0
"""Requests of one token at once."""

MOST_BUCKETS: Final = 10_000


class Rates:
    """The buckets of the callers. Those idle for longest are forgotten first: theirs are full."""

    def __init__(self, per_second: float = PER_SECOND, burst: float = BURST) -> None:
        self._per_ms = per_second / 1000
        self._burst = burst
        self._buckets: OrderedDict[str, tuple[float, int]] = OrderedDict()

    def spend(self, caller: str, now_ms: int) -> None:
        """Take one request from the bucket. Raises `Refusal` if it is empty."""
        left, at_ms = self._buckets.pop(caller, (self._burst, now_ms))
        left = min(self._burst, left + (now_ms - at_ms) * self._per_ms)
        self._buckets[caller] = (max(0.0, left - 1), now_ms)
        while len(self._buckets) > MOST_BUCKETS:
            self._buckets.popitem(last=False)
        if left < 1:
            wait_s = ceil((1 - left) / self._per_ms / 1000)
            raise Refusal(
                429,
                "too-many-requests",
                f"more than {self._per_ms * 1000:g} requests a second",
                f"send them again in {wait_s} s",
                {"Retry-After": str(wait_s)},
                limit="requests of one caller",
            )
