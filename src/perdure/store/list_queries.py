"""Lists of runs: which statements make a page or a count. The two databases execute them, each in one snapshot.

The queries are generators: they yield statements with their parameters and get the rows, so that both databases share
them, although only one of them is asynchronous.
"""

import re
from collections.abc import Generator, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, NamedTuple, Protocol

import msgspec

from perdure.core.errors import RunDiverged, StatementFailed
from perdure.core.ids import RunId
from perdure.core.journal.state import Status
from perdure.core.limits import MAX_TIME_MS
from perdure.core.list_rows import ListRows
from perdure.core.runs.listing import (
    ANY_TIME,
    FIRST_ID,
    MAX_EXAMINED,
    MAX_HELD_KEYS,
    MAX_STREAMS,
    Position,
    RunFilter,
    Source,
    first_id_after,
    next_position,
    prefix_end,
    source_of,
)
from perdure.store.rows.lists import ListedPage, RunCount, SqlRows, listed_from, tags_by_run
from perdure.store.rows.values import require_storable_values
from perdure.store.statements import statements


class ListTables(Protocol):
    """Lists of runs, and the user's own queries."""

    async def list_runs(self, wanted: RunFilter, after: Position | None, limit: int) -> ListedPage:
        """One page of the runs that the filter selects, from one snapshot.

        Newest first by id, or last ended first (`RunFilter.in_order_of_end`). Examines at most `MAX_EXAMINED` runs.
        """
        ...

    async def count_runs(self, wanted: RunFilter) -> RunCount:
        """How many runs the filter selects, among the first `MAX_EXAMINED` that it examines."""
        ...

    async def list_rows(self, run_id: RunId) -> ListRows:
        """What lists find a run by: some columns of its row, its tags and its parked steps."""
        ...

    async def read_sql(self, sql: str, args: Sequence[Any], limit: int, limit_s: float) -> SqlRows:
        """At most `limit` rows of a user's query in a read-only transaction, which ends after `limit_s` seconds."""
        ...


class Statement(NamedTuple):
    """A statement with named parameters."""

    sql: str
    values: dict[str, Any]


Rows = Sequence[Sequence[Any]]
Asking = Generator[Statement, Rows, Any]
"""Yields statements, and gets their rows."""


class _Stream(NamedTuple):
    """One range of an index. `values` are those of its own parameters."""

    fragment: str
    values: Mapping[str, Any] = MappingProxyType({})


