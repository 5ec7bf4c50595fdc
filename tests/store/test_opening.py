"""Stores that can't be opened: each raises a typed error that names the place, and nothing is changed."""

import asyncio
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import apsw
import asyncpg
import pytest

from perdure.core.errors import (
    InvalidUrl,
    NotOurDatabase,
    PerdureError,
    SchemaTooNew,
    StoreDamaged,
    StoreUnavailable,
)
from perdure.store.opening import open_store
from tests.postgres_server import PostgresServer
from tests.store.builders import assert_typed, begun, digest_of_file

pytestmark = pytest.mark.asyncio


def names_in(directory: Path) -> list[str]:
    return sorted(file.name for file in directory.iterdir())


async def refused(url: str, kind: type[PerdureError]) -> PerdureError:
    async with asyncio.timeout(60):
        with pytest.raises(kind) as caught:
            await open_store(url)
    assert type(caught.value) is kind
    return caught.value


@contextmanager
def unchanged(path: Path) -> Iterator[None]:
    """The file is unchanged byte for byte, and no file was added beside it."""
    before = digest_of_file(str(path)), sorted(path.parent.iterdir())
    yield
    assert (digest_of_file(str(path)), sorted(path.parent.iterdir())) == before


def database(path: Path, *statements: str) -> Path:
    with closing(apsw.Connection(str(path))) as connection:
        for statement in statements:
            connection.execute(statement)
    return path


