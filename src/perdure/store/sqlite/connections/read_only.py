"""Executes a user's query: one statement, which may only read, within its time."""

import time
from collections.abc import Sequence
from itertools import islice
from typing import Any

import apsw

from perdure.core.errors import ForbiddenStatement, InputError, PerdureError, StatementFailed
from perdure.store.list_queries import took_too_long
from perdure.store.rows.lists import SqlRows

_READING = frozenset(
    (apsw.SQLITE_SELECT, apsw.SQLITE_READ, apsw.SQLITE_FUNCTION, apsw.SQLITE_RECURSIVE)
)

_STEPS = 10_000
"""Instructions of SQLite's virtual machine between two checks of the time."""


def query(
    sql: str, args: Sequence[Any], limit: int, limit_s: float, connection: apsw.Connection
) -> SqlRows:
    """Execute the query. The connection is as before afterwards."""
    until_s = time.monotonic() + limit_s
    watch = _Watch(len(args))
    before, connection.authorizer = connection.authorizer, watch.authorize
    connection.set_progress_handler(lambda: time.monotonic() > until_s, _STEPS)
    cursor = connection.cursor()
    cursor.exec_trace = watch.trace
    try:
        values: dict[str, Any] = {str(n): value for n, value in enumerate(args, 1)}
        # Not from the cache: cached statements were prepared without this authorizer.
        found = cursor.execute(sql, values, can_cache=False)
        rows = [tuple(row) for row in islice(found, limit + 1)]
        return SqlRows(watch.columns, rows[:limit], is_complete=len(rows) <= limit)
    except apsw.InterruptError as error:
        raise took_too_long(limit_s) from error
    except (apsw.Error, LookupError, TypeError) as error:
        raise (watch.refusal or _failed(error)) from error
    finally:
        cursor.close(True)
        connection.set_progress_handler(None)
        connection.authorizer = before


class _Watch:
    """Refuses what a query may not do, and keeps the reason."""

    def __init__(self, arguments: int) -> None:
        self.refusal: PerdureError | None = None
        self.columns: tuple[str, ...] = ()
        self._arguments = arguments
        self._statements = 0

    def authorize(
        self, action: int, first: str | None, _: str | None, __: str | None, ___: str | None
    ) -> int:
        if action in _READING:
            return int(apsw.SQLITE_OK)
        name = str(apsw.mapping_authorizer_function[action]).removeprefix("SQLITE_")
        self.refusal = ForbiddenStatement(
            f"{name} {first or ''}".strip() + " in a query", "a query may only read"
        )
        return int(apsw.SQLITE_DENY)

    def trace(self, cursor: apsw.Cursor, _: str, __: Any) -> bool:
        """Called before each statement of the text is executed; False refuses it."""
        self._statements += 1
        wanted = len(set(cursor.bindings_names))
        if self._statements > 1:
            self.refusal = InputError(
                "the text holds more than one statement", "execute one after the other"
            )
        elif wanted != self._arguments:
            self.refusal = InputError(
                f"the query has {wanted} parameters, and {self._arguments} arguments were given",
                "write $1, $2 and so on, one for each argument",
            )
        else:
            self.columns = tuple(column[0] for column in cursor.get_description())
        return self.refusal is None


def _failed(error: Exception) -> PerdureError:
    if isinstance(error, apsw.BindingsError | LookupError):
        return InputError(
            f"the query has a parameter without an argument ({error})",
            "write $1, $2 and so on, one for each argument",
        )
    return StatementFailed(f"SQLite refused the query ({error})", "correct it; it only reads")
