"""Deliberate bugs of mail at hand, as switches: the explorer must catch each."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from perdure.core.messages import Message
from perdure.engine.replay import facts
from perdure.engine.replay.effects import Acknowledge, Change
from perdure.engine.replay.record import Record
from perdure.engine.replay.warm import WarmRun
from perdure.host.delivery import Delivery
from perdure.host.line import Line
from perdure.store.bundle import Bundle
from tests.engine.replay.chain_bugs import Bug


@contextmanager
def taken_along_and_not_remembered() -> Iterator[None]:
    """What was taken along is taken in once more, by itself."""
    take = facts.take_in_line

    def forgetful(warm: WarmRun, first: Message, behind: list[Message]) -> int:
        taken = take(warm, first, behind)
        for message in behind[: max(0, taken - 1)]:
            facts.take(warm, message)
        return taken

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(facts, "take_in_line", forgetful)
        yield


@contextmanager
def delivery_not_repeated() -> Iterator[None]:
    """Replay does not look for deliveries in the middle of a turn."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Record, "take_fact", lambda *_: None)
        yield


@contextmanager
def taken_along_before_it_is_durable() -> Iterator[None]:
    """What stands in line is gone as soon as somebody may take it along."""
    deliver = Delivery._deliver

    async def careless(self: Delivery, message: Message, line: Line) -> None:
        warm = self._host.residents.get(message.run_id)
        behind = line.behind(message)
        if warm is not None and behind:
            bundle = Bundle()
            for each in behind:
                bundle.acknowledge(warm.fence, each.guid)
            await self._host.store.commit(bundle)
        await deliver(self, message, line)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Delivery, "_deliver", careless)
        yield


@contextmanager
def refused_and_gone_all_the_same() -> Iterator[None]:
    """Whatever stood in line is acknowledged, whether or not the run took it in."""
    take = facts.take_in_line

    def generous(warm: WarmRun, first: Message, behind: list[Message]) -> int:
        taken = take(warm, first, behind)
        changes = warm.machine.record.changes
        if taken and changes:
            gone = (Acknowledge(message.guid) for message in behind[taken - 1 :])
            changes[-1] = Change(changes[-1].event, (*changes[-1].effects, *gone))
        return taken

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(facts, "take_in_line", generous)
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
