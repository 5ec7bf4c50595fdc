"""Signals: buffered, in order, once each, typed at both ends."""

from dataclasses import dataclass

import pytest

import perdure
from perdure import Engine, RunClosed, RunStatus, Signal, UnknownRun, task, workflow
from perdure.core.errors import NotDecodable
from perdure.core.ids import RunId, new_run_id
from perdure.core.journal import events as e
from perdure.core.messages import Message
from perdure.core.replay.identity import signal_guid
from perdure.store.commit.bundle import Bundle
from tests.client.engines import (
    ALWAYS_REPLAY,
    journal,
    opened,
    recorded,
    store_of,
    until_recorded,
    until_status,
    until_store,
)

number = Signal("number", int)
word = Signal("word", str)


async def test_signals_wait_for_the_run_in_the_order_in_which_they_were_sent(
    engine: Engine,
) -> None:
    @workflow
    async def collecting() -> list[int]:
        await perdure.sleep(0.1)
        return [await number.receive() for _ in range(4)]

    run = await engine.start(collecting())
    for value in (3, 1, 4, 1):
        await run.signal(number, value)
    assert await run.result(60) == [3, 1, 4, 1]


async def test_a_run_waits_for_a_signal(engine: Engine) -> None:
    @workflow
    async def asking() -> str:
        return await word.receive()

    run = await engine.start(asking())
    await until_status(run, RunStatus.BLOCKED)
    await run.signal(word, "hello")
    assert await run.result(60) == "hello"


async def test_signals_of_different_names_are_kept_apart(engine: Engine) -> None:
    @workflow
    async def asking() -> tuple[str, int]:
        return await word.receive(), await number.receive()

    run = await engine.start(asking())
    await run.signal(number, 7)
    await run.signal(word, "seven")
    assert await run.result(60) == ("seven", 7)


async def test_a_signal_that_does_not_come_in_time_raises_timeout_error(engine: Engine) -> None:
    @workflow
    async def asking() -> str:
        try:
            return await word.receive(timeout=0.05)
        except TimeoutError as error:
            return str(error)

    run = await engine.start(asking())
    assert await run.result(60) == "no signal 'word' within 0.05 s"


async def test_a_signal_that_comes_in_time_cancels_the_timer(engine: Engine) -> None:
    @workflow
    async def asking() -> str:
        said = await word.receive(timeout=3600)
        await perdure.sleep(0.01)
        return said

    run = await engine.start(asking())
    await run.signal(word, "in time")
    assert await run.result(60) == "in time"
    (skipped,) = await recorded(engine, run, e.StepSkipped)
    assert (skipped.promise_id, skipped.reason) == ("root.1", "cancelled")
    assert await store_of(engine).messages(run.run_id) == []


async def test_a_signal_that_is_there_already_needs_no_timer(engine: Engine) -> None:
    @workflow
    async def asking() -> str:
        await number.receive()
        return await word.receive(timeout=3600)

    run = await engine.start(asking())
    await run.signal(word, "early")
    await run.signal(number, 1)
    assert await run.result(60) == "early"
    assert await recorded(engine, run, e.TimerScheduled) == []


async def test_late_signal_is_kept_for_the_next_wait(
    engine: Engine,
) -> None:
    @workflow
    async def asking() -> str:
        try:
            return await word.receive(timeout=0.02)
        except TimeoutError:
            return "late: " + await word.receive()

    run = await engine.start(asking())
    await until_recorded(engine, run, e.TimerFired)
    await run.signal(word, "here")
    assert await run.result(60) == "late: here"


async def test_two_signals_with_the_same_id_are_one(engine: Engine) -> None:
    @workflow
    async def collecting() -> list[int]:
        got = [await number.receive(), await number.receive()]
        await word.receive()
        return got

    run = await engine.start(collecting())
    await run.signal(number, 1, id="one")
    await until_recorded(engine, run, e.SignalReceived)
    await run.signal(number, 1, id="one")
    await run.signal(number, 2, id="two")
    await run.signal(word, "enough")
    assert await run.result(60) == [1, 2]
    assert len(await recorded(engine, run, e.SignalDelivered)) == 3


async def test_a_signal_that_comes_again_is_put_aside_though_the_run_is_not_in_memory(
    engine_url: str,
) -> None:
    @workflow
    async def collecting() -> None:
        await number.receive()
        await word.receive()

    async with opened(engine_url, ALWAYS_REPLAY) as engine:
        run = await engine.start(collecting())
        await run.signal(number, 1, id="one")
        await until_recorded(engine, run, e.SignalReceived)
        # As from a sender that looked whether it was taken in, just before it was.
        again, run_id = Bundle(), RunId(run.run_id)
        guid = signal_guid(run_id, number.name, "id:one")
        again.enqueue(Message(run_id, guid, f"signal:{number.name}", 0, 0, payload=b"1"))
        await store_of(engine).commit(again)

        async def is_put_aside() -> bool:
            return [state for _, state, _ in await store_of(engine).messages(run.run_id)] == [
                "stale"
            ]

        await until_store(is_put_aside)
        await run.signal(word, "enough")
        await run.result(60)