async def our_database(path: Path, *statements: str) -> Path:
    await (await open_store(f"sqlite:///{path}")).close()
    return database(path, *statements)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "store.db",
        "/var/store.db",
        "mysql://host/db",
        "sqlite:",
        "sqlite:///",
        "sqlite://host/store.db",
        "sqlite:///store.db?mode=ro",
        "sqlite:///store.db?adopt=perhaps",
        "sqlite:///store.db#1",
        "postgresql://[::1/db",
    ],
)
async def test_a_url_that_names_no_store_is_refused(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    error = await refused(url, InvalidUrl)
    assert_typed(error, "invalid-url", repr(url))
    assert "sqlite:///file.db" in error.remedy
    assert names_in(tmp_path) == []


async def test_a_refused_url_does_not_show_its_password() -> None:
    error = await refused("mysql://me:hunter2@host/db", InvalidUrl)
    assert "hunter2" not in str(error)
    assert "mysql://me:***@host/db" in error.what


async def test_a_url_option_that_must_be_a_number_is_refused_otherwise() -> None:
    error = await refused("postgresql://h/db?statement_cache_size=many", InvalidUrl)
    assert_typed(error, "invalid-url", "'many'")


@pytest.mark.parametrize("place", ["nowhere/store.db", "file/store.db", "."])
async def test_a_path_that_can_not_be_written_is_refused(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").write_text("in the way")
    path = tmp_path / place
    error = await refused(f"sqlite:///{path}", StoreUnavailable)
    assert_typed(error, "store-unavailable", str(path))
    assert "directory" in error.remedy
    assert names_in(tmp_path) == ["file"]


async def test_a_path_below_a_device_is_refused() -> None:
    error = await refused("sqlite:////dev/null/store.db", StoreUnavailable)
    assert_typed(error, "store-unavailable", "/dev/null/store.db")


async def test_a_file_that_is_not_a_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "letter.txt"
    path.write_text("Dear Sir or Madam, " * 100)
    with unchanged(path):
        error = await refused(f"sqlite:///{path}", NotOurDatabase)
    assert_typed(error, "not-our-database", str(path))


async def test_a_damaged_database_is_refused(tmp_path: Path) -> None:
    path = await our_database(tmp_path / "store.db")
    with path.open("r+b") as file:
        file.seek(100)
        file.write(b"\xff" * 400)
    with unchanged(path):
        error = await refused(f"sqlite:///{path}", StoreDamaged)
    assert_typed(error, "store-damaged", str(path), "damaged")


async def test_a_database_of_another_program_is_refused_and_stays_as_it_is(
    tmp_path: Path,
) -> None:
    path = database(tmp_path / "app.db", "CREATE TABLE orders (id)")
    with unchanged(path):
        error = await refused(f"sqlite:///{path}", NotOurDatabase)
    assert_typed(error, "not-our-database", str(path), "orders")
    assert "adopt=true" in error.remedy


async def test_a_database_of_another_program_can_be_adopted(tmp_path: Path) -> None:
    path = database(
        tmp_path / "app.db", "CREATE TABLE orders (id)", "INSERT INTO orders VALUES (42)"
    )
    for _ in range(2):
        store = await open_store(f"sqlite:///{path}?adopt=true")
        await begun(store)
        await store.close()
    with closing(apsw.Connection(str(path))) as connection:
        assert connection.execute("SELECT id FROM orders").fetchall() == [(42,)]
        assert connection.execute("SELECT count(*) FROM perdure_run").fetchall() == [(2,)]


@pytest.mark.parametrize("adopt", ["", "?adopt=true"])
async def test_foreign_tables_with_perdures_names_are_refused(tmp_path: Path, adopt: str) -> None:
    path = database(tmp_path / "app.db", "CREATE TABLE perdure_run (id)")
    with unchanged(path):
        error = await refused(f"sqlite:///{path}{adopt}", NotOurDatabase)
    assert_typed(error, "not-our-database", str(path), "perdure_run")


@pytest.mark.parametrize(
    "statements",
    [
        ("CREATE TABLE perdure_meta (name)",),
        ("CREATE TABLE perdure_meta (key, value)",),
        ("CREATE TABLE perdure_meta (key, value)", "INSERT INTO perdure_meta VALUES (1, 1)"),
        (
            "CREATE TABLE perdure_meta (key, value)",
            "INSERT INTO perdure_meta VALUES ('schema_version', 1)",
        ),
    ],
    ids=["columns", "empty", "rows", "type"],
)
async def test_a_foreign_meta_table_is_refused(tmp_path: Path, statements: tuple[str, ...]) -> None:
    path = database(tmp_path / "app.db", *statements)
    with unchanged(path):
        error = await refused(f"sqlite:///{path}", NotOurDatabase)
    assert_typed(error, "not-our-database", str(path))


async def test_a_newer_schema_is_refused(tmp_path: Path) -> None:
    path = await our_database(tmp_path / "store.db", "UPDATE perdure_meta SET value = '99'")
    with unchanged(path):
        error = await refused(f"sqlite:///{path}", SchemaTooNew)
    assert_typed(error, "schema-too-new", str(path), "99")
    assert "upgrade" in error.remedy


@pytest.mark.parametrize(
    "change",
    [
        "DELETE FROM perdure_meta",
        "UPDATE perdure_meta SET value = 'one'",
        "UPDATE perdure_meta SET value = '-1'",
        "UPDATE perdure_meta SET value = '0'",
    ],
)
async def test_a_wrong_schema_version_is_refused(tmp_path: Path, change: str) -> None:
    path = await our_database(tmp_path / "store.db", change)
    with unchanged(path):
        error = await refused(f"sqlite:///{path}", NotOurDatabase)
    assert_typed(error, "not-our-database", str(path), "version")


async def test_a_refused_file_can_be_opened_once_it_is_fixed(tmp_path: Path) -> None:
    """A failed opening leaves no descriptor that would count as foreign."""
    path = database(tmp_path / "app.db", "CREATE TABLE orders (id)")
    error = await refused(f"sqlite:///{path}", NotOurDatabase)
    database(path, "DROP TABLE orders")
    await (await open_store(f"sqlite:///{path}")).close()
    assert error.__traceback__ is not None, "which keeps the frames of the failed opening alive"


@pytest.mark.postgres
async def test_an_unreachable_postgres_is_refused() -> None:
    error = await refused("postgresql://me:hunter2@127.0.0.1:1/db", StoreUnavailable)
    assert_typed(error, "store-unavailable", "postgresql://127.0.0.1:1/db")
    assert "hunter2" not in str(error)


@pytest.mark.postgres
@pytest.mark.parametrize("port", ["abc", "99999"])
async def test_an_invalid_port_is_refused(port: str) -> None:
    error = await refused(f"postgresql://127.0.0.1:{port}/db", StoreUnavailable)
    assert_typed(error, "store-unavailable", port)


@pytest.mark.postgres
async def test_a_database_or_user_that_does_not_exist_is_refused(fresh_postgres: str) -> None:
    base = fresh_postgres.rpartition("/")[0]
    error = await refused(f"{base}/no_such_database", StoreUnavailable)
    assert_typed(error, "store-unavailable", "no_such_database")
    error = await refused(fresh_postgres.replace("perdure@", "nobody@"), StoreUnavailable)
    assert_typed(error, "store-unavailable", '"nobody"')
    assert "password" in error.remedy


@pytest.mark.postgres
async def test_a_wrong_password_is_refused(private_postgres: PostgresServer) -> None:
    connection = await asyncpg.connect(private_postgres.url())
    await connection.execute("ALTER ROLE perdure PASSWORD 'right'")
    rules = Path(await connection.fetchval("SHOW hba_file"))
    await asyncio.to_thread(rules.write_text, "host all all 127.0.0.1/32 scram-sha-256\n")
    await connection.execute("SELECT pg_reload_conf()")
    await connection.close()
    await asyncio.sleep(0.2)
    url = private_postgres.url()
    error = await refused(url.replace("perdure@", "perdure:wrong@"), StoreUnavailable)
    assert_typed(error, "store-unavailable", "password authentication failed")
    assert "wrong@" not in str(error)
    await (await open_store(url.replace("perdure@", "perdure:right@"))).close()


async def structure(url: str) -> list[tuple[object, ...]]:
    connection = await asyncpg.connect(url)
    rows = await connection.fetch(
        "SELECT table_name, column_name FROM information_schema.columns"
        " WHERE table_schema = 'perdure' ORDER BY 1, 2"
    )
    await connection.close()
    return [tuple(row) for row in rows]


async def execute(url: str, *statements: str) -> None:
    connection = await asyncpg.connect(url)
    for statement in statements:
        await connection.execute(statement)
    await connection.close()


@pytest.mark.postgres
@pytest.mark.parametrize(
    "statements",
    [
        ("CREATE TABLE perdure.orders (id int)",),
        ("CREATE TABLE perdure.meta (name text)",),
        ("CREATE TABLE perdure.meta (key text, value text)",),
        (
            "CREATE TABLE perdure.meta (key text, value int)",
            "INSERT INTO perdure.meta VALUES ('schema_version', 1)",
        ),
    ],
    ids=["table", "columns", "empty", "type"],
)
async def test_a_foreign_schema_with_perdures_name_is_refused(
    fresh_postgres: str, statements: tuple[str, ...]
) -> None:
    await execute(fresh_postgres, "CREATE SCHEMA perdure", *statements)
    before = await structure(fresh_postgres)
    error = await refused(fresh_postgres, NotOurDatabase)
    assert_typed(error, "not-our-database", fresh_postgres.rpartition("/")[2])
    assert await structure(fresh_postgres) == before


@pytest.mark.postgres
@pytest.mark.parametrize(
    ("change", "kind", "code"),
    [
        ("UPDATE perdure.meta SET value = '99'", SchemaTooNew, "schema-too-new"),
        ("DELETE FROM perdure.meta", NotOurDatabase, "not-our-database"),
        ("UPDATE perdure.meta SET value = 'one'", NotOurDatabase, "not-our-database"),
        ("UPDATE perdure.meta SET value = '0'", NotOurDatabase, "not-our-database"),
    ],
)
async def test_a_schema_version_that_does_not_fit_is_refused_by_postgres_too(
    fresh_postgres: str, change: str, kind: type[PerdureError], code: str
) -> None:
    await (await open_store(fresh_postgres)).close()
    await execute(fresh_postgres, change)
    before = await structure(fresh_postgres)
    error = await refused(fresh_postgres, kind)
    assert_typed(error, code, "version")
    assert await structure(fresh_postgres) == before


@pytest.mark.postgres
async def test_a_user_that_may_not_make_tables_is_refused(fresh_postgres: str) -> None:
    await execute(fresh_postgres, "DROP ROLE IF EXISTS guest", "CREATE ROLE guest LOGIN")
    url = fresh_postgres.replace("perdure@", "guest@")
    try:
        error = await refused(url, StoreUnavailable)
        assert_typed(error, "store-unavailable", "permission denied")
        assert "grant CREATE" in error.remedy
        await (await open_store(fresh_postgres)).close()
        error = await refused(url, StoreUnavailable)
        assert_typed(error, "store-unavailable", "permission denied")
    finally:
        await execute(fresh_postgres, "DROP ROLE guest")


@pytest.mark.postgres
async def test_an_empty_schema_with_perdures_name_is_used(fresh_postgres: str) -> None:
    await execute(fresh_postgres, "CREATE SCHEMA perdure")
    store = await open_store(fresh_postgres)
    await begun(store)
    await store.close()


async def test_the_name_of_a_store_shows_no_credentials(tmp_path: Path) -> None:
    store = await open_store(f"sqlite:///{tmp_path}/store.db")
    assert store.name == f"sqlite:///{tmp_path}/store.db"
    await store.close()
