"""Damaged SQLite files: the driver's errors as Perdure's, and SQLite's own integrity check."""

from collections.abc import Callable
from typing import TypeVar

import apsw

from perdure.core.errors import StoreDamaged, StoreUnavailable

T = TypeVar("T")

MOST_PROBLEMS = 100
"""How many problems the check reports at most; one damaged page may have thousands."""

DAMAGE = (apsw.CorruptError, apsw.NotADBError, apsw.FormatError, UnicodeDecodeError)
"""The errors of reading a damaged page, invalid UTF-8 included."""


def run_with_typed_errors(
    path: str, job: Callable[[apsw.Connection], T], connection: apsw.Connection
) -> T:
    """Run a job that reads; raises the driver's errors about the file as `StoreError`."""
    try:
        return run_with_typed_damage(path, job, connection)
    except apsw.IOError as error:
        raise StoreUnavailable(f"{path} can't be read ({error})", "check the disk") from error


def run_with_typed_damage(
    path: str, job: Callable[[apsw.Connection], T], connection: apsw.Connection
) -> T:
    """Run a job; raises the driver's errors about damage as `StoreDamaged`, and others unchanged."""
    try:
        return job(connection)
    except DAMAGE as error:
        raise damaged(path, error) from error


def damaged(path: str, error: Exception) -> StoreDamaged:
    return StoreDamaged(
        f"{path} is damaged ({error})",
        "stop every engine on it, and restore it from a backup",
    )


def integrity_check(connection: apsw.Connection) -> list[str]:
    """The problems that SQLite's own check finds: in pages, in tables, and between indexes and tables."""
    rows = connection.execute(f"PRAGMA integrity_check({MOST_PROBLEMS})").fetchall()
    problems = [line for (text,) in rows for line in str(text).splitlines()]
    return [problem for problem in problems if problem != "ok"]
