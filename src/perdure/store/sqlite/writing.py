"""Applies a group to SQLite, statement by statement, in the connection's thread."""

import json
from collections.abc import Callable
from typing import Any

import apsw

from perdure.core.errors import CommitRejected
from perdure.core.ids import RunId
from perdure.store.commit.graph_row_values import tracked_rows
from perdure.store.commit.group import Group
from perdure.store.commit.rejections import (
    late_chunks,
    overflows,
    run_exists,
    stale_token,
    unfit_heads,
)
from perdure.store.commit.row_values import (
    chunk_rows,
    stream_rows,
)
from perdure.store.commit.writer import StatementRefused
from perdure.store.sqlite.connections.bulk_statements import execute_rows, fetch_rows
from perdure.store.sqlite.connections.connection import BUSY_MS, group_statements
from perdure.store.sqlite.connections.damage import DAMAGE, damaged
from perdure.store.sqlite.connections.failures import WRITE_ERRORS, cannot_write
from perdure.store.sqlite.connections.opening import retry_while_locked
from perdure.store.statements import statements

_SQL = statements("sqlite") | statements("sqlite_graphs")


def try_begin(connection: apsw.Connection) -> bool:
    """Take the file's write lock if it is free."""
    connection.set_busy_timeout(0)
    try:
        connection.execute("BEGIN IMMEDIATE")
    except apsw.BusyError:
        return False
    finally:
        connection.set_busy_timeout(BUSY_MS)
    return True


def in_transaction(connection: apsw.Connection, work: Callable[[], Any]) -> Any:
    """Run `work` under the file's write lock and commit; on any error roll back."""
    if not connection.in_transaction:
        retry_while_locked(lambda: connection.execute("BEGIN IMMEDIATE"))
    try:
        result = work()
        retry_while_locked(lambda: connection.execute("COMMIT"))
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    return result


class _Rejected(Exception):
    def __init__(self, rejected: dict[int, CommitRejected]) -> None:
        self.rejected = rejected


def apply_group(connection: apsw.Connection, group: Group) -> dict[int, CommitRejected]:
    """Commit the group; or roll it back and return why bundles are rejected, by position."""
    while True:
        rejected = apply_in_transaction(connection, group)
        # Empty if the group fits on a second look, because another process changed the rows back: try again.
        if rejected is None or rejected:
            return rejected or {}


def apply_in_transaction(
    connection: apsw.Connection, group: Group
) -> dict[int, CommitRejected] | None:
    """Commit the group, together with the open transaction, if there is one; returns `None` then.

    Otherwise roll back all of it and return why bundles are rejected, by position; empty if the reason has vanished.
    """
    try:
        in_transaction(connection, lambda: _write(connection, group))
    except _Rejected as rejection:
        return rejection.rejected
    except (apsw.ConstraintError, OverflowError, TypeError) as error:
        raise StatementRefused(str(error)) from error
    except DAMAGE as error:
        raise damaged(connection.filename, error) from error
    except WRITE_ERRORS as error:
        raise cannot_write(connection.filename, error) from error
    return None


def _write(connection: apsw.Connection, group: Group) -> None:
    for name, rows, expected in group_statements(group):
        changed = execute_rows(connection, _SQL[name], rows)
        if expected is not None and changed != expected:
            raise _Rejected(_REJECTIONS[name](connection, group))
    if group.chunks:
        _append_chunks(connection, group)


def _append_chunks(connection: apsw.Connection, group: Group) -> None:
    wanted = stream_rows(group)
    streams = fetch_rows(connection, _SQL["grow_streams"], wanted)
    if len(streams) != len(wanted):
        raise _Rejected(_late_chunks(connection, group))
    rows = chunk_rows(group, streams)
    if execute_rows(connection, _SQL["append_chunks"], rows) != len(rows):
        raise _Rejected(_known_chunks(connection, group))


def _overflows(connection: apsw.Connection, group: Group) -> dict[int, CommitRejected]:
    connection.execute("ROLLBACK")
    nodes = [] if group.index is None else [row[:2] for row in tracked_rows(group.index)]
    return overflows(group, fetch_rows(connection, _SQL["select_tracked"], nodes))


def _late_chunks(connection: apsw.Connection, group: Group) -> dict[int, CommitRejected]:
    connection.execute("ROLLBACK")
    runs = [(run_id,) for run_id in {chunk.run_id for chunk in group.chunks.values()}]
    found: Any = fetch_rows(connection, _SQL["select_closing_times"], runs)
    return late_chunks(group, found)


def _known_chunks(connection: apsw.Connection, group: Group) -> dict[int, CommitRejected]:
    """Remove chunks that are stored already from the group; no bundle is rejected."""
    connection.execute("ROLLBACK")
    for key in fetch_rows(connection, _SQL["select_known_chunks"], list(group.chunks)):
        del group.chunks[*key]
    return {}


def _taken(connection: apsw.Connection, group: Group) -> dict[int, CommitRejected]:
    """The bundles whose new runs exist already. Rolls back first, so that the group's own rows don't count."""
    connection.execute("ROLLBACK")
    rejected: dict[int, CommitRejected] = {}
    for run, _ in group.created:
        row = connection.execute(_SQL["select_run"], {"run_id": run.run_id}).fetchone()
        if row is None and run.key is not None:
            where = {"scope": run.scope, "program": run.program, "key": run.key}
            row = connection.execute(_SQL["select_run_by_key"], where).fetchone()
        if row is not None:
            reason = run_exists(run, RunId(str(row[0])))
            rejected |= dict.fromkeys(group.concerned([run.run_id]), reason)
    return rejected


def _unfit(connection: apsw.Connection, group: Group) -> dict[int, CommitRejected]:
    connection.execute("ROLLBACK")
    ids = json.dumps(list(group.heads))
    found: Any = connection.execute(_SQL["select_runs_by_id"], {"ids": ids}).fetchall()
    return unfit_heads(group, found)


def _lost_work(connection: apsw.Connection, group: Group) -> dict[int, CommitRejected]:
    connection.execute("ROLLBACK")
    rejected: dict[int, CommitRejected] = {}
    for run_id, step, token in group.finished:
        row = connection.execute(
            "SELECT 1 FROM perdure_work WHERE run_id = ? AND step = ? AND token = ?",
            (run_id, step, token),
        ).fetchone()
        if row is None:
            rejected[group.finishers[run_id, step]] = stale_token(run_id, step)
    return rejected


_REJECTIONS = {
    "create_runs": _taken,
    "advance_runs": _unfit,
    "finish_work": _lost_work,
    "track": _overflows,
}
"""By statement: rolls back and finds the bundles to reject when it changed fewer rows than expected."""
