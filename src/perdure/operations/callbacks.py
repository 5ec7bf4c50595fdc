"""What a program wants to be told about its calls."""

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
    """Functions for what can become of a call. They run in the program's own event loop.

    `on_completion` gets the result of a call that succeeded. `on_cleanup` releases what the call holds, if it failed
    or the operation did. `on_call_crashed` may give a result in place of one that the call's work did not give;
    it is async, and `None` means that there is none. `on_operation_failed` learns why the operation failed while the
    call was under way.
    """

    on_cleanup: Callable[[], Awaitable[None] | None] | None = None
    on_completion: Callable[[T], Awaitable[None] | None] | None = None
    on_call_crashed: Callable[[], Awaitable[T | None]] | None = None
    on_operation_failed: OnFailed | None = None

    def __post_init__(self) -> None:
        for field in fields(self):
            told = getattr(self, field.name)
            if told is not None and not callable(told):
                raise InputError(f"{field.name} is {told!r:.200}", "pass a function, or None")


async def settled(outcome: Any) -> Any:
    """What a function returned, or what that turns out to be if it is async."""
    return await outcome if inspect.isawaitable(outcome) else outcome
