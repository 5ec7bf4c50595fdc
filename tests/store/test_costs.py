"""What a warm step costs, pinned: rows, statements and commits. A change here is a decision."""

import asyncio

import pytest

from perdure.core.streams.chunks import ROOT, NewChunk
from perdure.store.commit.bundle import Bundle
from perdure.store.postgres.store import PostgresStore
from perdure.store.sqlite.store import SqliteStore
from perdure.store.store import Store
from tests.store.builders import NOW, TABLES, Driven, Meter, begun, raw, sending

pytestmark = pytest.mark.asyncio


async def rows(store: Store) -> dict[str, int]:
    return {t: (await raw(store, f"SELECT count(*) FROM {{}}{t}"))[0][0] for t in TABLES}


def verbs(meter: Meter) -> list[str]:
    """Each statement, by its first words."""
    return [" ".join(sql.split()[:3]).rstrip(";") for sql in meter.statements]


async def commit_all(store: Store, runs: list[Driven]) -> None:
    await asyncio.gather(*(store.commit(run.step()) for run in runs))


async def test_a_warm_step_writes_five_events_two_balances_and_one_run(store: Store) -> None:
    run = await begun(store)
    before = await rows(store)
    bundle = run.step()
    ((_, appended),) = bundle.appends
    assert (len(appended.entries), len(appended.postings)) == (5, 2)
    await store.commit(bundle)
    after = await rows(store)
    # Of the two balances one is new: the step before has its row already.
    assert {table: after[table] - before[table] for table in TABLES} == {
        "meta": 0,
        "run": 0,
        "event": 5,
        "ledger": 1,
        "message": 0,
        "work": 0,
        "parked_step": 0,
        "published": 0,
        "stream": 0,
        "chunk": 0,
        "readiness": 0,
        "inbox": 0,
        "hook": 0,
        "program": 0,
        "host": 0,
        "operation": 0,
        "operation_log": 0,
        "schedule": 0,
        "tick": 0,
        "pending": 0,
        "limit_key": 0,
        "limit_setting": 0,
        "bus": 0,
        "publication": 0,
        "dead_letter": 0,
        "retained": 0,
        "token": 0,
        "audit": 0,
    }


async def test_statements_of_one_warm_step(store: Store) -> None:
    run = await begun(store)
    await store.commit(run.step())
    meter = await Meter.of(store)
    await store.commit(run.step())
    assert meter.commits == 1
    names = [verb.replace("perdure_", "perdure.") for verb in verbs(meter)]
    if isinstance(store, SqliteStore):
        assert names == [
            "BEGIN IMMEDIATE",
            "UPDATE perdure.run AS",
            "INSERT INTO perdure.event",
            "INSERT INTO perdure.ledger",
            "COMMIT",
        ]
    else:
        assert names == ["WITH fit AS"], "one round trip"


async def test_closing_a_run_costs_one_more_statement_on_sqlite_and_none_on_postgres(
    store: Store,
) -> None:
    """Only closing touches an index of the run's row, so only closing pays for it."""
    run = await begun(store)
    meter = await Meter.of(store)
    await store.commit(run.finish())
    if isinstance(store, SqliteStore):
        assert verbs(meter).count("UPDATE perdure_run AS") == 2
        assert len(meter.statements) == 6
    else:
        assert verbs(meter) == ["WITH fit AS"]


async def test_creating_a_run_is_one_statement_on_postgres(store: Store) -> None:
    await begun(store)
    meter = await Meter.of(store)
    await store.commit(Driven().start())
    if isinstance(store, SqliteStore):
        assert len(meter.statements) == 4  # begin, run, events, commit
    else:
        assert verbs(meter) == ["WITH born AS"]


async def test_statements_of_a_hundred_and_twenty_eight_warm_steps_in_one_group(
    store: Store, request: pytest.FixtureRequest
) -> None:
    runs = [Driven() for _ in range(128)]
    await asyncio.gather(*(store.commit(run.start()) for run in runs))
    await asyncio.gather(*(store.commit(run.first_step()) for run in runs))
    before = await rows(store)
    meter = await Meter.of(store)
    await commit_all(store, runs)
    assert meter.commits == 1
    # Begin, runs, events (on Postgres by COPY; statement by statement 512, then 128), balances, commit.
    expected = 5 if isinstance(store, SqliteStore) else 4
    assert len(meter.statements) == expected + (
        request.node.callspec.id == "statement by statement"
    )
    after = await rows(store)
    assert after["event"] - before["event"] == 5 * 128
    assert after["ledger"] - before["ledger"] == 128
    assert after["run"] == before["run"]


