"""What workflows cost their store, pinned: commits and rows. A change here is a decision."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from perdure import Engine, task, workflow
from perdure.core.journal import events as e
from perdure.host import hosting
from perdure.store.bundle import Bundle
from perdure.store.committer import Decided
from perdure.store.store import Store
from tests.store.builders import TABLES, Meter, raw

pytestmark = pytest.mark.asyncio

STEPS = 10
RUNS = 20
PATIENCE_S = 20


@task
async def priced(number: int) -> int:
    return number + 1


@workflow
async def priced_chain(steps: int) -> int:
    number = 0
    for _ in range(steps):
        number = await priced(number)
    return number


class Till:
    """Every bundle that an engine commits, from now on."""

    def __init__(self, engine: Engine) -> None:
        assert engine._hosting is not None
        self.store: Store = engine._hosting.host.store
        self.bundles: list[Bundle] = []
        self._commit, self._submit = self.store.commit, self.store.submit
        self.store.commit = self.commit  # type: ignore[method-assign]
        self.store.submit = self.submit  # type: ignore[method-assign]

    async def commit(self, bundle: Bundle) -> None:
        self.bundles.append(bundle)
        await self._commit(bundle)

    def submit(self, bundle: Bundle, decided: Decided) -> None:
        self.bundles.append(bundle)
        self._submit(bundle, decided)

    async def rows(self) -> dict[str, int]:
        counts = {t: (await raw(self.store, f"SELECT count(*) FROM {{}}{t}"))[0][0] for t in TABLES}
        return {table: count for table, count in counts.items() if table != "meta"}


@pytest.fixture(params=["sqlite", "memory", pytest.param("postgres", marks=pytest.mark.postgres)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "postgres":
        address: str = request.getfixturevalue("fresh_postgres")
        return address
    return "sqlite:///:memory:" if request.param == "memory" else f"sqlite:///{tmp_path}/costs.db"


@pytest.fixture
async def engine(url: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Engine]:
    """An engine that asks its store for nothing while the test counts."""
    monkeypatch.setattr(hosting, "POLL_MS", 60_000)
    async with Engine(url) as opened:
        yield opened


def written(bundle: Bundle) -> dict[str, int]:
    """The rows that the bundle writes: of its books by table, and all others by what they are."""
    books = {
        "event": sum(len(appended.entries) for _, appended in bundle.appends),
        "ledger": sum(len(appended.postings) for _, appended in bundle.appends),
        "run": len({fence.run_id for fence, _ in bundle.appends}),
    }
    others = set(Bundle.__slots__) - {"appends", "fences", "has_more"}
    return books | {part: len(getattr(bundle, part)) for part in others if getattr(bundle, part)}


async def test_a_chain_commits_once_per_step_and_once_to_begin(engine: Engine) -> None:
    till = Till(engine)
    run = await engine.start(priced_chain(STEPS))
    assert await run.result(timeout=PATIENCE_S) == STEPS
    assert len(till.bundles) == STEPS + 1


async def test_a_run_of_one_step_commits_twice(engine: Engine) -> None:
    till = Till(engine)
    meter = await Meter.of(till.store)
    run = await engine.start(priced_chain(1))
    assert await run.result(timeout=PATIENCE_S) == 1
    assert len(till.bundles) == 2
    assert meter.commits == 2


async def test_a_run_without_steps_commits_once(engine: Engine) -> None:
    till = Till(engine)
    run = await engine.start(priced_chain(0))
    assert await run.result(timeout=PATIENCE_S) == 0
    assert len(till.bundles) == 1


async def test_a_warm_step_writes_eight_rows_and_nothing_else(engine: Engine) -> None:
    till = Till(engine)
    run = await engine.start(priced_chain(STEPS))
    await run.result(timeout=PATIENCE_S)
    _, *warm, _ = till.bundles
    assert len(warm) == STEPS - 1
    assert [written(bundle) for bundle in warm] == [{"event": 5, "ledger": 2, "run": 1}] * len(warm)
    assert all(sum(written(bundle).values()) <= 8 for bundle in warm)
    rows = await till.rows()
    # Five for each step, and one more at either end.
    assert rows == {
        "run": 1,
        "event": 5 * STEPS + 2,
        "ledger": STEPS,
        "message": 0,
        "work": 0,
        "published": 0,
        "stream": 0,
        "chunk": 0,
        "readiness": 0,
        "inbox": 0,
        "hook": 0,
        "program": 0,
        "host": 1,
        "operation": 0,
        "operation_log": 0,
    }


async def test_concurrent_runs_share_their_commits(engine: Engine) -> None:
    till = Till(engine)
    meter = await Meter.of(till.store)
    runs = await engine.start_many([priced_chain(STEPS) for _ in range(RUNS)])
    results = await asyncio.gather(*(run.result(timeout=PATIENCE_S) for run in runs))
    assert results == [STEPS] * RUNS
    assert len(till.bundles) == RUNS * (STEPS + 1)
    assert meter.commits < len(till.bundles) / 2


async def test_a_warm_run_is_never_read(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    till = Till(engine)

    async def refuse(*_: object) -> None:
        raise AssertionError("a warm run was loaded")

    monkeypatch.setattr(till.store, "load", refuse)
    run = await engine.start(priced_chain(STEPS))
    assert await run.result(timeout=PATIENCE_S) == STEPS
    assert isinstance([entry.event async for entry in run.events()][-1], e.ExecutionCompleted)
