"""Heartbeats on SQLite: a separate connection that retries while another writer has the file's lock."""

import time
from collections.abc import Sequence
from typing import Any

import apsw
import msgspec

from perdure.core.errors import StoreUnavailable
from perdure.store.rows.hosts import HostScope, HostSnapshot, snapshot_from
from perdure.store.rows.records import Claim
from perdure.store.rows.runs import claims_in
from perdure.store.rows.values import require_storable_values
from perdure.store.sqlite.connections.connection import MAX_WAL_PAGES
from perdure.store.sqlite.connections.failures import cannot_write
from perdure.store.sqlite.connections.foreign import descriptors
from perdure.store.sqlite.connections.opening import connect_to_file
from perdure.store.statements import heartbeat_statement, statements

_SQL = statements("sqlite")

_PAUSE_S = 0.003
"""Pause between two attempts at a locked file. SQLite's own pauses grow to 100 ms, too rare beside a busy writer."""


class SqliteHeartbeatConnection:
    """Opens its connection with the first heartbeat, in the heartbeat's thread."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._connection: apsw.Connection | None = None

    def beat(self, scope: HostScope, limit_s: float) -> HostSnapshot | None:
        rows = self._run(heartbeat_statement("sqlite"), scope_values(scope), limit_s)
        return snapshot_from(rows[0]) if rows else None

    def renew(self, claims: Sequence[Claim], lease_until_ms: int, limit_s: float) -> list[Claim]:
        values = claim_values(claims) | {"lease_until_ms": lease_until_ms}
        return claims_in(claims, self._run(_SQL["renew_work"], values, limit_s))

    def _run(self, sql: str, values: dict[str, Any], limit_s: float) -> list[Any]:
        until_s = time.monotonic() + limit_s
        while True:
            try:
                return self._connected().execute(sql, values).fetchall()
            except (apsw.BusyError, apsw.LockedError) as error:
                if time.monotonic() >= until_s:
                    raise StoreUnavailable(
                        f"{self._path} was locked for {limit_s:g} s",
                        "keep transactions short: one of them holds the file's lock",
                    ) from error
                time.sleep(_PAUSE_S)
            except apsw.Error as error:
                self.close()
                raise cannot_write(self._path, error) from error

    def _connected(self) -> apsw.Connection:
        if self._connection is None:
            connection = self._connection = connect_to_file(self._path)
            connection.set_busy_timeout(0)
            # A heartbeat may be lost in a power cut.
            connection.execute("PRAGMA synchronous = NORMAL")
            # The writer checkpoints the log; this connection does so only if the writer is idle.
            connection.wal_autocheckpoint(2 * MAX_WAL_PAGES)
        return self._connection

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
            descriptors.forget_closed()


def scope_values(scope: HostScope) -> dict[str, Any]:
    """The arguments of `host_snapshot` and `beat`."""
    require_storable_values([scope.host, scope.queues, scope.programs, scope.until_ms])
    return {
        "host": scope.host,
        "queues": json_list(scope.queues),
        "programs": json_list(scope.programs),
        "until_ms": scope.until_ms,
    }


def claim_values(claims: Sequence[Claim]) -> dict[str, Any]:
    """The argument of `renew_work` and `regain_work`: run, step, token, GUID and number of each claim."""
    rows = [(c.work.run_id, c.work.step, c.token, c.work.guid, c.claims) for c in claims]
    require_storable_values(rows)
    return {"claims": json_list(rows)}


def json_list(values: Sequence[Any]) -> str:
    """A list as one argument, for `json_each`."""
    return msgspec.json.encode(list(values)).decode()
