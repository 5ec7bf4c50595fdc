"""A graph run's signals: buffered until a hook waits for them, received by the hook that has waited longest."""

from collections import deque

from perdure.core.ids import Guid, StepId
from perdure.core.journal.events import SignalDelivered


class GraphSignals:
    """Steps that wait for signals, and signals not received yet."""

    def __init__(self) -> None:
        self._kept: dict[str, deque[SignalDelivered]] = {}
        self._waiting: dict[str, dict[StepId, None]] = {}
        self._names: dict[StepId, tuple[str, ...]] = {}
        self._delivered: dict[str, int] = {}
        self._unread: set[Guid] = set()

    def next_delivery(self, name: str) -> int:
        """The number of the next signal of that name."""
        return self._delivered.get(name, 0) + 1

    def has_unread(self, guid: Guid) -> bool:
        """Whether that signal is buffered: delivered, but not received by a step, so not in the ledger yet."""
        return guid in self._unread

    def deliver(self, event: SignalDelivered) -> StepId | None:
        """Buffer a signal. Returns the step that waits for it, if any."""
        name = event.signal_name
        self._delivered[name] = event.delivery_id
        self._kept.setdefault(name, deque()).append(event)
        if event.guid is not None:
            self._unread.add(event.guid)
        return next(iter(self._waiting.get(name, ())), None)

    def expect(self, step: StepId, names: tuple[str, ...]) -> None:
        self._names[step] = names
        for name in names:
            self._waiting.setdefault(name, {})[step] = None

    def give_up(self, step: StepId) -> None:
        """Stop waiting with that step."""
        for name in self._names.pop(step, ()):
            waiting = self._waiting[name]
            waiting.pop(step, None)
            if not waiting:
                del self._waiting[name]

    def forget(self, name: str) -> None:
        """Drop the buffered signals of a name that no step will wait for again."""
        for event in self._kept.pop(name, ()):
            if event.guid is not None:
                self._unread.discard(event.guid)

    def __contains__(self, step: StepId) -> bool:
        """Whether the step waits for a signal."""
        return step in self._names

    def take(self, step: StepId) -> SignalDelivered | None:
        """Remove and return the oldest buffered signal that the step waits for. The step keeps waiting."""
        for name in self._names.get(step, ()):
            kept = self._kept.get(name)
            if kept:
                event = kept.popleft()
                if not kept:
                    del self._kept[name]
                if event.guid is not None:
                    self._unread.discard(event.guid)
                return event
        return None
