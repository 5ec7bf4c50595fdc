"""Runs that leave the store, or lose their data: what a store does in one transaction each."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol

import msgspec

from perdure.core.ids import RunId
from perdure.core.journal.entry import Entry

TABLES_OF_RUNS: Final = (
    *("event", "ledger", "message", "work", "parked_step", "published", "stream", "chunk"),
    *("readiness", "inbox", "hook", "pending", "dead_letter"),
)
"""The tables with rows of runs, beside that of the runs themselves."""

TAG_TABLES: Final = ("hook",)
"""The table with the tags of runs, by which archived runs are found, too."""

BARE_TABLES: Final = tuple(name for name in TABLES_OF_RUNS if name not in TAG_TABLES)
"""Those of which an archived run has no row."""

ERASED_TABLES: Final = tuple(name for name in TABLES_OF_RUNS if name not in ("event", "ledger"))
"""Those whose rows are deleted when a run is erased."""


class RetainedRun(msgspec.Struct, frozen=True):
    """What stays of a run that was erased, archived or purged.

    `archive` names the object that holds it. `receipt` says what was erased. `is_unfinished`: objects of it are still
    to be deleted.
    """

    run_id: RunId
    scope: str
    program: str
    status: str
    created_at_ms: int
    closed_at_ms: int
    entries: int
    head: bytes
    parent: RunId | None
    forked_from: RunId | None
    chain: RunId | None
    archive: str | None = None
    receipt: str | None = None
    purged_at_ms: int | None = None
    is_unfinished: int = 0


class Kin(NamedTuple):
    """How a run is related to others. `is_archived`: it is not in the store, but in the archive."""

    run_id: RunId
    parent: RunId | None
    forked_from: RunId | None
    chain: RunId | None
    is_open: bool
    is_archived: bool

    @property
    def origin(self) -> RunId:
        """The first run of its chain, or itself."""
        return self.chain or self.run_id


class EndPosition(NamedTuple):
    """A run in the order in which runs ended."""

    closed_at_ms: int
    run_id: RunId


class Retainable(NamedTuple):
    """The ended runs that a policy selects: those of a status, and of a program and scope if these are named."""

    status: str
    program: str | None
    scope: str | None


class ErasureOrder(msgspec.Struct, frozen=True):
    """The entries of a run that change, decided on a journal with that head; and the receipt."""

    run_id: RunId
    head: bytes
    changed: Sequence[Entry]
    receipt: str


class Removal(msgspec.Struct, frozen=True):
    """A run to remove: to the archive, under the name of the object that holds it, or for good.

    `receipt` is that of the run when its object was written: a run that was erased since then is not removed.
    """

    run_id: RunId
    archive: str | None = None
    receipt: str | None = None


class RetentionTable(Protocol):
    """The interface that both databases implement. A run that is open, or whose relatives are, is never removed."""

    async def get(self, run_ids: Sequence[RunId]) -> dict[RunId, RetainedRun]:
        """What stays of those of the runs that were erased, archived or purged."""
        ...

    async def kin(self, run_ids: Sequence[RunId]) -> list[Kin]:
        """These runs, their children, their forks, and the runs that continue them, as far as store or archive have
        them."""
        ...

    async def ended(
        self, wanted: Retainable, after: EndPosition | None, until_ms: int, limit: int
    ) -> tuple[list[EndPosition], EndPosition | None]:
        """Ended runs in the order in which they ended, after a position; and the position up to which was looked, or
        `None` at the end. At most `limit` runs are looked at."""
        ...

    async def archived(
        self, wanted: Retainable, after: EndPosition | None, until_ms: int, limit: int
    ) -> list[RetainedRun]:
        """Archived runs, likewise."""
        ...

    async def beyond(self, wanted: Retainable, keep: int) -> EndPosition | None:
        """The newest ended run that is not among the newest `keep`."""
        ...

    async def erase(self, order: ErasureOrder) -> bool:
        """Commits: the entries without data, no other rows with data of the run, a new epoch, and the receipt.

        False, and nothing is written, if the run is not closed, has another head, or has a child or a fork that is not
        erased.
        """
        ...

    async def remove(self, removals: Sequence[Removal], now_ms: int) -> list[RunId]:
        """Commits: the runs have no row in any table, and what stays of them is noted. Returns those removed."""
        ...

    async def purge_archived(self, run_ids: Sequence[RunId], now_ms: int) -> list[RunId]:
        """Commits: these runs are no longer in the archive; their objects are still to be deleted."""
        ...

    async def erase_archived(self, run_id: RunId, before: str, archive: str, receipt: str) -> bool:
        """Commits: another object holds the run, and the receipt. False if its object was not `before`."""
        ...

    async def tagged(self, name: str, value: str) -> list[RunId]:
        """The archived runs that have a tag, in the order of ids."""
        ...

    async def unfinished(self, limit: int) -> list[RunId]:
        """Runs with objects that are still to be deleted."""
        ...

    async def finish(self, run_id: RunId) -> None:
        """Commits: no objects of the run are left to be deleted."""
        ...

    async def sweep_messages(self, before_ms: int, limit: int) -> int:
        """Commits: messages that are not delivered any more, and arrived before that time, are deleted. Returns how
        many; if that is `limit`, there may be more."""
        ...

    async def size(self) -> int | None:
        """The bytes of the store's files that `compact` rewrites; `None` if the database keeps its files by itself."""
        ...

    async def compact(self, *, full: bool) -> bool:
        """Gives free space back and, if `full`, rewrites all that is left, so that the files hold nothing that was
        deleted. False if some of it could not be done now, because another program reads."""
        ...


def retained_from(row: Sequence[Any]) -> RetainedRun:
    return RetainedRun(*row)


def kin_from(row: Sequence[Any]) -> Kin:
    run_id, parent, forked_from, chain, is_open, is_archived = row
    return Kin(run_id, parent, forked_from, chain, bool(is_open), bool(is_archived))


def ended_from(
    rows: Sequence[Sequence[Any]], limit: int
) -> tuple[list[EndPosition], EndPosition | None]:
    """The matches among runs that were looked at, and the last of those if there may be more."""
    found = [EndPosition(closed, RunId(run_id)) for closed, run_id, matches in rows if matches]
    last = EndPosition(rows[-1][0], RunId(rows[-1][1])) if len(rows) == limit else None
    return found, last


def removable_from(
    rows: Sequence[Sequence[Any]], removals: Mapping[RunId, Removal]
) -> list[tuple[RetainedRun, str | None]]:
    """The runs that may be removed, from their rows with the receipts that are stored; each with its object."""
    found = []
    for *columns, receipt in rows:
        run = RetainedRun(*columns)
        removal = removals[run.run_id]
        if removal.archive is None or removal.receipt == receipt:
            found.append((run, removal.archive))
    return found
