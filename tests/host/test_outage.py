"""An outage is logged once, with reminders."""

from itertools import pairwise

import pytest

from perdure.core.errors import StoreUnavailable
from perdure.host.outage import FIRST_REMINDER_S, LONGEST_REMINDER_S, MAX_REASONS, Outage


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


FULL = StoreUnavailable("the disk is full", "free space")


def messages(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records]


def test_many_attempts_of_one_outage_are_one_log_line(caplog: pytest.LogCaptureFixture) -> None:
    outage = Outage("sqlite:///a.db", Clock())
    for number in range(1000):
        outage.note(FULL, f"run {number}")
    (line,) = messages(caplog)
    assert "sqlite:///a.db" in line
    assert "run 0" in line
    assert "free space" in line


def test_reminders_of_a_long_outage_become_rarer(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    outage = Outage("store", clock)
    at: list[float] = []
    while clock.now_s < 3600:
        before = len(caplog.records)
        outage.note(FULL, "run")
        at += [clock.now_s] * (len(caplog.records) - before)
        clock.now_s += 1
    gaps = [later - earlier for earlier, later in pairwise(at)]
    assert gaps[0] == FIRST_REMINDER_S
    assert gaps == sorted(gaps)
    assert max(gaps) == LONGEST_REMINDER_S


def test_number_of_logged_reasons_is_limited(caplog: pytest.LogCaptureFixture) -> None:
    outage = Outage("store", Clock())
    for number in range(100):
        outage.note(StoreUnavailable(f"reason {number}", "wait"), "run")
    assert len(messages(caplog)) == MAX_REASONS


def test_the_next_outage_is_logged_again(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "perdure.host")
    clock = Clock()
    outage = Outage("store", clock)
    outage.note(FULL, "run")
    clock.now_s = 5
    outage.end()
    outage.end()
    outage.note(FULL, "run")
    first, works, second = messages(caplog)
    assert first == second
    assert "works again, after 5.0 s" in works
