"""Raises alerts: to the log, to a counter, and to the user's `on_alert`."""

import inspect
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from perdure.core.runs.alerts import Alert

log = logging.getLogger("perdure.alert")

OnAlert = Callable[[Alert], Awaitable[None] | None]
"""A function or coroutine function of the user, called in the engine's event loop."""

_LEVELS = {"P1": logging.ERROR, "P2": logging.WARNING}


class Alerts:
    """One per host."""

    def __init__(self, spawn: Callable[[Coroutine[Any, Any, None]], None]) -> None:
        """`spawn` runs a coroutine in the background."""
        self.counts: Counter[str] = Counter()
        """How often each code was raised."""
        self._spawn = spawn
        self._listeners: list[OnAlert] = []

    def subscribe(self, on_alert: OnAlert) -> None:
        """Call this function with each alert from now on."""
        self._listeners.append(on_alert)

    def raise_alert(self, alert: Alert) -> None:
        """Log and count the alert, and call the subscribers. Never raises."""
        self.counts[alert.code.value] += 1
        fields = {"event": "alert", "alert": alert.code.value, "severity": alert.severity}
        if alert.run_id is not None:
            fields["run_id"] = alert.run_id
        level = _LEVELS.get(alert.severity, logging.INFO)
        log.log(level, "%s (%s): %s", alert.code, alert.severity, alert.message, extra=fields)
        for on_alert in self._listeners:
            try:
                pending = on_alert(alert)
            except Exception:  # it is the user's function
                _note_failure(alert)
            else:
                if inspect.isawaitable(pending):
                    self._spawn(_finish(pending, alert))


async def _finish(pending: Awaitable[None], alert: Alert) -> None:
    try:
        await pending
    except Exception:  # it is the user's function
        _note_failure(alert)


def _note_failure(alert: Alert) -> None:
    log.exception("the function `on_alert` raised an error for %s", alert.code)
