"""Deliberate bugs of order and clocks, as switches: the explorer must catch each."""

from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from msgspec.structs import replace

from perdure.core.messages import AT_ONCE, Message
from perdure.host.messages.delivery import Delivery
from perdure.store.commit.bundle import Bundle


@contextmanager
def owner_does_not_ask() -> Iterator[None]:
    """What the owner sends itself is delivered before messages of others that the host has not read yet."""

    def hasty(self: Delivery, message: Message) -> Coroutine[Any, Any, None]:
        return self.deliver(message)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Delivery, "deliver_sent", hasty)
        yield


@contextmanager
def _enqueued_as(due_at_ms: int | None) -> Iterator[None]:
    enqueue = Bundle.enqueue

    def dated(self: Bundle, message: Message) -> None:
        if message.due_at_ms == AT_ONCE:
            due = message.arrival if due_at_ms is None else due_at_ms
            message = replace(message, due_at_ms=due)
        enqueue(self, message)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Bundle, "enqueue", dated)
        yield


@contextmanager
def order_by_clocks_of_senders() -> Iterator[None]:
    """The store does not raise the arrival of what comes later."""
    with _enqueued_as(1):
        yield


@contextmanager
def due_by_clocks_of_senders() -> Iterator[None]:
    """A signal is due when its sender's clock says now."""
    with _enqueued_as(None):
        yield


BUGS = {
    "owner does not ask": owner_does_not_ask,
    "order by clocks of senders": order_by_clocks_of_senders,
    "due by clocks of senders": due_by_clocks_of_senders,
}
