"""A run's signals: buffered in the order of delivery, consumed in the order of asking."""

from collections import Counter, deque
from collections.abc import Callable

import msgspec

from perdure.core.journal import events as e
from perdure.engine.replay.promise import DurablePromise
from perdure.engine.replay.record import Record


class Signals:
    """Deliveries that nobody has taken, and promises that wait for one. Never both, for one name.

    `look` gives the next signal that is delivered in the middle of a turn, if there is one.
    """

    def __init__(
        self,
        record: Record,
        settle: Callable[[DurablePromise], None],
        look: Callable[[], e.SignalDelivered | None],
    ) -> None:
        self._record = record
        self._settle = settle
        self._look = look
        self._kept: dict[tuple[str, int], e.SignalDelivered] = {}
        """What nobody has taken, in the order of delivery, by name and number."""
        self._expecting: dict[str, deque[DurablePromise]] = {}
        self._delivered: dict[str, int] = {}
        self._taken: dict[str, int] = {}
        """The number of the last signal of each name that was taken: the oldest goes first."""

    def next_delivery(self, name: str) -> int:
        """The number that the next signal of that name gets."""
        return self._delivered.get(name, 0) + 1

    def deliver(self, event: e.SignalDelivered) -> None:
        """Hand a signal to whoever waits longest for its name, or keep it."""
        name = event.signal_name
        self._delivered[name] = event.delivery_id
        expecting = self._expecting.get(name)
        if expecting:
            self._receive(expecting.popleft(), event)
        else:
            self._kept[name, event.delivery_id] = event

    def expect(self, promise: DurablePromise, name: str) -> None:
        """Take the oldest signal that is kept, or what is delivered on asking, or wait."""
        kept = self._kept.pop((name, self._taken.get(name, 0) + 1), None)
        if kept is not None:
            self._receive(promise, kept)
            return
        self._expecting.setdefault(name, deque()).append(promise)
        # Others may come first: signals of other names, or for those that wait longer for this one.
        while not promise.is_settled and (event := self._look()) is not None:
            self.deliver(event)

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

    def _receive(self, promise: DurablePromise, event: e.SignalDelivered) -> None:
        name, number, payload = event.signal_name, event.delivery_id, event.payload
        self._taken[name] = number
        self._record.emit(e.SignalReceived(promise.step, name, number, payload=payload))
        promise.ok = True
        promise.payload = payload
        self._settle(promise)
