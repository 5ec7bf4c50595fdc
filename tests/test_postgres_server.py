import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import asyncpg
import pytest

from tests.empty_books import EmptyBooks
from tests.postgres_server import PostgresServer, PostgresServerError

pytestmark = pytest.mark.postgres

OWNER = """
import time
from tests.postgres_server import PostgresServer
server = PostgresServer()
server.open()
print(server.pid, server._directory, flush=True)
time.sleep(600)
"""


async def test_shared_server_answers_with_a_supported_version(postgres_url: str) -> None:
    connection = await asyncpg.connect(postgres_url)
    try:
        version = await connection.fetchval("SELECT version()")
        assert version.startswith("PostgreSQL ")
        assert connection.get_server_version().major >= 14
    finally:
        await connection.close()


async def test_server_keeps_fsync_on(postgres_url: str) -> None:
    connection = await asyncpg.connect(postgres_url)
    try:
        assert await connection.fetchval("SHOW fsync") == "on"
        assert await connection.fetchval("SHOW synchronous_commit") == "on"
    finally:
        await connection.close()


@pytest.mark.parametrize("attempt", ["first", "second"])
async def test_fresh_postgres_has_no_schema_left_by_the_test_before(
    fresh_postgres: str, attempt: str
) -> None:
    connection = await asyncpg.connect(fresh_postgres)
    try:
        await connection.execute("CREATE SCHEMA perdure; CREATE TABLE perdure.runs (id int)")
    finally:
        await connection.close()


CHANGES = [
    "INSERT INTO perdure.program VALUES ('left', '1', 'd', 'c', 0)",
    "ALTER TABLE perdure.run ADD COLUMN left_over text",
    "ALTER TABLE perdure.run ALTER COLUMN epoch DROP NOT NULL",
    "ALTER TABLE perdure.run ADD CONSTRAINT left_over CHECK (epoch > 7)",
    "DROP TABLE perdure.event CASCADE",
    "UPDATE perdure.meta SET value = '0' WHERE key = 'schema_version'",
    "CREATE TABLE perdure.left_over ()",
    "CREATE FUNCTION perdure.left_over() RETURNS int LANGUAGE sql AS 'SELECT 7'",
    "DROP SCHEMA perdure CASCADE",
    "CREATE TABLE left_over ()",
    "CREATE TABLE a (id int PRIMARY KEY); CREATE TABLE b (id int REFERENCES a);"
    " INSERT INTO a VALUES (1); INSERT INTO b VALUES (1)",
]


@pytest.mark.parametrize("change", CHANGES)
async def test_emptied_postgres_is_a_new_store_whatever_a_test_has_changed(
    worker_books: EmptyBooks, change: str
) -> None:
    await worker_books.empty()
    connection = await asyncpg.connect(worker_books.url)
    try:
        before = await _contents(connection)
        await connection.execute(change)
    finally:
        await connection.close()
    await worker_books.empty()
    connection = await asyncpg.connect(worker_books.url)
    try:
        assert await _contents(connection) == before
    finally:
        await connection.close()


async def _contents(connection: "asyncpg.Connection[asyncpg.Record]") -> list[object]:
    """The columns, constraints and rows of all tables, and the functions."""
    found: list[object] = [
        await connection.fetch(
            "SELECT table_schema, table_name, column_name, is_nullable FROM information_schema.columns"
            " WHERE table_schema IN ('perdure', 'public') ORDER BY 1, 2, 3"
        ),
        await connection.fetch("SELECT conname FROM pg_constraint ORDER BY 1"),
        await connection.fetch("SELECT proname FROM pg_proc ORDER BY 1"),
        await connection.fetch("SELECT tablename FROM pg_tables ORDER BY 1"),
    ]
    tables = await connection.fetch(
        "SELECT schemaname, tablename FROM pg_tables WHERE schemaname IN ('perdure', 'public') ORDER BY 1, 2"
    )
    for schema, table in tables:
        found.append(await connection.fetch(f"SELECT * FROM {schema}.{table}"))
    return found


async def test_restart_after_a_crash_keeps_committed_rows(private_postgres: PostgresServer) -> None:
    connection = await asyncpg.connect(private_postgres.url())
    await connection.execute("CREATE TABLE kept (id int); INSERT INTO kept VALUES (81)")
    connection.terminate()
    before = private_postgres.pid
    private_postgres.restart(immediate=True)
    assert private_postgres.pid != before
    connection = await asyncpg.connect(private_postgres.url())
    try:
        assert await connection.fetchval("SELECT id FROM kept") == 81
    finally:
        await connection.close()


async def test_stopped_server_refuses_connections(private_postgres: PostgresServer) -> None:
    private_postgres.stop()
    with pytest.raises(ConnectionRefusedError):
        await asyncpg.connect(private_postgres.url())
    with pytest.raises(PostgresServerError, match="start it first"):
        private_postgres.stop()


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="reads the owner from /proc")
def test_server_never_runs_as_root(private_postgres: PostgresServer) -> None:
    owner = Path(f"/proc/{private_postgres.pid}").stat().st_uid
    assert owner != 0
    assert owner == (private_postgres.account.uid or os.geteuid())


def test_server_ends_and_leaves_nothing_when_its_owner_is_killed(
    pytestconfig: pytest.Config,
) -> None:
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER], cwd=pytestconfig.rootpath, stdout=subprocess.PIPE, text=True
    )
    assert owner.stdout is not None
    with owner.stdout:
        pid, directory = owner.stdout.readline().split()
    owner.send_signal(signal.SIGKILL)
    owner.wait()
    deadline = time.monotonic() + 60
    while Path(directory).exists() or _is_alive(int(pid)):
        assert time.monotonic() < deadline, f"process {pid} or {directory} is still there"
        time.sleep(0.02)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
