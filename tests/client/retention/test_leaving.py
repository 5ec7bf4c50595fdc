"""Archiving and purging runs, and what verification, lists and readers say of them."""

from pathlib import Path

import pytest

from perdure import Engine, InputError, Signal, UnknownRun
from tests.client.engines import assert_sound, store_of
from tests.client.retention.leaving import (
    SECRET,
    everything,
    heads_of,
    looping,
    note,
    parent,
    plain,
    spread_out,
    traces,
    waiting,
)


async def test_an_archived_run_is_in_its_object_and_verifies_against_its_head(
    shared_url: str, tmp_path: Path
) -> None:
    folder = tmp_path / "archive"
    async with Engine(
        shared_url, archive=str(folder), artifacts=str(tmp_path / "artifacts")
    ) as engine:
        run = await spread_out(engine)
        (child,) = [each.run_id async for each in engine.iterate_runs(parent=run.run_id)]
        heads = await heads_of(engine)
        assert set(await engine.retention.archive([run.run_id, child])) == {run.run_id, child}
        assert run.run_id not in [each.run_id async for each in engine.iterate_runs()]
        report = await engine.verify(heads=heads)
        assert report.is_clean, str(report)
        assert report.heads == heads
        assert not await engine.retention.verify_archive([run.run_id, child])
        with pytest.raises(UnknownRun, match="in the archive"):
            await run.status()
        assert await engine.retention.tagged({"who": SECRET}) == sorted([run.run_id, child])
        assert not await engine.retention.archive([run.run_id])
        await engine.artifacts.sweep()
        assert traces(await everything(shared_url, folder))
        await assert_sound(engine)


async def test_a_changed_or_missing_object_of_the_archive_is_found(
    shared_url: str, tmp_path: Path
) -> None:
    folder = tmp_path / "archive"
    async with Engine(shared_url, archive=str(folder)) as engine:
        first = await engine.start(plain("one"))
        second = await engine.start(plain("two"))
        await first.result(60)
        await second.result(60)
        ids = [first.run_id, second.run_id]
        assert set(await engine.retention.archive(ids)) == set(ids)
        files = {each.parent.name: each for each in folder.rglob("*") if each.is_file()}
        files[second.run_id].write_bytes(files[first.run_id].read_bytes())
        (problem,) = await engine.retention.verify_archive(ids)
        assert "another journal" in problem
        files[second.run_id].write_bytes(files[first.run_id].read_bytes()[:-30])
        (problem,) = await engine.retention.verify_archive(ids)
        assert second.run_id in problem
        files[first.run_id].unlink()
        assert len(await engine.retention.verify_archive(ids)) == 2


async def test_data_of_an_archived_run_is_erased_from_the_archive(
    shared_url: str, tmp_path: Path
) -> None:
    folders = tmp_path / "archive", tmp_path / "artifacts"
    async with Engine(shared_url, archive=str(folders[0]), artifacts=str(folders[1])) as engine:
        run = await spread_out(engine)
        (child,) = [each.run_id async for each in engine.iterate_runs(parent=run.run_id)]
        heads = await heads_of(engine)
        await engine.retention.archive([run.run_id])
        erased = await engine.retention.erase(run.run_id)
        assert {each.run_id for each in erased.runs} == {run.run_id, child}
        assert not traces(await everything(shared_url, *folders))
        assert not await engine.retention.verify_archive([run.run_id])
        report = await engine.verify(heads=heads)
        assert report.is_clean, str(report)
        assert not await engine.retention.tagged({"who": SECRET})
        await engine.retention.archive([child])
        assert not await engine.retention.verify_archive([child])
        await assert_sound(engine)


async def test_a_purged_run_has_no_row_but_its_head(shared_url: str, tmp_path: Path) -> None:
    folders = tmp_path / "archive", tmp_path / "artifacts"
    async with Engine(shared_url, archive=str(folders[0]), artifacts=str(folders[1])) as engine:
        run = await spread_out(engine)
        (child,) = [each.run_id async for each in engine.iterate_runs(parent=run.run_id)]
        heads = await heads_of(engine)
        await engine.retention.archive([child])
        assert set(await engine.retention.purge([run.run_id, child])) == {run.run_id, child}
        assert not await engine.retention.purge([run.run_id])
        await engine.retention.compact()
        assert not traces(await everything(shared_url, *folders))
        assert not [each for folder in folders for each in folder.rglob("*") if each.is_file()]
        report = await engine.verify(heads=heads)
        assert report.is_clean, str(report)
        kept = await engine.retention.get(run.run_id)
        assert kept is not None
        assert kept.purged is not None
        with pytest.raises(UnknownRun, match="was purged"):
            await run.result(60)
        with pytest.raises(UnknownRun, match="was purged"):
            await run.fork()
        await assert_sound(engine)
        again = await engine.start(plain("x"), key="again", scope="retention")
        await again.result(60)


async def test_verification_finds_a_run_that_left_with_another_head(shared_url: str) -> None:
    async with Engine(shared_url) as engine:
        run = await engine.start(plain("x"))
        await run.result(60)
        heads = await heads_of(engine)
        await engine.retention.purge([run.run_id])
        heads[run.run_id] = heads[run.run_id][:-1] + ("0" if heads[run.run_id][-1] != "0" else "1")
        (finding,) = (await engine.verify(heads=heads)).findings
        assert finding.name == "journal_replaced"


async def test_runs_that_open_runs_may_need_stay(shared_url: str, tmp_path: Path) -> None:
    async with Engine(shared_url, archive=str(tmp_path / "archive")) as engine:
        above = await engine.start(parent("x"))
        looped = await engine.start(looping(2, "x"))
        await looped.result(60)
        links = await store_of(engine).chain(looped.run_id)
        source = await engine.start(waiting("x"))
        await source.signal(note, "y")
        await source.result(60)
        fork = await source.fork("root.0", signals=False)
        assert not await engine.retention.purge([above.run_id, source.run_id])
        assert not await engine.retention.archive([above.run_id, source.run_id])
        (child,) = [each.run_id async for each in engine.iterate_runs(parent=above.run_id)]
        await engine.handle(child).signal(note, "go")
        await above.result(60)
        await fork.signal(note, "z")
        await fork.result(60)
        ids = [above.run_id, source.run_id, *(link.run_id for link in links)]
        assert set(await engine.retention.purge(ids)) == set(ids)
        await assert_sound(engine)


async def test_archiving_needs_a_place(shared_url: str) -> None:
    async with Engine(shared_url) as engine:
        with pytest.raises(InputError, match="no place for an archive"):
            await engine.retention.archive([])
        with pytest.raises(InputError, match="list of run ids"):
            await engine.retention.purge("r_0")


@pytest.mark.parametrize("full", [True, False])
async def test_the_file_shrinks_while_another_host_works(tmp_path: Path, full: bool) -> None:
    path = tmp_path / "engine.db"
    url = f"sqlite:///{path}"
    async with Engine(url) as engine, Engine(url) as other:
        runs = await engine.start_many([plain("x" * 100_000) for _ in range(40)])
        for run in runs:
            await run.result(60)
        held = await other.start(waiting("y"))
        await engine.retention.compact(full=full)
        before = path.stat().st_size
        await engine.retention.purge([run.run_id for run in runs])
        assert await engine.retention.compact(full=full)
        wal = path.with_name(path.name + "-wal")
        assert wal.stat().st_size == 0
        if full:
            assert path.stat().st_size < before / 4
        await held.signal(Signal("retention.note", str), "z")
        assert await held.result(60) == "yz"
        await assert_sound(engine)
