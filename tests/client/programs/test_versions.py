"""Several versions of one workflow: a run stays on its version, moves to a compatible one, or waits for its own."""

from typing import Any

import pytest

import perdure
from perdure import Engine, Handle, RunDiverged, RunStatus, Signal, Workflow, task, workflow
from perdure.authoring import registry
from perdure.core.journal import events as e
from tests.client.engines import (
    journal,
    opened,
    recorded,
    store_of,
    until_recorded,
    until_status,
)

NAME = "versions.checkout"
word = Signal("word", str)


@task(name="versions.note")
async def note(what: str) -> str:
    return what


def version_1() -> Workflow[[], str]:
    @workflow(name=NAME, version="1")
    async def checkout() -> str:
        await note("one")
        return f"1 heard {await word.receive()}, as {perdure.info().version}"

    return checkout


def version_2() -> Workflow[[], str]:
    """Incompatible with a run of version 1."""

    @workflow(name=NAME, version="2")
    async def checkout() -> str:
        await note("two")
        return f"2 heard {await word.receive()}, as {perdure.info().version}"

    return checkout


def version_3() -> Workflow[[], str]:
    """Compatible with a waiting run of version 1."""

    @workflow(name=NAME, version="3")
    async def checkout() -> str:
        await note("one")
        heard = await word.receive()
        return await note(f"3 heard {heard}, as {perdure.info().version}")

    return checkout


@pytest.fixture(autouse=True)
def own_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    """No version is registered yet."""
    monkeypatch.setitem(registry._known, ("program", NAME), {})
    monkeypatch.delitem(registry._known, ("program", NAME))


def forget(version: str) -> None:
    del registry._known["program", NAME][version]


async def waiting(engine: Engine, code: Workflow[[], str], key: str | None = None) -> Handle[str]:
    run = await engine.start(code(), key=key)
    await until_recorded(engine, run, e.ExecutionAwaiting, 2)
    return run


async def test_a_run_ends_on_its_version_while_runs_of_the_next_one_start(shared_url: str) -> None:
    async with opened(shared_url) as engine:
        old = (await waiting(engine, version_1())).run_id
    async with opened(shared_url) as engine:
        # The new code is deployed beside the old one.
        new = await waiting(engine, version_2())
        for run in (engine.handle(old), new):
            await run.signal(word, "go")
        assert await engine.handle(old).result(60) == "1 heard go, as 1"
        assert await new.result(60) == "2 heard go, as 2"
        rows = [await store_of(engine).run(run_id) for run_id in (old, new.run_id)]
        assert [(row.program, row.version) for row in rows] == [(NAME, "1"), (NAME, "2")]


async def test_a_restart_finds_each_run_its_version(shared_url: str) -> None:
    async with opened(shared_url) as engine:
        runs = [await waiting(engine, code()) for code in (version_1, version_2, version_1)]
    version_1(), version_2()
    async with opened(shared_url) as engine:
        for run in runs:
            await engine.handle(run.run_id).signal(word, "go")
        heard = [await engine.handle(run.run_id).result(60) for run in runs]
    assert heard == ["1 heard go, as 1", "2 heard go, as 2", "1 heard go, as 1"]


async def test_the_digest_is_that_of_the_version(shared_url: str) -> None:
    async with opened(shared_url) as engine:
        one, two = version_1(), version_2()
        runs = [await waiting(engine, one), await waiting(engine, two)]
        rows = [await store_of(engine).run(run.run_id) for run in runs]
        (started,) = await recorded(engine, runs[0], e.ExecutionStarted)
        assert [row.digest for row in rows] == [one.digest, two.digest]
        assert one.digest != two.digest
        assert (started.version, started.component_digest) == ("1", one.digest)


async def test_run_of_a_removed_version_resumes_with_compatible_code(shared_url: str) -> None:
    async with opened(shared_url) as engine:
        old = (await waiting(engine, version_1())).run_id
    forget("1")
    version_3()
    async with opened(shared_url) as engine:
        run = engine.handle(old)
        await run.signal(word, "go")
        assert await run.result(60) == "3 heard go, as 1"
        assert (await store_of(engine).run(old)).version == "1"


