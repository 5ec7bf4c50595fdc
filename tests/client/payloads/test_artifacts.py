"""Artifacts: large results beside the store, referenced by outcomes, verified when they are read."""

import asyncio
from collections.abc import AsyncIterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure import (
    ArtifactDamaged,
    ArtifactMissing,
    ArtifactRef,
    Artifacts,
    DirectoryArtifacts,
    Engine,
    InputError,
    NoArtifactStore,
    Retry,
    Signal,
    SyncEngine,
    Transaction,
    task,
    workflow,
)
from perdure.core.errors import OutsideRun
from perdure.core.journal.events import InvokeCompleted
from tests.client.engines import ALWAYS_REPLAY, assert_sound, recorded, until, until_recorded

DATA = bytes(range(256)) * 12_000
go_on = Signal("artifact_go_on", bool)


@task
async def store_here(kind: str) -> ArtifactRef:
    return await perdure.put_artifact(DATA, kind=kind)


@task(queue="artifacts-far")
async def store_far(kind: str) -> ArtifactRef:
    return await perdure.put_artifact(DATA, kind=kind)


@task
def store_in_thread(kind: str) -> ArtifactRef:
    return perdure.put_artifact(DATA, kind=kind).wait()


@task
async def store_nested(kind: str) -> ArtifactRef:
    return await store_here(kind)


@task(transactional=True)
async def store_with_rows(tx: Transaction, kind: str) -> ArtifactRef:
    return await perdure.put_artifact(DATA, kind=kind)


@workflow
async def storing() -> dict[str, ArtifactRef]:
    return {
        "async": await store_here("async"),
        "queued": await store_far("queued"),
        "sync": await store_in_thread("sync"),
        "nested": await store_nested("nested"),
        "transactional": await store_with_rows("transactional"),
    }


@perdure.graph(name="storing_graph")
async def storing_graph() -> Any:
    here = await store_here("async")
    far = await store_far("queued")
    return {"async": here, "queued": far}


def artifact_engine(url: str, place: Path, **options: Any) -> Engine:
    kept = Artifacts(DirectoryArtifacts(place), orphans_after=0, sweep_every=0, **options)
    return Engine(url, artifacts=kept, queues=["artifacts-far"])


def files(place: Path) -> list[str]:
    return sorted(path.name for path in place.rglob("*") if path.is_file())


async def test_the_outcome_of_every_kind_of_task_refers_to_what_it_stored(
    shared_url: str, tmp_path: Path
) -> None:
    async with artifact_engine(shared_url, tmp_path / "kept") as engine:
        for program, kinds in (
            (storing(), ["async", "queued", "sync", "nested", "transactional"]),
            (storing_graph(), ["async", "queued"]),
        ):
            run: Any = await engine.start(program)
            result = await run.result(30)
            completed = await recorded(engine, run, InvokeCompleted)
            noted = [ref for event in completed for ref in event.artifacts]
            assert [ref.kind for ref in noted] == kinds
            for ref in noted:
                assert ref.sha256 == sha256(DATA).hexdigest()
                assert ref.size_bytes == len(DATA)
                assert await engine.artifacts.get(ref) == DATA
            assert len(result) == len(noted)
            columns = "uri, kind, sha256, size_bytes, expires_at_ms"
            query = f"SELECT {columns} FROM perdure_v1_artifacts WHERE run_id = $1 ORDER BY seq"
            listed = (await engine.sql(query, run.run_id)).rows
            assert [ArtifactRef(*row) for row in listed] == noted
        assert (await engine.artifacts.sweep()).deleted == 0
        await assert_sound(engine)


@workflow
async def storing_and_waiting(ref_kind: str) -> ArtifactRef:
    ref = await store_here(ref_kind)
    await go_on.receive()
    return ref


async def test_a_replay_does_not_store_again(shared_url: str, tmp_path: Path) -> None:
    place = tmp_path / "kept"
    async with artifact_engine(shared_url, place) as engine:
        run = await engine.start(storing_and_waiting("report"))
        await until_recorded(engine, run, InvokeCompleted)
    other = artifact_engine(shared_url, place).replace(settings=ALWAYS_REPLAY)
    async with other as engine:
        again = engine.handle(run.run_id)
        await again.signal(go_on, True)
        ref = await again.result(30)
        completed = await recorded(engine, again, InvokeCompleted)
        assert await engine.artifacts.get(ref) == DATA
        assert len(files(place)) == sum(len(event.artifacts) for event in completed) == 1


@task
async def store_text_and_file(path: str) -> list[ArtifactRef]:
    return [
        await perdure.put_artifact("grüße", kind="text"),
        await perdure.put_artifact(Path(path), kind="file"),
    ]


@workflow
async def storing_file(path: str) -> list[ArtifactRef]:
    return await store_text_and_file(path)


