"""Makes the locks on a store's file independent of other descriptors in the process.

POSIX locks, which SQLite uses, belong to the process: when the process closes *any* descriptor on a file, it loses all
its locks on that file. One SQLite library knows of its own descriptors and works around that. It does not know those of
a second library (the standard library's, beside apsw's), nor those of `shutil.copy`. After such a close another process
may write at the same time as this one, or remove the write-ahead log that this one still writes to: acknowledged
commits are lost, and no audit can detect it.

So Perdure's SQLite takes the locks of a store's files as locks of an *open file description*, on a descriptor that
nothing else closes (`compiled/locks.c` does it, and says how). These locks:

- survive whatever else the process opens and closes;
- are respected by every other SQLite, in this process too: both kinds of lock conflict with each other;
- end with the process, however it ends.

Where they are not available (on macOS, or without the native module), the locks belong to the process, and
`foreign.py` refuses more.
"""

import logging
from collections.abc import Callable
from contextlib import closing
from functools import cache
from types import ModuleType

import apsw

from perdure.store.sqlite.connections.connection import load_compiled

log = logging.getLogger("perdure.store")


def own_locks(path: str) -> bool:
    """Make this file's locks independent of the process's other descriptors. False where that is impossible.

    Call it before each connection to the file is opened.
    """
    # An editable install may still have the module that was compiled from older sources.
    take: Callable[[str], bool] | None = getattr(_loaded(), "own_locks", None)
    is_own = take is not None and take(path)
    if not is_own:
        _log_once()
    return is_own


@cache
def _loaded() -> ModuleType | None:
    with closing(apsw.Connection(":memory:")) as connection:
        return load_compiled(connection)


@cache
def _log_once() -> None:
    log.info(
        "locks on SQLite files belong to the whole process here: Perdure refuses to let other code of this "
        "process open a store's file while the store is open"
    )
