"""Warns when the event loop of a host is blocked: no run and no async task advances meanwhile.

A thread schedules a callback on the loop four times a second. If it has not run after a second, the thread logs the
stack of the loop's thread. If the watching thread could not run either (the process was stopped, or native code held
the interpreter), it has no such stack, and logs that the process did not run.
"""

import asyncio
import logging
import sys
import time
import traceback
from threading import Event, Thread, get_ident

log = logging.getLogger("perdure.host")

LONGEST_S = 1.0
"""How long the loop may take to run the callback."""

INTERVAL_S = 0.25

FRAMES = 12
"""How many of the innermost stack frames are logged."""


class LoopWatch:
    """Watches the event loop that runs when it is made."""

    def __init__(self, longest_s: float = LONGEST_S, interval_s: float = INTERVAL_S) -> None:
        self._loop = asyncio.get_running_loop()
        self._loop_thread = get_ident()
        self._longest_s = longest_s
        self._interval_s = interval_s
        self._asked_s: float | None = None
        """When the callback was scheduled; `None` once it has run."""
        self._is_warned = False
        self._ended = Event()
        self._thread = Thread(target=self._run, name="perdure-watch", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def end(self) -> None:
        self._ended.set()

    def _run(self) -> None:
        slept_from = time.monotonic()
        while not self._ended.wait(self._interval_s):
            now = time.monotonic()
            # This thread overslept, so the whole process may have been stopped: the loop need not be the cause.
            late_s = now - slept_from - self._interval_s
            if late_s > self._longest_s:
                self._warn_stopped(late_s)
            else:
                self._look(now)
            if self._loop.is_closed() or (self._asked_s is None and not self._ask()):
                return
            slept_from = time.monotonic()

    def _ask(self) -> bool:
        self._asked_s = time.monotonic()
        try:
            self._loop.call_soon_threadsafe(self._respond)
        except RuntimeError:  # the loop is closed
            return False
        return True

    def _look(self, now: float) -> None:
        asked_s = self._asked_s
        if not self._loop.is_running():
            # The loop is not running, so it is not blocked.
            return
        if asked_s is None or self._is_warned or now - asked_s < self._longest_s:
            return
        self._is_warned = True
        frame = sys._current_frames().get(self._loop_thread)
        stack = [] if frame is None else traceback.format_stack(frame)[-FRAMES:]
        blocked_s = now - asked_s
        log.warning(
            "the event loop has been blocked for %.1f s: no run and no async task of this process moves. Use "
            "`await`, or a sync task, which runs in a thread. The loop is at:\n%s",
            *(blocked_s, "".join(stack).rstrip()),
            extra={"event": "loop_blocked", "blocked_s": round(blocked_s, 3)},
        )

    def _warn_stopped(self, late_s: float) -> None:
        self._is_warned = True
        log.warning(
            "this process did not run for %.1f s: it was stopped, or native code held the interpreter",
            late_s,
            extra={"event": "process_stopped", "blocked_s": round(late_s, 3)},
        )

    def _respond(self) -> None:
        """Runs in the loop, which therefore is not blocked any more."""
        asked_s, self._asked_s = self._asked_s, None
        if self._is_warned and asked_s is not None:
            self._is_warned = False
            blocked_s = time.monotonic() - asked_s
            log.info(
                "the event loop moves again after %.1f s",
                blocked_s,
                extra={"event": "loop_free", "blocked_s": round(blocked_s, 3)},
            )
