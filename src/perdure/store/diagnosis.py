"""What a store's database says about its durability and the way to it, for `perdure doctor`."""

from collections.abc import Callable

import apsw

from perdure.core.journal import journal
from perdure.store.opening import sqlite_path
from perdure.store.rows.readings import Reading
from perdure.store.sqlite.connections.connection import compiled
from perdure.store.sqlite.diagnosis import diagnose_sqlite

_NOT_COMPILED = (
    "install a wheel, or a C compiler before installing from source: steps cost more CPU"
)


def installed_parts() -> list[Reading]:
    """The SQLite library, and whether the compiled parts are in use."""
    parts = {"compiled commits": compiled is not None, "compiled journal": journal.is_compiled}
    return [
        Reading("SQLite", f"{apsw.sqlite_lib_version()} (apsw {apsw.apsw_version()})"),
        *(
            Reading(what, "yes" if is_used else "no", None if is_used else _NOT_COMPILED)
            for what, is_used in parts.items()
        ),
    ]


async def diagnose(url: str, now_ms: Callable[[], int]) -> list[Reading]:
    """The settings that decide durability, the cost of a sync, the clock, and poolers. Changes nothing.

    The store must exist.
    """
    path = sqlite_path(url)
    if path is not None:
        return diagnose_sqlite(path)
    # asyncpg is slow to import, and a SQLite store does not need it.
    from perdure.store.postgres.diagnosis import diagnose_postgres  # noqa: PLC0415 - asyncpg is slow to import

    return await diagnose_postgres(url, now_ms)
