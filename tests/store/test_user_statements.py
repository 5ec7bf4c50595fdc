import pytest

from perdure.core.errors import ForbiddenStatement, InputError
from perdure.store.user_statements import require_allowed, require_no_schema_of_ours
from tests.store.builders import assert_typed


@pytest.mark.parametrize(
    "sql",
    [
        "COMMIT",
        "commit;",
        "  -- ends it\n /* here */ Rollback",
        "; ; END",
        "SAVEPOINT here",
        "BEGIN",
        "START TRANSACTION",
        "PREPARE TRANSACTION 'x'",
        "SET statement_timeout = 0",
        "PRAGMA journal_mode = DELETE",
        "ATTACH 'other.db' AS other",
        "LISTEN news",
        "VACUUM",
        "DO $$ BEGIN COMMIT; END $$",
    ],
)
def test_a_statement_that_ends_or_outlives_a_transaction_is_refused(sql: str) -> None:
    with pytest.raises(ForbiddenStatement) as error:
        require_allowed(sql)
    assert_typed(error.value, "forbidden-statement")


@pytest.mark.parametrize(
    "sql",
    [
        "INSERT INTO orders VALUES ('COMMIT')",
        "-- COMMIT\nSELECT 1",
        "(SELECT 1)",
        "WITH x AS (SELECT 1) SELECT * FROM x",
        "/* BEGIN */ UPDATE orders SET note = '; COMMIT'",
        "CREATE TABLE settings (set_at integer)",
    ],
)
def test_other_statements_are_allowed(sql: str) -> None:
    assert require_allowed(sql) == sql
    require_no_schema_of_ours(sql)


@pytest.mark.parametrize("sql", ["", "  ", "-- nothing", ";", 1, None, b"SELECT 1", "SELECT '\0'"])
def test_a_value_that_is_no_statement_is_refused(sql: object) -> None:
    with pytest.raises(InputError):
        require_allowed(sql)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM perdure.run",
        'DELETE FROM "perdure".event',
        "UPDATE Perdure . run SET epoch = 9",
        "SELECT * FROM perdure/* here */.run",
        "INSERT INTO orders SELECT 'perdure.run', id FROM perdure.run",
        r"SELECT E'\'', (SELECT count(*) FROM perdure.run), ''",
        r'UPDATE U&"perd\0075re".run SET epoch = 9',
        "DROP SCHEMA perdure CASCADE",
        'ALTER SCHEMA "perdure" RENAME TO mine',
        "DROP SCHEMA mine, perdure",
        "ALTER TABLE orders SET SCHEMA Perdure",
        "GRANT ALL ON ALL TABLES IN SCHEMA perdure TO someone",
        "EXPLAIN ANALYZE DELETE FROM perdure.chunk",
    ],
)
def test_a_table_of_perdure_in_a_statement_is_found(sql: str) -> None:
    with pytest.raises(ForbiddenStatement):
        require_no_schema_of_ours(sql)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT 'perdure.run', 'it''s perdure.run'",
        r"SELECT e'it\'s perdure.run'",
        "SELECT $$perdure.run$$, $x$ perdure.run $$ $x$",
        "-- perdure.run\nSELECT 1",
        "/* perdure.run */ SELECT 1",
        "SELECT * FROM my_perdure.run",
        "SELECT perdure FROM orders",
        "GRANT SELECT ON orders TO perdure",
        "CREATE SCHEMA my_perdure",
        "CREATE SCHEMA perdure_2",
        "SELECT U&'\\0061'",
        'SELECT "not perdure.run" FROM orders',
    ],
)
def test_a_statement_without_a_table_of_perdure_is_allowed(sql: str) -> None:
    require_no_schema_of_ours(sql)
