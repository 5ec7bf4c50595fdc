"""Frequent statements of a host: what they read does not grow with the store."""

from collections.abc import Awaitable, Callable
from typing import NamedTuple

import msgspec
import pytest

from perdure.core.ids import Guid, HostId, RunId, StepId, guid_prefix, message_guid
from perdure.core.ledger import message_account
from perdure.core.limits import MAX_TIME_MS
from perdure.core.messages import AT_ONCE, Message
from perdure.core.streams.chunks import ChunkOrigin, StoredChunk
from perdure.store.graph_tables import MAX_MATCHES
from perdure.store.postgres.store import PostgresStore
from perdure.store.rows.hosts import HostScope, HostSnapshot
from perdure.store.rows.records import SentMessage
from perdure.store.sqlite.store import SqliteStore
from perdure.store.statements import statements
from perdure.store.store import Store
from tests.store.builders import HOST, NOW, OTHER_HOST, begun, raw, sending

pytestmark = [pytest.mark.asyncio, pytest.mark.usefixtures("tampering")]

MANY = 20_000
POSTGRES = statements("postgres") | statements("postgres_graphs")

ROWS = {
    "sqlite": "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {}) ",
    "postgres": "WITH n (i) AS (SELECT generate_series(1, {})) ",
}
RUNS = """
INSERT INTO {0}run (id, scope, program, version, digest, owner, epoch, seq, head, semaphore, status,
                    created_at_ms)
SELECT 'r_' || (100000 + i), '', 'p', '', '', CASE WHEN i = 7 THEN 'host-b' ELSE 'host-a' END,
       1, 0, substr(head, 1, 0), 1, 'running', 0
FROM n, {0}run WHERE program = 'checkout'
"""
TIMERS = """
INSERT INTO {0}message (run_id, guid, kind, due_at_ms, arrival)
SELECT id, id, 'timer', :at_ms, 1 FROM {0}run WHERE program = 'p'
"""
WORK = """
INSERT INTO {0}work (run_id, step, guid, queue, priority, available_at_ms)
SELECT 'r_' || i, 's', 'g', 'gpu', i % 3, i FROM n
"""

CHUNKS = """
INSERT INTO {0}chunk (run_id, name, position, step, attempt, claim, number, payload, at_ms)
SELECT 'r_1', 'tokens', i, 'root.0', 1, 1, i, body, 0
FROM n, (SELECT prev AS body FROM {0}event LIMIT 1) AS any_bytes
"""

HOOKS = """
INSERT INTO {0}hook (run_id, step, kind, mailbox, topic, key, since_ms)
SELECT 'r_' || (100000 + i), 's', 'wait', CASE WHEN i % 2 = 0 THEN 'r_box' ELSE 'r_' || i END, 't', 'k', i FROM n
"""

STEPS = 1000
"""Steps of SQLite's machine: a scan takes at least one for each row."""

PAGES = 100
"""Pages of Postgres: a scan of one index of all these rows reads more."""


class Query(NamedTuple):
    """A call of the store, its expected result, and the statement behind it with Postgres parameters."""

    call: Callable[[Store], Awaitable[object]]
    result: object
    statement: str
    values: tuple[object, ...]


