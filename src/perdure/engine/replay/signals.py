"""A run's signals: buffered in the order of delivery, consumed in the order of asking."""

from collections import deque
from collections.abc import Callable

from perdure.core.journal import events as e
from perdure.engine.replay.promise import DurablePromise
from perdure.engine.replay.record import Record


class Signals:
    """Deliveries that nobody has taken, and promises that wait for one. Never both, for one name."""

    def __init__(self, record: Record, settle: Callable[[DurablePromise], None]) -> None:
        self._record = record
        self._settle = settle
        self._buffered: dict[str, deque[tuple[int, bytes | None]]] = {}
        self._expecting: dict[str, deque[DurablePromise]] = {}
        self._delivered: dict[str, int] = {}

    def next_delivery(self, name: str) -> int:
        """The number that the next signal of that name gets."""
        return self._delivered.get(name, 0) + 1

    def deliver(self, event: e.SignalDelivered) -> None:
        """Hand a signal to whoever waits longest for its name, or keep it."""
        name = event.signal_name
        self._delivered[name] = event.delivery_id
        expecting = self._expecting.get(name)
        if expecting:
            self._receive(expecting.popleft(), name, event.delivery_id, event.payload)
        else:
            self._buffered.setdefault(name, deque()).append((event.delivery_id, event.payload))

    def expect(self, promise: DurablePromise, name: str) -> None:
        """Take the oldest signal that is kept, or wait for one."""
        buffered = self._buffered.get(name)
        if buffered:
            self._receive(promise, name, *buffered.popleft())
        else:
            self._expecting.setdefault(name, deque()).append(promise)

    def give_up(self, promise: DurablePromise, name: str) -> None:
        """Nobody waits for this one any more."""
        self._expecting[name].remove(promise)

    def _receive(
        self, promise: DurablePromise, name: str, delivery_id: int, payload: bytes | None
    ) -> None:
        self._record.emit(e.SignalReceived(promise.step, name, delivery_id, payload=payload))
        promise.ok = True
        promise.payload = payload
        self._settle(promise)
