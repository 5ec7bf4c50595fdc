"""Many rows in one statement.

One `VALUES` list of many rows is one call into SQLite, which releases and reacquires the interpreter's lock once. Row
by row it does so for each, which was measured to be tens of times slower beside a busy thread.
"""

from collections.abc import Iterator, Sequence
from functools import cache
from itertools import chain
from typing import Any, NamedTuple

import apsw

_LARGEST = 512
"""Rows in one statement at most. Keeps its text below 16 kB: a longer one would be prepared anew each time."""

_ROUND = 64
"""Longer lists are split into multiples of this, shorter ones into powers of two: few statements are prepared."""

_EXACT = 16
"""Up to this many rows use a statement of exactly their number: a single step is one statement per table."""


class GroupStatement(NamedTuple):
    """A named statement of a group, with its rows."""

    name: str
    rows: list[Any]
    expected: int | None = None
    """How many rows it must change for the group to fit; `None` if any number will do."""


def execute_rows(connection: apsw.Connection, sql: str, rows: Sequence[Sequence[Any]]) -> int:
    """Run `sql` with its `:rows` filled in; returns how many rows were changed."""
    changed = 0
    for statement, values in _statements(sql, rows):
        connection.execute(statement, values)
        changed += connection.changes()
    return changed


def fetch_rows(
    connection: apsw.Connection, sql: str, rows: Sequence[Sequence[Any]]
) -> list[tuple[Any, ...]]:
    """Run `sql` with its `:rows` filled in; returns its rows."""
    found: list[tuple[Any, ...]] = []
    for statement, values in _statements(sql, rows):
        found += connection.execute(statement, values)
    return found


def _statements(sql: str, rows: Sequence[Sequence[Any]]) -> Iterator[tuple[str, tuple[Any, ...]]]:
    start, count, width = 0, len(rows), len(rows[0])
    while start < count:
        size = _chunk(count - start)
        yield _filled(sql, width, size), tuple(chain.from_iterable(rows[start : start + size]))
        start += size


def _chunk(left: int) -> int:
    """How many rows the next statement takes."""
    if left >= _ROUND:
        return min(left - left % _ROUND, _LARGEST)
    return left if left <= _EXACT else 1 << left.bit_length() - 1


@cache
def _filled(sql: str, width: int, count: int) -> str:
    row = f"({','.join('?' * width)})"
    return sql.replace(":rows", ",".join([row] * count))


def one_row(sql: str, width: int) -> str:
    """`sql` for one row of `width` values."""
    return _filled(sql, width, 1)