QUERIES = {
    "host_snapshot": Query(
        lambda s: without_clock(s.host_snapshot(HostScope(HOST, ("gpu", "cpu"), ("q",), NOW))),
        HostSnapshot((), frozenset((HOST, OTHER_HOST)), False, None, 1),
        "host_snapshot",
        (HOST, ["gpu", "cpu"], ["q"], NOW),
    ),
    "next_due": Query(lambda s: s.next_due(HOST), NOW + 1, "select_next_due", (HOST, MAX_TIME_MS)),
    "next_due of another host": Query(
        lambda s: s.next_due(HostId("host-c"), NOW), None, "select_next_due", ("host-c", NOW)
    ),
    "due_messages": Query(
        lambda s: s.due_messages(HOST, NOW, 10), [], "select_due_messages", (HOST, NOW, 10)
    ),
    "match_hooks": Query(lambda s: s.match_hooks(NOW), [], "match_hooks", (NOW, MAX_MATCHES)),
    "chain_end": Query(
        lambda s: s.chain_end(RunId("r_none")), None, "select_chain_end", ("r_none",)
    ),
    "sent_before": Query(
        lambda s: s.sent_before(RunId("r_100007"), Guid("r_100007")),
        [SentMessage(RunId("r_100007"), None, is_taken=False)],
        "select_sent",
        ("r_100007", "r_100007", message_account(Guid("r_100007"))),
    ),
    "next_work": Query(
        lambda s: s.next_work(["gpu", "cpu"]), 1, "select_next_work", (["gpu", "cpu"],)
    ),
}


@pytest.fixture
def emptied_postgres(fresh_postgres: str) -> str:
    """A database without the statistics that earlier tests left: the planner would choose by them."""
    return fresh_postgres


CHUNK = StoredChunk(MANY, ChunkOrigin(StepId("root.0")), b"", 0)
QUERIES["chunks"] = Query(
    lambda s: without_payloads(s.chunks(RunId("r_1"), "tokens", MANY, 10)),
    [CHUNK],
    "select_chunks",
    ("r_1", "tokens", MANY, 10),
)


async def without_clock(seen: Awaitable[HostSnapshot]) -> HostSnapshot:
    return msgspec.structs.replace(await seen, clock_ms=None, schema_version=0)


async def without_payloads(found: Awaitable[list[StoredChunk]]) -> list[StoredChunk]:
    return [msgspec.structs.replace(chunk, payload=b"") for chunk in await found]


async def fill(store: Store, *, timers_at_ms: int = NOW + 3_600_000) -> None:
    """Many runs of one owner and one of another, each with a timer; and many tasks."""
    run = await begun(store)
    await store.commit(sending(run.message("first", due_at_ms=NOW + 1)))
    rows = ROWS["sqlite" if isinstance(store, SqliteStore) else "postgres"].format(MANY)
    await raw(store, rows + RUNS)
    await set_timers(store, timers_at_ms)
    await raw(store, rows + WORK)
    await raw(store, rows + CHUNKS)
    await raw(store, rows + HOOKS)


async def set_timers(store: Store, at_ms: int) -> None:
    await raw(store, TIMERS.replace(":at_ms", str(at_ms)))


async def machine_steps(store: SqliteStore, read: Callable[[Store], Awaitable[object]]) -> int:
    """Steps of SQLite's machine for a read."""
    steps = 0

    def count() -> bool:
        nonlocal steps
        steps += 1
        return False

    await read(store)  # once before: reading the schema after a change takes steps too
    await store._reader.run(lambda c: c.set_progress_handler(count, 1))
    await read(store)
    await store._reader.run(lambda c: c.set_progress_handler(None))
    return steps


async def cost(store: Store, query: Query) -> int:
    """What a query reads: in steps of SQLite's machine, or in pages of Postgres."""
    if isinstance(store, SqliteStore):
        return await machine_steps(store, query.call)
    assert isinstance(store, PostgresStore)
    assert store._commits.connection is not None
    plan = await store._commits.connection.fetchval(
        "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) " + POSTGRES[query.statement],
        *query.values,
    )
    top = msgspec.json.decode(plan)[0]["Plan"]
    pages: int = top["Shared Hit Blocks"] + top["Shared Read Blocks"]
    return pages


def limit(store: Store) -> int:
    return STEPS if isinstance(store, SqliteStore) else PAGES


@pytest.mark.parametrize("name", QUERIES)
async def test_frequent_statements_of_a_host_do_not_scan(store: Store, name: str) -> None:
    query = QUERIES[name]
    await fill(store)
    assert await query.call(store) == query.result
    assert await cost(store, query) < limit(store)
    await raw(store, "ANALYZE")
    assert await cost(store, query) < limit(store)


