import re
from importlib.resources import files
from pathlib import Path
from typing import Any

import apsw
import asyncpg
import pytest

from perdure.core.ids import StepId
from perdure.core.streams.chunks import ROOT, NewChunk
from perdure.store.inspection import verify_store
from perdure.store.opening import open_store
from perdure.store.rows.hosts import HostScope, NewHost
from perdure.store.rows.records import NewProgram
from perdure.store.schema import migrations
from perdure.store.sqlite.connections.opening import migrate
from tests.store.builders import HOST, TABLES, begun, raw

Shape = dict[str, Any]

POSTGRES_ONLY = "outcome"
"""Outcomes of transactions whose connection is lost; SQLite has no connection to lose."""

COLUMNS = """
SELECT c.relname, a.attnum, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull,
       pg_get_expr(d.adbin, d.adrelid), co.collname
FROM pg_attribute AS a
JOIN pg_class AS c ON c.oid = a.attrelid
LEFT JOIN pg_attrdef AS d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
LEFT JOIN pg_collation AS co ON co.oid = a.attcollation
WHERE c.relnamespace = 'perdure'::regnamespace AND c.relkind = 'r'
  AND a.attnum > 0 AND NOT a.attisdropped
"""
CONSTRAINTS = """
SELECT c.relname, k.conname, pg_get_constraintdef(k.oid)
FROM pg_constraint AS k JOIN pg_class AS c ON c.oid = k.conrelid
WHERE k.connamespace = 'perdure'::regnamespace
"""
INDEXES = "SELECT indexname, indexdef FROM pg_indexes WHERE schemaname = 'perdure'"
OPTIONS = """
SELECT relname, relkind::text, reloptions FROM pg_class WHERE relnamespace = 'perdure'::regnamespace
"""


def schema_file(dialect: str) -> str:
    return files("perdure.store").joinpath("sql", f"{dialect}_schema.sql").read_text()


def sqlite_shape(connection: apsw.Connection) -> Shape:
    """Tables, columns, keys and indexes as SQLite describes them, and the text of each statement, because only that has
    the checks and the conditions of partial indexes."""
    names = [str(row[0]) for row in connection.execute("SELECT name FROM sqlite_schema")]
    shape: Shape = {
        "sql": {
            (kind, name, table): re.sub(r"\s+", " ", str(sql))
            .replace("( ", "(")
            .replace(" )", ")")
            .replace(" ,", ",")
            for kind, name, table, sql in connection.execute(
                "SELECT type, name, tbl_name, sql FROM sqlite_schema"
            )
        },
        "tables": sorted(connection.execute("PRAGMA table_list").fetchall(), key=repr),
    }
    for name in names:
        for pragma in ("table_xinfo", "index_list", "index_xinfo"):
            rows = connection.execute(f"PRAGMA {pragma}({name})").fetchall()
            # An index's number is that of its making, which a migration may change.
            rows = [row[1:] for row in rows] if pragma == "index_list" else rows
            shape[f"{pragma} {name}"] = sorted(rows, key=repr)
    return shape


async def postgres_shape(url: str) -> Shape:
    connection = await asyncpg.connect(url)
    try:
        queries = {"columns": COLUMNS, "constraints": CONSTRAINTS, "indexes": INDEXES}
        queries["options"] = OPTIONS
        return {
            name: sorted((tuple(row) for row in await connection.fetch(query)), key=repr)
            for name, query in queries.items()
        }
    finally:
        await connection.close()


def test_the_sqlite_schema_page_equals_all_migrations() -> None:
    migrated, page = apsw.Connection(":memory:"), apsw.Connection(":memory:")
    migrate(migrated, ":memory:", adopt=False)
    page.execute(schema_file("sqlite"))
    assert sqlite_shape(page) == sqlite_shape(migrated)
    tables = {name for kind, name, _ in sqlite_shape(page)["sql"] if kind == "table"}
    assert "perdure_meta" in tables
    assert len(tables) == 28


@pytest.mark.postgres
async def test_the_postgres_schema_page_equals_all_migrations(fresh_postgres: str) -> None:
    await (await open_store(fresh_postgres)).close()
    migrated = await postgres_shape(fresh_postgres)
    connection = await asyncpg.connect(fresh_postgres)
    await connection.execute("DROP SCHEMA perdure CASCADE")
    await connection.execute(schema_file("postgres"))
    await connection.close()
    page = await postgres_shape(fresh_postgres)
    assert page == migrated
    tables = {row[0] for row in page["options"] if row[1] == "r"}
    assert tables == {*TABLES, POSTGRES_ONLY}


def test_a_difference_between_schema_page_and_migrations_is_found() -> None:
    """Each kind of difference that the comparison must find."""
    page = schema_file("sqlite")
    changes = [
        ("semaphore >= 0", "semaphore >= 1"),
        ("WHERE key IS NOT NULL", "WHERE key IS NULL"),
        ("DEFAULT 'pending'", "DEFAULT 'new'"),
        ("PRIMARY KEY (run_id, guid)", "PRIMARY KEY (guid, run_id)"),
        ("reason    TEXT", "reason    TEXT NOT NULL"),
        ("priority DESC", "priority"),
        ("at_ms  INTEGER", "at_ms  TEXT"),
    ]
    reference = apsw.Connection(":memory:")
    reference.execute(page)
    for old, new in changes:
        assert old in page
        changed = apsw.Connection(":memory:")
        changed.execute(page.replace(old, new, 1))
        assert sqlite_shape(changed) != sqlite_shape(reference)