class ListQueries:
    """The queries of one dialect."""

    def __init__(self, dialect: str) -> None:
        self._sql = statements(f"{dialect}_lists")
        self._orders_parts = dialect == "postgres"

    def page(
        self, wanted: RunFilter, after: Position | None, limit: int
    ) -> Generator[Statement, Rows, ListedPage]:
        """A page. Its boundary is asked for only if it is short."""
        candidates = yield from self._candidates(wanted, after)
        if candidates is None:
            return ListedPage([], None)
        conditions = self._conditions(wanted)
        found = yield self._statement("page", candidates, conditions, {"limit": limit + 1})
        positions = [Position(row[-1] if wanted.in_order_of_end else None, row[0]) for row in found]
        boundary = None
        if len(found) <= limit:
            last = yield self._statement(
                "boundary", candidates, None, {"skipped": MAX_EXAMINED - 1}
            )
            boundary = Position(*last[0]) if last else None
        shown = list({row[0]: row for row in found[:limit]}.values())  # a scrubbed key has two rows
        ids = {f"id_{number}": row[0] for number, row in enumerate(shown)}
        tags = {}
        if ids:
            names = ", ".join(f":{name}" for name in ids)
            tags = tags_by_run((yield Statement(self._sql["tags"].replace(":ids", names), ids)))
        runs = [listed_from(row, tags.get(row[0], {})) for row in shown]
        return ListedPage(runs, next_position(positions, limit, boundary))

    def count(self, wanted: RunFilter) -> Generator[Statement, Rows, RunCount]:
        """The number of matches among the candidates that may be examined."""
        candidates = yield from self._candidates(wanted, None)
        if candidates is None:
            return RunCount(0, is_complete=True)
        conditions = self._conditions(wanted)
        ((count,),) = yield self._statement("count", candidates, conditions, {})
        last = yield self._statement("boundary", candidates, None, {"skipped": MAX_EXAMINED - 1})
        return RunCount(count, is_complete=not last)

    # Candidates

    def _candidates(
        self, wanted: RunFilter, after: Position | None
    ) -> Generator[Statement, Rows, Statement | None]:
        """The index that the query walks, from the cursor on; `None` if it is empty."""
        streams = yield from self._streams(wanted)
        if not streams:
            return None
        order = "ended DESC, id DESC" if wanted.in_order_of_end else "id DESC"
        before = FIRST_ID if after is None else after.run_id
        shared: dict[str, Any] = {
            "before": before
            if wanted.in_order_of_end
            else min(before, first_id_after(wanted.created)),
            "examined": MAX_EXAMINED,
        }
        if wanted.in_order_of_end:
            at_ms = None if after is None else after.closed_at_ms
            until_ms = MAX_TIME_MS if wanted.closed[1] is None else wanted.closed[1]
            # Of runs that ended in that millisecond all are before `FIRST_ID`.
            shared["before_ms"] = until_ms if at_ms is None else min(at_ms, until_ms)
            shared["before"] = FIRST_ID if at_ms is None or at_ms > until_ms else before
            shared["closed_from"] = wanted.closed[0] or 0
        merged = self._merged(streams, order)
        sql = f"{merged.sql} ORDER BY {order} LIMIT :examined"
        return Statement(sql, merged.values | shared)

    def _merged(self, streams: Sequence[_Stream], order: str | None = None) -> Statement:
        """Several ranges as one; the parameters of each get its number.

        SQLite merges them in the order of the whole. Postgres does so only if each has that order, and a limit.
        """
        texts: list[str] = []
        values: dict[str, Any] = {}
        for number, (fragment, own) in enumerate(streams):
            names = {name: f"{name}_{number}" for name in own}
            text = _renamed(self._sql[fragment], names)
            if order is not None and self._orders_parts and len(streams) > 1:
                text = f"({text} ORDER BY {order} LIMIT :examined)"
            texts.append(text)
            values |= {names[name]: value for name, value in own.items()}
        return Statement(" UNION ALL ".join(texts), values)

    def _streams(self, wanted: RunFilter) -> Generator[Statement, Rows, list[_Stream]]:
        match source_of(wanted):
            case Source.CHAIN:
                chain = {"chain": wanted.chain}
                return [_Stream("from_chain", chain), _Stream("from_first_of_chain", chain)]
            case Source.ERROR:
                error = {"error": wanted.error}
                return [_Stream("from_error", error), _Stream("from_parked_steps", error)]
            case Source.TAG:
                name, value = next(iter(wanted.tags.items()))
                return [_Stream("from_tag", {"tag_name": name, "tag_value": value})]
            case Source.ENDED:
                return [_Stream("from_ended", {"status": s}) for s in wanted.ended_statuses]
            case Source.OPEN:
                return (yield from self._owners(has_pending=_has_pending(wanted)))
            case Source.KEYS | Source.PLACES:
                return (yield from self._places(wanted))
            case source:
                column = _COLUMNS.get(source)
                own = {} if column is None else {column: getattr(wanted, column)}
                return [_Stream(f"from_{source}", own)]

    def _owners(self, *, has_pending: bool) -> Generator[Statement, Rows, list[_Stream]]:
        owners = yield Statement(self._sql["owners"], {"most": MAX_STREAMS + 1})
        if len(owners) > MAX_STREAMS:
            return _EVERY_RUN
        owned = [_Stream("from_open", {"owner": owner}) for (owner,) in owners]
        pending = [_Stream("from_pending")] if has_pending else []
        return [*owned, _Stream("from_unowned"), *pending]

    def _places(self, wanted: RunFilter) -> Generator[Statement, Rows, list[_Stream]]:
        """The ranges of scopes and programs, or the keys in them."""
        most = MAX_STREAMS + 1
        scopes: Rows = [(wanted.scope,)]
        if wanted.scope is None:
            scopes = yield Statement(self._sql["scopes"], {"most": most})
        places: list[dict[str, Any]] = []
        for (scope,) in scopes:
            programs: Rows = [(wanted.program,)]
            if wanted.program is None:
                values = {"scope": scope, "most": most}
                programs = yield Statement(self._sql["programs"], values)
            places += [{"scope": scope, "program": program} for (program,) in programs]
            if len(places) > MAX_STREAMS:
                return _EVERY_RUN
        streams = [_Stream("from_place", place) for place in places]
        prefix = wanted.key_prefix
        end = None if prefix is None else prefix_end(prefix)
        if end is None or not places:
            return streams
        keys = {"key_prefix": prefix, "key_end": end}
        held = [_Stream("from_keys", place | keys) for place in places]
        merged = self._merged(held)
        values = merged.values | {"before": FIRST_ID, "most": MAX_HELD_KEYS + 1}
        sql = self._sql["held_keys"].replace(":candidates", merged.sql)
        ((count,),) = yield Statement(sql, values)
        return streams if count > MAX_HELD_KEYS else held

    # Conditions

    def _conditions(self, wanted: RunFilter) -> Statement:
        """All conditions of the filter, those that its source meets included."""
        texts = ["1 = 1"]
        values: dict[str, Any] = {}
        for column in ("program", "version", "scope", "parent", "forked_from"):
            value = getattr(wanted, column)
            if value is not None:
                texts.append(f"run.{column} = :{column}")
                values[column] = value
        if wanted.parked is not None:
            texts.append(f"run.parked IS {'NOT ' if wanted.parked else ''}NULL")
        parts = (_in_time(wanted), self._tagged(wanted), self._in_state(wanted))
        for more in (*parts, self._named(wanted)):
            texts += [more.sql] if more.sql else []
            values |= more.values
        return Statement(" AND ".join(f"({text})" for text in texts), values)

    def _tagged(self, wanted: RunFilter) -> Statement:
        texts, values = [], dict[str, Any]()
        for number, (tag, text) in enumerate(wanted.tags.items()):
            names = {"tag_name": f"wanted_name_{number}", "tag_value": f"wanted_value_{number}"}
            texts.append(_renamed(self._sql["where_tag"], names))
            values |= {names["tag_name"]: tag, names["tag_value"]: text}
        return Statement(" AND ".join(texts), values)

    def _named(self, wanted: RunFilter) -> Statement:
        """Conditions on the start key, the chain, the awaited signal and the error."""
        texts, values = [], dict[str, Any]()
        for column in ("key_prefix", "chain", "waiting_for", "error"):
            value = getattr(wanted, column)
            if value is not None:
                texts.append(f"({self._sql[f'where_{column}']})")
                values[column] = value
        if wanted.waiting_for is not None:
            values["awaited_name"] = f'"name":{msgspec.json.encode(wanted.waiting_for).decode()}'
        return Statement(" AND ".join(texts), values)

    def _in_state(self, wanted: RunFilter) -> Statement:
        if wanted.statuses is None:
            return Statement("", {})
        allowed = {f"allowed_{n}": s for n, s in enumerate(sorted(wanted.statuses))}
        names = ", ".join(f":{name}" for name in allowed) or "NULL"
        sql = self._sql["where_status"].replace(":statuses", names)
        return Statement(sql, {**allowed, "diverged": RunDiverged.code})

    def _statement(
        self, name: str, candidates: Statement, conditions: Statement | None, own: dict[str, Any]
    ) -> Statement:
        sql = self._sql[name].replace(":candidates", candidates.sql)
        values = candidates.values | own
        if conditions is not None:
            sql = sql.replace(":conditions", conditions.sql)
            values |= conditions.values
        order = ("candidate.ended DESC, " if "before_ms" in values else "") + "candidate.id DESC"
        return Statement(sql.replace(":order", order), values)


