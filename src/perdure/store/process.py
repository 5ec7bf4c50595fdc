"""Objects that belong to one process: threads, sockets and SQLite connections do not survive a fork.

After a fork, the child has copies of the parent's objects but none of its threads. Waiting for such a thread would
never end; closing a copied connection would harm the parent, because both processes share sockets, the selector of an
event loop and SQLite's shared memory. So a child refuses to use inherited objects and never frees them.
"""

import ctypes
import os
from weakref import WeakSet

from perdure.core.errors import UsedAfterFork

_bound: "WeakSet[object]" = WeakSet()


class OwnProcess:
    """The process that opened an object. The check costs one `getpid`."""

    __slots__ = ("_pid", "_what")

    def __init__(self, what: str) -> None:
        self._what = what
        self._pid = os.getpid()

    @property
    def is_here(self) -> bool:
        return os.getpid() == self._pid

    def require(self) -> None:
        """Refuse the use of a copy that a forked child inherited."""
        if os.getpid() != self._pid:
            raise UsedAfterFork(
                f"{self._what} was opened in process {self._pid} and is used in process {os.getpid()}, "
                "which was forked from it",
                "open it after the fork, in each process: in a lifespan, or in a post_fork hook",
            )


def never_free_in_child(thing: object) -> None:
    """Never free `thing` in a forked child: that would close sockets and files that the parent still uses."""
    _bound.add(thing)


def _keep_bound() -> None:
    """Add a reference that is never released, so that not even the end of the interpreter frees the objects."""
    for thing in _bound:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))


os.register_at_fork(after_in_child=_keep_bound)
