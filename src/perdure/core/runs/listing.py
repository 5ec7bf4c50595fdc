"""Lists of runs: which runs a filter selects, where a page begins, and where the next one does. Pure.

A filter is a conjunction. The store walks one index, the *source*, in the order of the list, and checks every condition
on each run that it meets. It meets at most `MAX_EXAMINED` runs for one page, so a page may be shorter than its limit
although more runs follow: then its cursor says so.
"""

import re
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Final, NamedTuple

import msgspec

from perdure.core.errors import InputError
from perdure.core.ids import RunId
from perdure.core.journal.state import TERMINAL, Status

MAX_EXAMINED: Final = 10_000
"""Runs that the store looks at for one page, or for one count."""

MAX_LIMIT: Final = 1_000
"""Runs of one page."""

MAX_STREAMS: Final = 32
"""Ranges of one index that a page merges: of the owners of open runs, or of scopes and programs. With more of them the
page walks all runs."""

MAX_HELD_KEYS: Final = 1_000
"""Keys of one prefix that are read from the index of keys, which has another order than lists; with more of them the
page walks all runs."""

LEAD_MS: Final = 5_000
"""How far the time in a run's id may be ahead of its creation. Each run of a chain has an id 1 ms later than the one
before: only the ids of a chain that continues more often than that, for seconds, get ahead."""

FIRST_ID: Final = "s"
"""Greater than every run id."""

Range = tuple[int | None, int | None]
"""Milliseconds since 1970, both ends included; `None` is open."""

ANY_TIME: Final[Range] = (None, None)


class RunFilter(msgspec.Struct, frozen=True, kw_only=True):
    """What a run must be like; all of it together. `None`, and an empty mapping, allow everything.

    `statuses` are those that users see: of a parked run it is 'parked' or 'diverged', whatever its row says.
    `waiting_for` is the name of a signal.
    """

    statuses: frozenset[str] | None = None
    program: str | None = None
    version: str | None = None
    scope: str | None = None
    key_prefix: str | None = None
    tags: Mapping[str, str] = {}
    parent: RunId | None = None
    chain: RunId | None = None
    forked_from: RunId | None = None
    created: Range = ANY_TIME
    closed: Range = ANY_TIME
    parked: bool | None = None
    waiting_for: str | None = None
    error: str | None = None

    @property
    def only_ended(self) -> bool:
        """Whether it selects runs that have ended, and no others."""
        named = self.statuses
        return self.closed != ANY_TIME or (named is not None and named <= _ENDED)

    @property
    def in_order_of_end(self) -> bool:
        """Whether the list is in the order in which runs ended, not in the order of their ids."""
        return source_of(self) is Source.ENDED

    @property
    def only_open(self) -> bool:
        """Whether it selects runs that have not ended, and no others."""
        named = self.statuses
        return self.waiting_for is not None or (named is not None and named <= _OPEN)

    @property
    def only_parked(self) -> bool:
        """Whether it selects runs that are parked, and no others."""
        named = self.statuses
        return self.parked is True or (named is not None and named <= _PARKED)

    @property
    def ended_statuses(self) -> tuple[str, ...]:
        """The ended states that it allows."""
        allowed = _ENDED if self.statuses is None else _ENDED & self.statuses
        return tuple(sorted(allowed))


_ENDED: Final = frozenset(map(str, TERMINAL))
_OPEN: Final = frozenset(map(str, Status)) - _ENDED
_PARKED: Final = frozenset({"parked", "diverged"})
"""What users see in place of the status of a parked run."""


class Source(StrEnum):
    """The index that a page walks."""

    PARENT = "parent"
    FORKS = "forks"
    CHAIN = "chain"
    ERROR = "error"
    TAG = "tag"
    PARKED = "parked"
    ENDED = "ended"
    KEYS = "keys"
    PLACES = "places"
    OPEN = "open"
    ALL = "all"


def source_of(wanted: RunFilter) -> Source:
    """The index that leads to the fewest runs, as far as the filter alone shows.

    It also decides the order of the list: `ENDED` has runs in the order in which they ended, all others have them in
    the order of their ids.
    """
    given = (
        (Source.PARENT, wanted.parent is not None),
        (Source.FORKS, wanted.forked_from is not None),
        (Source.CHAIN, wanted.chain is not None),
        (Source.ERROR, wanted.error is not None),
        (Source.TAG, bool(wanted.tags)),
        (Source.PARKED, wanted.only_parked),
        (Source.ENDED, wanted.only_ended),
        (Source.KEYS, wanted.key_prefix is not None),
        (Source.PLACES, wanted.program is not None or wanted.scope is not None),
        (Source.OPEN, wanted.only_open),
    )
    return next((source for source, is_given in given if is_given), Source.ALL)


class Position(NamedTuple):
    """A run's place in the order of a list: when it ended, in lists of ended runs, and its id."""

    closed_at_ms: int | None
    run_id: str


_CURSOR: Final = re.compile(r"(?:n|e(?P<at>[0-9]{1,18}))-(?P<id>r_[0-9a-f]{32})")


def cursor_text(position: Position) -> str:
    """A cursor as users pass it on."""
    at_ms, run_id = position
    return f"n-{run_id}" if at_ms is None else f"e{at_ms}-{run_id}"


def position_of(cursor: str | None, wanted: RunFilter) -> Position | None:
    """The position that a cursor names. Refuses a text that no page of such a list gave."""
    if cursor is None:
        return None
    found = _CURSOR.fullmatch(cursor)
    if found is None or (found["at"] is not None) is not wanted.in_order_of_end:
        raise InputError(
            f"{cursor!r:.80} is no cursor of this list",
            "pass the `cursor` of a page that was read with the same filters",
        )
    return Position(None if found["at"] is None else int(found["at"]), found["id"])


def next_position(
    positions: Sequence[Position], limit: int, boundary: Position | None
) -> Position | None:
    """Where the next page continues, given the matches that were read, at most one more than `limit`.

    Whether more matches follow is known if one more was read. Otherwise the walk continued to `boundary`, the last run
    that it may examine, or to the end of the index (`None`).
    """
    if len(positions) > limit:
        return positions[limit - 1]
    return boundary


def first_id_after(created: Range) -> str:
    """A bound that is greater than the id of every run created in that time."""
    until_ms = created[1]
    if until_ms is None or until_ms + LEAD_MS >= 1 << 48:
        return FIRST_ID
    return f"r_{max(0, until_ms + LEAD_MS + 1):012x}"


def prefix_end(prefix: str) -> str | None:
    """The smallest text that is greater than every text with this prefix; `None` if there is none."""
    last = len(prefix) - 1
    while last >= 0:
        code = ord(prefix[last]) + 1
        if code == 0xD800:  # surrogates are no text
            code = 0xE000
        if code <= 0x10FFFF:
            return prefix[:last] + chr(code)
        last -= 1
    return None
