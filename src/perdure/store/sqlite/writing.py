"""Applying a group to SQLite, inside the connection's thread."""

import json
from collections.abc import Callable
from typing import Any

import apsw

from perdure.core.errors import CommitRejected, StoreUnavailable
from perdure.core.ids import RunId
from perdure.store.graph_rows import tracked_rows
from perdure.store.group import Group
from perdure.store.rejections import late_chunks, overflows, run_exists, stale_token, unfit_heads
from perdure.store.rowforms import (
    chunk_rows,
    closed_rows,
    created_rows,
    event_rows,
    forwarded_rows,
    head_rows,
    message_rows,
    posting_rows,
    publishing,
    stream_rows,
    work_rows,
)
from perdure.store.sqlite.connection import BUSY_MS, Part
from perdure.store.sqlite.graph_writing import index_parts
from perdure.store.sqlite.opening import patiently
from perdure.store.sqlite.rows import execute_rows, fetch_rows
from perdure.store.statements import statements
from perdure.store.writer import StatementRefused

_SQL = statements("sqlite") | statements("sqlite_graphs")


def begin(connection: apsw.Connection) -> bool:
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
    """Run `work` under the file's write lock and commit; on any error nothing is changed."""
    if not connection.in_transaction:
        patiently(lambda: connection.execute("BEGIN IMMEDIATE"))
    try:
        result = work()
        patiently(lambda: connection.execute("COMMIT"))
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    return result


class _Rejected(Exception):
    def __init__(self, rejected: dict[int, CommitRejected]) -> None:
        self.rejected = rejected


def apply(connection: apsw.Connection, group: Group) -> dict[int, CommitRejected]:
    """Commit the group, or roll it back and say which bundles must leave it."""
    while True:
        rejected = apply_with(connection, group)
        # Empty if another process changed the rows back meanwhile: then all fit after all.
        if rejected is None or rejected:
            return rejected or {}


def apply_with(connection: apsw.Connection, group: Group) -> dict[int, CommitRejected] | None:
    """Commit the group, together with what the open transaction has written, if one is open.

    Otherwise roll all of it back, and return which bundles do not fit, as far as that can still be seen.
    """
    try:
        in_transaction(connection, lambda: _write(connection, group))
    except _Rejected as rejection:
        return rejection.rejected
    except (apsw.ConstraintError, OverflowError, TypeError) as error:
        raise StatementRefused(str(error)) from error
    except (apsw.FullError, apsw.IOError, apsw.ReadOnlyError, apsw.CantOpenError) as error:
        raise StoreUnavailable(
            f"SQLite could not write ({error})", "see to the disk; the runs go on after a restart"
        ) from error
    return None


def _write(connection: apsw.Connection, group: Group) -> None:
    for name, rows, expected in _parts(group):
        changed = execute_rows(connection, _SQL[name], rows)
        if expected is not None and changed != expected:
            raise _Rejected(_MISFITS[name](connection, group))
    if group.chunks:
        _append_chunks(connection, group)


def all_parts(group: Group) -> list[Part] | None:
    """All that is written of a group, in order; `None` if some of it depends on what the database answers."""
    return None if group.chunks else _parts(group)


def _parts(group: Group) -> list[Part]:
    """What is written of a group, in order, but for chunks."""
    forwarded = forwarded_rows(group)
    parts = [
        Part("create_runs", created_rows(group), len(group.created)),
        Part("advance_runs", head_rows(group), len(group.heads)),
        Part(*publishing(group)),
        Part("finish_work", group.finished, len(group.finished)),
        Part("close_runs", closed_rows(group)),
        Part("park_runs", list(group.parked.items())),
        Part("append_events", event_rows(group)),
        Part("post", posting_rows(group)),
        Part("enqueue", message_rows(group)),
        Part("forward", forwarded),
        Part("forget", forwarded),
        Part("acknowledge", group.acknowledged),
        Part("mark", group.marked),
        Part("drop_work", list(group.dropped)),
        Part("put_work", work_rows(group)),
    ]
    if group.index:
        parts += index_parts(group.index)
    return [part for part in parts if part.rows]


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
    """Take out of the group what is there already; nobody is rejected for it."""
    connection.execute("ROLLBACK")
    for key in fetch_rows(connection, _SQL["select_known_chunks"], list(group.chunks)):
        del group.chunks[*key]
    return {}


def _taken(connection: apsw.Connection, group: Group) -> dict[int, CommitRejected]:
    """Which new runs exist already. The group is rolled back first, so none of them is ours."""
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


_MISFITS = {
    "create_runs": _taken,
    "advance_runs": _unfit,
    "finish_work": _lost_work,
    "track": _overflows,
}
"""Who does not fit, if a statement changed fewer rows than it should have."""
