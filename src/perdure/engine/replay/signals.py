"""A run's signals: buffered in the order of delivery, consumed in the order of asking."""

from collections import Counter, deque

import msgspec

from perdure.core.journal import events as e
from perdure.engine.replay.promise import DurablePromise
from perdure.engine.replay.record import Record


class Signals:
    """Deliveries that nobody has taken, and promises that wait for one. Never both, for one name."""

    def __init__(self, record: Record) -> None:
        self._record = record
        self._kept: dict[tuple[str, int], e.SignalDelivered] = {}
        """What nobody has taken, in the order of delivery, by name and number."""
        self._expecting: dict[str, deque[DurablePromise]] = {}
        self._delivered: dict[str, int] = {}
        self._taken: dict[str, int] = {}
        """The number of the last signal of each name that was taken: the oldest goes first."""

    def next_delivery(self, name: str) -> int:
        """The number that the next signal of that name gets."""
        return self._delivered.get(name, 0) + 1

    def deliver(self, event: e.SignalDelivered) -> DurablePromise | None:
        """Hand a signal to whoever waits longest for its name, and is to be settled then; or keep it."""
        name = event.signal_name
        self._delivered[name] = event.delivery_id
        expecting = self._expecting.get(name)
        if expecting:
            return self._receive(expecting.popleft(), event)
        self._kept[name, event.delivery_id] = event
        return None

    def expect(self, promise: DurablePromise, name: str) -> DurablePromise | None:
        """Take the oldest signal that is kept, and so be settled, or wait."""
        kept = self._kept.pop((name, self._taken.get(name, 0) + 1), None)
        if kept is not None:
            return self._receive(promise, kept)
        self._expecting.setdefault(name, deque()).append(promise)
        return None

    def give_up(self, promise: DurablePromise, name: str) -> None:
        """Nobody waits for this one any more."""
        self._expecting[name].remove(promise)

    def left(self) -> tuple[e.SignalDelivered, ...]:
        """What nobody has taken, as the first deliveries of another run."""
        numbers: Counter[str] = Counter()
        found = []
        for event in self._kept.values():
            numbers[event.signal_name] += 1
            found.append(msgspec.structs.replace(event, delivery_id=numbers[event.signal_name]))
        return tuple(found)

    def _receive(self, promise: DurablePromise, event: e.SignalDelivered) -> DurablePromise:
        name, number, payload = event.signal_name, event.delivery_id, event.payload
        self._taken[name] = number
        self._record.emit(e.SignalReceived(promise.step, name, number, payload=payload))
        promise.ok = True
        promise.payload = payload
        return promise
