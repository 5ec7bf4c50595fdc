"""The heartbeat thread: it survives every error, until it is ended."""

import logging
import time
from collections.abc import Callable, Sequence

import pytest

from perdure.core.errors import StoreUnavailable
from perdure.core.ids import Guid, HostId, RunId, StepId
from perdure.core.messages import Work
from perdure.host.clock import HostSources, elapsed_ms
from perdure.host.cluster.heartbeat import Heartbeat
from perdure.host.tasks.gate import Gate
from perdure.host.tasks.leases import Renewal
from perdure.store.rows.hosts import HostScope, HostSnapshot
from perdure.store.rows.records import Claim

SCOPE = HostScope(HostId("h"), (), (), 0)
NOTHING = HostSnapshot((), frozenset(), False, None, None)


class ScriptedConnection:
    """A heartbeat connection with scripted answers; after them every beat succeeds."""

    def __init__(self, *answers: Exception | HostSnapshot | None) -> None:
        self._answers = list(answers)
        self.is_closed = False
        self.renewals: list[Exception | None] = []
        self.renewed: list[int] = []

    def beat(self, scope: HostScope, limit_s: float) -> HostSnapshot | None:
        assert (scope, limit_s) == (SCOPE, 1)
        answer = self._answers.pop(0) if self._answers else NOTHING
        if isinstance(answer, Exception):
            raise answer
        return answer

    def renew(self, claims: Sequence[Claim], lease_until_ms: int, limit_s: float) -> list[Claim]:
        assert limit_s == 1
        self.renewed.append(lease_until_ms)
        answer = self.renewals.pop(0) if self.renewals else None
        if answer is not None:
            raise answer
        return [claim for claim in claims if claim.token != "lost"]

    def close(self) -> None:
        self.is_closed = True


def beat_until(connection: ScriptedConnection, count: int) -> list[tuple[HostSnapshot | None, int]]:
    """The snapshots and start times of the first beats that arrive."""
    beats: list[tuple[HostSnapshot | None, int]] = []
    heartbeat = Heartbeat(
        connection,
        lambda: SCOPE,
        lambda _, snapshot, began_ms: beats.append((snapshot, began_ms)),
        interval_s=0.01,
        limit_s=1,
    )
    heartbeat.start()
    wait_for(lambda: len(beats) >= count)
    heartbeat.end()
    heartbeat.join()
    assert connection.is_closed
    return beats[:count]


def wait_for(what: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def test_each_beat_reports_its_snapshot_and_start_time() -> None:
    now_ms = elapsed_ms()
    beats = beat_until(ScriptedConnection(NOTHING, None, NOTHING), 3)
    assert [snapshot for snapshot, _ in beats] == [NOTHING, None, NOTHING]
    times = [began_ms for _, began_ms in beats]
    assert now_ms <= times[0] <= times[1] <= times[2]


def test_heartbeat_survives_every_error_and_logs_an_outage_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "perdure.host")
    away = StoreUnavailable("the store is away", "wait")
    assert (
        beat_until(ScriptedConnection(away, away, away, ValueError("a mistake")), 1)[0][0]
        is NOTHING
    )
    said = [record.getMessage().partition(":")[0] for record in caplog.records]
    first = ["a heartbeat failed to reach the store; the host tries again", "a heartbeat failed"]
    assert said[:3] == [*first, "heartbeats arrive again"]


def test_heartbeat_can_end_before_its_first_beat() -> None:
    connection = ScriptedConnection()
    heartbeat = Heartbeat(connection, lambda: SCOPE, lambda *_: None, interval_s=3600, limit_s=1)
    heartbeat.join()
    heartbeat.start()
    heartbeat.end()
    heartbeat.join()
    assert connection.is_closed


def claim(token: str) -> Claim:
    work = Work(RunId("r_1"), StepId("root.1"), Guid("g"), "mail", 0, 0, b"")
    return Claim(work, token, 1)


def test_leases_are_renewed_between_beats_and_lost_ones_reported() -> None:
    connection = ScriptedConnection()
    lost: list[Claim] = []
    connection.renewals = [StoreUnavailable("the store is away", "wait"), ValueError("a mistake")]
    claims: list[Claim] = []
    renewal = Renewal(lambda: claims, lost.extend, lease_ms=30, sources=HostSources())
    heartbeat = Heartbeat(
        connection, lambda: SCOPE, lambda *_: None, interval_s=3600, limit_s=1, renewal=renewal
    )
    heartbeat.start()
    time.sleep(0.05)
    assert connection.renewed == []  # nothing is claimed, so nothing is renewed
    claims += [claim("held"), claim("lost")]
    wait_for(lambda: bool(lost))
    heartbeat.end()
    heartbeat.join()
    assert {each.token for each in lost} == {"lost"}
    assert connection.is_closed
    assert connection.renewed[0] >= 30


async def test_gate_is_open_without_heartbeat_or_with_a_fresh_one() -> None:
    gate = Gate(10_000)
    seen = [gate.is_open]
    gate.confirm(elapsed_ms() - 6_000)
    seen.append(gate.is_open)
    gate.confirm(elapsed_ms())
    seen.append(gate.is_open)
    assert seen == [True, False, True]
    await gate.wait()
    gate.shut()
    assert gate.silent_s is None
