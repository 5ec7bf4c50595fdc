"""Stores with damaged rows or files, or replaced by an older copy: which runs continue, and what errors name."""

import json
import random
import shutil
from pathlib import Path
from typing import Any

import apsw
import asyncpg
import pytest

import perdure
from perdure import Engine, Handle, InputError, PerdureError, RunDiverged, RunStatus, Signal
from perdure.core.errors import CorruptJournal, StoreError
from perdure.core.journal import events as e
from tests.client.engines import assert_sound, killed, until_recorded, until_status

pytestmark = pytest.mark.asyncio

go = Signal("store.go", int)


@perdure.task(name="store.add")
async def add(a: int, b: int) -> int:
    return a + b


@perdure.workflow(name="store.waiting")
async def waiting() -> int:
    one = await add(1, 0)
    return one + await go.receive()


async def _execute(url: str, statement: str) -> None:
    """Change a store that no engine has open."""
    if url.startswith("postgres"):
        connection = await asyncpg.connect(url)
        await connection.execute(statement.format("perdure."))
        await connection.close()
        return
    file = apsw.Connection(url.removeprefix("sqlite:///"))
    file.execute(statement.format("perdure_"))
    file.close()


async def _allow_null(url: str, column: str) -> None:
    """Remove a constraint, to write rows that only a damaged file could contain."""
    if url.startswith("postgres"):
        await _execute(url, f"ALTER TABLE {{}}run ALTER COLUMN {column} DROP NOT NULL")
        return
    file = apsw.Connection(url.removeprefix("sqlite:///"))
    ((made,),) = file.execute("SELECT sql FROM sqlite_schema WHERE name = 'perdure_run'").fetchall()
    lines = [
        line.replace("NOT NULL", "") if line.split()[:1] == [column] else line
        for line in str(made).splitlines()
    ]
    file.execute("PRAGMA writable_schema = ON")
    file.execute("UPDATE sqlite_schema SET sql = ? WHERE name = 'perdure_run'", ("\n".join(lines),))
    file.close()


async def _three_waiting(url: str) -> list[Handle[Any]]:
    async with killed(url) as engine:
        runs = [await engine.start(waiting()) for _ in range(3)]
        for run in runs:
            await until_recorded(engine, run, e.ExecutionAwaiting, 2)
    return runs


DAMAGE = {
    "an unknown status": (
        "UPDATE {{}}run SET status = 'bogus' WHERE id = '{}'",
        "its status is 'bogus'",
    ),
    "bad JSON in a body": (
        "UPDATE {{}}event SET body = 'no JSON' WHERE run_id = '{}' AND seq = 2",
        "entry 2 can't be read",
    ),
    "no entries": ("DELETE FROM {{}}event WHERE run_id = '{}'", "does not end where its row says"),
}


@pytest.mark.parametrize("what", DAMAGE)
async def test_one_damaged_row_parks_its_run_and_the_others_continue(
    shared_url: str, what: str
) -> None:
    statement, said = DAMAGE[what]
    first, bad, last = await _three_waiting(shared_url)
    await _execute(shared_url, statement.format(bad.run_id))
    async with Engine(shared_url) as engine:
        for run in (first, last):
            await engine.handle(run.run_id).signal(go, 1)
            assert await engine.handle(run.run_id).result(10) == 2
        await until_status(engine.handle(bad.run_id), RunStatus.PARKED)
        with pytest.raises(RunDiverged, match=said):
            await engine.handle(bad.run_id).result(10)
        for report in (await engine.audit(), await perdure.audit(shared_url)):
            assert {finding.run_id for finding in report.findings} == {bad.run_id}


@pytest.mark.parametrize(
    "column", ["program", "version", "status", "key", "chain", "digest", "owner"]
)
@pytest.mark.parametrize("closes", [False, True], ids=["killed", "closed"])
async def test_text_that_is_not_utf8_parks_its_run_and_the_others_continue(
    tmp_path: Path, column: str, closes: bool
) -> None:
    url = f"sqlite:///{tmp_path}/store.db"
    first, bad, last = await _three_waiting(url)
    if closes:
        async with Engine(url) as engine:
            await until_recorded(engine, engine.handle(first.run_id), e.ExecutionAwaiting, 2)
    damage = f"UPDATE {{}}run SET {column} = CAST(x'66ff' AS TEXT) WHERE id = '{bad.run_id}'"
    await _execute(url, damage)
    async with Engine(url) as engine:
        for run in (first, last):
            await engine.handle(run.run_id).signal(go, 1)
            assert await engine.handle(run.run_id).result(10) == 2
        assert {finding.run_id for finding in (await engine.audit()).findings} == {bad.run_id}
        if (column, closes) != (
            "program",
            True,
        ):  # no host claims a run of a program that it has not
            await until_status(engine.handle(bad.run_id), RunStatus.PARKED)


