"""Payloads over the limit: with a place for artifacts they come and go as others do."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure import (
    Artifacts,
    DirectoryArtifacts,
    EncryptedCodec,
    Engine,
    Handle,
    InputError,
    PerdureError,
    RunStatus,
    Signal,
    task,
    workflow,
)
from perdure.core.errors import PayloadTooLarge, StoreUnavailable
from perdure.core.journal.events import InvokeCompleted
from perdure.core.limits import MAX_PAYLOAD_BYTES
from perdure.testing.artifacts import MemoryArtifacts
from tests.client.engines import (
    ALWAYS_REPLAY,
    assert_sound,
    until_recorded,
    until_status,
)
from tests.client.payloads.stored_bytes import stored_bytes

BIG = "walrus" * (MAX_PAYLOAD_BYTES // 5)
big_news = Signal("big_news", str)


@task
async def double_big(text: str) -> str:
    return text + text


@task(queue="large-far")
async def reverse_big(text: str) -> str:
    return text[::-1]


@workflow
async def big_child(text: str) -> str:
    return text + "!"


@workflow
async def big_chain(text: str) -> str:
    doubled = await double_big(text)
    reversed_ = await reverse_big(doubled)
    child = await big_child(reversed_)
    news = await big_news.receive()
    return child + news


@perdure.graph(name="big_graph")
async def big_graph(text: str) -> Any:
    doubled = await double_big(text)
    return await reverse_big(doubled)


def large_engine(url: str, place: Path | None, **options: Any) -> Engine:
    kept = (
        None
        if place is None
        else Artifacts(DirectoryArtifacts(place), orphans_after=0, sweep_every=0)
    )
    return Engine(url, artifacts=kept, queues=["large-far"], **options)


EXPECTED = (BIG + BIG)[::-1] + "!" + BIG


async def test_large_inputs_results_signals_and_child_runs_come_back_unseen(
    shared_url: str, tmp_path: Path
) -> None:
    async with large_engine(shared_url, tmp_path / "kept") as engine:
        run = await engine.start(big_chain(BIG), key="big")
        await run.signal(big_news, BIG)
        assert await run.result(60) == EXPECTED
        graph = await engine.start(big_graph(BIG))
        assert await graph.result(60) == (BIG + BIG)[::-1]
        again = await engine.start(big_chain(BIG), key="big")
        assert again.run_id == run.run_id
        assert b"walruswalrus" not in await stored_bytes(shared_url)
        assert (await engine.artifacts.sweep()).deleted == 0
        assert await again.result(60) == EXPECTED
        await assert_sound(engine)


async def test_a_replay_compares_large_payloads_and_stores_nothing(
    shared_url: str, tmp_path: Path
) -> None:
    place = tmp_path / "kept"
    async with large_engine(shared_url, place) as engine:
        runs: list[Handle[Any]] = [await engine.start(big_chain(BIG))]
        await until_recorded(engine, runs[0], InvokeCompleted, 3)
    before = sorted(place.rglob("*"))
    async with large_engine(shared_url, place) as engine:
        assert (await engine.preflight()).is_clean
    assert sorted(place.rglob("*")) == before
    async with large_engine(shared_url, place, settings=ALWAYS_REPLAY) as engine:
        run: Any = engine.handle(runs[0].run_id)
        await run.signal(big_news, BIG)
        assert await run.result(60) == EXPECTED


async def test_large_payloads_are_encrypted_and_survive_a_new_key(
    shared_url: str, tmp_path: Path
) -> None:
    old, new, place = bytes(range(64)), bytes(range(1, 65)), tmp_path / "kept"
    async with large_engine(shared_url, place, codec=EncryptedCodec([old])) as engine:
        run: Any = await engine.start(big_chain(BIG))
        await until_recorded(engine, run, InvokeCompleted, 3)
    files = [path for path in place.rglob("*") if path.is_file()]
    assert len(files) >= 4
    assert not any(b"walrus" in path.read_bytes() for path in files)
    async with large_engine(shared_url, place, codec=EncryptedCodec([new, old])) as engine:
        run = engine.handle(run.run_id)
        await run.signal(big_news, BIG)
        assert await run.result(60) == EXPECTED


async def test_without_a_place_for_artifacts_large_payloads_are_refused() -> None:
    async with large_engine("sqlite:///:memory:", None) as engine:
        with pytest.raises(PayloadTooLarge):
            await engine.start(big_chain(BIG))
        run = await engine.start(big_chain("small"))
        with pytest.raises(PayloadTooLarge):
            await run.signal(big_news, BIG)
        await run.cancel()


async def test_a_run_whose_large_payload_is_lost_is_parked_until_it_is_back(
    tmp_path: Path,
) -> None:
    url, place = f"sqlite:///{tmp_path}/large.db", tmp_path / "kept"
    async with large_engine(url, place) as engine:
        run: Any = await engine.start(big_chain(BIG))
        await until_recorded(engine, run, InvokeCompleted, 3)
    place.rename(tmp_path / "lost")
    async with large_engine(url, place) as engine:
        run = engine.handle(run.run_id)
        await run.signal(big_news, "small")
        await until_status(run, RunStatus.PARKED)
        with pytest.raises(PerdureError, match="large payload"):
            await run.result(30)
    (tmp_path / "lost").rename(place)
    async with large_engine(url, place) as engine:
        assert await engine.handle(run.run_id).result(60) == (BIG + BIG)[::-1] + "!small"


class FlakyArtifacts(MemoryArtifacts):
    """A store that does not answer some of the first calls."""

    def __init__(self) -> None:
        super().__init__()
        self.failures = {"put": 0, "read": 0}

    def _fail(self, what: str) -> None:
        if self.failures[what]:
            self.failures[what] -= 1
            raise StoreUnavailable("the store is down", "wait")

    async def put(self, name: str, parts: AsyncIterator[bytes], size: int) -> None:
        self._fail("put")
        await super().put(name, parts, size)

    async def read(self, name: str, first: int, end: int) -> bytes:
        self._fail("read")
        return await super().read(name, first, end)


async def test_an_outage_of_the_artifact_store_delays_a_run_and_does_not_fail_it(
    shared_url: str,
) -> None:
    store = FlakyArtifacts()
    async with (
        Engine(shared_url, artifacts=store, queues=["large-far"]) as engine,
        Engine(shared_url, artifacts=store, hosts=False) as sender,
    ):
        run = await engine.start(big_chain("a" * 1_200_000))
        store.failures["put"] = 3  # the result of the first step, and the arguments of the second
        await until_recorded(engine, run, InvokeCompleted, 3)
        await sender.handle(run.run_id).signal(big_news, BIG)
        store.failures["read"] = 2
        assert (await run.result(60)).endswith(BIG)
        assert store.failures == {"put": 0, "read": 0}
        await assert_sound(engine)


async def test_what_open_runs_may_need_can_not_be_erased(tmp_path: Path) -> None:
    async with large_engine("sqlite:///:memory:", tmp_path / "kept") as engine:
        parent = await engine.start(outlived(BIG))
        child_id = await parent.result(30)
        with pytest.raises(InputError, match="is open"):
            await engine.artifacts.erase(parent.run_id)
        child = engine.handle(child_id)
        await child.signal(big_news, "over")
        assert await child.result(30) == len(BIG)
        # The input of both runs, which are the same bytes.
        assert await engine.artifacts.erase(parent.run_id) == 1


@workflow
async def waiting_child(text: str) -> int:
    await big_news.receive()
    return len(text)


@workflow
async def outlived(text: str) -> str:
    return (await perdure.start(waiting_child(text))).run_id


@workflow
async def keeping(text: str) -> int:
    kept = await double_big(text)
    await big_news.receive()
    return len(kept)


@workflow
async def dropping(text: str) -> int:
    length = len(await double_big(text))
    del text
    await big_news.receive()
    return length


async def test_memory_counts_the_large_values_that_a_run_keeps(tmp_path: Path) -> None:
    async with large_engine("sqlite:///:memory:", tmp_path / "kept") as engine:
        for program, least, most in ((keeping, 1, 4), (dropping, 0, 1)):
            run: Any = await engine.start(program(BIG))
            await until_recorded(engine, run, InvokeCompleted)
            held = engine.warm_memory().used_bytes
            assert least * len(BIG) <= held < most * len(BIG), program.name
            await run.signal(big_news, "on")
            await run.result(30)
