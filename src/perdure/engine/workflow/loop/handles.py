"""Callbacks that wait in a workflow's ready queue, and its timers."""

from asyncio import AbstractEventLoop, Handle, TimerHandle
from collections.abc import Callable
from contextvars import Context, copy_context
from typing import Any

from perdure.engine.runs.promise import DurablePromise


class ReadyHandle(Handle):
    """A callback to call in this turn. Made faster than asyncio's own, which may record where it was made."""

    __slots__ = ()

    def __init__(
        self,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        loop: AbstractEventLoop,
        context: Context | None,
    ) -> None:
        self._context = copy_context() if context is None else context
        self._loop = loop
        self._callback: Any = callback
        self._args: Any = args
        self._repr = None
        self._source_traceback = None
        self._cancelled = False


class TimerCallback(TimerHandle):
    """A callback for later. `wait` and `missing` make it a waiter of its timer's promise, as a fiber is."""

    __slots__ = ("fires_at_ms", "is_passed_over", "missing", "promise", "wait")

    def __init__(
        self,
        when: float,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        loop: AbstractEventLoop,
        context: Context | None,
    ) -> None:
        super().__init__(when, callback, args, loop, context)
        self.promise: DurablePromise | None = None
        """Its durable timer. Without one it is due in this turn, or never."""
        self.fires_at_ms = 0
        self.wait: DurablePromise | None = None
        self.missing = 1
        self.is_passed_over = False
        """Whether what was ready before it has been called: a timer that is due at once comes behind that."""
