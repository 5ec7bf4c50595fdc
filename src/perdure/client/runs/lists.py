"""Lists of runs as users see them: filters, pages, summaries, counts."""

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, TypedDict, Unpack

import msgspec

from perdure.authoring.durations import Duration, milliseconds
from perdure.authoring.tags import TagValue, tag_texts
from perdure.authoring.texts import require_user_text
from perdure.client.runs.status import RunStatus, shown_status
from perdure.core.errors import InputError
from perdure.core.ids import HostId, RunId, parse_run_id
from perdure.core.limits import MAX_KEY_LENGTH, MAX_NAME_LENGTH
from perdure.core.runs.listing import (
    ANY_TIME,
    MAX_LIMIT,
    Range,
    RunFilter,
    cursor_text,
    position_of,
)
from perdure.store.rows.lists import ListedRun, RunCount, SqlRows
from perdure.store.store import Store

MAX_ROWS: Final = 100_000
"""Rows of one query: they are all in memory."""

MAX_QUERY_S: Final = 3600.0

_LAST_MS: Final = 253_402_300_799_000
"""The end of the year 9999."""

TimeRange = tuple[datetime | None, datetime | None]


class RunFilters(TypedDict, total=False):
    """Which runs a list shows: those to which everything applies that is given.

    `status` is one state or several. `created` and `closed` are ranges of times, of which either end may be `None`;
    both ends are included. `parent` is the run that gets the result, `chain` the first run of a chain, `forked_from`
    the run of which others are forks. `waiting_for` is the name of a signal that a workflow, or a graph's hook,
    waits for. `error` is the fingerprint of the error with which runs failed, or steps that wait for an operator.
    """

    status: RunStatus | str | Iterable[RunStatus | str] | None
    program: str | None
    version: str | None
    scope: str | None
    key_prefix: str | None
    tags: Mapping[str, TagValue] | None
    parent: str | None
    chain: str | None
    forked_from: str | None
    created: TimeRange | None
    closed: TimeRange | None
    parked: bool | None
    waiting_for: str | None
    error: str | None