@pytest.mark.parametrize("dialect", ["sqlite", "postgres"])
def test_the_schema_page_explains_every_table_and_column(dialect: str) -> None:
    page = schema_file(dialect)
    header = page[: page.index("CREATE ")]
    found = re.findall(
        r"((?:^--[^\n]*\n)+)CREATE TABLE (\S+) \(\n(.*?)^\)", page, re.MULTILINE | re.DOTALL
    )
    assert len(found) == 28 + (dialect == "postgres")
    for comment, table, body in found:
        assert f"--   {table} " in header
        columns = re.findall(
            r"^    (\w+) +(?:text|bigint|bytea|integer|blob)", body, re.MULTILINE | re.IGNORECASE
        )
        assert columns
        unexplained = [
            c for c in columns if not re.search(rf"^-- (\w+, )*{c}\b.* \w", comment, re.MULTILINE)
        ]
        assert unexplained == []


def test_both_dialects_have_the_same_tables_and_columns_save_for_outcomes() -> None:
    def columns(dialect: str, prefix: str) -> dict[str, list[str]]:
        tables = re.findall(
            rf"CREATE TABLE {prefix}(\w+) \(\n(.*?)^\)",
            schema_file(dialect),
            re.MULTILINE | re.DOTALL,
        )
        return {
            name: re.findall(
                r"^    (\w+) +(?:text|bigint|bytea|integer|blob)",
                body,
                re.MULTILINE | re.IGNORECASE,
            )
            for name, body in tables
        }

    postgres = columns("postgres", "perdure.")
    assert postgres.pop(POSTGRES_ONLY) == ["token", "committed", "at_ms"]
    assert columns("sqlite", "perdure_") == postgres


def test_both_dialects_have_as_many_migrations() -> None:
    assert len(migrations("sqlite")) == len(migrations("postgres"))


BEFORE_PARKING = (
    "INSERT INTO {}run (id, scope, program, version, digest, epoch, seq, head, semaphore, status,"
    " created_at_ms) VALUES ('r_old', '', 'checkout', '', '', 1, 0, {}, 1, 'running', 0)"
)


