"""Many rows in one statement.

One `VALUES` list of many rows is one call into SQLite, which gives up and takes back Python's
interpreter lock once; row by row it does so for each, and beside a busy thread that was measured to
be tens of times slower.
"""

from collections.abc import Sequence
from functools import cache
from itertools import chain
from typing import Any

import apsw

_LARGEST = 128
"""Rows in one statement: the fastest size measured."""

_EXACT = 16
"""Up to so many rows have a statement of their own size: a step alone is one statement per table."""


def execute_rows(connection: apsw.Connection, sql: str, rows: Sequence[Sequence[Any]]) -> int:
    """Run `sql` with its `:rows` filled in; returns how many rows were changed."""
    changed = start = 0
    count, width = len(rows), len(rows[0])
    while start < count:
        size = _chunk(count - start)
        values = tuple(chain.from_iterable(rows[start : start + size]))
        connection.execute(_filled(sql, width, size), values)
        changed += connection.changes()
        start += size
    return changed


def _chunk(left: int) -> int:
    """How many rows go next: few distinct sizes, so that few statements need to be prepared."""
    if left >= _LARGEST:
        return _LARGEST
    return left if left <= _EXACT else 1 << left.bit_length() - 1


@cache
def _filled(sql: str, width: int, count: int) -> str:
    row = f"({', '.join('?' * width)})"
    return sql.replace(":rows", ", ".join([row] * count))
