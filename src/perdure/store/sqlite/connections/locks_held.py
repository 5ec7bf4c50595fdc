"""Whether another program holds the write lock of a SQLite file."""

import time

import apsw

from perdure.store.sqlite.connections.opening import connect_to_file

LIMIT_MS = 500
"""Commits hold the lock for milliseconds: who holds it for longer is in a transaction of another program."""


def locked_ms(path: str) -> int | None:
    """How long this call waited for the write lock without getting it; `None` if it got it. Changes nothing."""
    connection = connect_to_file(path)
    try:
        connection.set_busy_timeout(LIMIT_MS)
        began = time.monotonic()
        try:
            connection.execute("BEGIN IMMEDIATE")
        except apsw.BusyError:
            return int((time.monotonic() - began) * 1000)
        connection.execute("ROLLBACK")
        return None
    finally:
        connection.close()
