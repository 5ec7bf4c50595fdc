"""Heartbeats: a thread of their own, so that an event loop that is busy is not taken for a host that is dead."""

import logging
from collections.abc import Callable
from threading import Event, Thread

from perdure.core.errors import StoreError
from perdure.core.ids import HostId
from perdure.host.clock import elapsed_ms
from perdure.store.hosts import Glance, Lifeline, Scope

log = logging.getLogger("perdure.host")

Told = Callable[[HostId, Glance | None, int], None]
"""Called in the thread, for each beat that arrived: whose it is, what it saw, and when it was begun."""


class Pulse:
    """Beats once per interval, and passes on what each beat sees: it is one statement that tells and asks."""

    def __init__(
        self,
        line: Lifeline,
        scope: Callable[[], Scope],
        told: Told,
        *,
        interval_s: float,
        limit_s: float,
    ) -> None:
        self._line = line
        self._scope = scope
        self._told = told
        self._interval_s = interval_s
        self._limit_s = limit_s
        self._ended = Event()
        self._is_heard = True
        self._thread = Thread(target=self._work, name="perdure-pulse", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def end(self) -> None:
        """Begin no other beat."""
        self._ended.set()

    def join(self) -> None:
        """Wait until a beat that is under way has ended: not longer than its limit."""
        if self._thread.is_alive():
            self._thread.join()

    def _work(self) -> None:
        rest_s = self._interval_s
        try:
            while not self._ended.wait(rest_s):
                began_ms = elapsed_ms()
                self._beat(began_ms)
                rest_s = max(0, self._interval_s - (elapsed_ms() - began_ms) / 1000)
        finally:
            self._line.close()

    def _beat(self, began_ms: int) -> None:
        try:
            scope = self._scope()
            self._told(scope.host, self._line.beat(scope, self._limit_s), began_ms)
        except StoreError as error:
            if self._is_heard:
                log.warning("a heartbeat did not arrive; it is tried again: %s", error)
            self._is_heard = False
        except Exception:  # a thread that ended would be a host that is dead
            log.exception("a heartbeat failed")
        else:
            if not self._is_heard:
                log.info("heartbeats arrive again")
            self._is_heard = True
