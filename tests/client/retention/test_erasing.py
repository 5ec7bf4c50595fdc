"""Erasing a run: its data is nowhere afterwards, and what is left verifies."""

from pathlib import Path

import msgspec
import pytest

from perdure import Engine, InputError, NoArtifactStore, RunStatus
from perdure.core.books import verify_books
from perdure.core.runs.erasing import read_erasure
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
)


async def test_data_of_an_erased_run_is_in_no_table_file_or_artifact(
    shared_url: str, tmp_path: Path
) -> None:
    folder = tmp_path / "artifacts"
    async with Engine(shared_url, artifacts=str(folder)) as engine:
        run = await spread_out(engine)
        other = await engine.start(plain("something else"))
        await other.result(60)
        assert traces(await everything(shared_url, folder))
        erased = await engine.retention.erase(run.run_id, by="ann", reason="asked")
        assert not traces(await everything(shared_url, folder))
        assert [each.run_id for each in erased.runs][-1] == run.run_id
        assert len(erased.runs) == 2  # the child too
        assert erased.is_scrubbed is shared_url.startswith("sqlite")
        assert await other.result(60) == "something else"
        await assert_sound(engine)
    assert not traces(await everything(shared_url, folder))


async def test_receipt_and_heads_prove_what_was_erased(shared_url: str, tmp_path: Path) -> None:
    async with Engine(shared_url, artifacts=str(tmp_path / "artifacts")) as engine:
        run = await spread_out(engine)
        heads = await heads_of(engine)
        erased = await engine.retention.erase(run.run_id)
        report = await engine.verify(heads=heads)
        assert report.is_clean, str(report)
        assert report.heads == heads
        receipt = erased.runs[-1]
        assert f"{receipt.entries}:{receipt.head}" == heads[run.run_id]
        kept = await engine.retention.get(run.run_id)
        assert kept is not None
        assert kept.receipt == receipt == read_erasure(receipt.text)
        assert not kept.is_archived
        again = await engine.retention.erase(run.run_id)
        assert again.runs == erased.runs


async def test_erased_runs_give_clear_answers(shared_url: str, tmp_path: Path) -> None:
    async with Engine(shared_url, artifacts=str(tmp_path / "artifacts")) as engine:
        run = await spread_out(engine)
        await engine.retention.erase(run.run_id)
        assert await run.status() is RunStatus.COMPLETED
        view = await run.view()
        assert view.status == "COMPLETED"
        assert len([event async for event in run.history()]) == view.last_event_seq + 1
        with pytest.raises(InputError, match="erased"):
            await run.result(60)
        with pytest.raises(InputError, match="erased"):
            await run.fork()
        assert not [each async for each in engine.iterate_runs(tags={"who": SECRET})]
        assert await engine.find("retention.spread", f"key {SECRET}", scope="retention") is None


async def test_open_relatives_and_sources_of_data_refuse_an_erasure(shared_url: str) -> None:
    async with Engine(shared_url) as engine:
        run = await engine.start(parent(SECRET))
        with pytest.raises(InputError, match=f"^run {run.run_id!r} is open"):
            await engine.retention.erase(run.run_id)
        (below,) = [each async for each in engine.iterate_runs(parent=run.run_id)]
        await engine.handle(below.run_id).signal(note, "go")
        await run.result(60)
        with pytest.raises(InputError, match=f"erase run {run.run_id!r}"):
            await engine.retention.erase(below.run_id)
        erased = await engine.retention.erase(run.run_id)
        assert [each.run_id for each in erased.runs] == [below.run_id, run.run_id]
        assert not traces(await everything(shared_url))
        await assert_sound(engine)


async def test_chains_and_forks_are_erased_with_their_run(shared_url: str) -> None:
    async with Engine(shared_url) as engine:
        run = await engine.start(looping(3, SECRET))
        await run.result(60)
        fork = await run.fork()
        await fork.result(60)
        erased = await engine.retention.erase(run.run_id)
        assert len(erased.runs) == 5
        assert not traces(await everything(shared_url))
        await assert_sound(engine)


async def test_runs_with_artifacts_need_an_engine_that_knows_where_they_are(
    shared_url: str, tmp_path: Path
) -> None:
    async with Engine(shared_url, artifacts=str(tmp_path / "artifacts")) as engine:
        run = await spread_out(engine)
    async with Engine(shared_url) as engine:
        with pytest.raises(NoArtifactStore):
            await engine.retention.erase(run.run_id)


async def test_other_texts_than_a_receipt_has_are_found(shared_url: str) -> None:
    async with Engine(shared_url) as engine:
        run = await engine.start(plain(SECRET), key=SECRET)
        await run.result(60)
        await engine.retention.erase(run.run_id)
        store = store_of(engine)
        entry = (await store.entries(run.run_id))[0]
        assert entry.is_redacted
        books = await store.books_of(run.run_id)
        changed = entry.__class__(
            entry.seq,
            entry.at_ms,
            entry.body.replace("retention.plain", "other"),
            entry.prev,
            None,
            entry.erased,
        )
        forged = msgspec.structs.replace(books, entries=(changed, *books.entries[1:]))
        assert [each.name for each in verify_books(forged)] == ["entry_altered"]
        assert not verify_books(books)
