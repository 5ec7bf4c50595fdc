"""Moving a store: its tables as they are copied, and the mark in both stores that keeps engines out meanwhile."""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, Protocol

import msgspec

from perdure.core.errors import InputError, StoreMoved
from perdure.core.ids import HostId

KEY = "moving"
"""The key of the mark in the table of settings."""

LEFT_BEHIND = frozenset({"meta", "host", "outcome"})
"""Tables that are not copied: they belong to one database, or to hosts that are gone."""

FROZEN = ("run", "message")
"""Tables of the old store that get another name, so that a program that has it open can't write to it any more."""

Row = tuple[Any, ...]


class Role(StrEnum):
    SOURCE = "source"
    TARGET = "target"
    MOVED = "moved"
    """The old store, after the move."""
    ARRIVED = "arrived"
    """The new store, after the move: engines may open it."""


class MoveMark(msgspec.Struct, frozen=True):
    """The mark of a store that takes part in a move. `peer` is the other store, without a password.

    A target says how far it is: `table` is being copied, up to the row with the key `after`; `done` are complete.
    """

    move_id: str
    role: Role
    peer: str
    done: tuple[str, ...] = ()
    table: str = ""
    after: tuple[Any, ...] = ()


class DeadHosts(msgspec.Struct, frozen=True):
    """The hosts that are known to be dead at `now_ms`, with their last beats."""

    beats: Mapping[HostId, int]
    now_ms: int

    def require(self, hosts: Mapping[HostId, int], name: str) -> None:
        """Refuse a store with a host that is not among them, or that has shown a sign of life since."""
        alive = sorted(host for host, beat in hosts.items() if self.beats.get(host) != beat)
        if alive:
            raise InputError(
                f"{name} has {len(alive)} live hosts, such as {alive[0]}",
                "stop every engine on it, and move it then",
            )


class MovedTable(msgspec.Struct, frozen=True):
    """A table: its columns in the order in which rows are copied, and the columns of its primary key."""

    name: str
    columns: tuple[str, ...]
    key: tuple[str, ...]

    def key_of(self, row: Row) -> Row:
        return tuple(row[self.columns.index(name)] for name in self.key)


class MovableStore(Protocol):
    """One side of a move, with a connection of its own. Each method is one transaction."""

    name: str

    async def mark(self) -> MoveMark | None: ...

    async def tables(self) -> list[MovedTable]:
        """The tables to copy, in the order of names; columns in the order of names."""
        ...

    async def count(self, table: MovedTable) -> int: ...

    async def read(self, table: MovedTable, after: Row, limit: int) -> list[Row]:
        """Up to `limit` rows after a key, in the order of keys; from the first if the key is empty."""
        ...

    async def write(
        self, table: MovedTable, rows: Sequence[Row], before: MoveMark, after: MoveMark
    ) -> None:
        """Commits: the rows, and how far the copy is. Raises `StoreMoved` if the mark is not `before`."""
        ...

    async def freeze(self, mark: MoveMark, dead: DeadHosts) -> None:
        """Commits: no program writes to the store any more; no run has an owner, no task a worker, no host a row.

        Raises `InputError` if there is a host that is not known to be dead.
        """
        ...

    async def thaw(self) -> None:
        """Commits: what `freeze` changed, but for owners: engines may open the store."""
        ...

    async def set_mark(self, mark: MoveMark, *, is_closed: bool) -> None:
        """Commits: the mark; and whether engines are refused."""
        ...

    async def close(self) -> None: ...


def read_mark(text: str | None) -> MoveMark | None:
    return None if text is None else msgspec.json.decode(text, type=MoveMark)


def mark_text(mark: MoveMark) -> str:
    return msgspec.json.encode(mark).decode()


def require_mark(found: MoveMark | None, expected: MoveMark, name: str) -> None:
    if found != expected:
        raise StoreMoved(f"{name} is being filled by another move", "let it end, and look again")