async def test_a_run_that_can_not_even_be_parked_is_left_alone(
    shared_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    first, bad, last = await _three_waiting(shared_url)
    await _allow_null(shared_url, "epoch")
    await _execute(shared_url, f"UPDATE {{}}run SET epoch = NULL WHERE id = '{bad.run_id}'")
    async with Engine(shared_url) as engine:
        for run in (first, last):
            await engine.handle(run.run_id).signal(go, 1)
            assert await engine.handle(run.run_id).result(10) == 2
        await engine.handle(bad.run_id).signal(go, 1)
        assert await engine.handle(bad.run_id).status() is RunStatus.PARKED
    left = [record for record in caplog.records if "can't even be parked" in record.message]
    assert len(left) == 1
    assert bad.run_id in left[0].message


async def test_a_store_is_audited_and_verified_without_an_engine(shared_url: str) -> None:
    _, bad, _ = await _three_waiting(shared_url)
    for report in (await perdure.audit(shared_url), await perdure.verify(shared_url)):
        assert report.is_clean
        assert report.runs == 3
    await _execute(shared_url, f"UPDATE {{}}run SET semaphore = 3 WHERE id = '{bad.run_id}'")
    await _execute(shared_url, f"DELETE FROM {{}}event WHERE run_id = '{bad.run_id}' AND seq = 1")
    audited, verified = await perdure.audit(shared_url), await perdure.verify(shared_url)
    assert ("semaphore_differs", bad.run_id) in {(f.name, f.run_id) for f in audited.findings}
    assert {(f.name, f.seq) for f in verified.findings} == {("entry_missing", 1)}


async def test_a_store_that_is_not_there_is_not_made_by_an_audit(tmp_path: Path) -> None:
    path = tmp_path / "none.db"
    with pytest.raises(StoreError, match="holds no store"):
        await perdure.audit(f"sqlite:///{path}")
    assert not path.exists()


@pytest.mark.parametrize("closes", [False, True])
async def test_falsely_completed_row_is_damage_to_status_and_result(
    shared_url: str, closes: bool
) -> None:
    async with Engine(shared_url) as engine:
        run = await engine.start(waiting())
        await until_recorded(engine, run, e.ExecutionAwaiting, 2)
    closing = ", closed_at_ms = 5, semaphore = 0" if closes else ""
    change = f"UPDATE {{}}run SET status = 'completed'{closing} WHERE id = '{run.run_id}'"
    await _execute(shared_url, change)
    async with Engine(shared_url) as engine:
        handle = engine.handle(run.run_id)
        if closes:
            with pytest.raises(CorruptJournal, match="its last entry does not say so"):
                await handle.status()
            with pytest.raises(CorruptJournal, match="its last entry does not say so"):
                await handle.result(10)
        else:
            await until_status(handle, RunStatus.PARKED)
            with pytest.raises(RunDiverged, match="'completed' in its row and 'blocked'"):
                await handle.result(10)
        named = {finding.name for finding in (await engine.audit()).findings}
        assert "status_differs" in named
        assert ("closing_differs" in named) == closes


async def test_failed_run_with_a_completed_row_is_damage(shared_url: str) -> None:
    async with Engine(shared_url) as engine:
        run = await engine.start(waiting())
        await run.cancel("enough")
        with pytest.raises(perdure.RunCancelled):
            await run.result(10)
    await _execute(shared_url, f"UPDATE {{}}run SET status = 'completed' WHERE id = '{run.run_id}'")
    async with Engine(shared_url) as engine:
        for ask in (engine.handle(run.run_id).status, engine.handle(run.run_id).result):
            with pytest.raises(CorruptJournal, match="its last entry does not say so"):
                await ask()


# Files


async def _file_with_runs(tmp_path: Path) -> Path:
    path = tmp_path / "store.db"
    async with Engine(f"sqlite:///{path}") as engine:
        runs = await engine.start_many([waiting() for _ in range(60)])
        for run in runs[:50]:
            await run.signal(go, 1)
            await run.result(30)
    file = apsw.Connection(str(path))
    file.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    file.close()
    return path


def _swap_pages(path: Path, first: int, second: int) -> None:
    data = bytearray(path.read_bytes())
    size = int.from_bytes(data[16:18], "big")
    a, b = slice(first * size, (first + 1) * size), slice(second * size, (second + 1) * size)
    data[a], data[b] = data[b], data[a]
    path.write_bytes(data)


async def test_a_file_with_two_pages_swapped_is_never_called_clean(tmp_path: Path) -> None:
    path = await _file_with_runs(tmp_path)
    data = path.read_bytes()
    # A page of a table or an index that is not empty: two empty ones may well change places. And none that is free: it
    # may hold what a page of the ledger held once, which no chain of hashes shows, and SQLite takes for valid.
    free = _free_pages(data)
    pages = [
        page
        for page in range(1, len(data) // 4096)
        if data[page * 4096] in (2, 5, 10, 13) and any(data[page * 4096 + 3 : page * 4096 + 5])
        if page not in free
    ]
    assert len(pages) > 10
    draw = random.Random(5)
    for number in range(12):
        copy = tmp_path / f"copy-{number}.db"
        shutil.copy(path, copy)
        first, second = draw.sample(pages, 2)
        _swap_pages(copy, first, second)
        for inspect in (perdure.audit, perdure.verify):
            try:
                report = await inspect(f"sqlite:///{copy}")
            except PerdureError as error:
                assert "backup" in error.remedy  # noqa: PT017 - or it is a report
            else:
                assert not report.is_clean, (first, second)


def _free_pages(data: bytes) -> set[int]:
    """The pages that the file has no use for, counted from 0: the trunks of the free list, and their leaves."""

    def number(at: int) -> int:
        return int.from_bytes(data[at : at + 4], "big")

    free: set[int] = set()
    trunk = number(32)
    while trunk:
        start = (trunk - 1) * 4096
        leaves = range(start + 8, start + 8 + 4 * number(start + 4), 4)
        free |= {trunk - 1, *(number(at) - 1 for at in leaves)}
        trunk = number(start)
    return free


async def test_the_audit_finds_a_page_of_the_ledger_in_the_place_of_a_former_one(
    tmp_path: Path,
) -> None:
    path = await _file_with_runs(tmp_path)
    data = path.read_bytes()
    file = apsw.Connection(str(path))
    rows = file.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'perdure_ledger'")
    ((root,),) = rows.fetchall()
    file.close()
    free = [page for page in sorted(_free_pages(data)) if data[page * 4096] in (2, 10)]
    for number, page in enumerate(free[:3]):
        copy = tmp_path / f"former-{number}.db"
        shutil.copy(path, copy)
        _swap_pages(copy, int(str(root)) - 1, page)
        try:
            report = await perdure.audit(f"sqlite:///{copy}")
        except PerdureError as error:
            assert "backup" in error.remedy  # noqa: PT017 - or it is a report
        else:
            assert not report.is_clean


async def test_the_roots_of_the_ledger_and_of_a_partial_index_that_are_swapped_are_found(
    tmp_path: Path,
) -> None:
    path = await _file_with_runs(tmp_path)
    file = apsw.Connection(str(path))
    rows: list[Any] = file.execute(
        "SELECT name, rootpage FROM sqlite_schema WHERE name = 'perdure_ledger' OR sql LIKE '% WHERE %'"
    ).fetchall()
    file.close()
    roots = dict(rows)
    ledger = roots.pop("perdure_ledger")
    for name, root in roots.items():
        copy = tmp_path / f"{name}.db"
        shutil.copy(path, copy)
        _swap_pages(copy, ledger - 1, root - 1)
        for inspect in (perdure.audit, perdure.verify):
            try:
                report = await inspect(f"sqlite:///{copy}")
            except PerdureError as error:
                assert "backup" in error.remedy  # noqa: PT017 - or it is a report
            else:
                assert not report.is_clean, name


async def test_two_empty_pages_that_are_swapped_are_no_damage(tmp_path: Path) -> None:
    path = await _file_with_runs(tmp_path)
    file = apsw.Connection(str(path))
    found: list[Any] = file.execute("SELECT name, rootpage FROM sqlite_schema").fetchall()
    roots = {name: page for name, page in found if page}
    file.close()
    # Both are roots of the same kind without a cell: all that differs is unused space.
    first, second = (int(roots[name]) - 1 for name in ("perdure_message", "perdure_hook"))
    data = path.read_bytes()
    kinds = {data[page * 4096 : page * 4096 + 5] for page in (first, second)}
    assert kinds == {b"\x0a\0\0\0\0"}
    _swap_pages(path, first, second)
    for inspect in (perdure.audit, perdure.verify):
        assert (await inspect(f"sqlite:///{path}")).is_clean
    async with Engine(f"sqlite:///{path}") as engine:
        run = await engine.start(waiting())
        await run.signal(go, 1)
        assert await run.result(30) == 2
        await assert_sound(engine)


async def test_error_of_a_damaged_file_has_a_remedy(tmp_path: Path) -> None:
    path = await _file_with_runs(tmp_path)
    file = apsw.Connection(str(path))
    found: list[Any] = file.execute(
        "SELECT pageno FROM dbstat WHERE name = 'sqlite_schema'"
    ).fetchall()
    schema = {number - 1 for (number,) in found}  # without these the file can't even be opened
    file.close()
    data = bytearray(path.read_bytes())
    for page in set(range(len(data) // 8192, len(data) // 4096)) - schema:
        data[page * 4096 : page * 4096 + 8] = b"\xff" * 8
    path.write_bytes(data)
    report = await perdure.audit(f"sqlite:///{path}")
    assert not report.is_clean
    assert any(finding.name == "file_damaged" for finding in report.findings)
    assert "restore it from a backup" in str(report)


@pytest.mark.postgres
async def test_rows_that_postgres_can_not_read_are_findings_of_their_run(
    emptied_postgres: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = await _three_waiting(emptied_postgres)
    fetch = asyncpg.Connection.fetch

    async def damaged(self: Any, query: str, *args: Any, **options: Any) -> Any:
        if "FROM perdure.event WHERE" in query and args[:1] == (runs[1].run_id,):
            raise asyncpg.DataCorruptedError("invalid page in block 7 of relation base/1/2")
        return await fetch(self, query, *args, **options)

    monkeypatch.setattr(asyncpg.Connection, "fetch", damaged)
    report = await perdure.audit(emptied_postgres)
    assert [(each.name, each.run_id) for each in report.findings] == [
        ("rows_unreadable", runs[1].run_id)
    ]
    assert report.runs == 3


# Copies


async def test_kept_heads_detect_an_older_copy(shared_url: str) -> None:
    async with Engine(shared_url) as engine:
        runs = [await engine.start(waiting()) for _ in range(3)]
        for run in runs:
            await until_recorded(engine, run, e.ExecutionAwaiting, 2)
        kept = json.loads(json.dumps((await engine.verify()).heads))
        assert sorted(kept) == sorted(run.run_id for run in runs)
        await runs[0].signal(go, 1)
        await runs[0].result(10)
        assert (await engine.verify(heads=kept)).is_clean  # what has grown is no finding
    assert (await perdure.verify(shared_url, heads=kept)).is_clean
    shortened, vanished, replaced = (run.run_id for run in runs)
    for table, column in (("run", "id"), ("event", "run_id"), ("ledger", "run_id")):
        await _execute(shared_url, f"DELETE FROM {{}}{table} WHERE {column} = '{vanished}'")
    await _execute(shared_url, f"DELETE FROM {{}}event WHERE run_id = '{shortened}' AND seq > 2")
    count = kept[replaced].partition(":")[0]
    report = await perdure.verify(shared_url, heads=kept | {replaced: f"{count}:{'ab' * 32}"})
    found = {(each.name, each.run_id) for each in report.findings}
    assert ("journal_shortened", shortened) in found
    assert ("run_vanished", vanished) in found
    assert ("journal_replaced", replaced) in found


@pytest.mark.parametrize("heads", [["r"], {"r": 5}, {"r": "x:y"}, {"r": "1:abc"}, "r"])
async def test_heads_that_are_none_are_refused(shared_url: str, heads: Any) -> None:
    async with Engine(shared_url) as engine:
        with pytest.raises(InputError, match="head"):
            await engine.verify(heads=heads)
        await assert_sound(engine)
