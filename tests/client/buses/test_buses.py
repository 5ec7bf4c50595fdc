"""Event buses of an engine: what they get, from which runs, and what happens to what they refuse."""

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure import (
    Alert,
    BusRefused,
    BusUnavailable,
    ContractEvent,
    Engine,
    EventBus,
    Handle,
    InputError,
    Subscriber,
    SyncEngine,
    UnknownBus,
    task,
    workflow,
)
from perdure.testing.probe import Probe
from perdure.testing.virtual_clock import simulated
from tests.client.engines import assert_sound, store_of, until, until_store
from tests.store.builders import raw

HOUR = 3600


@task(name="bussed.pay")
async def pay(amount: int) -> int:
    return amount


@workflow(name="bussed.order")
async def order(amount: int) -> int:
    perdure.tag(size="large" if amount > 10 else "small")
    return await pay(amount)


approval = perdure.Signal("approval", str)


@workflow(name="bussed.approved")
async def approved() -> str:
    return await approval.receive()


@workflow(name="bussed.parent")
async def parent() -> int:
    return await order(1)


@workflow(name="bussed.turning")
async def turning(n: int) -> int:
    if n:
        await perdure.continue_as_new(turning(n - 1))
    return n


class Bus(EventBus):
    """Records what it gets; `answer` may raise for an event."""

    def __init__(self, name: str = "bus", **options: Any) -> None:
        super().__init__(name, options)  # type: ignore[arg-type]
        self.got: list[ContractEvent] = []
        self.answer: Callable[[ContractEvent], None] = lambda _: None
        self.is_closed = False

    async def publish(self, event: ContractEvent) -> None:
        self.answer(event)
        self.got.append(event)

    async def close(self) -> None:
        self.is_closed = True

    def of(self, run: Handle[Any]) -> list[int]:
        return [event.seq for event in self.got if event.run_id == run.run_id]


async def no_marks(engine: Engine) -> bool:
    return not await raw(store_of(engine), "SELECT run_id FROM {}publication")


async def test_a_bus_gets_all_events_of_a_run_in_order_and_no_mark_is_left(engine_url: str) -> None:
    bus = Bus()
    async with Engine(engine_url, buses=[bus]) as engine:
        run = await engine.start(parent())
        await run.result()
        history = [event async for event in run.history()]
        child = await engine.runs(program=order.name)
        await until_store(lambda: no_marks(engine))
        await assert_sound(engine)
    assert [event for event in bus.got if event.run_id == run.run_id] == history
    assert {event.run_id for event in bus.got} == {run.run_id, child.runs[0].run_id}
    assert bus.is_closed


async def test_filters_by_type_program_and_tag(engine_url: str) -> None:
    ends = Bus("ends", types=["RunCompleted"])
    orders = Bus("orders", programs=[order], types=["RunStarted"])
    large = Bus("large", tags={"size": "large"}, types=["RunCompleted"])
    async with Engine(engine_url, buses=[ends, orders, large]) as engine:
        small = await engine.start(order(1))
        big = await engine.start(order(11))
        other = await engine.start(turning(0))
        for run in (small, big, other):
            await run.result()
        await until_store(lambda: no_marks(engine))
    assert {event.run_id for event in ends.got} == {small.run_id, big.run_id, other.run_id}
    assert {event.type for event in ends.got} == {"RunCompleted"}
    assert {event.run_id for event in orders.got} == {small.run_id, big.run_id}
    assert [event.run_id for event in large.got] == [big.run_id]


async def test_a_chain_is_published_run_by_run_with_its_offsets(engine_url: str) -> None:
    bus = Bus()
    async with Engine(engine_url, buses=[bus]) as engine:
        run = await engine.start(turning(2))
        await run.result()
        await until_store(lambda: no_marks(engine))
        history = [event async for event in run.history()]
    assert sorted(bus.got, key=lambda event: event.offset) == history


async def test_a_run_started_by_a_front_end_and_one_in_a_users_transaction_are_published(
    shared_url: str,
) -> None:
    bus = Bus(types=["RunCompleted"])
    async with Engine(shared_url, buses=[bus]) as engine, Engine(shared_url, hosts=False) as front:
        first = await front.start(order(1))
        async with front.transaction():
            second = await front.start(order(2))
        async with engine.transaction():
            third = await engine.start(order(3))
        await until(
            lambda: {e.run_id for e in bus.got} == {first.run_id, second.run_id, third.run_id}
        )


async def test_events_wait_in_the_store_while_no_engine_has_the_bus(shared_url: str) -> None:
    bus = Bus()
    async with Engine(shared_url, buses=[bus]) as engine:
        first = await engine.start(order(1))
        await first.result()
    async with Engine(shared_url) as engine:
        second = await engine.start(order(2))
        await second.result()
        info = await engine.buses.info("bus")
        assert (info.behind, info.state) == (1, "ok")
        assert info.lag >= 0
    assert bus.of(second) == []
    async with Engine(shared_url, buses=[bus]) as engine:
        await until_store(lambda: no_marks(engine))
        assert bus.of(second) == [event.seq async for event in second_history(engine, second)]
        assert (await engine.buses.info("bus")).behind == 0


