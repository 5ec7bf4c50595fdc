"""Cancellations by anyio's cancel scopes, in an order that a replay repeats, and without an endless turn.

A scope cancels the tasks of a set of scopes, whose order differs in a replay; so their cancellations are collected and
delivered in the order in which the tasks were created. And a scope tries again in each iteration of the event loop
until its tasks have ended. While they wait for steps, nothing changes: the next try waits for the next turn.
"""

import sys
from collections.abc import Callable
from typing import Any, Final

_TRY: Final = "_deliver_cancellation"
"""The method of anyio's scopes that cancels tasks and schedules itself."""


def is_scopes() -> bool:
    """Whether the caller of `cancel` is a cancel scope."""
    return sys._getframe(2).f_code.co_name == _TRY


class ScopeOrder:
    """Collected cancellations, and tries that wait for the next turn."""

    def __init__(self) -> None:
        self.due: dict[int, Callable[[], object]] = {}
        """Cancellations to deliver when the current coroutine or callback waits or returns, by the task's number."""
        self.has_tried = False
        self._waiting: list[Any] = []
        self._tried: dict[int, int] = {}
        self.progress = 0
        """Counts what runs, without the tries."""

    def deliver(self) -> None:
        due, self.due = self.due, {}
        for number in sorted(due):
            due[number]()

    def begin_turn(self, ready: Any) -> None:
        ready.extend(self._waiting)
        self._waiting.clear()
        self._tried.clear()
        self.has_tried = False

    def puts_off(self, handle: Any) -> bool:
        """Whether the callback is a try after which nothing has happened but other tries."""
        callback = handle._callback
        if callback.__name__ != _TRY:
            return False
        self.progress -= 1
        self.has_tried = True
        scope = id(callback.__self__)
        if self._tried.get(scope) == self.progress:
            self._waiting.append(handle)
            return True
        self._tried[scope] = self.progress
        return False