async def test_a_sqlite_store_of_the_first_version_is_migrated(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    connection = apsw.Connection(str(path))
    connection.execute("CREATE TABLE perdure_meta (key TEXT NOT NULL PRIMARY KEY, value TEXT)")
    connection.execute("INSERT INTO perdure_meta VALUES ('schema_version', '1')")
    connection.execute(migrations("sqlite")[0])
    connection.execute(BEFORE_PARKING.format("perdure_", "x''"))
    connection.close()
    await assert_up_to_date(f"sqlite:///{path}")


async def test_the_migration_to_entries_in_commit_order_keeps_all_entries(
    tmp_path: Path,
) -> None:
    path = tmp_path / "store.db"
    store = await open_store(f"sqlite:///{path}")
    runs = [await begun(store), await begun(store)]
    for run in runs:
        await store.commit(run.step())
    before = [await store.entries(run.run_id, 0, 100) for run in runs]
    await store.close()
    connection = apsw.Connection(str(path))
    undo_migrations(connection, 15)
    connection.execute(
        "ALTER TABLE perdure_event RENAME TO newer;"
        + cut(migrations("sqlite")[0], "CREATE TABLE perdure_event", ";")
        + "INSERT INTO perdure_event SELECT * FROM newer; DROP TABLE newer;"
        + "DROP INDEX perdure_run_unowned; DROP INDEX perdure_run_key; ALTER TABLE perdure_run DROP COLUMN replaced_by;"
        + cut(migrations("sqlite")[0], "CREATE UNIQUE INDEX perdure_run_key", ";")
        + "DROP INDEX perdure_work_queue; ALTER TABLE perdure_work DROP COLUMN held;"
        + "DROP TABLE perdure_parked_step;"
        + cut(migrations("sqlite")[0], "CREATE INDEX perdure_work_queue", ";")
        + "DROP INDEX perdure_message_order;"
        + "UPDATE perdure_meta SET value = '8'"
    )
    assert is_without_rowid(connection)
    connection.close()
    store = await open_store(f"sqlite:///{path}")
    assert [await store.entries(run.run_id, 0, 100) for run in runs] == before
    assert not (await verify_store(store)).findings
    await store.close()
    connection = apsw.Connection(str(path))
    assert not is_without_rowid(connection)
    connection.close()


CHILD = (
    "INSERT INTO {0}run (id, scope, program, version, digest, epoch, seq, head, semaphore, status, created_at_ms)"
    " VALUES ('r_child', '', 'p', '', '', 1, 1, {1}, 1, 'running', 0);"
    "INSERT INTO {0}event (run_id, seq, at_ms, body, prev)"
    ' VALUES (\'r_child\', 0, 0, \'{{"type":"ExecutionStarted","program":"p","parent_id":"r_'
    f"{'ab' * 16}/root.1#2"
    "\"}}', {1});"
)
PARENTS = "SELECT id, parent FROM {}run ORDER BY id"


async def test_the_migration_to_lists_finds_the_parents_of_children(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    store = await open_store(f"sqlite:///{path}")
    other = await begun(store)
    await store.close()
    connection = apsw.Connection(str(path))
    undo_migrations(connection, 15)
    connection.execute(CHILD.format("perdure_", "x''"))
    connection.execute("UPDATE perdure_meta SET value = '14'")
    connection.close()
    store = await open_store(f"sqlite:///{path}")
    assert await raw(store, PARENTS) == [(other.run_id, None), ("r_child", f"r_{'ab' * 16}")]
    await store.close()


@pytest.mark.postgres
async def test_the_migration_to_lists_finds_the_parents_of_children_on_postgres(
    fresh_postgres: str,
) -> None:
    connection = await asyncpg.connect(fresh_postgres)
    await connection.execute("DROP SCHEMA IF EXISTS perdure CASCADE; CREATE SCHEMA perdure")
    await connection.execute("CREATE TABLE perdure.meta (key text PRIMARY KEY, value text)")
    await connection.execute("INSERT INTO perdure.meta VALUES ('schema_version', '14')")
    for script in migrations("postgres")[:14]:
        await connection.execute(script)
    await connection.execute(CHILD.format("perdure.", "''"))
    await connection.execute(BEFORE_PARKING.format("perdure.", "''"))
    await connection.close()
    store = await open_store(fresh_postgres)
    assert await raw(store, PARENTS) == [("r_child", f"r_{'ab' * 16}"), ("r_old", None)]
    await store.close()


def undo_migrations(connection: apsw.Connection, first: int) -> None:
    """Take back the migrations from number `first` on. Views and indexes that they replace stay in the new form."""
    for script in reversed(migrations("sqlite")[first - 1 :]):
        replaced = re.findall(r"^DROP (?:VIEW|INDEX) (\w+)", script, re.MULTILINE)
        for kind in ("VIEW", "INDEX", "TABLE"):
            for name in re.findall(rf"^CREATE (?:UNIQUE )?{kind} (\w+)", script, re.MULTILINE):
                if name not in replaced:
                    connection.execute(f"DROP {kind} {name}")
        for table, column in re.findall(r"ALTER TABLE (\w+) ADD COLUMN (\w+)", script):
            connection.execute(f"ALTER TABLE {table} DROP COLUMN {column}")


def cut(text: str, begin: str, end: str) -> str:
    """The part of `text` from `begin` to the next `end`, which is included."""
    start = text.index(begin)
    return text[start : text.index(end, start) + len(end)]


def is_without_rowid(connection: apsw.Connection) -> bool:
    (row,) = connection.execute("SELECT wr FROM pragma_table_list('perdure_event')").fetchall()
    return bool(row[0])


@pytest.mark.postgres
async def test_a_postgres_store_of_the_first_version_is_migrated(
    fresh_postgres: str,
) -> None:
    connection = await asyncpg.connect(fresh_postgres)
    await connection.execute("CREATE SCHEMA perdure")
    await connection.execute("CREATE TABLE perdure.meta (key text PRIMARY KEY, value text)")
    await connection.execute("INSERT INTO perdure.meta VALUES ('schema_version', '1')")
    await connection.execute(migrations("postgres")[0])
    await connection.execute(BEFORE_PARKING.format("perdure.", "''"))
    await connection.close()
    await assert_up_to_date(fresh_postgres)


async def assert_up_to_date(url: str) -> None:
    """The old run exists and is not parked, and all new features work."""
    store = await open_store(url)
    (old,) = await store.open_runs(None)
    assert (old.run_id, old.parked) == ("r_old", None)
    run = await begun(store)
    bundle = run.step()
    bundle.park(run.fence, "why")
    bundle.publish(run.run_id, "progress", b"1", 0)
    bundle.append_chunk(NewChunk(run.run_id, "tokens", ROOT, 0, b"1", 0))
    bundle.track(run.fence, StepId("join,0"), 2, 1)
    bundle.deliver(run.fence, StepId("join,0"), StepId("price,0"), "a", 0, b"1")
    bundle.hook(run.fence, StepId("join,0"), run.run_id, "wait", "topic", "key", 0)
    await store.commit(bundle)
    for rows in (store.readiness, store.inbox, store.hooks_waiting):
        assert len(await rows(run.run_id)) == 1
    await store.deploy_programs([NewProgram("checkout", "1", "d1", "{}")], 0)
    assert await store.streams(run.run_id) == {"tokens": 1}
    await store.register_host(NewHost(HOST, 1, (), 0))
    assert [
        peer.host for peer in (await store.host_snapshot(HostScope(HOST, (), (), 0))).peers
    ] == [HOST]
    ((found, _),) = await store.load([run.run_id])
    assert (found.parked, await store.published(run.run_id)) == ("why", {"progress": b"1"})
    await store.close()