async def test_texts_and_files_can_be_stored_and_ranges_be_read(tmp_path: Path) -> None:
    (tmp_path / "report.bin").write_bytes(DATA)
    async with artifact_engine("sqlite:///:memory:", tmp_path / "kept") as engine:
        run = await engine.start(storing_file(str(tmp_path / "report.bin")))
        text, file = await run.result(30)
        assert await engine.artifacts.get(text) == "grüße".encode()
        first, end = 1_000_000, 2_500_000
        parts = [part async for part in engine.artifacts.stream(file, first, end)]
        assert len(parts) == 2
        assert b"".join(parts) == DATA[first:end]
        assert [part async for part in engine.artifacts.stream(file, 10, 10)] == []
        with pytest.raises(InputError):
            engine.artifacts.stream(file, 10, 5)


def test_sync_code_reads_artifacts(tmp_path: Path) -> None:
    place = tmp_path / "kept"
    with SyncEngine("sqlite:///:memory:", artifacts=str(place)) as engine:
        ref = engine.start(storing_file(__file__)).result(30)[1]
        text = Path(__file__).read_bytes()
        assert engine.artifacts.get(ref) == text
        assert b"".join(engine.artifacts.stream(ref, 3, 9)) == text[3:9]


async def collect(parts: AsyncIterator[bytes], given: list[bytes]) -> None:
    async for part in parts:
        given.append(part)  # noqa: PERF401 - what came before the error counts


@pytest.mark.parametrize("how", ["altered", "shortened"])
async def test_a_damaged_artifact_is_not_given_out(how: str, tmp_path: Path) -> None:
    place = tmp_path / "kept"
    async with artifact_engine("sqlite:///:memory:", place) as engine:
        ref = (await (await engine.start(storing_file(__file__))).result(30))[1]
        file = place / ref.uri.removeprefix("artifact:")
        content = file.read_bytes()
        file.write_bytes(content[:-1] + b"?" if how == "altered" else content[:-1])
        given: list[bytes] = []
        with pytest.raises(ArtifactDamaged):
            await collect(engine.artifacts.stream(ref), given)
        assert b"".join(given) != content
        file.unlink()
        with pytest.raises(ArtifactMissing):
            await engine.artifacts.get(ref)


async def test_a_reference_can_not_name_a_file_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("private")
    async with artifact_engine("sqlite:///:memory:", tmp_path / "kept") as engine:
        for uri in ("artifact:../key", "artifact:/etc/passwd", "file:///etc/passwd", "artifact:"):
            with pytest.raises(InputError):
                await engine.artifacts.get(ArtifactRef(uri, "x", None, 7))


async def test_without_a_place_for_artifacts_the_attempt_fails_and_says_what_to_pass() -> None:
    async with Engine("sqlite:///:memory:") as engine:
        with pytest.raises(NoArtifactStore, match="artifacts="):
            await (await engine.start(storing_file(__file__))).result(30)
    with pytest.raises(OutsideRun):
        await perdure.put_artifact(b"", kind="x")


ATTEMPTS: list[int] = []


@task(retry=Retry(attempts=2, first=0.01))
async def store_then_fail_once() -> ArtifactRef:
    ref = await perdure.put_artifact(b"again", kind="x")
    ATTEMPTS.append(1)
    if len(ATTEMPTS) == 1:
        raise ConnectionError("once")
    return ref


@workflow
async def retrying() -> ArtifactRef:
    ref = await store_then_fail_once()
    await go_on.receive()
    return ref


async def test_a_sweep_leaves_an_open_run_alone_and_deletes_the_orphans_of_one_that_is_over(
    shared_url: str, tmp_path: Path
) -> None:
    place = tmp_path / "kept"
    ATTEMPTS.clear()
    async with artifact_engine(shared_url, place) as engine:
        run = await engine.start(retrying())
        await until_recorded(engine, run, InvokeCompleted)
        assert len(files(place)) == 2
        assert (await engine.artifacts.sweep()).deleted == 0
        await run.signal(go_on, True)
        ref = await run.result(30)
        assert (await engine.artifacts.sweep()).deleted == 1
        assert await engine.artifacts.get(ref) == b"again"
        assert (await engine.artifacts.sweep()).deleted == 0
        assert await engine.artifacts.erase(run.run_id) == 2  # with the mark of the sweep
        assert files(place) == []


async def test_an_orphan_stays_for_the_grace_time(tmp_path: Path) -> None:
    place = tmp_path / "kept"
    ATTEMPTS.clear()
    kept = Artifacts(DirectoryArtifacts(place), orphans_after=3600, sweep_every=0)
    async with Engine("sqlite:///:memory:", artifacts=kept) as engine:
        run = await engine.start(retrying())
        await run.signal(go_on, True)
        await run.result(30)
        assert (await engine.artifacts.sweep()).deleted == 0
        assert len(files(place)) == 2


@task
async def store_briefly() -> ArtifactRef:
    return await perdure.put_artifact(b"brief", kind="log", expires=0.001)


@workflow
async def brief_child() -> ArtifactRef:
    return await store_briefly()


@workflow
async def brief() -> ArtifactRef:
    ref = await brief_child()
    await go_on.receive()
    return ref


