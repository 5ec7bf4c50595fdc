"""Heartbeats on SQLite: a connection of their own, and patience with the file's one writer."""

import time
from typing import Any

import apsw
import msgspec

from perdure.core.errors import StoreUnavailable
from perdure.store.hosts import Glance, Scope, glance_from
from perdure.store.sqlite.connection import LOG_PAGES
from perdure.store.sqlite.foreign import descriptors
from perdure.store.sqlite.opening import connect
from perdure.store.statements import beat
from perdure.store.values import require_storable

_PAUSE_S = 0.003
"""Between two attempts at a locked file. SQLite's own pauses grow to 100 ms: beside a busy writer that is too rare."""


class SqliteLifeline:
    """Opens its connection with the first beat, in the thread that beats."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._connection: apsw.Connection | None = None

    def beat(self, scope: Scope, limit_s: float) -> Glance | None:
        until_s = time.monotonic() + limit_s
        values = scope_values(scope)
        while True:
            try:
                rows = self._connected().execute(beat("sqlite"), values).fetchall()
            except (apsw.BusyError, apsw.LockedError) as error:
                if time.monotonic() >= until_s:
                    raise StoreUnavailable(
                        f"{self._path} was locked for {limit_s:g} s",
                        "a transaction holds it: keep transactions short",
                    ) from error
                time.sleep(_PAUSE_S)
            except apsw.Error as error:
                self.close()
                raise StoreUnavailable(
                    f"SQLite could not write ({error})", "see to the disk"
                ) from error
            else:
                return glance_from(rows[0]) if rows else None

    def _connected(self) -> apsw.Connection:
        if self._connection is None:
            connection = self._connection = connect(self._path)
            connection.set_busy_timeout(0)
            # A sign of life that a power cut takes back is not missed.
            connection.execute("PRAGMA synchronous = NORMAL")
            # The log is folded by the writer; here only if that has nothing to write.
            connection.wal_autocheckpoint(2 * LOG_PAGES)
        return self._connection

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
            descriptors.forget_closed()


def scope_values(scope: Scope) -> dict[str, Any]:
    """The arguments of `glance` and `beat`."""
    require_storable([scope.host, scope.queues, scope.programs, scope.until_ms])
    return {
        "host": scope.host,
        "queues": _json(scope.queues),
        "programs": _json(scope.programs),
        "until_ms": scope.until_ms,
    }


def _json(values: tuple[str, ...]) -> str:
    return msgspec.json.encode(values).decode()
