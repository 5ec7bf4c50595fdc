"""Preflight: checks whether new code can resume every open run, without changing any."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure import (
    Engine,
    Handle,
    InputError,
    Preflight,
    RunStatus,
    Signal,
    SyncEngine,
    Workflow,
    task,
    workflow,
)
from perdure.authoring import registry
from perdure.core.errors import SchemaTooOld, StoreUnavailable, UnknownName
from perdure.core.journal import events as e
from perdure.engine.programs.preflight import PatchUse, VersionUse
from perdure.store.opening import open_store
from tests.client.engines import opened, store_of, until_recorded
from tests.store.builders import contents, raw

NAME, OTHER = "preflight.checkout", "preflight.other"
word = Signal("word", str)
executed: list[str] = []


@task(name="preflight.note")
async def note(what: str) -> str:
    executed.append(what)
    return what


def old_code(version: str = "1", name: str = NAME) -> Workflow[[], str]:
    @workflow(name=name, version=version, lint="off")
    async def checkout() -> str:
        try:
            await note("one")
            return await word.receive()
        finally:
            executed.append("finally")
            await note("cleaned up")

    return checkout


def changed_code(version: str = "1") -> Workflow[[], str]:
    @workflow(name=NAME, version=version)
    async def changed() -> str:
        await note("one")
        await note("two")
        return await word.receive()

    return changed


@pytest.fixture(autouse=True)
def own_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """No program is registered, and nothing was executed yet."""
    executed.clear()
    for key in (("program", NAME), ("program", OTHER)):
        monkeypatch.setitem(registry._known, key, {})
        monkeypatch.delitem(registry._known, key)


async def waiting(engine: Engine, code: Workflow[[], Any]) -> Handle[Any]:
    run = await engine.start(code())
    await until_recorded(engine, run, e.ExecutionAwaiting, 2)
    return run


@asynccontextmanager
async def unchanged(url: str) -> AsyncIterator[None]:
    """Every row of every table is the same afterwards."""
    store = await open_store(url)
    try:
        before = await contents(store)
        yield
        assert await contents(store) == before
    finally:
        await store.close()


async def test_an_empty_store_is_clean(shared_url: str) -> None:
    async with opened(shared_url):
        pass
    found = await Engine(shared_url).preflight()
    assert found == Preflight(found.place, 0, [], [], [], [])
    assert found.is_clean


async def test_runs_that_fit_are_counted_by_version(shared_url: str) -> None:
    async with opened(shared_url) as engine:
        one, two = old_code("1"), old_code("2")
        for code in (one, two, two):
            await waiting(engine, code)
        done = await waiting(engine, one)
        await done.signal(word, "over")
        await done.result(60)
        found = await engine.preflight()
    assert found.is_clean
    assert found.runs == 3
    assert found.versions == [VersionUse(NAME, "1", "1", 1), VersionUse(NAME, "2", "2", 2)]
    assert str(found).endswith(": open runs 3, all can resume")


async def test_a_divergence_is_found_with_its_place_before_anything_is_touched(
    shared_url: str,
) -> None:
    async with opened(shared_url) as engine:
        runs = sorted([(await waiting(engine, old_code())).run_id for _ in range(2)])
    new = changed_code()
    executed.clear()
    async with unchanged(shared_url):
        found = await Engine(shared_url).preflight()
    assert executed == []
    assert (found.runs, found.is_clean, found.stranded) == (2, False, [])
    assert [each.run_id for each in found.divergences] == runs
    first = found.divergences[0]
    code = new.fn.__code__
    assert first.line == f"{code.co_filename}:{code.co_firstlineno + 3} in changed"
    assert (first.program, first.version, first.replayed_on) == (NAME, "1", "1")
    assert first.expected.startswith("ExecutionAwaiting(waiting_on=('root.1',)")
    assert first.actual.startswith("InvokeScheduled(promise_id=root.1")
    assert "payload={what: str} (sha256 " in first.actual
    store = await open_store(shared_url)
    (entry,) = await store.entries(first.run_id, first.seq, first.seq + 1)
    await store.close()
    assert isinstance(entry.event, e.ExecutionAwaiting)
    assert "its source has changed since" in first.text
    assert str(found).splitlines()[0].endswith("open runs 2, 2 can't resume")
    assert first.text in str(found)


async def test_a_run_that_fits_is_closed_again_as_if_it_were_evicted(shared_url: str) -> None:
    async with opened(shared_url) as engine:
        await waiting(engine, old_code())
    executed.clear()
    async with unchanged(shared_url):
        assert (await Engine(shared_url).preflight()).is_clean
    # Its `finally` runs, and the step in it does not.
    assert executed == ["finally"]


async def test_preflight_reports_the_reason_that_the_run_is_parked_with(shared_url: str) -> None:
    async with opened(shared_url) as engine:
        run_id = (await waiting(engine, old_code())).run_id
    changed_code()
    (said,) = (await Engine(shared_url).preflight()).divergences
    async with opened(shared_url) as engine:
        assert await engine.handle(run_id).status() is RunStatus.DIVERGED
        assert (await store_of(engine).run(run_id)).parked == f"run-diverged: {said.text}"


async def test_a_run_in_other_hands_is_checked_and_left_there(shared_url: str) -> None:
    old = old_code()
    async with opened(shared_url) as owner:
        run = await waiting(owner, old)
        changed_code()
        async with unchanged(shared_url):
            found = await Engine(shared_url).preflight()
        assert [each.run_id for each in found.divergences] == [run.run_id]
        # It is warm there, on its own code, and continues.
        await run.signal(word, "go")
        assert await run.result(60) == "go"


async def test_runs_of_every_owner_and_of_none_are_checked(shared_url: str) -> None:
    async with opened(shared_url) as engine:
        await waiting(engine, old_code())
    # Neither host below has the program of this run, so it stays unowned.
    known = registry._known.pop(("program", NAME))
    other = old_code(name=OTHER)
    async with opened(shared_url) as elsewhere, opened(shared_url) as engine:
        await waiting(elsewhere, other)
        await waiting(engine, other)
        store = store_of(engine)
        owners = {(await store.run(run_id)).owner for run_id in await store.open_ids(None, 10)}
        assert len(owners) == 3
        assert None in owners
        registry._known["program", NAME] = known
        found = await engine.preflight()
        assert (found.runs, found.is_clean) == (3, True)


async def test_preflight_neither_parks_nor_unparks(shared_url: str) -> None:
    async with opened(shared_url) as engine:
        run_id = (await waiting(engine, old_code())).run_id
    changed_code()
    async with opened(shared_url) as engine:
        assert await engine.handle(run_id).status() is RunStatus.DIVERGED
        async with unchanged(shared_url):
            assert not (await engine.preflight()).is_clean
        old_code()
        async with unchanged(shared_url):
            assert (await engine.preflight()).is_clean
        assert await engine.handle(run_id).status() is RunStatus.DIVERGED


async def test_a_run_whose_version_is_gone_is_tried_on_the_current_one(shared_url: str) -> None:
    async with opened(shared_url) as engine:
        run_id = (await waiting(engine, old_code("1"))).run_id
    del registry._known["program", NAME]["1"]
    old_code("2")
    found = await Engine(shared_url).preflight()
    assert (found.is_clean, found.versions) == (True, [VersionUse(NAME, "1", "2", 1)])
    changed_code("3")
    (diverged,) = (await Engine(shared_url).preflight()).divergences
    assert (diverged.run_id, diverged.version, diverged.replayed_on) == (run_id, "1", "3")
    assert "(registered here: version '2', version '3')" in diverged.text


async def test_a_run_whose_program_is_not_registered_is_listed(shared_url: str) -> None:
    async with opened(shared_url) as engine:
        run_id = (await waiting(engine, old_code())).run_id
    del registry._known["program", NAME]
    found = await Engine(shared_url).preflight()
    (stranded,) = found.stranded
    assert (found.runs, found.is_clean, found.divergences) == (1, False, [])
    assert (stranded.run_id, stranded.program, stranded.version) == (run_id, NAME, "1")
    assert stranded.code == "unknown-name"
    assert f"no workflow or graph {NAME!r} is registered here" in stranded.text
    assert found.versions == [VersionUse(NAME, "1", None, 1)]
    assert f"run {run_id!r}: no workflow" in str(found)


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE {}event SET body = 'no event' WHERE seq = 1",
        "UPDATE {}event SET at_ms = at_ms + 1 WHERE seq = 1",
        "DELETE FROM {}event WHERE seq = 1",
    ],
)
async def test_a_run_whose_journal_cant_be_read_is_listed(shared_url: str, damage: str) -> None:
    async with Engine(shared_url) as engine:
        await waiting(engine, old_code())
        await raw(store_of(engine), damage)
        found = await engine.preflight()
    assert [run.code for run in found.stranded] in (["corrupt-journal"], ["invariant-violation"])
    assert found.versions == [VersionUse(NAME, "1", None, 1)]


async def test_one_program_is_checked_if_it_is_named(shared_url: str) -> None:
    async with opened(shared_url) as engine:
        await waiting(engine, old_code())
        await waiting(engine, old_code(name=OTHER))
        assert (await engine.preflight()).runs == 2
        found = await engine.preflight([OTHER])
        assert [use.program for use in found.versions] == [OTHER]
        assert (await engine.preflight([])).runs == 0


async def test_preflight_of_an_unknown_program_is_refused(shared_url: str) -> None:
    async with opened(shared_url) as engine:
        await waiting(engine, old_code())
        registry._known.pop(("program", NAME))
        assert [run.program for run in (await engine.preflight([NAME])).stranded] == [NAME]
        old_code(name=OTHER)
        assert (await engine.preflight([OTHER])).runs == 0
        with pytest.raises(
            UnknownName, match=r"no workflow 'preflight.typo' is registered here, and"
        ):
            await engine.preflight([NAME, "preflight.typo"])


async def _assert_not_made(url: str) -> None:
    for _ in range(2):
        with pytest.raises(StoreUnavailable, match="holds no store of Perdure's: check the URL"):
            await Engine(url).preflight()


@pytest.mark.parametrize("name", [":memory:", "none.db"])
async def test_a_store_that_is_not_there_is_refused_and_not_made(tmp_path: Path, name: str) -> None:
    await _assert_not_made(f"sqlite:///{name if name.startswith(':') else tmp_path / name}")
    assert os.listdir(tmp_path) == []


@pytest.mark.postgres
async def test_a_database_without_a_store_is_refused_and_stays_without(fresh_postgres: str) -> None:
    await _assert_not_made(fresh_postgres)


async def test_a_file_that_holds_nothing_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "empty.db").touch()
    with pytest.raises(StoreUnavailable, match="holds no store of Perdure's"):
        await Engine(f"sqlite:///{tmp_path}/empty.db").preflight()
    assert os.listdir(tmp_path) == ["empty.db"]
    assert os.stat(tmp_path / "empty.db").st_size == 0


async def test_a_store_of_an_older_version_is_refused_and_not_migrated(shared_url: str) -> None:
    async with Engine(shared_url) as engine:
        await raw(store_of(engine), "UPDATE {}meta SET value = '1'")
    for _ in range(2):
        with pytest.raises(SchemaTooOld, match="has schema version 1, and this Perdure needs"):
            await Engine(shared_url).preflight()


@pytest.mark.parametrize("wrong", [NAME, [""], [7], ["x" * 256], 5, True])
async def test_preflight_of_something_else_than_a_list_is_refused(
    shared_url: str, wrong: Any
) -> None:
    with pytest.raises(InputError):
        await Engine(shared_url).preflight(wrong)


async def test_a_run_that_cancels_is_checked_like_any(shared_url: str) -> None:
    @workflow(name=NAME)
    async def slow_to_go() -> None:
        try:
            await word.receive()
        finally:
            await word.receive()

    async with opened(shared_url) as engine:
        run = await engine.start(slow_to_go())
        await until_recorded(engine, run, e.ExecutionAwaiting)
        await run.cancel()
        await until_recorded(engine, run, e.ExecutionAwaiting, 2)
        assert (await engine.preflight()).is_clean
        await run.signal(word, "go")
        with pytest.raises(perdure.RunCancelled):
            await run.result(60)


async def test_runs_move_while_they_are_checked(shared_url: str) -> None:
    @workflow(name=NAME)
    async def busy() -> None:
        for _ in range(20):
            await note("step")

    async with opened(shared_url) as engine:
        runs = [await engine.start(busy()) for _ in range(20)]
        while (await engine.preflight()).runs:
            assert (await engine.preflight()).is_clean
        for run in runs:
            await run.result(60)


# Patches


def patched_code() -> Workflow[[], str]:
    @workflow(name=NAME, version="1")
    async def patched() -> str:
        try:
            await note("taxed" if perdure.patched("tax") else "one")
            heard = await word.receive()
            return f"{heard} {perdure.patched('late')}"
        finally:
            await note("cleaned up")

    return patched


async def test_the_runs_of_a_patch_are_counted_until_it_can_be_retired(shared_url: str) -> None:
    async with opened(shared_url) as engine:
        old = (await waiting(engine, old_code())).run_id
    async with opened(shared_url) as engine:
        code = patched_code()
        for _ in range(2):
            await waiting(engine, code)
    found = await Engine(shared_url).preflight()
    assert found.is_clean
    # No run has reached `late`, so the report has no use of it, and no run holds it.
    assert found.patches == [PatchUse(NAME, "tax", follow=2, missed=1, unknown=0)]
    assert not found.patches[0].is_retirable
    async with opened(shared_url) as engine:
        await engine.handle(old).signal(word, "go")
        assert await engine.handle(old).result(60) == "go True"
        found = await engine.preflight()
    assert found.patches == [PatchUse(NAME, "tax", follow=2, missed=0, unknown=0)]
    assert found.patches[0].is_retirable

    @workflow(name=NAME, version="1")
    async def retired() -> str:
        await note("taxed")
        return await word.receive()

    found = await Engine(shared_url).preflight()
    assert found.is_clean
    # The markers are there, though the program does not ask for them.
    assert found.patches == [PatchUse(NAME, "tax", follow=2, missed=0, unknown=0)]


async def test_a_patch_is_not_retirable_while_runs_cant_be_asked(shared_url: str) -> None:
    async with opened(shared_url) as engine:
        await waiting(engine, patched_code())

        @workflow(name=NAME, version="0")
        async def strange() -> str:
            await note("strange")
            return await word.receive()

        await waiting(engine, strange)
    del registry._known["program", NAME]["0"]
    found = await Engine(shared_url).preflight()
    assert len(found.divergences) == 1
    assert found.patches == [PatchUse(NAME, "tax", follow=1, missed=0, unknown=1)]
    assert not found.patches[0].is_retirable


async def test_a_run_that_diverged_with_the_marker_is_known_to_follow(shared_url: str) -> None:
    async with opened(shared_url) as engine:
        await waiting(engine, patched_code())
    changed_code()
    found = await Engine(shared_url).preflight()
    assert len(found.divergences) == 1
    assert found.patches == [PatchUse(NAME, "tax", follow=1, missed=0, unknown=0)]


# Scripts


def test_a_script_checks_with_or_without_opening_its_engine(shared_url: str) -> None:
    with SyncEngine(shared_url) as engine:
        run = engine.start(old_code()())
        while len(list_of(engine, run.run_id)) < 7:
            pass
        assert engine.preflight().runs == 1
        with pytest.raises(UnknownName):
            engine.preflight([OTHER])
    changed_code()
    closed = SyncEngine(shared_url)
    assert [each.run_id for each in closed.preflight().divergences] == [run.run_id]
    assert not closed.preflight([NAME]).is_clean
    with pytest.raises(InputError):
        closed.preflight(NAME)
    old_code()
    with closed as engine:
        assert engine.preflight().is_clean


def list_of(engine: SyncEngine, run_id: str) -> list[Any]:
    return engine.wait_for(store_of(engine).entries(run_id))


async def test_preflight_gives_way_to_others(engine_url: str) -> None:
    async with opened(engine_url) as engine:
        code = old_code()
        for _ in range(20):
            await waiting(engine, code)
        turns = 0

        async def count() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        counting = asyncio.create_task(count())
        assert (await engine.preflight()).runs == 20
        counting.cancel()
    assert turns >= 20