_EVERY_RUN: Final = [_Stream("from_all")]

_COLUMNS: Final = {
    Source.PARENT: "parent",
    Source.FORKS: "forked_from",
}
"""The filter whose value an index begins with."""


def _has_pending(wanted: RunFilter) -> bool:
    return wanted.statuses is None or Status.PENDING in wanted.statuses


def _in_time(wanted: RunFilter) -> Statement:
    texts, values = [], dict[str, Any]()
    for column, (least, most) in (("created", wanted.created), ("closed", wanted.closed)):
        for name, sign, bound in (("from", ">=", least), ("until", "<=", most)):
            if bound is not None:
                texts.append(f"run.{column}_at_ms {sign} :{column}_{name}_ms")
                values[f"{column}_{name}_ms"] = bound
    if wanted.closed != ANY_TIME:
        texts.append("run.closed_at_ms IS NOT NULL")
    return Statement(" AND ".join(texts), values)


_PARAMETER: Final = re.compile(r"(?<!:):([a-z_][a-z_0-9]*)")


def _renamed(sql: str, names: dict[str, str]) -> str:
    return _PARAMETER.sub(lambda found: f":{names.get(found[1], found[1])}", sql)


def numbered(statement: Statement) -> tuple[str, list[Any]]:
    """The statement with numbered parameters, as Postgres has them, and its values in that order."""
    places: dict[str, int] = {}

    def number(found: re.Match[str]) -> str:
        return f"${places.setdefault(found[1], len(places) + 1)}"

    sql = _PARAMETER.sub(number, statement.sql)
    return sql, [statement.values[name] for name in places]


def require_storable_filter(wanted: RunFilter) -> None:
    """Refuse a filter that names what one of the databases can't store."""
    require_storable_values(
        [
            *(wanted.statuses or ()),
            *wanted.tags,
            *wanted.tags.values(),
            *wanted.created,
            *wanted.closed,
            *(value for value in _texts(wanted) if value is not None),
        ]
    )


def _texts(wanted: RunFilter) -> Iterable[str | None]:
    return (
        *(wanted.program, wanted.version, wanted.scope, wanted.key_prefix, wanted.parent),
        *(wanted.chain, wanted.forked_from, wanted.waiting_for, wanted.error),
    )


def took_too_long(limit_s: float) -> StatementFailed:
    return StatementFailed(
        f"the query took longer than {limit_s:g} s", "narrow it down, or give it a longer timeout"
    )
