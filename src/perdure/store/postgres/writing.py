"""Applying a group to Postgres, in one transaction."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

import asyncpg

from perdure.core.errors import CommitRejected
from perdure.core.ids import RunId
from perdure.core.journal.entry import Entry
from perdure.store.graph_rows import tracked_rows
from perdure.store.group import Group
from perdure.store.postgres.graph_writing import write_index
from perdure.store.rejections import late_chunks, overflows, run_exists, stale_token, unfit_heads
from perdure.store.rowforms import (
    Row,
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
from perdure.store.statements import statements
from perdure.store.writer import StatementRefused

_SQL = statements("postgres") | statements("postgres_graphs")
_END_BOOKS = _SQL["commit_books"].replace(
    "FOR NO KEY UPDATE OF locked", "FOR UPDATE OF locked NOWAIT"
)
"""The same for groups in which runs end: who appends to their streams is locked out, and not waited for here."""

AT_ONCE = 16
"""Runs in a group that is written as one statement; a larger one gains more from COPY."""

EVENT_COLUMNS = ("run_id", "seq", "at_ms", "body", "prev", "sealed", "erased")

if TYPE_CHECKING:
    Connection = asyncpg.Connection[Any]
else:
    Connection = asyncpg.Connection


Misfits = Callable[[Connection, Group], Awaitable[dict[int, CommitRejected]]]
"""Finds out, after a rollback, which bundles do not fit."""


LONGEST_PAUSE_MS = 3000
"""Between two statements of ours. A host that is paused there holds the locks of its runs: the server ends it."""


@asynccontextmanager
async def transaction(connection: Connection, patience_ms: int = 0) -> AsyncIterator[None]:
    """A transaction that does not outlive its host's silence for long, and is given up if a lock is not free in time.

    No patience stands for endless patience. To say so costs no round trip of its own.
    """
    await connection.execute(
        f"BEGIN; SET LOCAL idle_in_transaction_session_timeout = {LONGEST_PAUSE_MS}; "
        f"SET LOCAL lock_timeout = {patience_ms}"
    )
    try:
        yield
    except BaseException:
        if not connection.is_closed():
            await connection.execute("ROLLBACK")
        raise
    await connection.execute("COMMIT")


class _RollBack(Exception):
    """Not all rows fit. Carries what finds out which."""

    def __init__(self, misfits: Misfits) -> None:
        self.misfits = misfits


async def apply(
    connection: Connection, group: Group, patience_ms: int
) -> dict[int, CommitRejected]:
    """Commit the group, or roll it back and say which bundles must leave it.

    Waits so long for a lock, save for those of runs' rows, which nobody holds for long.
    """
    while True:
        try:
            await _write(connection, group, patience_ms)
        except _RollBack as found:
            # Empty if the rows changed back meanwhile: then all fit after all.
            rejected = await found.misfits(connection, group)
            if rejected:
                return rejected
        except (asyncpg.IntegrityConstraintViolationError, asyncpg.DataError) as error:
            raise StatementRefused(str(error)) from error
        else:
            return {}


async def _write(connection: Connection, group: Group, patience_ms: int) -> None:
    """In one statement where that does, so that neither BEGIN nor COMMIT travels; else in a transaction."""
    if group.is_one_birth:
        await _create_at_once(connection, group)
        return
    if group.is_books_only and len(group.heads) <= AT_ONCE:
        # Not if somebody appends to a stream of a run that ends: that may take a while.
        with suppress(asyncpg.LockNotAvailableError):
            await _append_at_once(connection, group)
            return
    async with transaction(connection, patience_ms):
        misfits = await write_rows(connection, group)
        if misfits is not None:
            raise _RollBack(misfits)


async def write_rows(connection: Connection, group: Group) -> Misfits | None:
    """Write all rows; or stop and return the function that finds out which do not fit."""

    async def run(name: str, rows: list[Any]) -> int:
        if not rows:
            return 0
        status = await connection.execute(_SQL[name], *_columns(rows))
        return _count(status)

    if await run("create_runs", created_rows(group)) != len(group.created):
        return _taken
    if await run("advance_runs", head_rows(group)) != len(group.heads):
        return _unfit
    await run(*publishing(group))
    if await run("finish_work", group.finished) != len(group.finished):
        return _lost_work
    await run("close_runs", closed_rows(group))
    await run("park_runs", list(group.parked.items()))
    if group.appends:
        # COPY: half the cost of unnested arrays, and there is no conflict to resolve.
        await connection.copy_records_to_table(
            "event", schema_name="perdure", columns=EVENT_COLUMNS, records=event_rows(group)
        )
    await run("post", posting_rows(group))
    await run("enqueue", message_rows(group))
    await run("forward", forwarded_rows(group))
    await run("acknowledge", group.acknowledged)
    await run("mark", group.marked)
    await run("drop_work", list(group.dropped))
    await run("put_work", work_rows(group))
    if group.index and not await write_index(run, group.index):
        return _overflows
    return await _append_chunks(connection, group) if group.chunks else None


async def _append_chunks(connection: Connection, group: Group) -> Misfits | None:
    wanted = stream_rows(group)
    streams = await connection.fetch(_SQL["grow_streams"], *_columns(wanted))
    if len(streams) != len(wanted):
        return _late_chunks
    rows = chunk_rows(group, streams)
    count = _count(await connection.execute(_SQL["append_chunks"], *_columns(rows)))
    return None if count == len(rows) else _known_chunks


async def _create_at_once(connection: Connection, group: Group) -> None:
    """One new run."""
    rows = _columns(created_rows(group))
    status = await connection.execute(_SQL["begin_books"], *rows, *_books(group))
    if _count(status) != len(group.created):
        raise _RollBack(_taken)


async def _append_at_once(connection: Connection, group: Group) -> None:
    """A small group of warm steps, and of ends."""
    closed = [head.closed_at_ms for head in group.heads.values()]
    sql = _END_BOOKS if any(closed) else _SQL["commit_books"]
    status = await connection.execute(sql, *_columns(head_rows(group)), *_books(group), closed)
    if _count(status) != len(group.heads):
        raise _RollBack(_unfit)


def _books(group: Group) -> list[list[Any]]:
    """Entries and postings. There may be none of the latter."""
    return [*_columns(event_rows(group)), *(_columns(posting_rows(group)) or ([], [], []))]


def _count(status: str) -> int:
    return int(status.rpartition(" ")[2])


def _columns(rows: list[Row]) -> list[list[Any]]:
    return [list(column) for column in zip(*rows, strict=True)]


async def _taken(connection: Connection, group: Group) -> dict[int, CommitRejected]:
    rejected: dict[int, CommitRejected] = {}
    for run, _ in group.created:
        row = await connection.fetchrow(_SQL["select_run"], run.run_id)
        if row is None and run.key is not None:
            row = await connection.fetchrow(
                _SQL["select_run_by_key"], run.scope, run.program, run.key
            )
        if row is not None:
            reason = run_exists(run, RunId(row[0]))
            rejected |= dict.fromkeys(group.concerned([run.run_id]), reason)
    return rejected


async def _unfit(connection: Connection, group: Group) -> dict[int, CommitRejected]:
    rows = await connection.fetch(_SQL["select_runs_by_id"], list(group.heads))
    return unfit_heads(group, [tuple(row) for row in rows])


async def _lost_work(connection: Connection, group: Group) -> dict[int, CommitRejected]:
    rows = await connection.fetch(_SQL["select_held_work"], *_columns(group.finished))
    held = {(row[0], row[1]) for row in rows}
    return {
        group.finishers[run_id, step]: stale_token(run_id, step)
        for run_id, step, _ in group.finished
        if (run_id, step) not in held
    }


async def _overflows(connection: Connection, group: Group) -> dict[int, CommitRejected]:
    nodes = [] if group.index is None else [row[:2] for row in tracked_rows(group.index)]
    rows = await connection.fetch(_SQL["select_tracked"], *_columns(nodes))
    return overflows(group, [tuple(row) for row in rows])


async def _late_chunks(connection: Connection, group: Group) -> dict[int, CommitRejected]:
    runs = list({chunk.run_id for chunk in group.chunks.values()})
    rows = await connection.fetch(_SQL["select_closing_times"], runs)
    return late_chunks(group, [(row[0], row[1]) for row in rows])


async def _known_chunks(connection: Connection, group: Group) -> dict[int, CommitRejected]:
    """Take out of the group what is there already; nobody is rejected for it."""
    columns = _columns(list(group.chunks))
    for row in await connection.fetch(_SQL["select_known_chunks"], *columns):
        del group.chunks[*row]
    return {}


async def landed(connection: Connection, group: Group) -> bool:
    """Whether a group whose commit was cut off is in the store.

    The run's lock makes a transaction that is still ending end first. One run tells for all,
    because the group is one transaction; one that existed before, since a new run's row can't be
    locked before it is there. A group that appends nothing may be written again as it is, save for
    the tasks that it finished.
    """
    heads = [*group.heads.values(), *(head for _, head in group.created)]
    last = next((head.last for head in heads if head.last is not None), None)
    if last is None:
        await _forget_finished(connection, group)
        return False
    async with transaction(connection):
        run = await connection.fetchrow(_SQL["lock_run"], last.run_id)
        if run is None or run["seq"] < last.seq_after:
            return False
        end = last.seq_after
        rows = await connection.fetch(_SQL["select_entries"], last.run_id, end - 1, end)
    return len(rows) == 1 and Entry(*rows[0]).hash == last.head


async def _forget_finished(connection: Connection, group: Group) -> None:
    """Do not finish again what is off its queue: our own commit took it off, or its run dropped it.

    Then our result is there already, or comes late, and the run judges it like any late message. But if another host
    finished it, after our lease had ended, and its result waits under the same GUID, ours is too late.
    """
    if not group.finished:
        return
    rows = await connection.fetch(_SQL["lock_work"], *_columns(group.finished)[:2])
    kept = {(row[0], row[1]) for row in rows}
    results = {
        (message.run_id, message.guid): ((run_id, step), message.kind)
        for run_id, step, _ in group.finished
        if (run_id, step) not in kept
        for message in group.bundles[group.finishers[run_id, step]].messages
    }
    if results:
        columns = _columns([(*name, kind) for name, (_, kind) in results.items()])
        rows = await connection.fetch(_SQL["select_other_results"], *columns)
        kept |= {results[row[0], row[1]][0] for row in rows}
    group.finished = [finished for finished in group.finished if finished[:2] in kept]
