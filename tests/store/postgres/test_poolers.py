"""Opens a store behind pgbouncer, if that is installed."""

import asyncio
import os
import shutil
import socket
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from perdure import Engine, Signal, Transaction, task, workflow
from perdure.core.errors import StoreUnavailable
from tests.client.engines import opened
from tests.postgres_server import Account, _free_port

PGBOUNCER = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin")

pytestmark = [
    pytest.mark.postgres,
    pytest.mark.skipif(PGBOUNCER is None, reason="pgbouncer is not installed"),
]


@workflow(name="poolers.brief")
async def brief(number: int) -> int:
    return number


more = Signal("more", int)


@task(name="poolers.queued", queue="poolers")
async def queued(number: int) -> int:
    return number


@task(name="poolers.write", transactional=True)
async def write(tx: Transaction, number: int) -> int:
    await tx.execute("INSERT INTO notes VALUES ($1)", number)
    return number


@workflow(name="poolers.steps")
async def steps(number: int) -> int:
    return await write(number) + await queued(number) + await more.receive()


@contextmanager
def pooled(url: str, mode: str, sessions: int = 50) -> Iterator[str]:
    """The address of the same database behind a pooler of its own, with at most so many sessions at the server."""
    server, port, account = urlsplit(url), _free_port(), Account.for_servers()
    root = Path(tempfile.mkdtemp(prefix="perdure-pooler-"))
    (root / "users.txt").write_text('"perdure" ""\n')
    (root / "pgbouncer.ini").write_text(
        f"[databases]\n* = host=127.0.0.1 port={server.port}\n[pgbouncer]\n"
        f"listen_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\n"
        f"auth_type = trust\nauth_file = {root}/users.txt\npool_mode = {mode}\n"
        f"max_client_conn = 200\ndefault_pool_size = {sessions}\n"
    )
    account.own(root)
    assert PGBOUNCER is not None
    process = account.spawn(PGBOUNCER, root / "pgbouncer.ini", cwd=root, log=root / "log")
    try:
        _wait_for(port, root / "log")
        yield f"postgresql://perdure@127.0.0.1:{port}{server.path}"
    finally:
        process.terminate()
        process.wait(30)
        shutil.rmtree(root, ignore_errors=True)


def _wait_for(port: int, log: Path) -> None:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        with socket.socket() as peer:
            if peer.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.02)
    pytest.fail(f"pgbouncer does not listen: {log.read_text()}")


async def test_an_engine_works_behind_a_pooler_that_gives_each_connection_a_session(
    fresh_postgres: str,
) -> None:
    with pooled(fresh_postgres, "session") as url:
        async with opened(url) as engine:
            assert await (await engine.start(brief(1), key="one")).result(60) == 1


async def test_engines_without_prepared_statements_work_behind_a_pooler_that_shares_sessions(
    fresh_postgres: str,
) -> None:
    with pooled(fresh_postgres, "transaction", sessions=4) as pooler:
        url = f"{pooler}?statement_cache_size=0"
        async with opened(url, queues=("poolers",)) as engine, opened(url) as other:
            async with engine.transaction() as tx:
                await tx.execute("CREATE TABLE notes (number INTEGER)")

            async def use(number: int) -> int:
                run = await (engine if number % 2 else other).start(steps(number))
                await run.describe()
                await run.signal(more, number)
                return await run.result(60)

            assert await asyncio.gather(*map(use, range(20))) == [3 * n for n in range(20)]
            async with other.transaction() as tx:
                assert await tx.fetch_value("SELECT count(*) FROM notes") == 20


@pytest.mark.parametrize("options", ["", "?statement_cache_size=0"])
async def test_a_pooler_that_refuses_transactions_is_refused_with_a_remedy(
    fresh_postgres: str, options: str
) -> None:
    async with opened(fresh_postgres):
        pass  # with a schema, opening needs no transaction
    said = r"transaction began .*: use pool_mode=session"
    with pooled(fresh_postgres, "statement") as url, pytest.raises(StoreUnavailable, match=said):
        await Engine(url + options).open()


async def test_a_pooler_that_loses_prepared_statements_is_refused_with_a_remedy(
    fresh_postgres: str,
) -> None:
    with pooled(fresh_postgres, "transaction") as url:
        said = r"^.* (does not|already) exists?\): append \?statement.*pool_mode=session"
        for _ in ("first", "again, with what the first left in the sessions"):
            with pytest.raises(StoreUnavailable, match=said):
                await Engine(url).open()