class RunSummary(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A run as lists show it. Times are in UTC; `error` is the fingerprint of the error that it failed with.

    `parked_reason` says why the run is parked or diverged, and does not advance.
    """

    run_id: RunId
    program: str
    status: RunStatus
    created: datetime
    closed: datetime | None = None
    version: str = ""
    scope: str = ""
    key: str | None = None
    tags: dict[str, str] = {}
    parent: RunId | None = None
    chain: RunId | None = None
    forked_from: RunId | None = None
    error: str | None = None
    parked_reason: str | None = None
    owner: HostId | None = None
    entries: int = 0

    def __repr__(self) -> str:
        named = f" {self.key!r}" if self.key is not None else ""
        since = self.created.isoformat(sep=" ", timespec="seconds").removesuffix("+00:00")
        return f"<{self.run_id} {self.program}{named} {self.status.value} {since}>"


class Page(msgspec.Struct, frozen=True):
    """Some runs of a list. `cursor` leads to the next page; `None` if there is none.

    A page may have fewer runs than asked for although more follow: the store examines a limited number of runs for it.
    """

    runs: list[RunSummary]
    cursor: str | None

    def __repr__(self) -> str:
        more = "the last page" if self.cursor is None else "more follow"
        return f"<page of {len(self.runs)} runs, {more}>"


async def list_runs(
    store: Store, filters: RunFilters, after: str | None = None, limit: int = 100
) -> Page:
    """One page of a list."""
    wanted = filter_of(filters)
    if after is not None:
        require_user_text("a cursor", after)
    if type(limit) is not int or not 1 <= limit <= MAX_LIMIT:
        raise InputError(f"a page of {limit!r} runs", f"pass a limit from 1 to {MAX_LIMIT}")
    page = await store.list_runs(wanted, position_of(after, wanted), limit)
    cursor = None if page.after is None else cursor_text(page.after)
    return Page([summary_of(run) for run in page.runs], cursor)


async def iterate_runs(store: Store, filters: RunFilters) -> AsyncIterator[RunSummary]:
    """All runs of a list, read page by page."""
    after: str | None = None
    while True:
        page = await list_runs(store, filters, after, MAX_LIMIT)
        for run in page.runs:
            yield run
        after = page.cursor
        if after is None:
            return


async def count_runs(store: Store, filters: RunFilters) -> RunCount:
    return await store.count_runs(filter_of(filters))


async def read_sql(
    store: Store, sql: str, args: Sequence[Any], limit: int, longest: Duration
) -> SqlRows:
    """A user's query, within its limits."""
    if type(limit) is not int or not 1 <= limit <= MAX_ROWS:
        raise InputError(f"{limit!r} rows of a query", f"pass a limit from 1 to {MAX_ROWS}")
    limit_s = milliseconds(longest, "the timeout of a query") / 1000
    if not 0 < limit_s <= MAX_QUERY_S:
        raise InputError(f"a timeout of {limit_s:g} s", f"use at most {MAX_QUERY_S:g} s")
    return await store.read_sql(sql, args, limit, limit_s)


def summary_of(run: ListedRun) -> RunSummary:
    return RunSummary(
        run_id=run.run_id,
        program=run.program,
        status=shown_status(run.status, run.parked),
        created=_time(run.created_at_ms),
        closed=None if run.closed_at_ms is None else _time(run.closed_at_ms),
        version=run.version,
        scope=run.scope,
        key=run.key,
        tags=dict(sorted(run.tags.items())),
        parent=run.parent,
        chain=run.chain,
        forked_from=run.forked_from,
        error=run.error,
        parked_reason=run.parked,
        owner=run.owner,
        entries=run.entries,
    )


def filter_of(filters: RunFilters) -> RunFilter:
    """The checked filter. Refuses names that no filter has, and values that no run can have."""
    unknown = filters.keys() - RunFilters.__annotations__.keys()
    if unknown:
        raise InputError(
            f"{min(unknown)!r} is no filter of runs",
            f"use {', '.join(RunFilters.__annotations__)}",
        )
    parked = filters.get("parked")
    if parked is not None and not isinstance(parked, bool):
        raise InputError(f"parked is {parked!r}", "pass True or False")
    return RunFilter(
        statuses=_statuses(filters.get("status")),
        program=_name("a program", filters.get("program")),
        version=_name("a version", filters.get("version"), least=0),
        scope=_name("a scope", filters.get("scope"), least=0),
        key_prefix=_name("the prefix of keys", filters.get("key_prefix"), limit=MAX_KEY_LENGTH),
        tags=tag_texts(filters.get("tags") or {}),
        parent=_run_id(filters.get("parent")),
        chain=_run_id(filters.get("chain")),
        forked_from=_run_id(filters.get("forked_from")),
        created=_range("created", filters.get("created")),
        closed=_range("closed", filters.get("closed")),
        parked=parked,
        waiting_for=_name("the name of a signal", filters.get("waiting_for")),
        error=_name("the fingerprint of an error", filters.get("error")),
    )


def _name(what: str, given: object, *, least: int = 1, limit: int = MAX_NAME_LENGTH) -> str | None:
    return None if given is None else require_user_text(what, given, limit, least)


def _run_id(given: object) -> RunId | None:
    return None if given is None else parse_run_id(require_user_text("a run id", given, least=0))


def _statuses(given: object) -> frozenset[str] | None:
    if given is None:
        return None
    several: Iterable[Any] = [given]
    if isinstance(given, Iterable) and not isinstance(given, str):
        several = given
    try:
        return frozenset(RunStatus(each).value for each in several)
    except ValueError as error:
        states = ", ".join(status.value for status in RunStatus)
        raise InputError(f"{given!r} is no state of a run ({error})", f"use {states}") from error


def _range(name: str, given: object) -> Range:
    if given is None:
        return ANY_TIME
    if not isinstance(given, tuple | list) or len(given) != 2:
        raise InputError(
            f"{name} is {given!r:.80}", "pass two times, (from, to); either may be None"
        )
    return _milliseconds(name, given[0]), _milliseconds(name, given[1])


def _milliseconds(name: str, at: object) -> int | None:
    if at is None:
        return None
    if not isinstance(at, datetime) or at.tzinfo is None:
        raise InputError(f"{name} has the time {at!r:.80}", "pass a datetime with a time zone")
    return int(at.timestamp() * 1000)


def _time(at_ms: int) -> datetime:
    """A time in UTC; a damaged one is the first or the last that there is."""
    return datetime.fromtimestamp(min(max(at_ms, 0), _LAST_MS) / 1000, UTC)


class RunLists(ABC):
    """The lists of an engine."""

    @abstractmethod
    def _list_store(self) -> Store: ...

    async def runs(
        self, *, after: str | None = None, limit: int = 100, **filters: Unpack[RunFilters]
    ) -> Page:
        """A page of runs, newest first: `await engine.runs(program="checkout", status="failed")`.

        All filters must apply (see `RunFilters`). Lists of ended runs alone are in the order in which they ended, the
        last one first, unless another filter than `program`, `scope`, `version` and `key_prefix` is given. `after` is
        the cursor of the page before. Child runs, and runs that continue others, are next to the run they come from.
        """
        return await list_runs(self._list_store(), filters, after, limit)

    def iterate_runs(self, **filters: Unpack[RunFilters]) -> AsyncIterator[RunSummary]:
        """All runs of a list: `async for run in engine.iterate_runs(status="failed")`. Pages are read as needed."""
        return iterate_runs(self._list_store(), filters)

    async def count(self, **filters: Unpack[RunFilters]) -> RunCount:
        """How many runs a list has. It counts no further than the first 10,000 runs that it examines."""
        return await count_runs(self._list_store(), filters)

    async def sql(
        self,
        query: str,
        *args: Any,
        limit: int = 1000,
        timeout: Duration = 10,  # noqa: ASYNC109 - the database ends the query
    ) -> SqlRows:
        """Read from the store with a query of your own, with parameters `$1`, `$2` and so on.

        The views `perdure_v1_runs` and so on are stable; tables may change. The transaction is read-only, and ends
        after `timeout` seconds; of more than `limit` rows the first are returned.
        """
        return await read_sql(self._list_store(), query, args, limit, timeout)
