"""A signal with an id that was used before: the same value is the same signal, another is refused."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import asyncpg
import pytest

import perdure
from perdure import Engine, Handle, Signal, SignalReused, SyncEngine, workflow
from perdure.core.codec import JsonCodec
from perdure.core.ids import RunId
from perdure.core.journal import events as e
from perdure.core.messages import Message
from perdure.core.replay.identity import signal_guid
from perdure.store.commit.bundle import Bundle
from tests.client.engines import recorded, store_of, until_recorded, until_store
from tests.client.messages.test_answering import started, until_asked
from tests.client.programs.deployable import asking
from tests.store.builders import raw

FAR_MS = 2**45

word = Signal("resending.word", str)
end = Signal("resending.end", int)


@dataclass
class Order:
    number: int
    note: str = ""


order = Signal("resending.order", Order)


@workflow
async def resent_to() -> list[str]:
    got = [await word.receive()]
    await end.receive()
    return got


@workflow
async def resent_to_a_chain(left: int) -> str:
    if left:
        await word.receive()
        await perdure.continue_as_new(resent_to_a_chain(left - 1))
    await end.receive()
    return "over"


@workflow
async def ordered() -> int:
    return (await order.receive()).number


@contextmanager
def refused(what: str) -> Iterator[None]:
    with pytest.raises(SignalReused) as caught:
        yield
    assert caught.value.what == f"{what} was sent before with another value"
    assert "an id of its own" in caught.value.remedy


def to(run: Handle[Any], signal_id: str = "one", name: str = word.name) -> str:
    return f"signal {name!r} with id {signal_id!r} to run {run.run_id!r}"


async def put(engine: Engine, run: Handle[Any], payload: bytes) -> None:
    """A signal that is not delivered yet."""
    run_id = RunId(run.run_id)
    guid = signal_guid(run_id, word.name, "id:one")
    bundle = Bundle()
    bundle.enqueue(Message(run_id, guid, f"signal:{word.name}", FAR_MS, 0, payload=payload))
    await store_of(engine).commit(bundle)


async def test_another_value_is_refused_while_the_first_waits(engine: Engine) -> None:
    run = await engine.start(resent_to())
    await put(engine, run, b'"first"')
    with refused(to(run)):
        await run.signal(word, "second", id="one")
    messages = await store_of(engine).messages(run.run_id)
    assert [message.payload for message, _, _ in messages] == [b'"first"']
    await raw(store_of(engine), "UPDATE {}message SET due_at_ms = 0")
    await run.signal(word, "first", id="one")
    await run.signal(end, 1)
    assert await run.result(60) == ["first"]


async def test_another_value_is_refused_when_the_first_was_taken_and_when_all_is_over(
    engine: Engine,
) -> None:
    run = await engine.start(resent_to())
    await run.signal(word, "first", id="one")
    await until_recorded(engine, run, e.SignalReceived)
    await run.signal(word, "first", id="one")
    with refused(to(run)):
        await run.signal(word, "second", id="one")
    await run.signal(end, 1, id="one")  # of another name: another signal
    assert await run.result(60) == ["first"]
    await run.signal(word, "first", id="one")
    with refused(to(run)):
        await run.signal(word, "second", id="one")
    assert len(await recorded(engine, run, e.SignalDelivered)) == 2


async def test_another_value_is_refused_whichever_run_of_a_chain_took_the_first(
    engine: Engine,
) -> None:
    run = await engine.start(resent_to_a_chain(2))
    await run.signal(word, "a", id="one")
    await run.signal(word, "b", id="two")

    async def is_last() -> bool:
        return len(await run.runs()) == 3

    await until_store(is_last)
    last = engine.handle(list(await run.runs())[-1])
    for handle in (run, last):
        await handle.signal(word, "a", id="one")
        await handle.signal(word, "b", id="two")
        with refused(to(handle)):
            await handle.signal(word, "b", id="one")
        with refused(to(handle, "two")):
            await handle.signal(word, "a", id="two")
    await run.signal(end, 1)
    await run.result(60)
    with refused(to(run)):
        await run.signal(word, "b", id="one")


async def test_a_value_that_is_written_in_another_way_is_the_same(engine: Engine) -> None:
    run = await engine.start(ordered())
    await run.signal(order, Order(1), id="one")
    assert await run.result(60) == 1
    encode = JsonCodec.encode
    with pytest.MonkeyPatch.context() as patched:
        # As a codec does that encrypts.
        patched.setattr(
            JsonCodec, "encode", lambda codec, value: encode(codec, value).replace(b":", b" : ")
        )
        await run.signal(order, Order(1), id="one")
    with refused(to(run, name=order.name)):
        await run.signal(order, Order(1, "urgent"), id="one")


async def test_a_value_that_was_erased_is_not_compared(engine: Engine) -> None:
    run = await engine.start(resent_to())
    await run.signal(word, "first", id="one")
    await run.signal(end, 1)
    await run.result(60)
    assert await store_of(engine).erase_payloads(run.run_id, 0, 100)
    await run.signal(word, "second", id="one")


async def test_without_an_id_nothing_is_asked_and_with_one_once(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, asked = store_of(engine), []
    real_sent, real_entries = store.sent_before, store.entries

    async def sent_before(*values: Any) -> Any:
        asked.append("sent_before")
        return await real_sent(*values)

    async def entries(*values: Any) -> Any:
        asked.append("entries")
        return await real_entries(*values)

    run = await engine.start(resent_to())
    with monkeypatch.context() as patched:
        patched.setattr(store, "sent_before", sent_before)
        patched.setattr(store, "entries", entries)
        await run.signal(word, "first")
        assert asked == []
        await run.signal(end, 1, id="new")
        assert asked == ["sent_before"]
    await run.result(60)


async def test_transaction_compares_with_its_own_and_with_committed_signals(
    engine: Engine,
) -> None:
    taken, waiting = await engine.start(resent_to()), await engine.start(resent_to())
    await taken.signal(word, "first", id="one")
    await until_recorded(engine, taken, e.SignalReceived)
    async with engine.transaction():
        born = await engine.start(resent_to())
        await taken.signal(word, "first", id="one")
        with refused(to(taken)):
            await taken.signal(word, "second", id="one")
        for run in (waiting, born):
            await run.signal(word, "first", id="one")
            await run.signal(word, "first", id="one")
            with refused(to(run)):
                await run.signal(word, "second", id="one")
    for run in (taken, waiting, born):
        await run.signal(end, 1)
        assert await run.result(60) == ["first"]


@pytest.mark.postgres
async def test_in_a_transaction_of_the_users_own_it_is_the_same(emptied_postgres: str) -> None:
    async with Engine(emptied_postgres) as engine:
        run = await engine.start(resent_to())
        connection = await asyncpg.connect(emptied_postgres)
        async with connection.transaction(), engine.transaction(connection=connection):
            await run.signal(word, "first", id="one")
            await run.signal(word, "first", id="one")
            with refused(to(run)):
                await run.signal(word, "second", id="one")
        await connection.close()
        with refused(to(run)):
            await run.signal(word, "second", id="one")
        await run.signal(end, 1)
        assert await run.result(60) == ["first"]


async def test_another_answer_to_a_step_is_refused(engine: Engine) -> None:
    run = await started(engine, asking("asking"), who="Ada")
    await until_asked(engine, run)
    await run.respond("ask", "wait", code=202, id="first")
    await until_recorded(engine, run, e.SignalReceived)
    await run.respond("ask", "wait", code=202, id="first")
    for value, code in (("wait", 200), ("later", 202)):
        with pytest.raises(SignalReused, match="an answer with id 'first' to step 'ask"):
            await run.respond("ask", value, code=code, id="first")
    await run.respond("ask", 42)
    assert await run.result(60) == 42


@pytest.mark.parametrize("is_joined", [False, True])
async def test_another_signal_to_a_topic_is_refused_while_the_first_waits(
    engine: Engine, is_joined: bool
) -> None:
    async def send() -> None:
        await engine.send("topic", {"k": 1}, "first", id="one")
        await engine.send("topic", {"k": 1}, "first", id="one")
        with refused("signal to topic 'topic' and key {'k': 1} with id 'one'"):
            await engine.send("topic", {"k": 1}, "second", id="one")
        await engine.send("topic", {"k": 2}, "second", id="one")

    if is_joined:
        async with engine.transaction():
            await send()
    else:
        await send()


def test_the_sync_engine_refuses_it_too() -> None:
    with SyncEngine("sqlite:///:memory:") as engine:
        run = engine.start(resent_to())
        run.signal(word, "first", id="one")
        with pytest.raises(SignalReused):
            run.signal(word, "second", id="one")
        run.signal(end, 1)
        assert run.result(60) == ["first"]
