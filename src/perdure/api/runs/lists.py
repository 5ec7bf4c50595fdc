"""Lists of runs, their counts, and the errors that they failed with."""

from typing import Any

import msgspec

from perdure.api.exchange import Exchange
from perdure.api.queries import RunsQuery, filters_of
from perdure.api.runs.errors_of_runs import last_error
from perdure.client.runs.lists import RunFilters
from perdure.client.runs.status import RunStatus
from perdure.core.ids import RunId, StepId
from perdure.store.rows.lists import RunCount


class RunCounts(msgspec.Struct, frozen=True):
    """How many runs there are in each state."""

    counts: dict[RunStatus, RunCount]


class ErrorsQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Whose errors are grouped."""

    scope: str | None = None
    program: str | None = None
    limit: int = 50

    def __post_init__(self) -> None:
        if not 1 <= self.limit <= 1000:
            raise ValueError(f"limit is {self.limit}: pass a number from 1 to 1000")


class ErrorGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Runs that failed with one error, and parked steps that have it. Code and message are those of the newest run."""

    error: str
    runs: int
    parked_steps: int
    last_ms: int
    run_id: RunId
    program: str
    code: str
    message: str
    step: StepId | None


class ErrorGroups(msgspec.Struct, frozen=True):
    """Errors, the most frequent first. `is_complete` is False if older runs were not looked at."""

    groups: list[ErrorGroup]
    is_complete: bool


def limited(exchange: Exchange) -> RunFilters:
    """The filters of the query, limited to what the caller may see."""
    query: RunsQuery = exchange.query
    filters = filters_of(query, exchange.now_ms)
    scope = exchange.scope_of(filters.get("scope"))
    if scope is not None:
        filters["scope"] = scope
    return filters


async def list_runs(exchange: Exchange) -> Any:
    query: RunsQuery = exchange.query
    filters = limited(exchange)
    page = await exchange.engine.runs(after=query.after, limit=query.limit, **filters)
    if not query.fields:
        return page
    plain: dict[str, Any] = msgspec.to_builtins(page)
    wanted = {"run_id", *query.fields}
    plain["runs"] = [
        {name: value for name, value in run.items() if name in wanted} for run in plain["runs"]
    ]
    return plain


async def count_runs(exchange: Exchange) -> RunCount:
    return await exchange.engine.count(**limited(exchange))


async def counts_by_state(exchange: Exchange) -> RunCounts:
    filters = limited(exchange)
    filters.pop("status", None)
    counts = {}
    for status in RunStatus:
        filters["status"] = status
        counts[status] = await exchange.engine.count(**filters)
    return RunCounts(counts)


async def error_groups(exchange: Exchange) -> ErrorGroups:
    query: ErrorsQuery = exchange.query
    scope = exchange.scope_of(query.scope)
    found = await exchange.store.error_groups(scope, query.program, query.limit)
    groups = []
    for row in found.groups:
        example = await last_error(exchange.store, exchange.codec, row.run_id, row.error)
        groups.append(
            ErrorGroup(
                error=row.error,
                runs=row.runs,
                parked_steps=row.parked_steps,
                last_ms=row.last_ms,
                run_id=row.run_id,
                program=example.program,
                code=example.code,
                message=example.message,
                step=example.step,
            )
        )
    return ErrorGroups(groups, found.is_complete)
