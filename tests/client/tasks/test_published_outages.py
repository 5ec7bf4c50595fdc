"""Values that tasks publish while their store does not answer are not lost."""

import asyncio
import time
from collections.abc import Callable

import pytest

import perdure
from perdure import Engine, Settings, Signal, task, workflow
from perdure.core.errors import BundleRefused, StoreUnavailable
from perdure.host import backoff as patience
from perdure.store.commit.bundle import Bundle
from perdure.testing.probe import Probe
from tests.client.engines import opened, store_of, until, until_published
from tests.store.builders import raw

go_on = Signal("outages.go_on", int)

WAITS = "the host tries again"

Judge = Callable[[dict[str, bytes]], Exception | None]
"""The fault of a commit of these published values; `None` if there is none."""


class Outage:
    """A store whose commits of published values may fail."""

    def __init__(self, engine: Engine, monkeypatch: pytest.MonkeyPatch, judge: Judge) -> None:
        self.tried: list[dict[str, bytes]] = []
        self._judge = judge
        self._store = store_of(engine)
        self._commit = self._store.commit
        monkeypatch.setattr(self._store, "commit", self.commit)

    async def commit(self, bundle: Bundle) -> None:
        if values := {name: payload for _, name, payload, *_ in bundle.published}:
            self.tried.append(values)
            await asyncio.sleep(0.05)
            if (error := self._judge(values)) is not None:
                raise error
        await self._commit(bundle)


def unavailable() -> StoreUnavailable:
    return StoreUnavailable("the disk is full", "make room")


async def test_a_value_waits_for_its_store_and_the_outcome_waits_for_the_value(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    @task
    async def says() -> None:
        perdure.publish("progress", "said")

    @workflow
    async def saying_in_an_outage() -> None:
        await says()
        await go_on.receive()

    outage = Outage(engine, monkeypatch, lambda _: unavailable() if len(outage.tried) < 4 else None)
    run = await engine.start(saying_in_an_outage())
    await until_published(run, progress="said")
    assert outage.tried == [{"progress": b'"said"'}] * 4
    await run.signal(go_on, 1)
    await run.result(60)
    assert await run.published() == {"progress": "said"}


async def test_newer_value_replaces_the_pending_one(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    @task
    async def counts() -> None:
        perdure.publish("first", 1)
        perdure.publish("count", 1)
        await until(lambda: len(outage.tried) == 2)
        perdure.publish("count", 2)

    @workflow
    async def counting_in_an_outage() -> None:
        await counts()

    outage = Outage(engine, monkeypatch, lambda _: unavailable() if len(outage.tried) < 3 else None)
    run = await engine.start(counting_in_an_outage())
    await run.result(60)
    assert await run.published() == {"first": 1, "count": 2}
    assert outage.tried == [
        {"first": b"1", "count": b"1"},
        {"first": b"1", "count": b"1"},
        {"first": b"1", "count": b"2"},
    ]


async def test_unwritable_value_is_reported_and_blocks_nothing(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    reported: list[BaseException] = []
    monkeypatch.setattr(Probe(engine).host, "failed", reported.append)

    @task
    async def says_two_things() -> None:
        perdure.publish("bad", 1)
        await until(lambda: bool(outage.tried))
        # While the store is at the first.
        perdure.publish("good", 2)

    @workflow
    async def saying_two_things() -> None:
        await says_two_things()

    refused = BundleRefused("a value is refused", "publish another")
    outage = Outage(engine, monkeypatch, lambda values: refused if "bad" in values else None)
    run = await engine.start(saying_two_things())
    await run.result(60)
    assert await run.published() == {"good": 2}
    assert reported == [refused]
    assert outage.tried == [{"bad": b"1"}, {"good": b"2"}]


async def test_a_stop_does_not_wait_for_a_store_that_does_not_answer(
    engine_url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(patience, "FIRST_DELAY_S", 60)

    @task
    async def says() -> None:
        perdure.publish("progress", "said")

    @workflow
    async def publishing_unread() -> None:
        await says()

    async with Engine(engine_url, settings=Settings(grace=3600)) as engine:
        outage = Outage(engine, monkeypatch, lambda _: unavailable())
        await engine.start(publishing_unread())
        await until(lambda: WAITS in caplog.text)
        stopping_at = time.monotonic()
    assert time.monotonic() - stopping_at < 60
    assert len(outage.tried) == 2


OUTAGES = {
    "sqlite": ("PRAGMA max_page_count = 1", "PRAGMA max_page_count = 1000000"),
    "postgresql": (
        "ALTER TABLE {}published RENAME TO elsewhere",
        "ALTER TABLE {}elsewhere RENAME TO published",
    ),
}
"""A full disk and a missing table, each for a while."""


async def test_a_real_outage_loses_nothing(
    shared_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    began, is_out = asyncio.Event(), asyncio.Event()
    value = "x" * 200_000

    @task
    async def says() -> None:
        began.set()
        await is_out.wait()
        perdure.publish("progress", value)

    @workflow
    async def saying_in_a_real_outage() -> None:
        await says()

    begin, end = OUTAGES[shared_url.partition(":")[0]]
    async with opened(shared_url) as engine:
        run = await engine.start(saying_in_a_real_outage())
        await began.wait()
        await raw(store_of(engine), begin)
        is_out.set()
        await until(lambda: WAITS in caplog.text)
        await raw(store_of(engine), end)
        await run.result(60)
        assert await run.published() == {"progress": value}
