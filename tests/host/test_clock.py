"""The clock of a host while wall clocks are set forwards and back."""

import pytest

from perdure.host import clock
from perdure.host.clock import HostSources

HOUR_MS = 3_600_000
NOON_MS = 1_700_000_000_000


class Machine:
    """The two clocks of a machine."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.wall_ms = NOON_MS
        self.counter_ms = 5000
        monkeypatch.setattr(clock, "_wall_ms", lambda: self.wall_ms)
        monkeypatch.setattr(clock, "elapsed_ms", lambda: self.counter_ms)

    def pass_time(self, ms: int) -> None:
        self.wall_ms += ms
        self.counter_ms += ms


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(monkeypatch)


def test_host_without_a_store_clock_follows_its_machine_both_ways(machine: Machine) -> None:
    sources = HostSources()
    assert sources.now_ms() == NOON_MS
    machine.wall_ms += HOUR_MS
    assert sources.now_ms() == NOON_MS + HOUR_MS
    machine.wall_ms -= HOUR_MS
    machine.pass_time(10)
    assert sources.now_ms() == NOON_MS + 10
    assert sources.skew_ms == 0


def test_clock_stands_still_during_a_small_step_back(machine: Machine) -> None:
    sources = HostSources()
    assert sources.now_ms() == NOON_MS
    machine.wall_ms -= 200
    assert sources.now_ms() == NOON_MS
    machine.pass_time(300)
    assert sources.now_ms() == NOON_MS + 100


def test_synchronized_host_ignores_jumps_of_its_own_clock(machine: Machine) -> None:
    sources = HostSources()
    sources.synchronize(NOON_MS, 5000, 5000)
    for jump_ms in (HOUR_MS, -2 * HOUR_MS):
        machine.wall_ms += jump_ms
        machine.pass_time(10)
    assert sources.now_ms() == NOON_MS + 20
    assert sources.skew_ms == -HOUR_MS


def test_two_hosts_of_one_store_agree(machine: Machine) -> None:
    one, two = HostSources(), HostSources()
    machine.wall_ms += HOUR_MS
    one.synchronize(NOON_MS, 4990, 5000)
    machine.wall_ms -= 2 * HOUR_MS
    two.synchronize(NOON_MS, 5000, 5010)
    machine.pass_time(1000)
    assert abs(one.now_ms() - two.now_ms()) <= 20


def test_durations_ignore_changes_of_the_clock(machine: Machine) -> None:
    sources = HostSources()
    began = sources.elapsed_ms()
    machine.pass_time(50)
    machine.wall_ms -= HOUR_MS
    assert sources.elapsed_ms() - began == 50
