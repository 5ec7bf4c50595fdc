"""Applies a group to Postgres, in one transaction."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

import asyncpg

from perdure.core.errors import CommitRejected
from perdure.core.ids import RunId
from perdure.core.journal.entry import Entry
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
    created_rows,
    forwarded_rows,
    handed_rows,
    message_rows,
    parked_step_rows,
    published_again_rows,
    publishing,
    stream_rows,
    unparked_step_rows,
    work_rows,
)
from perdure.store.commit.writer import StatementRefused
from perdure.store.postgres.graph_writing import write_index
from perdure.store.rows.values import RowValues
from perdure.store.statements import statements

_SQL = statements("postgres") | statements("postgres_graphs")

MAX_SINGLE_STATEMENT_RUNS = 16
"""Runs in a group that is written as one statement at most; for larger groups COPY is faster."""

EVENT_COLUMNS = ("run_id", "seq", "at_ms", "body", "prev", "sealed", "erased")

if TYPE_CHECKING:
    Connection = asyncpg.Connection[Any]
else:
    Connection = asyncpg.Connection


FindRejected = Callable[[Connection, Group], Awaitable[dict[int, CommitRejected]]]
"""Finds, after a rollback, the bundles to reject, by position."""


MAX_PAUSE_MS = 3000
"""Time between two statements of a transaction at most. The server ends a longer one: a paused host would keep its
runs locked."""


@asynccontextmanager
async def transaction(connection: Connection, lock_timeout_ms: int = 0) -> AsyncIterator[None]:
    """A transaction that the server ends when its host pauses, and that fails when a lock is not free in time.

    With 0, it waits for locks without a limit. Setting both limits costs no extra round trip.
    """
    await connection.execute(
        f"BEGIN; SET LOCAL idle_in_transaction_session_timeout = {MAX_PAUSE_MS}; "
        f"SET LOCAL lock_timeout = {lock_timeout_ms}"
    )
    try:
        yield
    except BaseException:
        if not connection.is_closed():
            await connection.execute("ROLLBACK")
        raise
    await connection.execute("COMMIT")


class _RollBack(Exception):
    """Not all rows fit. Carries the function that finds the bundles to reject."""

    def __init__(self, find_rejected: FindRejected) -> None:
        self.find_rejected = find_rejected


async def apply_group(
    connection: Connection, group: Group, lock_timeout_ms: int
) -> dict[int, CommitRejected]:
    """Commit the group; or roll it back and return why bundles are rejected, by position.

    Waits up to `lock_timeout_ms` for a lock, except for those of runs' rows, which are never held for long.
    """
    while True:
        try:
            await _write(connection, group, lock_timeout_ms)
        except _RollBack as found:
            # Empty if the group fits on a second look, because the rows changed back: try again.
            rejected = await found.find_rejected(connection, group)
            if rejected:
                return rejected
        except (asyncpg.IntegrityConstraintViolationError, asyncpg.DataError) as error:
            raise StatementRefused(str(error)) from error
        else:
            return {}


async def _write(connection: Connection, group: Group, lock_timeout_ms: int) -> None:
    """Write in one statement if possible, which saves the round trips of BEGIN and COMMIT; else in a transaction."""
    if group.is_one_new_run:
        await _create_in_one_statement(connection, group)
        return
    if group.is_books_only and len(group.heads) <= MAX_SINGLE_STATEMENT_RUNS:
        # Fails if another transaction appends to a stream of a run that ends, which may take a while.
        with suppress(asyncpg.LockNotAvailableError):
            await _append_in_one_statement(connection, group)
            return
    async with transaction(connection, lock_timeout_ms):
        find_rejected = await write_rows(connection, group)
        if find_rejected is not None:
            raise _RollBack(find_rejected)


async def write_rows(connection: Connection, group: Group) -> FindRejected | None:
    """Write all rows; or stop and return the function that finds the bundles to reject."""

    async def run(name: str, rows: list[Any]) -> int:
        if not rows:
            return 0
        status = await connection.execute(_SQL[name], *_columns(rows))
        return _count(status)

    await run("hand_over_keys", handed_rows(group))
    if await run("create_runs", created_rows(group)) != len(group.created):
        return _taken
    await run("enrol_runs", group.enrolled)
    closed = group.closed_rows()
    again, (publish, published) = published_again_rows(group), publishing(group)
    # A host's values need its ownership of the run, which a run that is closed has not.
    is_late = bool(again) or publish == "publish_by"
    if await run(*_advancing(group, ends=bool(closed), closes=not is_late)) != len(group.heads):
        return _unfit
    await run("publish_again", again)
    await run(publish, published)
    if await run("finish_work", group.finished) != len(group.finished):
        return _lost_work
    await run("close_runs", closed if is_late else [])
    await run("park_runs", list(group.parked.items()))
    await run("blame_runs", list(group.blamed.items()))
    if group.event_rows:
        # COPY costs half as much as unnested arrays, and entries have no conflicts to resolve.
        await connection.copy_records_to_table(
            "event", schema_name="perdure", columns=EVENT_COLUMNS, records=group.event_rows
        )
    await run("post", group.posting_rows())
    await run("enqueue", message_rows(group))
    await run("forward", forwarded_rows(group))
    await run("acknowledge", group.acknowledged)
    await run("mark", group.marked)
    await run("drop_work", list(group.dropped))
    await run("put_work", work_rows(group))
    await run("hold_work", list(group.held.items()))
    await run("unpark_steps", unparked_step_rows(group))
    await run("park_steps", parked_step_rows(group))
    if group.index and not await write_index(run, group.index):
        return _overflows
    return await _append_chunks(connection, group) if group.chunks else None


def _advancing(group: Group, *, ends: bool, closes: bool) -> tuple[str, list[RowValues]]:
    """The statement that advances the group's runs, and its rows. If it `closes` none, `close_runs` follows later."""
    if not ends:
        return "advance_runs", group.head_rows()
    closed = [head.closed_at_ms if closes else None for head in group.heads.values()]
    return "end_runs", [(*row, at_ms) for row, at_ms in zip(group.head_rows(), closed, strict=True)]


