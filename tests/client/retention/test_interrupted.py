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
from perdure.host.retention.places import Places, archive_prefix
from perdure.store.rows.exported import ExportHeader
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


async def assert_survives(act: Act, url: str, folders: tuple[Path, Path]) -> None:
    """Let the process die at each write of the act, and repeat the act: nothing may be lost or left."""
    artifacts = DirectoryArtifacts(folders[1])
    async with Engine(url, archive=str(folders[0]), artifacts=artifacts) as engine:
        number = 0
        while await _died_at(number := number + 1, act, engine, folders):
            pass
        assert number > 2  # it died at several writes
        await engine.retention.compact()
        assert not traces(await everything(url, *folders))
        await assert_sound(engine)


async def _died_at(number: int, act: Act, engine: Engine, folders: tuple[Path, Path]) -> bool:
    """Whether the act has so many writes. Dies before that one, and with another run after it."""
    has_died = False
    for after in (False, True):
        run = await spread_out(engine)
        children = [each.run_id async for each in engine.iterate_runs(parent=run.run_id)]
        ids, heads = [run.run_id, *children], await heads_of(engine)
        dying = Dying(number, after=after)
        try:
            await act(_places(engine, folders, dying.wrap), ids)
        except Died:
            has_died = True
        await _assert_kept(engine, ids, heads)
        living = _places(engine, folders)
        await acts.end_unfinished(living)
        await act(living, ids)
        await _assert_kept(engine, ids, heads)
        assert not await store_of(engine).retention.unfinished(10)
        if act is archive:
            await acts.erase_runs(living, ids[0], acts.By())
    return has_died


def _places(
    engine: Engine, folders: tuple[Path, Path], wrap: Callable[[Any], Any] = lambda inner: inner
) -> Places:
    return Places(
        wrap(store_of(engine)),
        Probe(engine).host.dispatcher.sources,
        Artifacts(wrap(DirectoryArtifacts(folders[1]))),
        wrap(DirectoryArtifacts(folders[0])),
    )


async def _assert_kept(engine: Engine, ids: list[RunId], heads: dict[str, str]) -> None:
    """Each run is in the store, or in the archive, or purged; and what is left verifies."""
    report = await engine.verify(heads=heads)
    assert report.is_clean, str(report)
    kept = await store_of(engine).retention.get(ids)
    archived = [run_id for run_id, run in kept.items() if run.archive is not None]
    assert not await engine.retention.verify_archive(archived)


@pytest.mark.parametrize("act", [archive, purge, erase, archive_and_erase, archive_and_purge])
async def test_acts_that_died_at_any_write_end_when_they_are_repeated(
    act: Act, shared_url: str, tmp_path: Path
) -> None:
    await assert_survives(act, shared_url, (tmp_path / "archive", tmp_path / "artifacts"))


async def rows_before_object(places: Places, header: ExportHeader, entries: object) -> str:
    """A seeded bug: the name of an object that is not written yet."""
    del places, entries
    return f"{archive_prefix(header.run.run_id)}{'0' * 64}"


async def note_without_deletion(places: Places, run_id: RunId) -> None:
    """A seeded bug: objects count as deleted, and are not."""
    await places.store.retention.finish(run_id)


@pytest.mark.parametrize(
    ("act", "part", "bug"),
    [(archive, "write", rows_before_object), (erase, "clear", note_without_deletion)],
    ids=["rows before object", "note without deletion"],
)
async def test_seeded_bugs_are_caught(
    act: Act, part: str, bug: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Places, part, bug)
    with pytest.raises(AssertionError):
        await assert_survives(
            act, f"sqlite:///{tmp_path}/engine.db", (tmp_path / "archive", tmp_path / "artifacts")
        )
