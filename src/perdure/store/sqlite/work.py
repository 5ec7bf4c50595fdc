"""Claims work of several queues in one transaction, each queue its share."""

import logging
from collections.abc import Sequence
from typing import Any

import apsw

from perdure.store.rows.values import RowValues
from perdure.store.statements import statements

log = logging.getLogger("perdure.store")

_SQL = statements("sqlite")
_CLAIM = _SQL["claim_work"]
_TEXTS = ("run_id", "step", "guid", "queue")
_CLAIM_AS_BYTES = _CLAIM.replace(
    f"RETURNING {', '.join(_TEXTS)}",
    f"RETURNING {', '.join(f'CAST({name} AS BLOB)' for name in _TEXTS)}",
)


def claim_work(
    connection: apsw.Connection, queues: Sequence[str], limit: int, values: dict[str, Any]
) -> list[RowValues]:
    """Claim up to `limit` tasks, inside a transaction; returns their rows.

    Each queue gets an equal share as far as it has work; what one does not use goes to the others.
    """
    left, rows = list(dict.fromkeys(queues)), list[RowValues]()
    while left and (room := limit - len(rows)) > 0:
        share = -(-room // len(left))
        for queue in list(left):
            count = min(share, limit - len(rows))
            claimed = _claim(connection, values | {"queue": queue, "limit": count})
            rows += claimed
            if connection.changes() < count:
                left.remove(queue)
    return rows


def _claim(connection: apsw.Connection, values: dict[str, Any]) -> list[RowValues]:
    """Claim tasks of one queue. Those with damaged text are leased but left out: they must not stop the others."""
    connection.execute("SAVEPOINT claim")
    try:
        rows: list[RowValues] = connection.execute(_CLAIM, values).fetchall()
    except UnicodeDecodeError:
        connection.execute("ROLLBACK TO claim")
        found = connection.execute(_CLAIM_AS_BYTES, values).fetchall()
        rows = [row for each in found if (row := _decoded(each)) is not None]
    connection.execute("RELEASE claim")
    return rows


def _decoded(row: RowValues) -> RowValues | None:
    """The row of a claim whose text was read as bytes; `None` if it is damaged."""
    texts, rest = row[: len(_TEXTS)], row[len(_TEXTS) :]
    try:
        return *(text.decode() for text in texts), *rest
    except UnicodeDecodeError:
        log.warning("the work row %r is damaged; restore it from a backup, or delete it", texts[:2])
        return None
