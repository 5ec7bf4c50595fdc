"""A function of the program that is called with each event."""

import inspect
from collections.abc import Awaitable, Callable
from typing import Unpack

from perdure.core.errors import InputError
from perdure.core.runs.contract_event import ContractEvent
from perdure.host.bus.bus import BusOptions, EventBus

OnEvent = Callable[[ContractEvent], Awaitable[None] | None]


class Subscriber(EventBus):
    """Calls a function, or a coroutine function, with each event in the event loop of one of the engines.

    Its name is that of the function unless `name` is given; a name stands for the same subscriber in all processes, so
    each event is handled by one of them. If the function raises, the event is tried again.
    """

    def __init__(
        self, on_event: OnEvent, *, name: str | None = None, **options: Unpack[BusOptions]
    ) -> None:
        if not callable(on_event):
            raise InputError(f"{on_event!r:.100} is no function", "pass a function of one event")
        own = getattr(on_event, "__qualname__", "")
        if name is None and ("<" in own or not own):
            raise InputError(f"{on_event!r:.100} has no name that lasts", "pass name='...'")
        super().__init__(own if name is None else name, options)
        self._on_event = on_event

    def begin(self, event: ContractEvent) -> Awaitable[None] | None:
        pending = self._on_event(event)
        return pending if pending is not None and inspect.isawaitable(pending) else None

    async def publish(self, event: ContractEvent) -> None:
        pending = self.begin(event)
        if pending is not None:
            await pending
