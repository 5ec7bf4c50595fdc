"""Lists of runs: what the first page of each filter reads does not grow with the store."""

import msgspec
import pytest

from perdure.core.ids import RunId
from perdure.core.runs.listing import RunFilter
from perdure.store.list_queries import ListQueries, numbered
from perdure.store.postgres.lists import BY_INDEX
from perdure.store.postgres.store import PostgresStore
from perdure.store.sqlite.store import SqliteStore
from perdure.store.store import Store
from tests.store.builders import NOW, raw
from tests.store.test_plans import ROWS, machine_steps

pytestmark = [
    pytest.mark.asyncio,
    pytest.mark.usefixtures("tampering"),
    pytest.mark.parametrize(
        "store_url",
        ["memory", pytest.param("postgres", marks=pytest.mark.postgres)],
        indirect=True,
    ),
]

MANY = 20_000
RARE = 7
"""Runs of each rare kind: the first ones, which a walk of all runs reaches last."""

LIMIT = 5

STEPS = 4_000
"""Steps of SQLite's machine: a scan takes several for each row."""

PAGES = 150
"""Pages of Postgres: a scan of one index of all these rows reads more."""

RUN_ID = "'r_' || lpad(CAST(i AS text), 32, '0')"
RUNS = f"""
INSERT INTO {{0}}run (id, scope, program, version, digest, key, owner, epoch, seq, head, semaphore, status,
                    created_at_ms, closed_at_ms, parked, chain, parent, forked_from, error)
SELECT {RUN_ID}, CASE WHEN i <= {RARE} THEN 'small' ELSE '' END, CASE WHEN i <= {RARE} THEN 'rare' ELSE 'p' END,
       '', '',
       CASE WHEN i <= {RARE} THEN 'k-' ELSE 'o-' END || i,
       CASE WHEN i % 2 = 1 AND i <= {RARE} THEN 'host-b' END, 1, 0, EMPTY, 0,
       CASE WHEN i <= {RARE} AND i % 2 = 0 THEN 'failed' WHEN i <= {RARE} THEN 'blocked' ELSE 'completed' END,
       {NOW} + i,
       CASE WHEN i <= {RARE} AND i % 2 = 1 THEN NULL ELSE {NOW} + i END,
       CASE WHEN i <= {RARE} AND i % 2 = 1 THEN 'unknown-name: why' END,
       CASE WHEN i <= {RARE} THEN 'r_first' END, CASE WHEN i <= {RARE} THEN 'r_parent' END,
       CASE WHEN i <= {RARE} THEN 'r_forked' END, CASE WHEN i <= {RARE} AND i % 2 = 0 THEN 'f1' END
FROM n
"""
TAGS = f"""
INSERT INTO {{0}}hook (run_id, step, kind, mailbox, topic, key, since_ms)
SELECT {RUN_ID}, 'root', 'key', 'r_' || i, 'customer', CASE WHEN i <= {RARE} THEN 'small' ELSE 'acme' END, 0 FROM n
"""

FILTERS = {
    "none": RunFilter(),
    "status": RunFilter(statuses=frozenset({"failed"})),
    "open": RunFilter(statuses=frozenset({"blocked"})),
    "parked": RunFilter(parked=True),
    "shown as parked": RunFilter(statuses=frozenset({"parked"})),
    "program": RunFilter(program="rare"),
    "scope": RunFilter(scope="small"),
    "scope and program": RunFilter(scope="small", program="rare"),
    "keys": RunFilter(key_prefix="k-"),
    "a frequent tag": RunFilter(tags={"customer": "acme"}),
    "a rare tag": RunFilter(tags={"customer": "small"}),
    "parent": RunFilter(parent=RunId("r_parent")),
    "fork": RunFilter(forked_from=RunId("r_forked")),
    "chain": RunFilter(chain=RunId("r_first")),
    "error": RunFilter(error="f1"),
    "error and status": RunFilter(error="f1", statuses=frozenset({"failed"})),
    "closed": RunFilter(closed=(NOW + 1, NOW + RARE)),
    "closed lately": RunFilter(closed=(NOW + MANY - 20, None)),
    "created lately": RunFilter(created=(NOW + MANY - 20, None)),
    "waiting for": RunFilter(waiting_for="approval"),
}


@pytest.fixture
def emptied_postgres(fresh_postgres: str) -> str:
    """A database without the statistics that earlier tests left: the planner would choose by them."""
    return fresh_postgres


async def fill(store: Store) -> None:
    is_sqlite = isinstance(store, SqliteStore)
    rows = ROWS["sqlite" if is_sqlite else "postgres"].format(MANY)
    for sql in (RUNS, TAGS):
        text = sql.replace("EMPTY", "x''" if is_sqlite else "''")
        if is_sqlite:
            text = text.replace(
                "lpad(CAST(i AS text), 32, '0')", "substr(CAST(10000000 + i AS TEXT), 2)"
            )
        await raw(store, rows + text)


async def cost(store: Store, wanted: RunFilter) -> int:
    """What the first page reads: in steps of SQLite's machine, or in pages of Postgres."""
    if isinstance(store, SqliteStore):
        return await machine_steps(store, lambda s: s.list_runs(wanted, None, LIMIT))
    assert isinstance(store, PostgresStore)
    connection = store._commits.connection
    assert connection is not None
    pages: int = 0
    async with connection.transaction():
        await connection.execute(BY_INDEX)
        query = ListQueries("postgres").page(wanted, None, LIMIT)
        statement = next(query)
        while True:
            sql, values = numbered(statement)
            explained = "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) " + sql
            top = msgspec.json.decode(await connection.fetchval(explained, *values))[0]["Plan"]
            pages += int(top["Shared Hit Blocks"]) + int(top["Shared Read Blocks"])
            try:
                rows = await connection.fetch(sql, *values)
                statement = query.send([tuple(row) for row in rows])
            except StopIteration:
                return pages


async def test_the_first_page_of_each_filter_does_not_scan(store: Store) -> None:
    await fill(store)
    most = STEPS if isinstance(store, SqliteStore) else PAGES
    costs = {name: await cost(store, wanted) for name, wanted in FILTERS.items()}
    if isinstance(store, PostgresStore):  # Without statistics two indexes look alike to Postgres
        del costs["keys"]
    assert {name: found for name, found in costs.items() if found > most} == {}
    await raw(store, "ANALYZE")
    costs = {name: await cost(store, wanted) for name, wanted in FILTERS.items()}
    assert {name: found for name, found in costs.items() if found > most} == {}


async def test_a_page_that_no_index_serves_is_detected(store: Store) -> None:
    await fill(store)
    most = STEPS if isinstance(store, SqliteStore) else PAGES
    assert await cost(store, RunFilter(version="none")) > most
