"""Resources: made when a task first asks, shared by all tasks of an engine, closed when the engine closes."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure import Engine, InputError, Retry, SyncEngine, task, workflow
from perdure.core.errors import OutsideRun
from tests.client.engines import assert_sound


class Client:
    def __init__(self, name: str = "client") -> None:
        self.name = name
        self.is_open = True


class Model:
    pass


@task(name="resourced.used")
async def used(n: int) -> str:
    client = await perdure.resource(Client)
    assert client.is_open
    return f"{n} by {client.name} {id(client)}"


@task(name="resourced.used_in_a_thread")
def used_in_a_thread() -> str:
    return perdure.resource(Client).wait().name


@workflow(name="resourced.using")
async def using(count: int) -> list[str]:
    return list(await perdure.gather(*(used(1) for _ in range(count)), used_in_a_thread()))


class Maker:
    """Makes clients in each way, and counts."""

    def __init__(self) -> None:
        self.events: list[str] = []

    def plain(self) -> Client:
        self.events.append("open")
        return Client()

    async def awaited(self) -> Client:
        await asyncio.sleep(0)
        return self.plain()

    @contextmanager
    def context(self) -> Iterator[Client]:
        client = self.plain()
        yield client
        self._close(client)

    @asynccontextmanager
    async def async_context(self) -> AsyncIterator[Client]:
        client = self.plain()
        task_of_opening = asyncio.current_task()
        yield client
        # Cancel scopes of anyio demand it.
        assert asyncio.current_task() is task_of_opening
        self._close(client)

    def _close(self, client: Client) -> None:
        client.is_open = False
        self.events.append("close")


@pytest.mark.parametrize("way", ["plain", "awaited", "context", "async_context"])
async def test_a_resource_is_made_once_and_closed_at_the_end(way: str, shared_url: str) -> None:
    maker = Maker()
    async with Engine(shared_url, resources={Client: getattr(maker, way)}) as engine:
        assert maker.events == []
        *many, one = await (await engine.start(using(5))).result(60)
        assert len(set(many)) == 1
        assert one == "client"
        assert maker.events == ["open"]
        await assert_sound(engine)
    assert maker.events == (["open", "close"] if "context" in way else ["open"])


async def test_resources_are_closed_in_the_reverse_order(tmp_path: Path) -> None:
    closed: list[str] = []

    @contextmanager
    def kept(name: str, value: Any) -> Iterator[Any]:
        yield value
        closed.append(name)

    @task
    async def both() -> None:
        await perdure.resource(Client)
        await perdure.resource(Model)

    @workflow
    async def running() -> None:
        await both()

    resources = {
        Client: lambda: kept("client", Client()),
        Model: lambda: kept("model", Model()),
    }
    async with Engine(f"sqlite:///{tmp_path}/a.db", resources=resources) as engine:
        await (await engine.start(running())).result(60)
    assert closed == ["model", "client"]


async def test_a_resource_that_fails_fails_the_attempt_and_is_made_again(tmp_path: Path) -> None:
    tries = iter(range(9))

    def make() -> Client:
        if next(tries) == 0:
            raise ConnectionError("not yet")
        return Client("second")

    @task(retry=Retry(attempts=2, first=0.001))
    async def named() -> str:
        return (await perdure.resource(Client)).name

    @workflow
    async def naming() -> str:
        return await named()

    async with Engine(f"sqlite:///{tmp_path}/a.db", resources={Client: make}) as engine:
        assert await (await engine.start(naming())).result(60) == "second"


async def test_a_cancelled_attempt_leaves_the_resource_to_others(tmp_path: Path) -> None:
    may_open = asyncio.Event()
    is_asked = asyncio.Event()

    async def make() -> Client:
        is_asked.set()
        await may_open.wait()
        return Client()

    async with Engine(f"sqlite:///{tmp_path}/a.db", resources={Client: make}) as engine:
        first = await engine.start(using(1))
        await is_asked.wait()
        await first.cancel("not needed")
        second = await engine.start(using(1))
        may_open.set()
        assert (await second.result(60))[-1] == "client"


async def test_an_unknown_resource_and_a_wrong_place_are_refused(tmp_path: Path) -> None:
    @workflow
    async def in_a_workflow() -> None:
        await perdure.resource(Client)

    async with Engine(f"sqlite:///{tmp_path}/a.db") as engine:
        with pytest.raises(InputError, match="no resource 'Client'"):
            await (await engine.start(using(0))).result(60)
        with pytest.raises(OutsideRun, match="in a workflow"):
            await (await engine.start(in_a_workflow())).result(60)
    with pytest.raises(OutsideRun):
        await perdure.resource(Client)
    for wrong in ([Client], {"Client": Client}, {Client: 5}):
        with pytest.raises(InputError, match="resources"):
            Engine("sqlite:///:memory:", resources=wrong)  # type: ignore[arg-type]


def test_sync_engines_have_resources(tmp_path: Path) -> None:
    maker = Maker()
    with SyncEngine(
        f"sqlite:///{tmp_path}/a.db", resources={Client: maker.async_context}
    ) as engine:
        assert engine.start(using(1)).result(60)[-1] == "client"
    assert maker.events == ["open", "close"]


async def test_a_resource_that_can_not_be_closed_is_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    @contextmanager
    def stubborn() -> Iterator[Client]:
        yield Client()
        raise ConnectionError("stuck")

    async with Engine(f"sqlite:///{tmp_path}/a.db", resources={Client: stubborn}) as engine:
        await (await engine.start(using(1))).result(60)
    assert "closing resource 'Client' failed" in caplog.text
