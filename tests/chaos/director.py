"""Chaos as planned: hosts are killed, paused and started again, their server is restarted, and all of it is noted."""

import signal
import time
from collections.abc import Sequence
from heapq import heappop, heappush

from tests.chaos.evidence import Kill, Snapshot
from tests.chaos.faults import Fault, Kind
from tests.chaos.hosts import Hosts
from tests.postgres_server import PostgresServer


class Director:
    """Does to the hosts what the faults say. `server` is what a server restart restarts."""

    def __init__(self, hosts: Hosts, server: PostgresServer | None) -> None:
        self._hosts = hosts
        self._server = server
        self.kills: list[Kill] = []
        self.snapshots: list[Snapshot] = []

    def disturb(self, faults: Sequence[Fault]) -> None:
        """Returns when the last fault is over."""
        began = time.monotonic()
        ahead = list(faults)
        ends: list[tuple[float, Fault]] = []
        while ahead or ends:
            self._hosts.check()
            if not ahead or (ends and ends[0][0] <= ahead[0].at_s):
                at_s, fault = heappop(ends)
                _sleep_until(began + at_s)
                self._end(fault)
            else:
                fault = ahead.pop(0)
                _sleep_until(began + fault.at_s)
                self._begin(fault)
                heappush(ends, (fault.at_s + fault.for_s, fault))

    def _begin(self, fault: Fault) -> None:
        match fault.kind:
            case Kind.KILL:
                self._kill(fault.host)
            case Kind.PAUSE:
                self._hosts.send(fault.host, signal.SIGSTOP)
            case Kind.RESTART:
                assert self._server is not None
                self._server.restart()

    def _kill(self, number: int) -> None:
        hosts = self._hosts
        # What it owns can be asked while it stands still.
        hosts.send(number, signal.SIGSTOP)
        runs = hosts.owned(number)
        hosts.send(number, signal.SIGKILL)
        self.kills.append(Kill(time.monotonic_ns(), hosts.pid(number), runs))
        hosts.bury(number)
        completed = hosts.journal().completed
        self.snapshots.append(Snapshot(time.monotonic_ns(), completed))

    def _end(self, fault: Fault) -> None:
        match fault.kind:
            case Kind.KILL:
                self._hosts.spawn(fault.host)
            case Kind.PAUSE:
                self._hosts.send(fault.host, signal.SIGCONT)
            case Kind.RESTART:
                """It was over when it had begun."""


def _sleep_until(at_s: float) -> None:
    time.sleep(max(0.0, at_s - time.monotonic()))