def second_history(engine: Engine, run: Handle[Any]) -> Any:
    return engine.handle(run.run_id).history()


async def test_a_new_bus_gets_open_runs_from_where_they_are(shared_url: str) -> None:
    async with Engine(shared_url) as engine:
        run = await engine.start(approved())
        before = len([event async for event in run.history()])
    bus = Bus()
    async with Engine(shared_url, buses=[bus]) as engine:
        run = engine.handle(run.run_id)
        await run.signal(approval, "yes")
        await run.result()
        await until_store(lambda: no_marks(engine))
        history = [event.seq async for event in run.history()]
    assert bus.of(run) == history[before:]


async def test_a_bus_that_is_down_for_an_hour_costs_only_lag() -> None:
    bus, alerts, tries = Bus(), list[Alert](), 0

    def is_down(_: ContractEvent) -> None:
        nonlocal tries
        tries += 1
        raise BusUnavailable("no answer", "wait")

    engine = Engine("sqlite:///:memory:", buses=[bus], on_alert=alerts.append)
    async with simulated(engine) as clock:
        bus.answer = is_down
        runs = [await engine.start(order(n)) for n in range(5)]
        for run in runs:
            assert await clock.run(run.result()) is not None
        await clock.advance(HOUR)
        assert not bus.got
        info = await engine.buses.info("bus")
        assert (info.state, info.behind, info.error) == ("down", 5, "no answer")
        assert info.lag >= HOUR
        assert [alert.code for alert in alerts] == ["BUS_UNAVAILABLE"]
        assert 60 <= tries <= 500, "it was tried about once a minute"
        bus.answer = lambda _: None
        await clock.advance(60)
        for run in runs:
            assert bus.of(run) == [event.seq async for event in run.history()]
        info = await engine.buses.info("bus")
        assert (info.state, info.behind, info.dead_letters) == ("ok", 0, 0)
        assert await no_marks(engine)
        await assert_sound(engine)


async def test_a_refused_event_is_a_dead_letter_after_its_tries_and_the_relay_continues() -> None:
    bus, alerts, tries = Bus(tries=3), list[Alert](), list[int]()
    engine = Engine("sqlite:///:memory:", buses=[bus], on_alert=alerts.append)

    def refuses_one(event: ContractEvent) -> None:
        if event.type == "StepCompleted" and event.data.get("result") == 7:
            tries.append(event.seq)
            raise BusRefused("it is odd", "look")

    async with simulated(engine) as clock:
        bus.answer = refuses_one
        bad, good = await engine.start(order(7)), await engine.start(order(8))
        await clock.run(bad.result())
        await clock.advance(60)
        history = [event async for event in bad.history()]
        (odd,) = [event for event in history if event.type == "StepCompleted"]
        assert tries == [odd.seq] * 3
        assert bus.of(bad) == [event.seq for event in history if event is not odd]
        assert bus.of(good) == [event.seq async for event in good.history()]
        (letter,) = await engine.buses.dead_letters()
        assert (letter.bus, letter.run_id, letter.seq) == ("bus", bad.run_id, odd.seq)
        assert (letter.type, letter.reason, letter.tries) == ("StepCompleted", "it is odd", 3)
        (alert,) = alerts
        assert (alert.code, alert.run_id) == ("EVENT_DEAD_LETTERED", bad.run_id)

        # It is refused again, returns to the list, and is published once the bus takes it.
        assert await engine.buses.replay_letters([letter]) == 1
        assert await engine.buses.dead_letters() == []
        await clock.advance(60)
        (letter,) = await engine.buses.dead_letters(run=bad.run_id)
        bus.answer = lambda _: None
        await engine.buses.replay_letters([letter])
        await clock.advance(2)
        assert bus.got[-1] == odd
        assert await engine.buses.dead_letters() == []
        assert await no_marks(engine)


async def test_an_event_that_breaks_its_receiver_does_not_hold_up_the_others() -> None:
    """The receiver fails as if it were down, but only for one event: that one becomes a dead letter."""
    bus = Bus(tries=3, concurrency=1)
    engine = Engine("sqlite:///:memory:", buses=[bus])

    def breaks(event: ContractEvent) -> None:
        if event.data.get("result") == 7:
            raise ConnectionResetError("the receiver crashed")

    async with simulated(engine) as clock:
        bus.answer = breaks
        bad = await engine.start(order(7))
        await clock.run(bad.result())
        for n in range(20, 40):
            good = await engine.start(order(n))
            await clock.run(good.result())
            await clock.advance(120)
            assert bus.of(good) == [event.seq async for event in good.history()]
        letters = await engine.buses.dead_letters()
        assert {letter.run_id for letter in letters} == {bad.run_id}


