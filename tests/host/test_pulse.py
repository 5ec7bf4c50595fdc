"""The thread that gives signs of life: it goes on whatever happens, until it is told to end."""

import logging
import time
from collections.abc import Callable

import pytest

from perdure.core.errors import StoreUnavailable
from perdure.core.ids import HostId
from perdure.host.clock import elapsed_ms
from perdure.host.gate import Gate
from perdure.host.pulse import Pulse
from perdure.store.hosts import Glance, Scope

SCOPE = Scope(HostId("h"), (), (), 0)
NOTHING = Glance((), frozenset(), False, None, None)


class Line:
    """A lifeline that answers by a script, and then always well."""

    def __init__(self, *answers: Exception | Glance | None) -> None:
        self._answers = list(answers)
        self.is_closed = False

    def beat(self, scope: Scope, limit_s: float) -> Glance | None:
        assert (scope, limit_s) == (SCOPE, 1)
        answer = self._answers.pop(0) if self._answers else NOTHING
        if isinstance(answer, Exception):
            raise answer
        return answer

    def close(self) -> None:
        self.is_closed = True


def beat_until(line: Line, count: int) -> list[tuple[Glance | None, int]]:
    """What is told of the first beats that arrive."""
    told: list[tuple[Glance | None, int]] = []
    pulse = Pulse(
        line,
        lambda: SCOPE,
        lambda _, glance, began_ms: told.append((glance, began_ms)),
        interval_s=0.01,
        limit_s=1,
    )
    pulse.start()
    wait_for(lambda: len(told) >= count)
    pulse.end()
    pulse.join()
    assert line.is_closed
    return told[:count]


def wait_for(what: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def test_each_beat_is_told_with_what_it_saw_and_when_it_was_begun() -> None:
    now_ms = elapsed_ms()
    told = beat_until(Line(NOTHING, None, NOTHING), 3)
    assert [glance for glance, _ in told] == [NOTHING, None, NOTHING]
    times = [began_ms for _, began_ms in told]
    assert now_ms <= times[0] <= times[1] <= times[2]


def test_it_goes_on_after_whatever_a_beat_raises_and_says_once_that_none_arrives(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "perdure.host")
    away = StoreUnavailable("the store is away", "wait")
    assert beat_until(Line(away, away, away, ValueError("a mistake")), 1)[0][0] is NOTHING
    said = [record.getMessage().partition(":")[0] for record in caplog.records]
    first = ["a heartbeat did not arrive; it is tried again", "a heartbeat failed"]
    assert said[:3] == [*first, "heartbeats arrive again"]


def test_an_end_that_comes_before_the_first_beat() -> None:
    line = Line()
    pulse = Pulse(line, lambda: SCOPE, lambda *_: None, interval_s=3600, limit_s=1)
    pulse.join()
    pulse.start()
    pulse.end()
    pulse.join()
    assert line.is_closed


async def test_a_gate_is_open_while_a_heartbeat_was_confirmed_not_long_ago() -> None:
    gate = Gate(10_000)
    seen = [gate.is_open]
    gate.confirm(elapsed_ms() - 6_000)
    seen.append(gate.is_open)
    gate.confirm(elapsed_ms())
    seen.append(gate.is_open)
    assert seen == [False, False, True]
    await gate.wait()
    gate.shut()
    assert gate.silent_s is None
