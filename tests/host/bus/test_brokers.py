"""Redis and NATS JetStream: what they get, that they survive a kill, and how they fail."""

import json
from typing import Any

import nats
import pytest
from redis.asyncio import Redis

from perdure import Engine, task, workflow
from perdure.core.errors import BusRefused, BusUnavailable
from perdure.host.bus.bus import EventBus
from perdure.host.bus.jet_stream import JetStream
from perdure.host.bus.redis_stream import RedisStream
from perdure.store.bus_table import BusCounts
from tests.brokers import Broker, running
from tests.client.engines import assert_sound, store_of, until_store
from tests.host.bus.events import RUN, contract_event

STEPS = 5


@task(name="brokered.pack")
async def pack(n: int) -> int:
    return n


@workflow(name="brokered.parcels")
async def parcels(steps: int) -> int:
    for n in range(steps):
        await pack(n)
    return steps


class RedisHere:
    """A bus on a real server, and what its stream holds."""

    name = "redis-server"

    def __init__(self, broker: Broker) -> None:
        self._url = broker.url
        self.bus: EventBus = RedisStream(broker.url, stream="events", timeout=5)

    async def prepare(self) -> None:
        pass

    async def got(self) -> list[tuple[str, dict[str, Any]]]:
        async with Redis.from_url(self._url) as client:
            rows: Any = await client.xrange("events")
        return [(fields[b"id"].decode(), json.loads(fields[b"event"])) for _, fields in rows]


class NatsHere:
    name = "nats-server"

    def __init__(self, broker: Broker) -> None:
        self._url = broker.url
        self.bus: EventBus = JetStream(broker.url, subject="events", timeout=5)

    async def prepare(self) -> None:
        client = await nats.connect(self._url)
        await client.jetstream().add_stream(name="EVENTS", subjects=["events.>"])
        await client.close()

    async def got(self) -> list[tuple[str, dict[str, Any]]]:
        client = await nats.connect(self._url)
        stream = client.jetstream()
        count = (await stream.stream_info("EVENTS")).state.messages
        messages = [await stream.get_msg("EVENTS", seq) for seq in range(1, count + 1)]
        await client.close()
        return [
            ((each.headers or {})["Nats-Msg-Id"], json.loads(each.data or b"")) for each in messages
        ]


@pytest.fixture(params=[RedisHere, NatsHere], ids=["redis", "nats"])
def here(request: pytest.FixtureRequest) -> Any:
    return request.param


async def test_events_of_a_run_are_in_the_stream_in_order(here: Any) -> None:
    with running(here.name) as broker:
        place = here(broker)
        await place.prepare()
        async with Engine("sqlite:///:memory:", buses=[place.bus]) as engine:
            run = await engine.start(parcels(STEPS))
            await run.result()
            events = [event async for event in run.history()]
            await assert_sound(engine)
        got = await place.got()
        assert [identity for identity, _ in got] == [event.event_id for event in events]
        assert [event["type"] for _, event in got] == [f"perdure.{event.type}" for event in events]
        assert [int(event["sequence"]) for _, event in got] == list(range(len(events)))


async def test_a_server_that_is_killed_costs_only_lag(here: Any) -> None:
    with running(here.name) as broker:
        place = here(broker)
        await place.prepare()
        async with Engine("sqlite:///:memory:", buses=[place.bus]) as engine:
            await (await engine.start(parcels(1))).result()
            broker.kill()
            run = await engine.start(parcels(STEPS))
            await run.result()
            events = [event async for event in run.history()]

            async def is_down() -> bool:
                (bus,) = await store_of(engine).buses.all()
                return bus.down_since_ms is not None

            await until_store(is_down)
            broker.start()

            async def has_all() -> bool:
                counts: BusCounts = await store_of(engine).buses.counts(place.bus.name)
                return counts.behind == 0

            async def took_all() -> bool:
                return await has_all() and not await is_down()

            await until_store(took_all)
            await assert_sound(engine)
        got = [event for _, event in await place.got() if event["subject"] == run.run_id]
        firsts = list(dict.fromkeys(int(event["sequence"]) for event in got))
        assert firsts == list(range(len(events)))


async def test_a_server_that_does_not_answer_is_unavailable(here: Any) -> None:
    with running(here.name) as broker:
        place = here(broker)
        broker.kill()
        with pytest.raises(BusUnavailable):
            await place.bus.publish(contract_event())
        await place.bus.close()


async def test_redis_refuses_what_is_no_stream() -> None:
    with running("redis-server") as broker:
        place = RedisHere(broker)
        async with Redis.from_url(broker.url) as client:
            await client.set("events", "a text")
        with pytest.raises(BusRefused, match="WRONGTYPE"):
            await place.bus.publish(contract_event())
        await place.bus.close()


async def test_nats_drops_the_second_of_two_equal_events() -> None:
    with running("nats-server") as broker:
        place = NatsHere(broker)
        with pytest.raises(BusUnavailable, match="stream"):
            await place.bus.publish(contract_event())  # no stream takes the subject
        await place.prepare()
        for seq in (3, 3, 4):
            await place.bus.publish(contract_event(seq))
        await place.bus.close()
        assert [event["subject"] for _, event in await place.got()] == [RUN, RUN]
