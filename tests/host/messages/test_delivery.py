"""Messages that arrive together at one run are taken in together; each has its own outcome."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import pytest

from perdure import Engine, Handle, RunStatus, Settings, Signal, workflow
from perdure.core.errors import StaleFence
from perdure.core.journal import events as e
from perdure.core.messages import Message
from perdure.core.replay.identity import signal_guid
from perdure.engine.runs import messages as run_messages
from perdure.engine.runs.effects import RecordedChange
from perdure.engine.runs.warm import WarmRun
from perdure.host import host as hosting
from perdure.host.messages.delivery import Delivery
from perdure.store.commit.bundle import Bundle
from perdure.store.commit.committer import OnDecided
from perdure.testing.probe import Probe
from tests.client.engines import assert_sound, journal, store_of

TIMEOUT_S = 60

word = Signal("delivery.word", str)


@workflow(name="delivery.hearing")
async def hearing(count: int) -> list[str]:
    return [await word.receive() for _ in range(count)]


@pytest.fixture(params=["fused", "stepwise"])
async def engine(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Engine]:
    """An engine that does not poll while the test delivers messages to it."""
    monkeypatch.setattr(hosting, "POLL_MS", 60_000)
    settings = Settings(stepwise=request.param == "stepwise")
    async with Engine("sqlite:///:memory:", settings=settings) as opened:
        yield opened
        await assert_sound(opened)


class Offers(list[int]):
    """The number of messages in each offer to a run."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__()
        self._take = run_messages.take_messages
        monkeypatch.setattr(run_messages, "take_messages", self.take)

    def take(self, warm: WarmRun, first: Message, behind: Sequence[Message]) -> int:
        self.append(1 + len(behind))
        return self._take(warm, first, behind)


def delivery_of(engine: Engine) -> Delivery:
    return Probe(engine).host.poller.delivery


async def write_words(engine: Engine, run: Handle[Any], *words: str) -> list[Message]:
    """Commit messages that the host has not been notified of."""
    sent = [
        Message(
            run.run_id,
            signal_guid(run.run_id, word.name, each),
            f"signal:{word.name}",
            *(0, place),
            payload=b'"%s"' % each.encode(),
        )
        for place, each in enumerate(words)
    ]
    bundle = Bundle()
    for message in sent:
        bundle.enqueue(message)
    await store_of(engine).commit(bundle)
    return sent


async def deliver(engine: Engine, messages: Sequence[Message]) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        await asyncio.gather(*map(delivery_of(engine).deliver, messages))


async def unconsumed(engine: Engine, run: Handle[Any]) -> list[tuple[bytes | None, str]]:
    found = await store_of(engine).messages(run.run_id)
    return [(message.payload, state) for message, state, _ in found]


async def test_messages_that_arrive_together_are_one_offer(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = await engine.start(hearing(3))
    sent = await write_words(engine, run, "a", "b", "c")
    offers = Offers(monkeypatch)
    await deliver(engine, sent)
    assert offers == [3]
    assert await run.result(TIMEOUT_S) == ["a", "b", "c"]
    assert await unconsumed(engine, run) == []


async def test_duplicate_is_stale_and_the_others_are_taken(engine: Engine) -> None:
    run = await engine.start(hearing(4))
    old = await write_words(engine, run, "a")
    await deliver(engine, old)
    await store_of(engine).commit(enqueued(old))
    sent = await write_words(engine, run, "b", "c", "d")
    await deliver(engine, [sent[0], *old, *sent[1:]])
    assert await run.result(TIMEOUT_S) == ["a", "b", "c", "d"]
    assert await unconsumed(engine, run) == [(b'"a"', "stale")]


def enqueued(messages: Sequence[Message]) -> Bundle:
    bundle = Bundle()
    for message in messages:
        bundle.enqueue(message)
    return bundle


async def test_message_after_the_end_is_a_dead_letter(engine: Engine) -> None:
    run = await engine.start(hearing(2))
    await deliver(engine, await write_words(engine, run, "a", "b", "c", "d"))
    assert await run.result(TIMEOUT_S) == ["a", "b"]
    assert await unconsumed(engine, run) == [(b'"c"', "dead"), (b'"d"', "dead")]


async def test_all_are_offered_again_if_the_commit_is_rejected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(hosting, "POLL_MS", 60_000)
    async with Engine("sqlite:///:memory:") as engine:
        run = await engine.start(hearing(3))
        sent = await write_words(engine, run, "a", "b", "c")
        store, offers = store_of(engine), Offers(monkeypatch)
        submit: Callable[[Bundle, OnDecided], None] = store.submit

        def reject(bundle: Bundle, decided: OnDecided) -> None:
            store.submit = submit
            bundle.fences[0].broken = True
            decided(StaleFence("it was taken over", "load it again"))

        store.submit = reject
        await deliver(engine, sent)
        assert offers == [3, 3]
        assert await run.result(TIMEOUT_S) == ["a", "b", "c"]
        assert await unconsumed(engine, run) == []
        await assert_sound(engine)


async def test_messages_that_fail_together_are_taken_one_by_one(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So a message that can't be taken in does not hold up those before it."""
    run = await engine.start(hearing(3))
    sent = await write_words(engine, run, "a", "bad", "c")
    write = WarmRun.write

    def fail(
        self: WarmRun, bundle: Bundle, changes: Sequence[RecordedChange], *args: Any
    ) -> list[Message]:
        if any(getattr(change.event, "payload", None) == b'"bad"' for change in changes):
            raise RuntimeError("can't be written")
        return write(self, bundle, changes, *args)

    monkeypatch.setattr(WarmRun, "write", fail)
    await deliver(engine, sent)
    delivered = [each for each in await journal(engine, run) if isinstance(each, e.SignalDelivered)]
    assert [each.payload for each in delivered] == [b'"a"']
    assert await run.status() is RunStatus.PARKED
    assert await unconsumed(engine, run) == [(b'"bad"', "pending"), (b'"c"', "pending")]
