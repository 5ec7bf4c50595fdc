"""Reads or takes several runs at once. Damaged text in one row must not make the others unreadable."""

from typing import Any

import apsw

from perdure.store.rows.values import RowValues
from perdure.store.statements import statements

_SQL = statements("sqlite")
_HEAD = 9


def take_runs(connection: apsw.Connection, name: str, values: dict[str, Any]) -> list[RowValues]:
    """Execute a statement that takes runs, inside a transaction; returns their rows."""
    connection.execute("SAVEPOINT take")
    try:
        rows: list[RowValues] = connection.execute(_SQL[name], values).fetchall()
    except UnicodeDecodeError:
        connection.execute("ROLLBACK TO take")
        # The same statement, returning only ids.
        statement = f"{_SQL[name].partition('RETURNING')[0]}RETURNING id"
        taken: list[Any] = connection.execute(statement, values).fetchall()
        rows = [row for (run_id,) in taken for row in select_run(connection, run_id)]
    connection.execute("RELEASE take")
    return rows


def select_run(connection: apsw.Connection, run_id: str) -> list[RowValues]:
    """The row of a run, if there is one. Text that is not valid UTF-8 stays bytes."""
    values = {"run_id": run_id}
    try:
        rows: list[RowValues] = connection.execute(_SQL["select_run"], values).fetchall()
    except UnicodeDecodeError:
        found = connection.execute(_SQL["select_run_as_bytes"], values).fetchall()
        rows = [tuple(_text(*column) for column in enumerate(row)) for row in found]
    return rows


def _text(position: int, value: Any) -> Any:
    """A column that was read as bytes, decoded. The journal's head stays bytes."""
    try:
        return value.decode() if isinstance(value, bytes) and position != _HEAD else value
    except UnicodeDecodeError:
        return value