async def test_statements_of_a_run_of_one_step(store: Store) -> None:
    """Two commits: start and intent, result and completion."""
    meter = await Meter.of(store)
    run = await begun(store)
    await store.commit(run.finish())
    assert meter.commits == 2


async def test_a_message_costs_one_row_and_does_not_read_its_run(store: Store) -> None:
    run = await begun(store)
    before = await rows(store)
    meter = await Meter.of(store)
    await store.commit(sending(run.message("hello")))
    assert [verb for verb in verbs(meter) if "run" in verb] == []
    assert len(meter.statements) == 3
    after = await rows(store)
    assert after["message"] - before["message"] == 1


async def test_publishing_parking_and_dropping_cost_one_statement_per_table(store: Store) -> None:
    runs = [await begun(store) for _ in range(3)]
    bundles = []
    for run in runs:
        bundle = run.step()
        bundle.publish(run.run_id, "progress", b"1", NOW)
        bundle.park(run.fence, "diverged")
        bundle.drop_work(run.fence, run.step_id)
        bundles.append(bundle)
    meter = await Meter.of(store)
    await asyncio.gather(*map(store.commit, bundles))
    names = [verb.replace("perdure_", "perdure.") for verb in verbs(meter)]
    assert meter.commits == 1
    assert names.count("UPDATE perdure.run AS") == 2
    assert names.count("DELETE FROM perdure.work") == 1
    assert names.count("INSERT INTO perdure.published") == 1
    assert len(names) == (8 if isinstance(store, SqliteStore) else 7)


async def test_chunks_cost_one_statement_per_table(store: Store) -> None:
    runs = [await begun(store) for _ in range(3)]
    first = Bundle()
    first.append_chunk(NewChunk(runs[0].run_id, "before", ROOT, 0, b"1", NOW))
    await store.commit(first)
    before = await rows(store)
    bundles = []
    for run in runs:
        bundle = Bundle()
        for number in range(5):
            bundle.append_chunk(NewChunk(run.run_id, "tokens", ROOT, number, b"1", NOW))
        bundles.append(bundle)
    meter = await Meter.of(store)
    await asyncio.gather(*map(store.commit, bundles))
    names = [verb.replace("perdure_", "perdure.") for verb in verbs(meter)]
    assert meter.commits == 1
    # The first of them also checks that the runs are open.
    grown = "INSERT INTO perdure.stream" if isinstance(store, SqliteStore) else "WITH going AS"
    assert names[1:-1] == [grown, "INSERT INTO perdure.chunk"]
    after = await rows(store)
    assert {t: after[t] - before[t] for t in TABLES if after[t] != before[t]} == {
        "stream": 3,
        "chunk": 15,
    }


async def test_a_published_value_costs_one_row_and_does_not_read_its_run(store: Store) -> None:
    run = await begun(store)
    bundle = Bundle()
    bundle.publish(run.run_id, "progress", b"1", NOW)
    meter = await Meter.of(store)
    await store.commit(bundle)
    assert [verb for verb in verbs(meter) if "run" in verb] == []
    assert len(meter.statements) == 3


@pytest.mark.parametrize(
    "store_url", [pytest.param("postgres", marks=pytest.mark.postgres)], indirect=True
)
async def test_a_warm_step_on_postgres_writes_no_index_of_runs(store: Store) -> None:
    """An update that changes no indexed column is a HOT update; lists index the status of ended runs only."""
    assert isinstance(store, PostgresStore)
    run = await begun(store)
    await store.commit(run.step())
    before = await updates_of_runs(store)
    for _ in range(5):
        await store.commit(run.step())
    after = await updates_of_runs(store)
    assert after[0] - before[0] == 5
    assert after[1] - before[1] == 5


async def updates_of_runs(store: PostgresStore) -> tuple[int, int]:
    """How many rows of runs were updated, and how many of these without a change of an index."""
    connection = store._commits.connection
    assert connection is not None
    await connection.execute("SELECT pg_stat_force_next_flush()")
    await connection.execute("SELECT pg_stat_clear_snapshot()")
    (found,) = await raw(
        store, "SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = 'run'"
    )
    return found[0], found[1]
