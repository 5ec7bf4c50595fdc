"""How preflight reads: in pages, one journal at a time, and nothing but reading."""

from typing import Any

import pytest

from perdure.core.codec import JsonCodec
from perdure.core.ids import RunId
from perdure.engine.known_programs import KnownPrograms
from perdure.engine.programs import preflight as module
from perdure.engine.programs.preflight import Preflight, preflight
from perdure.store.opening import open_store
from perdure.testing.explorer import VirtualSources
from tests.store.builders import Driven, begun

pytestmark = pytest.mark.asyncio


class Reader:
    """A store that can be asked for two things, and remembers what it was asked."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self.name = store.name
        self.pages: list[tuple[RunId | None, int]] = []
        self.loaded: list[list[RunId]] = []

    async def open_ids(self, after: RunId | None, limit: int, programs: Any) -> list[RunId]:
        self.pages.append((after, limit))
        ids: list[RunId] = await self._store.open_ids(after, limit, programs)
        return ids

    async def load(self, run_ids: list[RunId]) -> Any:
        self.loaded.append(run_ids)
        return await self._store.load(run_ids)


async def check(reader: Any) -> Preflight:
    return await preflight(reader, JsonCodec(), VirtualSources(), KnownPrograms())


async def test_runs_are_read_in_pages_and_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PAGE", 2)
    store = await open_store("sqlite:///:memory:")
    ids = sorted([(await begun(store)).run_id for _ in range(5)])
    reader = Reader(store)
    found = await check(reader)
    await store.close()
    # Whether some other test of this process has registered a program of that name, or not.
    seen = [run.run_id for run in found.stranded] + [run.run_id for run in found.divergences]
    assert sorted(seen) == ids
    assert reader.pages == [(None, 2), (ids[1], 2), (ids[3], 2), (ids[4], 2)]
    assert reader.loaded == [[run_id] for run_id in ids]


async def test_a_run_that_ends_before_it_is_read_is_left_out() -> None:
    store = await open_store("sqlite:///:memory:")
    await begun(store)
    ending = await begun(store)

    class Slow(Reader):
        async def load(self, run_ids: list[RunId]) -> Any:
            if run_ids == [ending.run_id]:
                await store.commit(ending.finish())
            return await super().load(run_ids)

    found = await check(Slow(store))
    assert found.runs == 1
    await store.close()


async def test_a_run_deleted_before_it_is_read_is_left_out() -> None:
    store = await open_store("sqlite:///:memory:")

    class Forgetful(Reader):
        async def open_ids(self, after: RunId | None, limit: int, programs: Any) -> list[RunId]:
            ids = await super().open_ids(after, limit, programs)
            return ids if after else [Driven().run_id]

    assert (await check(Forgetful(store))).runs == 0
    await store.close()
