"""Callbacks with which a program follows its calls."""

import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, fields
from typing import Any, Generic, TypeVar

from perdure.core.errors import InputError
from perdure.core.operations.data import OperationFailedInfo

T = TypeVar("T")

OnFailed = Callable[[OperationFailedInfo], Awaitable[None] | None]


@dataclass(frozen=True, kw_only=True)
class CallCallback(Generic[T]):
    """Functions for the possible outcomes of a call. They run in the program's own event loop.

    `on_completion` receives the result of a successful call. `on_cleanup` releases what the call holds if the call or
    the operation failed. `on_call_crashed` is async and may return a substitute result for a failed call; `None` means
    no substitute. `on_operation_failed` receives the reason if the operation failed before the call ended.
    """

    on_cleanup: Callable[[], Awaitable[None] | None] | None = None
    on_completion: Callable[[T], Awaitable[None] | None] | None = None
    on_call_crashed: Callable[[], Awaitable[T | None]] | None = None
    on_operation_failed: OnFailed | None = None

    def __post_init__(self) -> None:
        for field in fields(self):
            callback = getattr(self, field.name)
            if callback is not None and not callable(callback):
                raise InputError(f"{field.name} is {callback!r:.200}", "pass a function, or None")


async def await_if_needed(value: Any) -> Any:
    """The value, or its result if it is awaitable: callbacks may be sync or async."""
    return await value if inspect.isawaitable(value) else value