async def test_signals_go_to_the_branches_in_the_order_in_which_these_asked(
    engine: Engine,
) -> None:
    @workflow
    async def sharing() -> list[str]:
        async def branch(name: str) -> str:
            return f"{name} {await number.receive()}"

        return list(await perdure.gather(branch("first"), branch("second"), branch("third")))

    run = await engine.start(sharing())
    for value in (1, 2, 3):
        await run.signal(number, value)
    assert await run.result(60) == ["first 1", "second 2", "third 3"]


async def test_a_branch_that_gave_up_takes_no_signal(engine: Engine) -> None:
    @workflow
    async def racing() -> str:
        async def hasty() -> str:
            return await word.receive(timeout=0.02)

        async def patient() -> str:
            return await word.receive()

        given_up, got = await perdure.gather(hasty(), patient(), return_exceptions=True)
        return f"{type(given_up).__name__}, {got}"

    run = await engine.start(racing())
    await until_recorded(engine, run, e.TimerFired)
    await run.signal(word, "for the patient")
    assert await run.result(60) == "TimeoutError, for the patient"


async def test_gather_takes_signals_and_timed_signals(engine: Engine) -> None:
    @workflow
    async def gathering() -> tuple[int, str, None]:
        return await perdure.gather(number.receive(), word.receive(timeout=60), perdure.sleep(0.01))

    run = await engine.start(gathering())
    await run.signal(word, "a")
    await run.signal(number, 1)
    assert await run.result(60) == (1, "a", None)


@dataclass
class Order:
    item: str
    count: int


orders = Signal("orders", Order)


async def test_a_signal_arrives_as_its_type(engine: Engine) -> None:
    @workflow
    async def ordering() -> str:
        order = await orders.receive()
        return f"{order.count} {order.item}"

    run = await engine.start(ordering())
    await run.signal(orders, Order("pears", 3))
    assert await run.result(60) == "3 pears"


async def test_a_signal_of_another_type_fails_where_it_is_received(engine: Engine) -> None:
    @workflow
    async def asking() -> int:
        return await number.receive()

    run = await engine.start(asking())
    await run.signal(Signal("number", str), "not a number")
    with pytest.raises(NotDecodable):
        await run.result(60)


async def test_a_signal_to_a_run_that_is_over_is_refused(engine: Engine) -> None:
    @workflow
    async def short() -> None:
        pass

    run = await engine.start(short())
    await run.result(60)
    with pytest.raises(RunClosed):
        await run.signal(word, "too late")


async def test_a_signal_may_be_sent_again_when_the_run_that_took_it_is_over(
    engine: Engine,
) -> None:
    @workflow
    async def taking_one() -> str:
        return await word.receive()

    run = await engine.start(taking_one())
    await run.signal(word, "once", id="1")
    assert await run.result(60) == "once"
    await run.signal(word, "once", id="1")
    for unknown in ("2", None):
        with pytest.raises(RunClosed):
            await run.signal(word, "never taken", id=unknown)


async def test_a_signal_to_a_run_that_does_not_exist_is_refused(engine: Engine) -> None:
    stranger = engine.handle(new_run_id(1, bytes(10)))
    with pytest.raises(UnknownRun):
        await stranger.signal(word, "anybody")


async def test_a_signal_sent_by_another_engine_reaches_the_run(shared_url: str) -> None:
    @workflow
    async def asking() -> str:
        return await word.receive()

    async with opened(shared_url) as owner, opened(shared_url) as other:
        run = await owner.start(asking())
        await other.handle(run.run_id).signal(word, "from afar")
        assert await run.result(60) == "from afar"


async def test_a_signal_that_was_sent_while_no_engine_was_open_is_kept(shared_url: str) -> None:
    @task
    async def shout(said: str) -> str:
        return said.upper()

    @workflow
    async def asking() -> str:
        return await shout(await word.receive())

    async with opened(shared_url) as engine:
        run = await engine.start(asking())
        await until_status(run, RunStatus.BLOCKED)
        await run.signal(word, "kept")
    async with opened(shared_url) as engine:
        assert await engine.handle(run.run_id).result(60) == "KEPT"


async def test_a_received_signal_is_in_the_journal_once_delivered_and_once_received(
    engine: Engine,
) -> None:
    @workflow
    async def asking() -> str:
        return await word.receive()

    run = await engine.start(asking())
    await run.signal(word, "hello")
    await run.result(60)
    kinds = [
        type(event).__name__
        for event in await journal(engine, run)
        if isinstance(event, e.SignalDelivered | e.SignalReceived)
    ]
    assert kinds == ["SignalDelivered", "SignalReceived"]