async def test_a_run_that_fits_no_code_waits_for_its_own(shared_url: str) -> None:
    async with opened(shared_url) as engine:
        old = (await waiting(engine, version_1())).run_id
    forget("1")
    new = version_2()
    async with opened(shared_url) as engine:
        run = engine.handle(old)
        before = await journal(engine, run)
        await run.signal(word, "kept")
        assert await run.status() is RunStatus.DIVERGED
        with pytest.raises(RunDiverged) as parked:
            await run.result(60)
        assert await journal(engine, run) == before
    code = new.fn.__code__
    assert f"{code.co_filename}:{code.co_firstlineno + 2} in checkout" in str(parked.value)
    assert (
        "  it began with version '1', which is not registered, and was replayed on version '2' "
        "(registered here: version '2'): register that version again beside the others, and "
        "start the engine again; or cancel the run" in str(parked.value)
    )
    version_1()
    async with opened(shared_url) as engine:
        assert await engine.handle(old).result(60) == "1 heard kept, as 1"


async def test_the_current_version_is_tried_and_no_other(shared_url: str) -> None:
    async with opened(shared_url) as engine:
        old = (await waiting(engine, version_1())).run_id
    forget("1")
    version_3(), version_2()
    async with opened(shared_url) as engine:
        with pytest.raises(RunDiverged, match=r"here: version '3', version '2'\)"):
            await engine.handle(old).result(60)


async def test_a_changed_source_of_the_same_version_is_named_as_such(shared_url: str) -> None:
    async with opened(shared_url) as engine:
        old = (await waiting(engine, version_1())).run_id

    @workflow(name=NAME, version="1")
    async def checkout() -> str:
        return await note("another")

    async with opened(shared_url) as engine:
        with pytest.raises(
            RunDiverged,
            match=r"version '1', and its source has changed since \(registered here: version '1'\): "
            "restore that source, and change it in a new version or behind perdure.patched",
        ):
            await engine.handle(old).result(60)


async def test_a_source_that_is_the_same_and_does_not_repeat_itself_is_named_as_such(
    shared_url: str,
) -> None:
    turns: list[int] = []

    @workflow(name=NAME)
    async def fickle() -> str:
        turns.append(1)
        await note(f"turn {len(turns)}")
        return await word.receive()

    async with opened(shared_url) as engine:
        run_id = (await waiting(engine, fickle)).run_id
    async with opened(shared_url) as engine:
        with pytest.raises(
            RunDiverged,
            match=r"with no version, and its source is the same \(registered here: no version\): "
            "fix the code that it calls",
        ):
            await engine.handle(run_id).result(60)


async def test_starting_an_old_version_does_not_make_it_the_current_one(shared_url: str) -> None:
    async with opened(shared_url) as engine:
        one, two = version_1(), version_2()
        await waiting(engine, one)
        assert registry.find("program", NAME) is two
        await engine.handle((await waiting(engine, two)).run_id).cancel()


async def test_a_key_finds_the_run_of_another_version_and_its_result_of_that_type(
    shared_url: str,
) -> None:
    @workflow(name=NAME, version="1")
    async def as_bytes() -> bytes:
        return (await word.receive()).encode()

    @workflow(name=NAME, version="2")
    async def as_text() -> str:
        return await word.receive()

    async with opened(shared_url) as engine:
        old = await engine.start(as_bytes(), key="order")
        same: Handle[Any] = await engine.start(as_text(), key="order")
        assert same.run_id == old.run_id
        await same.signal(word, "hello")
        assert await same.result(60) == b"hello"


async def test_a_child_is_of_the_version_that_was_called(engine: Engine) -> None:
    one, two = version_1(), version_2()

    @workflow(name="versions.parent")
    async def parent() -> list[str]:
        children = [await perdure.start(one()), await perdure.start(two())]
        for child in children:
            child.signal(word, "go")
        return [await child.result() for child in children]

    run = await engine.start(parent())
    assert await run.result(60) == ["1 heard go, as 1", "2 heard go, as 2"]


async def test_a_parked_run_is_cancelled_though_no_version_fits(shared_url: str) -> None:
    async with opened(shared_url) as engine:
        old = (await waiting(engine, version_1())).run_id
    forget("1")
    version_2()
    async with opened(shared_url) as engine:
        await engine.handle(old).cancel("no longer wanted")
        await until_status(engine.handle(old), RunStatus.CANCELLED)
