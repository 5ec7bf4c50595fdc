"""Start keys: a taken key is found before the workflow is driven."""

import asyncio
from typing import Any

import pytest

from perdure import Engine, KeyReused, workflow
from tests.client.engines import opened, store_of

DRIVEN: list[int] = []


@workflow(name="keys.counted", lint="off")
async def counted(number: int) -> int:
    DRIVEN.append(number)
    return number


@pytest.fixture(autouse=True)
def _nothing_driven() -> None:
    DRIVEN.clear()


def looks(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of keys in each lookup."""
    store, asked = store_of(engine), []
    key_holders = store.key_holders

    async def count(places: Any) -> Any:
        asked.append(len(places))
        return await key_holders(places)

    monkeypatch.setattr(store, "key_holders", count)
    return asked


async def test_a_second_start_with_a_key_does_not_drive_the_body(engine_url: str) -> None:
    async with opened(engine_url) as engine:
        first = await engine.start(counted(1), key="one")
        assert await first.result(60) == 1
        again = await engine.start(counted(1), key="one")
        assert again.run_id == first.run_id
        with pytest.raises(KeyReused):
            await engine.start(counted(2), key="one")
        elsewhere = await engine.start(counted(3), key="one", scope="other")
        assert await elsewhere.result(60) == 3
    assert DRIVEN == [1, 3]


async def test_many_keys_are_looked_for_at_once(
    engine_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(engine_url) as engine:
        first = await engine.start(counted(1), key="a")
        asked = looks(engine, monkeypatch)
        handles = await engine.start_many(
            [counted(n) for n in (1, 2, 3, 2)], keys=["a", "b", "c", "b"]
        )
        assert [await handle.result(60) for handle in handles] == [1, 2, 3, 2]
        assert handles[0].run_id == first.run_id
        assert handles[1].run_id == handles[3].run_id
        assert asked == [3]
        with pytest.raises(KeyReused):
            await engine.start_many([counted(4), counted(5)], keys=["d", "d"])
    assert DRIVEN == [1, 2, 3, 4]


async def test_a_start_without_a_key_looks_for_none(
    engine_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(engine_url) as engine:
        asked = looks(engine, monkeypatch)
        await (await engine.start(counted(1))).result(60)
        for handle in await engine.start_many([counted(2), counted(3)]):
            await handle.result(60)
        assert asked == []


async def test_two_engines_that_both_find_a_key_free_start_one_run(
    shared_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(shared_url) as one, opened(shared_url) as other:
        both = asyncio.Barrier(2)
        for engine in (one, other):
            store = store_of(engine)

            async def wait_for_both(places: Any, key_holders: Any = store.key_holders) -> Any:
                found = await key_holders(places)
                await both.wait()
                return found

            monkeypatch.setattr(store, "key_holders", wait_for_both)
        runs = await asyncio.gather(*(e.start(counted(1), key="one") for e in (one, other)))
        assert runs[0].run_id == runs[1].run_id
        assert [await run.result(60) for run in runs] == [1, 1]
