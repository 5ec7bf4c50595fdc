"""Retry policies: how often, and after which delays, a host retries a failed task.

`core/replay/retry_delay.py` computes each delay.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from sys import float_info

from perdure.authoring.durations import Duration, milliseconds
from perdure.core.errors import InputError, PayloadTooLarge
from perdure.core.journal.events import RetryPolicy


@dataclass(frozen=True, slots=True)
class Retry:
    """A retry policy: up to `attempts` in total, a delay of `first` seconds before the second attempt, multiplied by
    `factor` after each, up to `ceiling`.

    `jitter` is the random share of each delay. Only exceptions of the types in `on` are retried, except those in
    `give_up_on`.
    """

    attempts: int = 3
    first: Duration = 1.0
    factor: float = 2.0
    ceiling: Duration = 60.0
    jitter: float = 0.1
    on: type[Exception] | Sequence[type[Exception]] = (Exception,)
    give_up_on: type[Exception] | Sequence[type[Exception]] = ()

    def __post_init__(self) -> None:
        if isinstance(self.attempts, bool) or not isinstance(self.attempts, int):
            raise InputError(f"attempts is {self.attempts!r}", "pass a whole number")
        if self.attempts < 1:
            raise InputError(
                f"attempts is {self.attempts}", "the first attempt counts: pass 1 or more"
            )
        if not _is_within(self.factor, 1, float_info.max):
            raise InputError(f"factor is {self.factor!r}", "pass a number of at least 1")
        if not _is_within(self.jitter, 0, 1):
            raise InputError(f"jitter is {self.jitter!r}", "pass a share between 0 and 1")
        milliseconds(self.first, "first")
        milliseconds(self.ceiling, "ceiling")
        for name in ("on", "give_up_on"):
            given = getattr(self, name)
            kinds = tuple(given) if isinstance(given, Sequence) else (given,)
            for kind in kinds:
                if not (isinstance(kind, type) and issubclass(kind, Exception)):
                    raise InputError(f"{name} holds {kind!r}", "pass classes of exceptions")
            object.__setattr__(self, name, kinds)

    @property
    def policy(self) -> RetryPolicy:
        """The policy as the journal records it."""
        return RetryPolicy(
            self.attempts,
            milliseconds(self.first, "first"),
            self.factor,
            milliseconds(self.ceiling, "ceiling"),
        )

    def covers(self, error: BaseException) -> bool:
        """Whether an attempt that failed with `error` is retried. Not for values that are too large: they stay so."""
        if isinstance(error, PayloadTooLarge):
            return False
        on, give_up_on = self.on, self.give_up_on
        assert isinstance(on, tuple) and isinstance(give_up_on, tuple)  # noqa: S101, PT018 - set above
        return isinstance(error, on) and not isinstance(error, give_up_on)


def _is_within(value: object, least: float, most: float) -> bool:
    return isinstance(value, int | float) and least <= value <= most


ONCE = Retry(attempts=1)
