"""When the log says that the budget of memory is too small."""

import logging

import pytest

from perdure.host.runs.memory import LOG_EVERY_MS, PERIOD_MS, TOO_MANY_PER_S, MemoryUse


class Clock:
    def __init__(self) -> None:
        self.now_ms = 0

    def __call__(self) -> int:
        return self.now_ms


def evict(use: MemoryUse, clock: Clock, count: int, *, is_early: bool = True) -> None:
    """So many evictions and replays, spread over one period."""
    for _ in range(count):
        clock.now_ms += PERIOD_MS // count
        use.evicted(3, is_early=is_early)
        use.replayed()


def logged(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    return [
        record for record in caplog.records if getattr(record, "event", None) == "memory_thrashing"
    ]


def test_thrashing_is_logged_with_the_budget_and_the_rates(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = Clock()
    use = MemoryUse(1000, clock)
    evict(use, clock, 50)
    (record,) = logged(caplog)
    assert (record.name, record.levelno) == ("perdure.host", logging.WARNING)
    fields = {name: vars(record)[name] for name in ("warm_memory", "runs", "evictions_per_s")}
    assert fields == {"warm_memory": 1000, "runs": 3, "evictions_per_s": 50}
    assert vars(record)["replays_per_s"] in (49, 50)
    assert "Raise Settings.warm_memory" in record.getMessage()


def test_thrashing_is_logged_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    use = MemoryUse(1000, clock)
    while clock.now_ms < LOG_EVERY_MS:
        evict(use, clock, 50)
    assert len(logged(caplog)) == 1
    evict(use, clock, 50)
    evict(use, clock, 50)
    assert len(logged(caplog)) == 2


@pytest.mark.parametrize(
    ("budget", "count", "is_early"),
    [(1000, TOO_MANY_PER_S // 2, True), (1000, 50, False), (0, 50, True)],
    ids=["few", "of idle runs", "without a budget"],
)
def test_other_evictions_are_not_logged(
    caplog: pytest.LogCaptureFixture, budget: int, count: int, is_early: bool
) -> None:
    clock = Clock()
    use = MemoryUse(budget, clock)
    for _ in range(5):
        evict(use, clock, count, is_early=is_early)
    assert logged(caplog) == []
    assert use.evictions == 5 * count
