"""Requests: typed at both ends, answered once, asked for again by id, from any process."""

import asyncio
from dataclasses import dataclass

import pytest

import perdure
from perdure import (
    Engine,
    InputError,
    NotCommitted,
    Request,
    RequestRejected,
    RequestUnanswered,
    RunCancelled,
    RunClosed,
    RunDiverged,
    RunStatus,
    Signal,
    SignalReused,
    SyncEngine,
    task,
    workflow,
)
from perdure.core.answers import answer_stream
from perdure.core.errors import NotEncodable
from perdure.core.journal import events as e
from tests.client.engines import (
    journal,
    killed,
    opened,
    recorded,
    store_of,
    until_recorded,
    until_status,
)


@dataclass
class Address:
    street: str


@dataclass
class Receipt:
    number: int
    address: Address


change = Request("change_address", Address, Receipt)
close = Signal("close", bool)


@workflow
async def order() -> int:
    """Answers until it is closed."""
    changes = 0
    while True:
        got = await perdure.first(change.receive(), close.receive())
        if isinstance(got, bool):
            return changes
        if got.value.street == "moon":
            await got.reject("too far")
        else:
            changes += 1
            await got.reply(Receipt(changes, got.value))


@workflow
async def deaf() -> None:
    await close.receive()


async def test_a_request_gets_a_typed_reply_or_a_rejection(engine: Engine) -> None:
    run = await engine.start(order())
    assert await run.ask(change, Address("main")) == Receipt(1, Address("main"))
    with pytest.raises(RequestRejected, match="change_address") as caught:
        await run.ask(change, Address("moon"))
    assert caught.value.reason == "too far"
    assert await run.ask(change, Address("side"), timeout=60) == Receipt(2, Address("side"))
    await run.signal(close, True)
    assert await run.result(60) == 2


async def test_requests_with_the_same_id_are_one(engine: Engine) -> None:
    run = await engine.start(order())
    asked = [run.ask(change, Address("main"), id="a", timeout=60) for _ in range(3)]
    assert await asyncio.gather(*asked) == [Receipt(1, Address("main"))] * 3
    with pytest.raises(SignalReused, match="'a'"):
        await run.ask(change, Address("side"), id="a")
    await run.signal(close, True)
    assert await run.result(60) == 1
    assert await run.ask(change, Address("main"), id="a") == Receipt(1, Address("main"))
    with pytest.raises(RunClosed):
        await run.ask(change, Address("main"), id="b")
    await engine.retention.erase(run.run_id)
    with pytest.raises(InputError, match="was erased"):
        await run.ask(change, Address("main"), id="a")


async def test_a_reply_can_be_asked_for_again_after_a_timeout(shared_url: str) -> None:
    async with opened(shared_url) as engine:
        run = await engine.start(order())
        await run.pause("for a while")
        await until_status(run, RunStatus.PAUSED)
        with pytest.raises(TimeoutError, match=r"with id 'a'.*ask again with the same id"):
            await run.ask(change, Address("main"), id="a", timeout=0.05)
        with pytest.raises(TimeoutError):
            await run.ask(change, Address("main"), id="a", timeout=0)
        again = asyncio.ensure_future(run.ask(change, Address("main"), id="a", timeout=60))
        await run.resume()
        assert await again == Receipt(1, Address("main"))


async def test_another_process_asks_without_hosting_anything(shared_url: str) -> None:
    async with opened(shared_url) as engine:
        run = await engine.start(order())
        async with Engine(shared_url, hosts=False) as front_end:
            handle = front_end.handle(run.run_id)
            assert await handle.ask(change, Address("main"), timeout=60) == Receipt(
                1, Address("main")
            )


async def test_a_request_survives_the_death_of_the_host(shared_url: str) -> None:
    async with killed(shared_url) as first:
        run = await first.start(order())
        await until_status(run, RunStatus.BLOCKED)
    async with Engine(shared_url, hosts=False) as front_end:
        asking = front_end.handle(run.run_id).ask(change, Address("main"), id="a", timeout=60)
        waiting = asyncio.ensure_future(asking)
        async with opened(shared_url) as second:
            assert await waiting == Receipt(1, Address("main"))
            assert await second.handle(run.run_id).ask(change, Address("main"), id="a") == Receipt(
                1, Address("main")
            )


