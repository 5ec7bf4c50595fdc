"""Forks of a run: what one would do, making it, and comparing two runs."""

from collections import Counter
from typing import Any

import msgspec

from perdure.api.endpoint import Reply
from perdure.api.exchange import Exchange
from perdure.client.runs.comparing import StepDiff
from perdure.core.ids import RunId
from perdure.core.journal.events import ActType
from perdure.core.runs.diff import StepChange
from perdure.core.runs.forking import START


class ForkRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where the fork leaves its source. `set` gives outcomes of open steps, `input` changes arguments at the start.

    With `dry_run` nothing is stored. The fork that is made with the `id` of a dry run is the one that it shows.
    """

    step: str = START
    set: dict[str, Any] = {}
    input: dict[str, Any] | None = None
    signals: bool = True
    reason: str = ""
    id: str | None = None
    dry_run: bool = False


class ForkedRun(msgspec.Struct, frozen=True):
    """The fork."""

    run_id: RunId


class DiffQuery(msgspec.Struct, frozen=True, kw_only=True):
    """The runs to compare. With `changes` alone the steps that are the same are left out."""

    a: str
    b: str
    changes: bool = True
    after: int = 0
    limit: int = 200

    def __post_init__(self) -> None:
        if not 1 <= self.limit <= 1000 or self.after < 0:
            raise ValueError("limit or after is out of range: pass a limit from 1 to 1000")


class DiffPage(msgspec.Struct, frozen=True, kw_only=True):
    """The steps of two runs side by side. `first` is the first entry that differs; `counts` are of all steps."""

    a: RunId
    b: RunId
    first: int | None
    steps: list[StepDiff]
    counts: dict[StepChange, int]
    cursor: str | None


async def fork(exchange: Exchange) -> Reply:
    body: ForkRequest = exchange.body
    run = await exchange.run()
    is_retry = body.step == START and not body.set and body.input is None
    kind = ActType.RETRY_RUN if is_retry else ActType.FORK
    await exchange.require_act(kind, run, body.reason)
    handle = exchange.engine.handle(run.run_id)
    how: dict[str, Any] = {"set": body.set, "input": body.input, "signals": body.signals}
    if body.dry_run:
        return Reply(await handle.preview_fork(body.step, **how, id=body.id))
    by = exchange.caller.actor
    new = await handle.fork(body.step, **how, reason=body.reason, by=by, id=body.id)
    return Reply(ForkedRun(new.run_id), 201, exchange.location(f"/v1/runs/{new.run_id}"))


async def diff(exchange: Exchange) -> DiffPage:
    query: DiffQuery = exchange.query
    a, b = await exchange.run(query.a), await exchange.run(query.b)
    found = await exchange.engine.diff(a.run_id, b.run_id)
    steps = found.changes if query.changes else found.steps
    end = query.after + query.limit
    return DiffPage(
        a=found.a,
        b=found.b,
        first=found.first,
        steps=list(steps[query.after : end]),
        counts=dict(Counter(step.change for step in found.steps)),
        cursor=str(end) if end < len(steps) else None,
    )
