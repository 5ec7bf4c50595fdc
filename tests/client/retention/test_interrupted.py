"""A process dies before or after each write of an act, and the act is repeated: nothing is lost, nothing is left."""

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from perdure import Engine
from perdure.core.artifacts import StoredArtifact
from perdure.core.ids import RunId
from perdure.host.artifacts.artifacts import Artifacts
from perdure.host.artifacts.store import DirectoryArtifacts
from perdure.host.retention import acts
from perdure.host.retention.places import Places
from perdure.testing.probe import Probe
from tests.client.engines import assert_sound, store_of
from tests.client.retention.leaving import everything, heads_of, spread_out, traces

WRITES = frozenset(
    {"erase", "remove", "purge_archived", "erase_archived", "finish", "put", "delete"}
)


class Died(Exception):
    """The process died."""


class Dying:
    """Dies before or after the n-th write of the objects that it wraps."""

    def __init__(self, number: int, *, after: bool) -> None:
        self.left = number
        self.after = after

    def wrap(self, inner: Any) -> Any:
        return _Wrapped(inner, self)

    async def write(self, write: Callable[[], Awaitable[Any]]) -> Any:
        self.left -= 1
        if self.left == 0 and not self.after:
            raise Died
        done = await write()
        if self.left == 0:
            raise Died
        return done


class _Wrapped:
    def __init__(self, inner: Any, dying: Dying) -> None:
        self._inner = inner
        self._dying = dying

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if name == "retention":
            return self._dying.wrap(found)
        if name not in WRITES:
            return found

        async def dying(*arguments: Any) -> Any:
            return await self._dying.write(lambda: found(*arguments))

        return dying

    async def list(self, prefix: str) -> AsyncIterator[StoredArtifact]:
        async for each in self._inner.list(prefix):
            yield each


Act = Callable[[Places, list[RunId]], Awaitable[object]]


async def archive(places: Places, ids: list[RunId]) -> None:
    await acts.archive_runs(places, ids)


async def purge(places: Places, ids: list[RunId]) -> None:
    await acts.purge_runs(places, ids)


async def erase(places: Places, ids: list[RunId]) -> None:
    await acts.erase_runs(places, ids[0], acts.By())


async def archive_and_erase(places: Places, ids: list[RunId]) -> None:
    await acts.archive_runs(places, ids)
    await acts.erase_runs(places, ids[0], acts.By())


async def archive_and_purge(places: Places, ids: list[RunId]) -> None:
    await acts.archive_runs(places, ids)
    await acts.purge_runs(places, ids)


@pytest.mark.parametrize("act", [archive, purge, erase, archive_and_erase, archive_and_purge])
async def test_acts_that_died_at_any_write_end_when_they_are_repeated(
    act: Act, shared_url: str, tmp_path: Path
) -> None:
    folders = tmp_path / "archive", tmp_path / "artifacts"
    artifacts = DirectoryArtifacts(folders[1])
    async with Engine(shared_url, archive=str(folders[0]), artifacts=artifacts) as engine:
        sources = Probe(engine).host.dispatcher.sources
        number, is_over = 0, False
        while not is_over:
            number += 1
            is_over = True
            for after in (False, True):
                run = await spread_out(engine)
                children = [each.run_id async for each in engine.iterate_runs(parent=run.run_id)]
                ids = [run.run_id, *children]
                heads = await heads_of(engine)
                dying = Dying(number, after=after)
                store = dying.wrap(store_of(engine))
                archive_store = dying.wrap(DirectoryArtifacts(folders[0]))
                died = Places(store, sources, Artifacts(dying.wrap(artifacts)), archive_store)
                try:
                    await act(died, ids)
                except Died:
                    is_over = False
                report = await engine.verify(heads=heads)
                assert report.is_clean, (number, after, str(report))
                assert not [
                    problem
                    for each in ids
                    if (kept := await engine.retention.get(each)) is not None and kept.is_archived
                    for problem in await engine.retention.verify_archive([each])
                ]
                living = Places(
                    store_of(engine),
                    sources,
                    Artifacts(artifacts),
                    DirectoryArtifacts(folders[0]),
                )
                await acts.end_unfinished(living)
                await act(living, ids)
                report = await engine.verify(heads=heads)
                assert report.is_clean, (number, after, str(report))
                assert not await store_of(engine).retention.unfinished(10)
                if act is archive:
                    await acts.erase_runs(living, ids[0], acts.By())
        assert number > 2  # it died at several writes
        await engine.retention.compact()
        assert not traces(await everything(shared_url, *folders))
        await assert_sound(engine)
