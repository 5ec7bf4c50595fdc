"""The inbox: what runs wait for that a person can give. A signal, or a decision on a parked step."""

from itertools import takewhile
from typing import Any, Final

import msgspec

from perdure.api.exchange import Exchange
from perdure.api.queries import PageQuery
from perdure.api.registered_programs import (
    Schema,
    registered_program,
    schema_of_signal,
    step_schema,
)
from perdure.api.runs.overview import Action
from perdure.client.runs.lists import RunFilters, RunSummary
from perdure.client.runs.status import RunStatus
from perdure.core.ids import RunId, StepId
from perdure.store.rows.lists import PersonalWait

EXAMINED: Final = 1000
"""Open runs that one page looks at."""

OPEN: Final = (RunStatus.RUNNING, RunStatus.BLOCKED, RunStatus.PAUSED)


class InboxQuery(PageQuery, frozen=True, kw_only=True):
    """Whose inbox. `name` is that of a signal or a task."""

    scope: str | None = None
    program: str | None = None
    name: str | None = None


class InboxItem(msgspec.Struct, frozen=True, kw_only=True):
    """What a run waits for. `kind` is `signal` or `operator`; `schema` is that of the value, if it is known here.

    `answer` is the request that answers it, without its value.
    """

    kind: str
    run_id: RunId
    program: str
    scope: str
    key: str | None
    step: StepId
    name: str
    hook_key: str | None
    since_ms: int
    error: str | None
    schema: Schema | None
    answer: Action


class Inbox(msgspec.Struct, frozen=True):
    """Items, those of the newest runs first. A page may be short although more follow."""

    items: list[InboxItem]
    cursor: str | None


async def inbox(exchange: Exchange) -> Inbox:
    query: InboxQuery = exchange.query
    filters = RunFilters(status=OPEN)
    scope = exchange.scope_of(query.scope)
    if scope is not None:
        filters["scope"] = scope
    if query.program is not None:
        filters["program"] = query.program
    page = await exchange.engine.runs(after=query.after, limit=EXAMINED, **filters)
    runs = {run.run_id: run for run in page.runs}
    found = await exchange.store.waits_for_people(list(runs))
    wanted = [each for each in found if query.name in (None, each.name)]
    shown = wanted[: query.limit]
    # All items of one run are on one page: the cursor is a place between runs.
    shown += takewhile(lambda each: each.run_id == shown[-1].run_id, wanted[query.limit :])
    items = [await _item(exchange, runs[each.run_id], each) for each in shown]
    cursor = page.cursor
    if len(wanted) > len(shown):
        cursor = await _cursor_at(exchange, filters, query.after, shown[-1].run_id)
    return Inbox(items, cursor)


async def _cursor_at(
    exchange: Exchange, filters: RunFilters, after: str | None, last: RunId
) -> str | None:
    """The cursor behind the last run that is shown."""
    page = await exchange.engine.runs(after=after, limit=EXAMINED, **filters)
    place = [run.run_id for run in page.runs].index(last) + 1
    return (await exchange.engine.runs(after=after, limit=place, **filters)).cursor


async def _item(exchange: Exchange, run: RunSummary, wait: PersonalWait) -> InboxItem:
    row = await exchange.store.run(run.run_id)
    program = None if row is None else registered_program(exchange.host, row)
    path = f"/v1/runs/{run.run_id}"
    schema: Schema | None
    if wait.kind == "operator":
        schema = step_schema(wait.name)
        answer = Action("POST", f"{path}/steps/{wait.step}/retry", {})
    elif wait.key is not None:
        schema = None
        answer = Action("POST", f"/v1/topics/{wait.name}/{wait.key}", {}, ("value",))
    else:
        schema = schema_of_signal(program, wait.name)
        body: dict[str, Any] = {"name": wait.name}
        answer = Action("POST", f"{path}/signals", body, ("value",))
    return InboxItem(
        kind=wait.kind,
        run_id=run.run_id,
        program=run.program,
        scope=run.scope,
        key=run.key,
        step=wait.step,
        name=wait.name,
        hook_key=wait.key,
        since_ms=wait.since_ms,
        error=wait.error,
        schema=schema,
        answer=answer,
    )
