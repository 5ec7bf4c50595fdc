"""Many rows in one statement.

One `VALUES` list of many rows is one call into SQLite, which gives up and takes back Python's
interpreter lock once; row by row it does so for each, and beside a busy thread that was measured to
be tens of times slower.
"""

from collections.abc import Iterator, Sequence
from functools import cache
from itertools import chain
from typing import Any

import apsw

_LARGEST = 128
"""Rows in one statement: the fastest size measured."""


def execute_rows(connection: apsw.Connection, sql: str, rows: Sequence[Sequence[Any]]) -> int:
    """Run `sql` with its `:rows` filled in; returns how many rows were changed."""
    changed = 0
    for chunk in _chunks(rows):
        statement = _filled(sql, len(chunk[0]), len(chunk))
        connection.execute(statement, tuple(chain.from_iterable(chunk)))
        changed += connection.changes()
    return changed


def _chunks(rows: Sequence[Sequence[Any]]) -> Iterator[Sequence[Sequence[Any]]]:
    """Cut into powers of two, so that few distinct statements need to be prepared."""
    start, size = 0, _LARGEST
    while start < len(rows):
        while size > len(rows) - start:
            size //= 2
        yield rows[start : start + size]
        start += size


@cache
def _filled(sql: str, width: int, count: int) -> str:
    row = f"({', '.join('?' * width)})"
    return sql.replace(":rows", ", ".join([row] * count))