def test_sync_code_asks(shared_url: str) -> None:
    with SyncEngine(shared_url) as engine:
        run = engine.start(order())
        assert run.ask(change, Address("main"), timeout=60) == Receipt(1, Address("main"))
        with pytest.raises(RequestRejected):
            run.ask(change, Address("moon"), id="b", timeout=60)


async def test_a_run_that_ends_without_an_answer_says_so(engine: Engine) -> None:
    run = await engine.start(deaf())
    asking = asyncio.ensure_future(run.ask(change, Address("main"), id="a"))
    await until_recorded(engine, run, e.SignalDelivered)
    await run.signal(close, True)
    with pytest.raises(RequestUnanswered, match="completed"):
        await asking
    with pytest.raises(RequestUnanswered, match="completed"):
        await run.ask(change, Address("main"), id="a")


async def test_a_cancelled_run_may_still_answer(engine: Engine) -> None:
    @workflow
    async def tidying() -> None:
        ask = await change.receive()
        try:
            await close.receive()
        finally:
            await ask.reject("cancelled")

    run = await engine.start(tidying())
    asking = asyncio.ensure_future(run.ask(change, Address("main")))
    await until_recorded(engine, run, e.SignalReceived)
    await run.cancel("enough")
    with pytest.raises(RequestRejected, match="cancelled"):
        await asking
    with pytest.raises(RunCancelled):
        await run.result(60)


async def test_a_chain_answers_in_whichever_run(engine: Engine) -> None:
    @workflow
    async def turns(turn: int) -> int:
        ask = await change.receive()
        await ask.reply(Receipt(turn, ask.value))
        if turn == 3:
            return turn
        return await perdure.continue_as_new(turns(turn + 1))

    run = await engine.start(turns(1))
    for turn in (1, 2, 3):
        assert (await run.ask(change, Address("main"), id=str(turn))).number == turn
    assert await run.result(60) == 3
    for turn in (1, 2, 3):
        assert (await run.ask(change, Address("main"), id=str(turn))).number == turn


async def test_a_run_does_not_continue_as_new_while_it_owes_an_answer(engine: Engine) -> None:
    @workflow
    async def forgetful() -> str:
        ask = await change.receive()
        try:
            return await perdure.continue_as_new(forgetful())
        except InputError as error:
            await ask.reject("forgotten")
            return str(error)

    run = await engine.start(forgetful())
    with pytest.raises(RequestRejected):
        await run.ask(change, Address("main"))
    assert "'change_address' has no answer: reply to it or reject it first" in await run.result(60)


async def test_a_request_is_answered_once(engine: Engine) -> None:
    @workflow
    async def eager() -> str:
        ask = await change.receive()
        await ask.reply(Receipt(1, ask.value))
        try:
            await ask.reject("after all")
        except InputError as error:
            return str(error)
        return ""

    run = await engine.start(eager())
    assert (await run.ask(change, Address("main"))).number == 1
    assert "answered again" in await run.result(60)


async def test_wrong_values_and_replies_are_refused_before_they_are_stored(engine: Engine) -> None:
    anything: Request[object, object] = Request("anything", int, str)

    @workflow
    async def answering() -> str:
        ask = await anything.receive()
        try:
            await ask.reply(5)
        except InputError as error:
            await ask.reply("right")
            return str(error)
        return ""

    run = await engine.start(answering())
    with pytest.raises(InputError, match="signal 'anything'"):
        await run.ask(anything, "one")
    with pytest.raises(NotEncodable):
        await run.ask(anything, object())
    with pytest.raises(InputError, match="not a request"):
        await run.ask(close, True)  # type: ignore[arg-type]
    assert await run.ask(anything, 1) == "right"
    assert "the reply to request 'anything'" in await run.result(60)
    delivered = await recorded(engine, run, e.SignalDelivered)
    assert [each.payload for each in delivered] == [b"1"]


async def test_a_request_that_no_client_waits_for_is_a_signal(engine: Engine) -> None:
    run = await engine.start(order())
    await run.signal(change.signal, Address("main"), id="x")
    assert (await run.ask(change, Address("side"))).number == 2


