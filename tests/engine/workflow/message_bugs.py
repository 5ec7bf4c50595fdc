"""Deliberate bugs of prefetched messages, as switches: the explorer must catch each."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from perdure.core.messages import Message
from perdure.engine.runs import messages as run_messages
from perdure.engine.runs.effects import Acknowledge, RecordedChange
from perdure.engine.runs.record import Record
from perdure.engine.runs.warm import WarmRun
from perdure.host.messages.delivery import Delivery
from perdure.host.messages.queue import MessageQueue
from perdure.store.commit.bundle import Bundle
from tests.engine.workflow.chain_bugs import Bug


@contextmanager
def taken_along_and_not_remembered() -> Iterator[None]:
    """Messages taken along with another are taken once more, by themselves."""
    take = run_messages.take_messages

    def forgetful(warm: WarmRun, first: Message, behind: list[Message]) -> int:
        taken = take(warm, first, behind)
        for message in behind[: max(0, taken - 1)]:
            run_messages.take_message(warm, message)
        return taken

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run_messages, "take_messages", forgetful)
        yield


@contextmanager
def delivery_not_repeated() -> Iterator[None]:
    """Replay does not look for deliveries in the middle of a turn."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Record, "take_fact", lambda *_: None)
        yield


@contextmanager
def taken_along_before_it_is_durable() -> Iterator[None]:
    """Queued messages are acknowledged as soon as a run may take them along."""
    deliver = Delivery._deliver

    async def careless(self: Delivery, message: Message, line: MessageQueue) -> None:
        warm = self._dispatcher.cache.get(message.run_id)
        behind = line.behind(message)
        if warm is not None and behind:
            bundle = Bundle()
            for each in behind:
                bundle.acknowledge(warm.fence, each.guid)
            await self._context.store.commit(bundle)
        await deliver(self, message, line)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Delivery, "_deliver", careless)
        yield


@contextmanager
def refused_and_gone_all_the_same() -> Iterator[None]:
    """All queued messages are acknowledged, whether or not the run took them."""
    take = run_messages.take_messages

    def generous(warm: WarmRun, first: Message, behind: list[Message]) -> int:
        taken = take(warm, first, behind)
        changes = warm.machine.record.changes
        if taken and changes:
            gone = (Acknowledge(message.guid) for message in behind[taken - 1 :])
            changes[-1] = RecordedChange(changes[-1].event, (*changes[-1].effects, *gone))
        return taken

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run_messages, "take_messages", generous)
        yield


BUGS = {
    bug.seed.__name__: bug
    for bug in (
        Bug(taken_along_and_not_remembered, "asking", 2, "is posted already"),
        Bug(delivery_not_repeated, "asking", 2, "is not what run"),
        Bug(taken_along_before_it_is_durable, "asking", 2, "nothing is due and nothing runs"),
        Bug(refused_and_gone_all_the_same, "chaining", 2, "nothing is due and nothing runs"),
    )
}
