"""Sends heartbeats from a thread of its own, so that a host with a busy event loop is not considered dead."""

import logging
from collections.abc import Callable
from threading import Event, Thread

import msgspec

from perdure.core.errors import StoreError
from perdure.core.ids import HostId
from perdure.host.clock import elapsed_ms
from perdure.host.tasks.leases import Renewal
from perdure.store.rows.hosts import HeartbeatConnection, HostScope, HostSnapshot

log = logging.getLogger("perdure.host")

NEVER_MS = -1
"""No message is due until then."""

BUDGET = 100
"""A look at messages may take one part in so many of the time."""

MAX_SKIPPED = 9
"""Beats in a row that leave out the messages: hosts look further ahead than that, so timers are not late."""

OnBeat = Callable[[HostId, HostSnapshot | None, int], None]
"""Called in the heartbeat thread for each beat: the host, the snapshot (`None`: no row), and the start time."""


class Heartbeat:
    """Beats once per interval. One statement updates the host's row and returns a snapshot of the store.

    With a `renewal` the thread also renews the leases of claimed tasks when they are due.
    """

    def __init__(
        self,
        connection: HeartbeatConnection,
        scope: Callable[[], HostScope],
        on_beat: OnBeat,
        *,
        interval_s: float,
        limit_s: float,
        renewal: Renewal | None = None,
    ) -> None:
        self._connection = connection
        self._scope = scope
        self._on_beat = on_beat
        self._interval_ms = round(interval_s * 1000)
        self._limit_s = limit_s
        self._renewal = renewal
        self._beats_until_look = 0
        """Beats that leave out the messages: a look at these was expensive."""
        self._ended = Event()
        self._has_arrived = True
        self._thread = Thread(target=self._run, name="perdure-heartbeat", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def end(self) -> None:
        """Start no further beat."""
        self._ended.set()

    def join(self) -> None:
        """Wait for a beat that is under way, at most for its time limit."""
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        beat_ms = elapsed_ms() + self._interval_ms
        try:
            while not self._ended.wait(self._rest_s(beat_ms)):
                began_ms = elapsed_ms()
                if began_ms >= beat_ms:
                    beat_ms = began_ms + self._interval_ms
                    self._beat(began_ms)
                if self._renewal is not None and elapsed_ms() >= self._renewal.due_ms:
                    self._renew(self._renewal)
        finally:
            self._connection.close()

    def _rest_s(self, beat_ms: int) -> float:
        """How long to sleep if the next beat is due at `beat_ms`."""
        due_ms = beat_ms if self._renewal is None else min(beat_ms, self._renewal.due_ms)
        return max(0, due_ms - elapsed_ms()) / 1000

    def _renew(self, renewal: Renewal) -> None:
        try:
            renewal.renew(self._connection, self._limit_s)
        except Exception:  # the thread must survive: without heartbeats the host is considered dead
            log.exception("leases could not be renewed; the host tries again")

    def _within_budget(self, scope: HostScope) -> HostScope:
        """The scope, without any message if the last look at messages was expensive.

        With tens of thousands of pending messages that no host can deliver, an idle host would be busy reading them.
        """
        if not self._beats_until_look:
            return scope
        return msgspec.structs.replace(scope, until_ms=NEVER_MS)

    def _note_cost(self, took_ms: int) -> None:
        if self._beats_until_look:
            self._beats_until_look -= 1
        else:
            self._beats_until_look = min(MAX_SKIPPED, took_ms * BUDGET // self._interval_ms)

    def _beat(self, began_ms: int) -> None:
        try:
            scope = self._scope()
            snapshot = self._connection.beat(self._within_budget(scope), self._limit_s)
            self._note_cost(elapsed_ms() - began_ms)
            self._on_beat(scope.host, snapshot, began_ms)
        except StoreError as error:
            if self._has_arrived:
                log.warning(
                    "a heartbeat failed to reach the store; the host tries again: %s", error
                )
            self._has_arrived = False
        except Exception:  # the thread must survive: without heartbeats the host is considered dead
            log.exception("a heartbeat failed")
        else:
            if not self._has_arrived:
                log.info("heartbeats arrive again")
            self._has_arrived = True
