"""When a commit may use the event loop's own thread, and when the log is folded back.

To hand a bundle to another thread and to hear from it costs about as much as a commit on a good disk.
So a lone bundle is committed in place, as long as commits are quick; never while another process
holds the file. What takes long by nature, folding the write-ahead log back into the database, is never part
of a commit: it has a turn of its own in the writer's thread.
"""

from contextlib import suppress

import apsw

SLOW_S = 0.002
"""If commits take longer than this on average, they do not hold up the event loop."""

WEIGHT = 1 / 16
"""What the newest commit counts in that average."""

LOG_PAGES = 4000
"""Length of the log from which it is folded back."""


class Pace:
    """What recent commits of one connection were like."""

    def __init__(self) -> None:
        self._log_pages = 0
        self._average_s = 0.0

    def watch(self, connection: apsw.Connection) -> None:
        """Learn of the log's length from each commit. Replaces SQLite's own automatic fold."""
        connection.set_wal_hook(self._grown)

    def _grown(self, _: apsw.Connection, __: str, pages: int) -> int:
        self._log_pages = pages
        return int(apsw.SQLITE_OK)

    def committed(self, took_s: float) -> None:
        """A lone bundle was committed, in whichever thread."""
        self._average_s += (took_s - self._average_s) * WEIGHT

    @property
    def is_quick(self) -> bool:
        return self._average_s < SLOW_S

    @property
    def log_is_long(self) -> bool:
        return self._log_pages >= LOG_PAGES

    def fold_log(self, connection: apsw.Connection) -> None:
        """Move the log's pages into the database, as far as readers allow.

        A fold that fails loses nothing: the log is still there, and is folded when it has grown.
        """
        self._log_pages = 0
        with suppress(apsw.Error):
            connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
