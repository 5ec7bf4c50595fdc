"""Limits a user's statement to the user's own tables, to one statement, and to its time.

SQLite calls an authorizer when it prepares a statement. The guard's authorizer stays on the connection, because
setting one makes SQLite prepare every statement again; it refuses only while a user's statement is executed.
"""

import math
import time
from collections.abc import Sequence
from typing import Any

import apsw

from perdure.core.errors import ForbiddenStatement, InputError, PerdureError, StatementFailed
from perdure.core.transactions import Row
from perdure.store.sqlite.connections.failures import WRITE_ERRORS, cannot_write
from perdure.store.user_statements import our_table

StatementResult = tuple[list[Row], int]
"""The rows that a statement returned, and how many rows it changed."""

OURS = "perdure_"

_STEPS = 10_000
"""Instructions of SQLite's virtual machine between two checks of the time."""

_TABLE_FIRST = frozenset(
    (
        apsw.SQLITE_ANALYZE,
        apsw.SQLITE_CREATE_TABLE,
        apsw.SQLITE_CREATE_VIEW,
        apsw.SQLITE_CREATE_VTABLE,
        apsw.SQLITE_DELETE,
        apsw.SQLITE_DROP_TABLE,
        apsw.SQLITE_DROP_VIEW,
        apsw.SQLITE_DROP_VTABLE,
        apsw.SQLITE_INSERT,
        apsw.SQLITE_READ,
        apsw.SQLITE_UPDATE,
    )
)
"""Actions whose first argument is a table; for those below it is the second."""

_TABLE_SECOND = frozenset(
    (
        apsw.SQLITE_ALTER_TABLE,
        apsw.SQLITE_CREATE_INDEX,
        apsw.SQLITE_CREATE_TRIGGER,
        apsw.SQLITE_DROP_INDEX,
        apsw.SQLITE_DROP_TRIGGER,
    )
)

_NEVER = {
    apsw.SQLITE_ATTACH: "ATTACH",
    apsw.SQLITE_DETACH: "DETACH",
    apsw.SQLITE_PRAGMA: "PRAGMA",
    apsw.SQLITE_SAVEPOINT: "SAVEPOINT",
    apsw.SQLITE_TRANSACTION: "BEGIN, COMMIT or ROLLBACK",
    apsw.SQLITE_CREATE_TEMP_INDEX: "a temporary index",
    apsw.SQLITE_CREATE_TEMP_TABLE: "a temporary table",
    apsw.SQLITE_CREATE_TEMP_TRIGGER: "a temporary trigger",
    apsw.SQLITE_CREATE_TEMP_VIEW: "a temporary view",
}


class StatementGuard:
    """One per connection. Belongs to the thread that uses it."""

    def __init__(self) -> None:
        self._is_watching = False
        self._refusal: PerdureError | None = None
        self._statements = 0
        self._arguments = 0

    def execute(
        self, connection: apsw.Connection, sql: str, args: Sequence[Any], until_s: float
    ) -> StatementResult:
        """Execute one user statement. `until_s` is a time of the monotonic clock."""
        if connection.authorizer is None:
            connection.authorizer = self._authorize
        before = connection.total_changes()
        cursor = connection.cursor()
        cursor.exec_trace = self._trace
        connection.set_progress_handler(lambda: time.monotonic() > until_s, _STEPS)
        self._is_watching, self._refusal = True, None
        self._statements, self._arguments = 0, len(args)
        try:
            values: dict[str, Any] = {str(n): value for n, value in enumerate(args, 1)}
            # Not from the cache: cached statements were prepared without the authorizer's check.
            found = cursor.execute(sql, values, can_cache=False)
            rows = [_row(found, values) for values in found]
        except (apsw.Error, LookupError, TypeError) as error:
            if isinstance(error, WRITE_ERRORS):
                raise cannot_write(connection.filename, error) from error
            raise self._reason(error) from error
        finally:
            self._is_watching = False
            connection.set_progress_handler(None)
            cursor.close(True)
        changed = connection.changes() if connection.total_changes() != before else 0
        return rows, changed

    def _reason(self, error: Exception) -> PerdureError:
        return self._refusal or _failed(error, self._arguments)

    def _authorize(
        self, action: int, first: str | None, second: str | None, _: str | None, __: str | None
    ) -> int:
        if not self._is_watching:
            return int(apsw.SQLITE_OK)
        table = None
        if action in _TABLE_FIRST:
            table = first
        elif action in _TABLE_SECOND:
            table = second
        if table is not None and table.lower().startswith(OURS):
            self._refusal = our_table(f"table {table!r}")
        elif action in _NEVER:
            self._refusal = ForbiddenStatement(
                f"{_NEVER[action]} in a transaction that Perdure begins and ends itself",
                "execute it on a connection of your own",
            )
        else:
            return int(apsw.SQLITE_OK)
        return int(apsw.SQLITE_DENY)

    def _trace(self, cursor: apsw.Cursor, _: str, __: Any) -> bool:
        """Called before each statement of a text is executed; False refuses it."""
        self._statements += 1
        if self._statements > 1:
            self._refusal = StatementFailed(
                "the text holds more than one statement", "execute one after the other"
            )
        elif len(set(cursor.bindings_names)) != self._arguments:
            wanted = len(set(cursor.bindings_names))
            self._refusal = _wrong_count(wanted, self._arguments)
        return self._refusal is None


def _row(cursor: apsw.Cursor, values: Any) -> Row:
    names = (column[0] for column in cursor.get_description())
    return dict(zip(names, values, strict=True))


def _failed(error: Exception, given: int) -> PerdureError:
    if isinstance(error, KeyError | apsw.BindingsError):
        return InputError(
            f"the statement has a parameter for which none of the {given} arguments is given ({error})",
            "write $1, $2 and so on, one for each argument",
        )
    if isinstance(error, TypeError):
        return InputError(
            f"SQLite can't store a value of this type ({error})",
            "pass None, an int, a float, text or bytes",
        )
    return StatementFailed(f"SQLite refused the statement ({error})", "nothing of it was written")


def _wrong_count(wanted: int, given: int) -> InputError:
    return InputError(
        f"the statement has {wanted} parameters, and {given} arguments were given",
        "write $1, $2 and so on, one for each argument",
    )


def require_values(args: Sequence[Any]) -> None:
    """Refuse values that SQLite would change or can't store."""
    for number, value in enumerate(args, 1):
        if isinstance(value, float) and math.isnan(value):
            raise InputError(f"argument ${number} is not a number", "pass None: SQLite has no NaN")
        if isinstance(value, int) and not -(1 << 63) <= value < 1 << 63:
            raise InputError(
                f"argument ${number}, {value}, does not fit 64 bits",
                "pass it as text, or as a float",
            )


def is_foreign_key(error: object) -> bool:
    """Whether the error is a violated foreign key."""
    found = getattr(error, "extendedresult", None)
    return bool(found == apsw.SQLITE_CONSTRAINT_FOREIGNKEY)