async def test_events_are_published_again_by_run_and_by_time() -> None:
    bus = Bus()
    engine = Engine("sqlite:///:memory:", buses=[bus])
    async with simulated(engine) as clock:
        first = await engine.start(order(1))
        await clock.run(first.result())
        await clock.advance(HOUR)
        middle = clock.now
        second = await engine.start(order(2))
        await clock.run(second.result())
        await clock.advance(1)
        before = list(bus.got)
        bus.got.clear()
        assert await engine.buses.replay("bus", [first.run_id]) == 1
        await clock.advance(2)
        assert bus.got == [event for event in before if event.run_id == first.run_id]
        bus.got.clear()
        assert await engine.buses.replay("bus", since=middle, programs=["bussed.order"]) == 1
        await clock.advance(2)
        assert bus.got == [event for event in before if event.run_id == second.run_id]
        assert await engine.buses.replay("bus", until=middle) == 1
        assert await engine.buses.replay("bus", since=clock.now) == 0
        await clock.advance(2)
        assert await no_marks(engine)
        with pytest.raises(UnknownBus, match="it has bus"):
            await engine.buses.replay("other", [first.run_id])
        with pytest.raises(InputError, match="everything"):
            await engine.buses.replay("bus")


async def test_erased_payloads_are_published_as_erased() -> None:
    bus = Bus()
    engine = Engine("sqlite:///:memory:", buses=[bus])
    async with simulated(engine) as clock:
        run = await engine.start(order(4321))
        await clock.run(run.result())
        await store_of(engine).erase_payloads(run.run_id, 0, 100)
        bus.got.clear()
        await engine.buses.replay("bus", [run.run_id])
        await clock.advance(2)
        assert bus.of(run) == [event.seq async for event in run.history()]
        assert bus.got[0].data["erased"] is True
        assert "4321" not in repr([event.data for event in bus.got])


async def test_a_bus_can_be_removed(shared_url: str) -> None:
    async with Engine(shared_url, buses=[Bus()]):
        pass
    async with Engine(shared_url) as engine:
        (await engine.start(order(1)))
        await engine.buses.remove("bus")
        assert await engine.buses.all() == []
        assert await no_marks(engine)


async def test_subscribers_may_be_coroutine_functions_and_need_a_lasting_name() -> None:
    got: list[str] = []

    async def keep(event: ContractEvent) -> None:
        got.append(event.type)

    with pytest.raises(InputError, match="name"):
        Subscriber(keep)
    async with Engine(
        "sqlite:///:memory:", buses=[Subscriber(keep, name="keep", types=["RunCompleted"])]
    ) as engine:
        await (await engine.start(order(1))).result()
    assert got == ["RunCompleted"]


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"types": ["RunEnded"]}, "RunEnded"),
        ({"types": "RunCompleted"}, "RunCompleted"),
        ({"programs": []}, "programs"),
        ({"tries": 0}, "tries"),
        ({"timeout": 0}, "timeout"),
        ({"payloads": "no"}, "payloads"),
        ({"tags": {"a": None}}, "tag"),
        ({"name": "two words"}, "name"),
    ],
)
def test_wrong_options_are_refused(options: Any, what: str) -> None:
    with pytest.raises(InputError, match=what):
        Subscriber(print, **{"name": "log", **options})


def test_an_engine_takes_buses_with_different_names_only() -> None:
    for buses in ([Bus(), Bus()], [print], "bus"):
        with pytest.raises(InputError, match="bus"):
            Engine("sqlite:///:memory:", buses=buses)  # type: ignore[arg-type]


def test_buses_of_a_sync_engine(tmp_path: Path) -> None:
    bus = Bus()
    with SyncEngine(f"sqlite:///{tmp_path}/sync.db", buses=[bus]) as engine:
        run = engine.start(order(1))
        run.result()
        assert [info.name for info in engine.buses.all()] == ["bus"]
        assert engine.buses.info("bus").since <= datetime.now(UTC)
        assert engine.buses.replay("bus", [run.run_id]) == 1
        assert engine.buses.dead_letters() == []
        assert engine.buses.replay_letters([]) == engine.buses.drop_letters([]) == 0
    assert "RunCompleted" in {str(event.type) for event in bus.got}


async def test_an_engine_that_is_killed_loses_no_event(shared_url: str) -> None:
    bus = Bus()
    dead = Engine(shared_url, buses=[bus])
    await dead.open()
    bus.answer = lambda _: (_ for _ in ()).throw(BusUnavailable("not yet", "wait"))
    run = await dead.start(order(5))
    await run.result()
    await Probe(dead).abort()
    bus.answer = lambda _: None
    async with Engine(shared_url, buses=[bus]) as engine:
        await raw(store_of(engine), "UPDATE {}publication SET lease_until_ms = 0")
        await until_store(lambda: no_marks(engine))
        assert bus.of(run) == [event.seq async for event in second_history(engine, run)]
        await assert_sound(engine)
