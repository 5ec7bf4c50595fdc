"""A workflow run's signals: buffered in the order of delivery, received in the order in which promises wait."""

from collections import Counter, deque
from typing import TYPE_CHECKING

import msgspec

from perdure.core.answers import answer_stream
from perdure.core.errors import InputError
from perdure.core.ids import Guid, RunId, StepId
from perdure.core.journal import events as e
from perdure.core.messages import AT_ONCE, Message
from perdure.core.replay.identity import signal_guid
from perdure.engine.runs.effects import AppendChunk
from perdure.engine.runs.promise import DurablePromise
from perdure.engine.runs.record import Record

if TYPE_CHECKING:
    from perdure.engine.runs.machine import RunMachine


class WorkflowSignals:
    """Signals not received yet, and promises that wait for one. Of each name there is only one or the other."""

    __slots__ = (
        "_answered",
        "_delivered",
        "_expecting",
        "_kept",
        "_record",
        "_taken",
        "unanswered",
    )

    def __init__(self, record: Record) -> None:
        self._record = record
        self._kept: dict[tuple[str, int], e.SignalDelivered] = {}
        """Signals not received yet, in the order of delivery, by name and number."""
        self._expecting: dict[str, deque[DurablePromise]] = {}
        self._delivered: dict[str, int] = {}
        self._taken: dict[str, int] = {}
        """The number of the last received signal of each name; the oldest is received first."""
        self.unanswered: dict[Guid, str] = {}
        """Requests that the program has received and not answered, with their names."""
        self._answered: set[Guid] = set()

    def next_delivery(self, name: str) -> int:
        """The number of the next signal of that name."""
        return self._delivered.get(name, 0) + 1

    def deliver(self, event: e.SignalDelivered) -> DurablePromise | None:
        """Give a signal to the promise that has waited longest for its name, and return that; or buffer it."""
        name = event.signal_name
        self._delivered[name] = event.delivery_id
        expecting = self._expecting.get(name)
        if expecting:
            return self._receive(expecting.popleft(), event)
        self._kept[name, event.delivery_id] = event
        return None

    def expect(self, promise: DurablePromise, name: str) -> DurablePromise | None:
        """Give the promise the oldest buffered signal, and return it to be settled; or let it wait."""
        kept = self._kept.pop((name, self._taken.get(name, 0) + 1), None)
        if kept is not None:
            return self._receive(promise, kept)
        self._expecting.setdefault(name, deque()).append(promise)
        return None

    def give_up(self, promise: DurablePromise, name: str) -> None:
        """Stop waiting with this promise."""
        self._expecting[name].remove(promise)

    def asked(self, name: str, guid: Guid) -> None:
        """The program receives a request. It may receive it twice, where two coroutines await it."""
        if guid not in self._answered:
            self.unanswered[guid] = name

    def answer(self, name: str, guid: Guid, payload: bytes, *, is_rejection: bool) -> None:
        """Let the answer to a request commit with the next decision. Raises `InputError` if it has one."""
        if guid in self._answered:
            raise InputError(
                f"a request {name!r} is answered again", "reply to each request, or reject it, once"
            )
        self._answered.add(guid)
        self.unanswered.pop(guid, None)
        self._record.attach(AppendChunk(answer_stream(guid, is_rejection=is_rejection), 0, payload))

    def left(self) -> tuple[e.SignalDelivered, ...]:
        """The signals not received yet, renumbered as the first deliveries of the next run."""
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
        promise.guid = event.guid
        return promise


def signal_to_child(
    machine: "RunMachine", child: RunId, name: str, place: StepId, payload: bytes
) -> Message:
    """The message of a signal that the program sends to a child run from this place of its call tree."""
    guid = signal_guid(child, name, f"{machine.info.run_id}/{place}")
    return Message(child, guid, f"signal:{name}", AT_ONCE, machine.arrival(), payload=payload)