async def test_a_receive_times_out(engine: Engine) -> None:
    @workflow
    async def waiting() -> str:
        try:
            await change.receive(timeout=0.01)
        except TimeoutError as error:
            return str(error)
        return ""

    assert await (await engine.start(waiting())).result(60) == (
        "no request 'change_address' within 0.01 s"
    )


async def test_a_parked_run_answers_once_its_code_is_back(shared_url: str) -> None:
    def register() -> perdure.Workflow[[], None]:
        @workflow(name="mended")
        async def right() -> None:
            ask = await change.receive()
            await ask.reply(Receipt(1, ask.value))

        return right

    async with opened(shared_url) as engine:
        run = await engine.start(register()())
        await until_status(run, RunStatus.BLOCKED)

    @workflow(name="mended")
    async def wrong() -> None:
        await perdure.sleep(1)

    async with Engine(shared_url) as engine:
        handle = engine.handle(run.run_id)
        await until_status(handle, RunStatus.DIVERGED)
        with pytest.raises(RunDiverged):
            await handle.ask(change, Address("main"), id="a", timeout=60)
    register()
    async with opened(shared_url) as engine:
        again = engine.handle(run.run_id)
        assert (await again.ask(change, Address("main"), id="a", timeout=60)).number == 1


async def test_tasks_and_transactions_do_not_answer_or_wait(shared_url: str) -> None:
    @task
    async def outside() -> None:
        await change.receive()

    @workflow
    async def calling() -> None:
        await outside()

    async with opened(shared_url) as engine:
        run = await engine.start(calling())
        with pytest.raises(InputError, match=r"Request\.receive is called in a task"):
            await run.result(60)
        other = await engine.start(order())
        async with engine.transaction():
            with pytest.raises(NotCommitted):
                await other.ask(change, Address("main"))


async def test_answers_are_one_chunk_each_and_their_names_are_reserved(engine: Engine) -> None:
    @workflow
    async def forging() -> str:
        try:
            perdure.stream("perdure.reply:m").append(1)
        except InputError as error:
            return str(error)
        return ""

    assert "are Perdure's" in await (await engine.start(forging())).result(60)
    run = await engine.start(order())
    await run.ask(change, Address("main"), id="a")
    await run.ask(change, Address("main"), id="a")
    (delivered,) = [
        event for event in await journal(engine, run) if isinstance(event, e.SignalDelivered)
    ]
    assert delivered.guid is not None
    name = answer_stream(delivered.guid, is_rejection=False)
    assert await store_of(engine).streams(run.run_id) == {name: 1}


async def test_what_a_person_should_see_is_shown_wherever_the_wait_is(shared_url: str) -> None:
    approval = Signal("approval", bool)

    @workflow(name="refund")
    async def refund(amount: int) -> bool:
        return await approval.receive(60, ask=f"Refund {amount} EUR?", who="finance")

    async with opened(shared_url) as engine:
        run = await engine.start(refund(120))
        await until_status(run, RunStatus.BLOCKED)
        async with Engine(shared_url, hosts=False) as front_end:
            handle = front_end.handle(run.run_id)
            (wait,) = (await handle.waits()).signals
            assert (wait.ask, wait.who) == ("Refund 120 EUR?", "finance")
            assert wait.schema == {"type": "boolean"}
            assert "asks finance: Refund 120 EUR?" in str(await handle.describe())
            explained = await handle.explain()
            assert "which asks finance: 'Refund 120 EUR?'" in explained.summary
        await run.signal(approval, True)
        assert await run.result(60) is True


async def test_a_changed_text_for_people_is_no_divergence(shared_url: str) -> None:
    approval = Signal("approval", bool)

    def version_of(text: str | None) -> perdure.Workflow[[], bool]:
        @workflow(name="worded")
        async def worded() -> bool:
            return await approval.receive(ask=text)

        return worded

    async with opened(shared_url) as engine:
        run = await engine.start(version_of("Refund?")())
        await until_status(run, RunStatus.BLOCKED)
    version_of(None)
    async with opened(shared_url) as engine:
        again = engine.handle(run.run_id)
        await again.signal(approval, True)
        assert await again.result(60) is True


async def test_who_without_what_is_refused(engine: Engine) -> None:
    @workflow
    async def rude() -> None:
        await close.receive(who="finance")

    with pytest.raises(InputError, match="without ask"):
        await (await engine.start(rude())).result(60)