async def test_a_claim_costs_by_what_it_takes_and_not_by_what_waits(store: Store) -> None:
    await fill(store)
    few = 5
    if isinstance(store, SqliteStore):
        steps = 0

        def count() -> bool:
            nonlocal steps
            steps += 1
            return False

        await store._writer.run(lambda c: c.set_progress_handler(count, 1))
        await store.claim_work(HOST, ["gpu", "cpu"], "token", MANY, 1, few)
        await store._writer.run(lambda c: c.set_progress_handler(None))
    else:
        values = (["gpu", "cpu"], MANY, few, "token", HOST, MANY)
        steps = await cost(store, Query(lambda s: s.next_work([]), None, "claim_work", values))
    assert steps < limit(store)


async def test_a_scan_is_detected(store: Store) -> None:
    await fill(store)
    query = Query(lambda s: s.open_runs(HOST, limit=MANY), [], "select_open_runs", ("", MANY, HOST))
    assert await cost(store, query) > limit(store)


async def test_due_messages_do_not_scan_even_if_statistics_say_that_all_are_due(
    store: Store,
) -> None:
    """The statistics are older than these rows."""
    await fill(store, timers_at_ms=NOW - 3_600_000)
    await raw(store, "ANALYZE")
    await raw(store, "DELETE FROM {}message WHERE kind = 'timer'")
    await set_timers(store, NOW + 3_600_000)
    if isinstance(store, PostgresStore):
        await raw(store, "VACUUM perdure.message")
    assert await cost(store, QUERIES["due_messages"]) < limit(store)


async def test_a_read_of_due_messages_costs_by_what_it_returns_and_not_by_what_is_due(
    store: Store,
) -> None:
    await fill(store, timers_at_ms=NOW - 3_600_000)
    few = Query(lambda s: s.due_messages(HOST, NOW, 5), None, "select_due_messages", (HOST, NOW, 5))
    assert len(await store.due_messages(HOST, NOW, 5)) == 5
    assert await cost(store, few) < limit(store)
    await raw(store, "ANALYZE")
    assert await cost(store, few) < limit(store)


CROWDED = RunId("r_" + "c" * 32)
QUIET = RunId("r_" + "d" * 32)
CROWD = """
INSERT INTO {0}message (run_id, guid, kind, due_at_ms, arrival)
SELECT 'r_cccccccccccccccccccccccccccccccc', 'm_cccccccccccccccccccccccccccccccc_' || i, 'signal:a', 0, i FROM n
"""
PENDING = Query(
    lambda s: s.pending(HOST, [QUIET], 10), [], "select_pending", (HOST, [guid_prefix(QUIET)], 10)
)
ENQUEUE = Query(
    lambda s: s.messages(QUIET),
    [],
    "enqueue",
    tuple(
        [each] for each in (CROWDED, f"{guid_prefix(CROWDED)}_new", "signal:a", None, None, 0, 1, 1)
    ),
)


async def test_order_is_found_by_its_index_however_many_messages_are_pending(store: Store) -> None:
    await fill(store)
    dialect = "sqlite" if isinstance(store, SqliteStore) else "postgres"
    await raw(store, ROWS[dialect].format(MANY) + CROWD)
    assert await cost(store, PENDING) < limit(store)
    await store.commit(
        sending(Message(CROWDED, message_guid(CROWDED, "last"), "signal:a", AT_ONCE, 1))
    )
    last, _, _ = (await store.messages(CROWDED))[-1]
    assert last.guid == message_guid(CROWDED, "last")
    assert last.arrival == MANY + 1
    if isinstance(store, PostgresStore):  # The statement names the index for SQLite
        assert await cost(store, ENQUEUE) < limit(store)
        await raw(store, "ANALYZE")
        assert await cost(store, ENQUEUE) < limit(store)
    assert await cost(store, PENDING) < limit(store)
