"""Prefetched messages: those queued behind the one that is being fed to a run.

A program that asks for a signal during its turn gets it from here without waiting: the delivery is journaled in the
middle of the turn and commits with it. Replay finds it at the same place of the journal.
"""

from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from perdure.core.journal.events import SignalDelivered
from perdure.core.messages import Message
from perdure.engine.runs.effects import Acknowledge

if TYPE_CHECKING:
    from perdure.engine.runs.machine import RunMachine


class PrefetchedMessages:
    """Messages of one run, in the order of arrival, and how many of them were taken.

    Only the next message can be taken, whatever the program asks for, so none overtakes another.
    """

    def __init__(
        self, messages: Iterable[Message], was_received: Callable[[Message], bool]
    ) -> None:
        """`was_received` returns whether the run has received a message before."""
        self._messages = deque(messages)
        self._was_received = was_received
        self.taken = 0

    def take(self) -> Message | None:
        """Remove and return the next message."""
        if not self._messages:
            return None
        self.taken += 1
        return self._messages.popleft()

    def take_signal(self) -> Message | None:
        """Remove and return the next message if it is a signal that the run has not received yet."""
        if not self._messages:
            return None
        message = self._messages[0]
        if not message.kind.startswith("signal:") or self._was_received(message):
            return None
        return self.take()


NO_MESSAGES = PrefetchedMessages((), lambda _: True)


def next_prefetched_signal(machine: "RunMachine") -> SignalDelivered | None:
    """The signal that is delivered in the middle of this turn, if any: from the journal in replay, else prefetched.

    A delivery that the journal has here belongs to this turn; one after the turn would follow the program's decision to
    wait.
    """
    record = machine.record
    if record.is_replaying:
        return record.take_fact(SignalDelivered)
    message = machine.prefetched.take_signal()
    if message is None:
        return None
    event = machine.delivery_of(message)
    record.add(event, (Acknowledge(message.guid),))
    return event
