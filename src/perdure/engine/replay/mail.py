"""Mail at hand: messages that stand in line behind the one that a run takes in.

A program that asks for a signal in its turn finds it here, and goes on without a wait: the delivery is in the middle
of the turn, and commits with it. Replay finds it at the same place of the journal.
"""

from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from perdure.core.journal.events import SignalDelivered
from perdure.core.messages import Message
from perdure.engine.replay.effects import Acknowledge

if TYPE_CHECKING:
    from perdure.engine.machine import RunMachine


class MailAtHand:
    """Messages of one run in the order in which they came, and how many of them are gone.

    None is passed over: whatever the program asks for, the next message is the only one that it can have.
    """

    def __init__(self, messages: Iterable[Message], has_come: Callable[[Message], bool]) -> None:
        """`has_come` tells of a message whether the run has had it before."""
        self._messages = deque(messages)
        self._has_come = has_come
        self.taken = 0

    def take(self) -> Message | None:
        """The next message: it is not at hand any more."""
        if not self._messages:
            return None
        self.taken += 1
        return self._messages.popleft()

    def take_signal(self) -> Message | None:
        """The same, if the next message is a signal and news."""
        if not self._messages:
            return None
        message = self._messages[0]
        if not message.kind.startswith("signal:") or self._has_come(message):
            return None
        return self.take()


NO_MAIL = MailAtHand((), lambda _: True)


def delivered(machine: "RunMachine", message: Message) -> SignalDelivered:
    """What the journal holds of a signal that comes now."""
    name = machine.signal_name(message.kind.partition(":")[2], message.step)
    number = machine.next_delivery(name)
    return SignalDelivered(name, number, message.guid, payload=message.payload)


def next_at_hand(machine: "RunMachine") -> SignalDelivered | None:
    """The signal that is delivered in the middle of this turn, if one is. The journal tells; where it ends, the mail.

    A delivery that the journal has here belongs to this turn: had it come later, the program's decision to wait would
    stand before it.
    """
    record = machine.record
    if record.is_replaying:
        return record.take_fact(SignalDelivered)
    message = machine.mail.take_signal()
    if message is None:
        return None
    event = delivered(machine, message)
    record.add(event, (Acknowledge(message.guid),))
    return event