async def _append_chunks(connection: Connection, group: Group) -> FindRejected | None:
    wanted = stream_rows(group)
    streams = await connection.fetch(_SQL["grow_streams"], *_columns(wanted))
    if len(streams) != len(wanted):
        return _late_chunks
    rows = chunk_rows(group, streams)
    count = _count(await connection.execute(_SQL["append_chunks"], *_columns(rows)))
    return None if count == len(rows) else _known_chunks


async def _create_in_one_statement(connection: Connection, group: Group) -> None:
    """Create one new run."""
    rows = _columns(created_rows(group))
    status = await connection.execute(_SQL["begin_books"], *rows, *_books(group))
    if _count(status) != len(group.created):
        raise _RollBack(_taken)


async def _append_in_one_statement(connection: Connection, group: Group) -> None:
    """Append a small group of steps of warm runs, some of which may end."""
    closed = [head.closed_at_ms for head in group.heads.values()]
    sql = _SQL["end_books" if any(closed) else "commit_books"]
    status = await connection.execute(sql, *_columns(group.head_rows()), *_books(group), closed)
    if _count(status) != len(group.heads):
        raise _RollBack(_unfit)


def _books(group: Group) -> list[list[Any]]:
    """The columns of entries and postings; the postings may be empty."""
    return [*_columns(group.event_rows), *(_columns(group.posting_rows()) or ([], [], []))]


def _count(status: str) -> int:
    return int(status.rpartition(" ")[2])


def _columns(rows: list[RowValues]) -> list[list[Any]]:
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
    """Remove chunks that are stored already from the group; no bundle is rejected."""
    columns = _columns(list(group.chunks))
    for row in await connection.fetch(_SQL["select_known_chunks"], *columns):
        del group.chunks[*row]
    return {}


async def is_committed(connection: Connection, group: Group) -> bool:
    """Whether a group whose connection was lost during the commit is in the store.

    Locking the run's row waits for a transaction that is still ending. One run decides for the whole group, because
    the group is one transaction. It is a run that existed before, because a new run's row can't be locked until it is
    committed. A group that appends nothing may be written again unchanged, except for the tasks that it finished.
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
    """Don't finish tasks again that are off their queues, because this group's own commit or their run removed them.

    Then the group's result is stored already, or the run treats it like any late message. But if another host finished
    the task after the lease ended, and its result waits under the same GUID, the task stays to be rejected.
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
