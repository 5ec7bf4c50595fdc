"""Moves a whole store, open runs included, from SQLite to Postgres or back, or to another database of the same kind.

The old store is frozen first: no program can write to it any more. Then each table is copied in batches; each batch
commits with a note of how far the copy is, so a move that was killed resumes where it was. Then both sides are compared
row by row, and the books and chains of the new store are checked. Only then may engines open the new store. The old one
stays as it is, and engines refuse it.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec

from perdure.core.errors import InputError, StoreDamaged, StoreMoved
from perdure.store.inspection import Report, audit_store, verify_store
from perdure.store.opening import open_store, sqlite_path
from perdure.store.rows.moving import DeadHosts, MovableStore, MovedTable, MoveMark, Role, Row
from perdure.store.sqlite.moving import MovableSqlite

MOST_ROWS = 2000
MOST_BYTES = 8_000_000
"""Rows and bytes of one batch; a single row may be larger."""

OnRows = Callable[[str, int, int], None]
"""Called with what is being done, and how many of how many rows are done."""


class Moved(NamedTuple):
    """What was moved. `report` is the verification of the new store."""

    rows: int
    report: Report


async def open_movable(url: str) -> MovableStore:
    """A side of a move. The store must exist."""
    path = sqlite_path(url)
    if path is not None:
        return MovableSqlite(path)
    # asyncpg is slow to import, and a SQLite store does not need it.
    from perdure.store.postgres.moving import MovablePostgres  # noqa: PLC0415 - asyncpg is slow to import

    return await MovablePostgres.open(url)


async def move_store(
    source: MovableStore,
    target: MovableStore,
    target_url: str,
    move_id: str,
    dead: DeadHosts,
    on_rows: OnRows,
) -> Moved:
    """Move, or resume a move. `dead` are the hosts of the source that are known to be dead.

    The caller has checked the books of a source that is not frozen yet.
    """
    of_source = await source.mark()
    is_frozen = of_source is not None and of_source.role is not Role.ARRIVED
    if of_source is not None and is_frozen:
        move_id = of_source.move_id
        if of_source.role is not Role.SOURCE or of_source.peer != target.name:
            raise StoreMoved(f"{source.name} was moved to {of_source.peer}", "use the store there")
    tables = await _same_tables(source, target)
    mark = await _ready(target, MoveMark(move_id, Role.TARGET, source.name), tables)
    if not is_frozen:
        await source.freeze(MoveMark(move_id, Role.SOURCE, target.name), dead)
    return await _move(source, target, target_url, mark, on_rows, tables)


async def _ready(target: MovableStore, mark: MoveMark, tables: Sequence[MovedTable]) -> MoveMark:
    """The mark of the target: that of this move if it has begun, else the new one. Closes the store to engines."""
    found = await target.mark()
    if found is not None and found.move_id == mark.move_id:
        return found
    has_begun = found is not None and found.role is Role.TARGET and bool(found.done or found.table)
    if found is not None and (has_begun or found.role is Role.MOVED):
        raise StoreMoved(
            f"{target.name} takes part in another move, with {found.peer}", "use another store"
        )
    await _require_empty(target, tables)
    await target.set_mark(mark, is_closed=True)
    return mark


async def abandon_move(source: MovableStore) -> None:
    """Let engines use the old store again. What was copied stays in the new one, which stays closed."""
    mark = await source.mark()
    if mark is None or mark.role is not Role.SOURCE:
        raise InputError(f"{source.name} is not being moved", "there is nothing to abandon")
    await source.thaw()


async def _move(
    source: MovableStore,
    target: MovableStore,
    target_url: str,
    mark: MoveMark,
    on_rows: OnRows,
    tables: Sequence[MovedTable],
) -> Moved:
    total = sum([await source.count(table) for table in tables])
    if mark.role is Role.TARGET:
        mark = await _copy(source, target, mark, on_rows, tables)
        await _compare(source, target, tables, lambda rows: on_rows("compare", rows, total))
    report = await _checked(target_url)
    # Engines may open the new store from here on. The old one stays frozen, whatever happens now.
    await target.set_mark(MoveMark(mark.move_id, Role.ARRIVED, source.name), is_closed=False)
    await source.set_mark(MoveMark(mark.move_id, Role.MOVED, target.name), is_closed=True)
    return Moved(total, report)


async def _same_tables(source: MovableStore, target: MovableStore) -> list[MovedTable]:
    tables, others = await source.tables(), await target.tables()
    if tables != others:
        raise InputError(
            f"{source.name} and {target.name} have different tables",
            "open an engine of this Perdure on each once: it migrates the store",
        )
    return tables


async def _require_empty(target: MovableStore, tables: Sequence[MovedTable]) -> None:
    for table in tables:
        if await target.count(table):
            raise InputError(
                f"{target.name} is not empty: it has rows in its table {table.name!r}",
                "move to a new database",
            )


async def _copy(
    source: MovableStore,
    target: MovableStore,
    mark: MoveMark,
    on_rows: OnRows,
    tables: Sequence[MovedTable],
) -> MoveMark:
    counts = {table.name: await source.count(table) for table in tables}
    total, copied = sum(counts.values()), 0
    for table in tables:
        if table.name in mark.done:
            copied += counts[table.name]
            continue
        copied += await target.count(table)  # rows that an earlier process copied
        limit = MOST_ROWS
        while rows := await source.read(table, mark.after, limit):
            after = msgspec.structs.replace(mark, table=table.name, after=table.key_of(rows[-1]))
            await target.write(table, rows, mark, after)
            mark = after
            copied += len(rows)
            on_rows("copy", copied, total)
            limit = _next_limit(rows)
        after = msgspec.structs.replace(mark, done=(*mark.done, table.name), table="", after=())
        await target.write(table, [], mark, after)
        mark = after
    return mark


def _next_limit(rows: Sequence[Row]) -> int:
    """As many rows as fit a batch, if the next ones are like these."""
    size = sum(len(value) for row in rows for value in row if isinstance(value, str | bytes))
    return max(1, min(MOST_ROWS, len(rows) * MOST_BYTES // max(1, size)))


async def _compare(
    source: MovableStore,
    target: MovableStore,
    tables: Sequence[MovedTable],
    on_rows: Callable[[int], None],
) -> None:
    """Raise if a row of the source is not in the target, or the other way round."""
    compared = 0
    for table in tables:
        after: Row = ()
        limit = MOST_ROWS
        while True:
            rows = await source.read(table, after, limit)
            if await target.read(table, after, limit) != rows:
                raise StoreDamaged(
                    f"{target.name} differs from {source.name} in its table {table.name!r}, after {after!r}",
                    "move to a new database",
                )
            if not rows:
                break
            after = table.key_of(rows[-1])
            compared += len(rows)
            on_rows(compared)
            limit = _next_limit(rows)


async def _checked(url: str) -> Report:
    """The verification of the new store, which is still closed to engines."""
    store = await open_store(url, as_it_is=True, is_moving=True)
    try:
        report = await verify_store(store)
        report.findings += (await audit_store(store)).findings
    finally:
        await store.close()
    if not report.is_clean:
        raise StoreDamaged(f"the new store is not sound: {report}", "audit the old store")
    return report
