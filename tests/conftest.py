"""What every test may ask for: Postgres, shared by the run or private to one test.

The run has one server. Without xdist it starts when the first test asks for it; with xdist the
controller starts it before the workers and tells them its address.
"""

import asyncio
import gc
import os
import signal
import sys
from collections.abc import Generator, Iterator
from typing import Protocol

import asyncpg
import pytest
from hypothesis import HealthCheck, settings

from tests.empty_books import EmptyBooks
from tests.postgres_server import PostgresServer

pytest.register_assert_rewrite("tests.chains", "tests.chaos.evidence", "tests.engine.exploring")

# A generated test proves a property, however busy the machine is.
settings.register_profile("any speed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any speed")

SERVER = pytest.StashKey[PostgresServer]()


class WorkerNode(Protocol):
    """The controller's view of one xdist worker, as far as it is used here."""

    config: pytest.Config
    workerinput: dict[str, str]


def pytest_configure() -> None:
    """Let the processes that tests start react to SIGINT, and keep the bytecode of what they import.

    A shell starts background jobs with SIGINT ignored, and children inherit that. Without bytecode files each of the
    hundreds of processes would compile all modules, which takes twice as long as importing them.
    """
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Keep modules and collected tests out of the collector's sight: it would walk them in each full collection."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: WorkerNode) -> None:
    node.workerinput["postgres_url"] = _shared_server(node.config).url()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """How much the crash explorer explored, under which schedule it caught each seeded bug; why tests were skipped."""
    lines = [
        str(text)
        for report in terminalreporter.stats.get("passed", [])
        for name, text in report.user_properties
        if name == "explored"
    ]
    if lines:
        terminalreporter.section("explored")
        terminalreporter.write_line("\n".join(lines))
    skipped = terminalreporter.stats.get("skipped", [])
    reasons = {str(report.longrepr[2]) for report in skipped if isinstance(report.longrepr, tuple)}
    if reasons:
        terminalreporter.section("not tested here")
        terminalreporter.write_line("\n".join(sorted(reasons)))


def pytest_unconfigure(config: pytest.Config) -> None:
    server = config.stash.get(SERVER, None)
    if server is not None:
        server.close()


def _shared_server(config: pytest.Config) -> PostgresServer:
    if SERVER not in config.stash:
        server = PostgresServer()
        server.open()
        config.stash[SERVER] = server
    return config.stash[SERVER]


@pytest.fixture(scope="session")
def postgres_url(pytestconfig: pytest.Config) -> str:
    """The address of the run's shared server, at its maintenance database."""
    workerinput: dict[str, str] | None = getattr(pytestconfig, "workerinput", None)
    if workerinput is None:
        return _shared_server(pytestconfig).url()
    return workerinput["postgres_url"]


@pytest.fixture(scope="session")
def worker_database(postgres_url: str, worker_id: str) -> str:
    """The address of a database that only this worker uses."""
    name = f"perdure_{worker_id}"
    asyncio.run(_execute(postgres_url, f'CREATE DATABASE "{name}"'))
    return f"{postgres_url.rpartition('/')[0]}/{name}"


@pytest.fixture(scope="session")
def worker_books(worker_database: str) -> EmptyBooks:
    return EmptyBooks(worker_database)


@pytest.fixture
def emptied_postgres(worker_books: EmptyBooks) -> str:
    """The address of a database whose `perdure` schema is up to date and holds nothing, with an empty `public` one."""
    asyncio.run(worker_books.empty())
    return worker_books.url


@pytest.fixture
def fresh_postgres(worker_books: EmptyBooks) -> str:
    """The address of a database without a `perdure` schema: only for tests of making one, which is slow."""
    asyncio.run(worker_books.drop())
    return worker_books.url


@pytest.fixture
def private_postgres() -> Iterator[PostgresServer]:
    """A server of the test's own, to stop, crash and restart."""
    with PostgresServer() as server:
        yield server


async def _execute(url: str, statements: str) -> None:
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(statements)
    finally:
        await connection.close()