async def test_an_expired_artifact_is_deleted_when_no_run_may_need_it(
    shared_url: str, tmp_path: Path
) -> None:
    place = tmp_path / "kept"
    async with artifact_engine(shared_url, place) as engine:
        run = await engine.start(brief())
        await until_recorded(engine, run, InvokeCompleted)
        await asyncio.sleep(0.002)
        # The child that stored it is over, and its parent has the reference.
        assert (await engine.artifacts.sweep()).deleted == 0
        assert len(files(place)) == 1
        await run.signal(go_on, True)
        ref = await run.result(30)
        assert (await engine.artifacts.sweep()).deleted == 1
        with pytest.raises(ArtifactMissing):
            await engine.artifacts.get(ref)


@workflow
async def brief_and_asks() -> ArtifactRef:
    ref = await store_briefly()
    await go_on.receive()
    return ref


async def test_an_expired_artifact_stays_while_a_fork_of_its_run_is_open(
    shared_url: str, tmp_path: Path
) -> None:
    place = tmp_path / "kept"
    async with artifact_engine(shared_url, place) as engine:
        run = await engine.start(brief_and_asks())
        await until_recorded(engine, run, InvokeCompleted)
        fork = await run.fork("root.1", id="other")
        again = await fork.fork("root.1", id="again")
        for each in (run, fork):
            await each.signal(go_on, True)
            await each.result(30)
        assert (await engine.artifacts.sweep()).deleted == 0
        with pytest.raises(InputError, match="fork"):
            await engine.artifacts.erase(run.run_id)
        await again.signal(go_on, True)
        await again.result(30)
        assert (await engine.artifacts.sweep()).deleted == 1


async def test_what_the_engine_keeps_of_a_kind_decides_when_the_task_says_nothing(
    tmp_path: Path,
) -> None:
    keep = {"text": 0.001, "other": 10}
    async with artifact_engine("sqlite:///:memory:", tmp_path / "kept", keep=keep) as engine:
        run = await engine.start(storing_file(__file__))
        text, file = await run.result(30)
        assert text.expires_at_ms is not None
        assert file.expires_at_ms is None
        await asyncio.sleep(0.002)
        assert (await engine.artifacts.sweep()).deleted == 1
        assert len(await engine.artifacts.get(file)) == file.size_bytes


@task
async def store_many(count: int) -> list[ArtifactRef]:
    return [await perdure.put_artifact(str(each), kind="x") for each in range(count)]


@workflow
async def storing_many(count: int) -> list[ArtifactRef]:
    return await store_many(count)


async def test_sweeps_that_race_with_runs_delete_nothing_that_a_run_refers_to(
    shared_url: str, tmp_path: Path
) -> None:
    """The grace time is 0, so that nothing but the order of reads protects what is stored."""
    async with artifact_engine(shared_url, tmp_path / "kept") as engine:
        is_over = False

        async def sweep_on() -> int:
            sweeps = 0
            while not is_over:
                await engine.artifacts.sweep()
                sweeps += 1
            return sweeps

        sweepers = [asyncio.create_task(sweep_on()) for _ in range(2)]
        runs = [await engine.start(storing_many(3)) for _ in range(25)]
        results = [await run.result(60) for run in runs]
        is_over = True
        assert all([await each > 2 for each in sweepers])
        for refs in results:
            assert [await engine.artifacts.get(ref) for ref in refs] == [b"0", b"1", b"2"]
        await assert_sound(engine)


async def test_the_artifacts_of_an_open_run_can_not_be_erased(tmp_path: Path) -> None:
    async with artifact_engine("sqlite:///:memory:", tmp_path / "kept") as engine:
        run = await engine.start(storing_and_waiting("x"))
        with pytest.raises(InputError, match="open"):
            await engine.artifacts.erase(run.run_id)
        await run.cancel()


async def test_files_of_others_in_the_directory_are_left_alone(tmp_path: Path) -> None:
    place = tmp_path / "kept"
    place.mkdir()
    (place / "README.txt").write_text("mine")
    async with artifact_engine("sqlite:///:memory:", place) as engine:
        assert (await engine.artifacts.sweep()).deleted == 0
    assert files(place) == ["README.txt"]


async def test_a_host_sweeps_in_the_background(tmp_path: Path) -> None:
    place = tmp_path / "kept"
    ATTEMPTS.clear()
    kept = Artifacts(DirectoryArtifacts(place), orphans_after=0, sweep_every=0.02)
    async with Engine("sqlite:///:memory:", artifacts=kept) as engine:
        run = await engine.start(retrying())
        await run.signal(go_on, True)
        ref = await run.result(30)
        kept_name = ref.uri.rpartition("/")[2]
        await until(lambda: [name for name in files(place) if "swept" not in name] == [kept_name])
        assert await engine.artifacts.get(ref) == b"again"


@pytest.mark.parametrize("given", [7, {"dir": "x"}, object()])
def test_a_place_for_artifacts_that_is_none_is_refused(given: Any) -> None:
    with pytest.raises(InputError, match="artifacts is"):
        Engine("sqlite:///:memory:", artifacts=given)
