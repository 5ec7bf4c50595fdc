"""Acts on many runs: what they would be, sending them at a rate, and what became of each.

A bulk act lives in the server's process. Every act has an id that is made of the bulk act's: one that is repeated under
its id, after the server died in the middle of it, sends no act twice.
"""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any, Final

import msgspec
from starlette.responses import Response

from perdure.api.encoding import json_bytes
from perdure.api.endpoint import Reply
from perdure.api.exchange import Exchange
from perdure.api.problems import Refusal, invalid
from perdure.api.queries import RunsQuery, filters_of
from perdure.api.runs.acting import ActRequest, send_act
from perdure.api.streaming import ServerEvent, event_stream
from perdure.client.runs.acts import Receipt
from perdure.client.runs.lists import RunFilters, RunSummary
from perdure.client.served import run_summary
from perdure.core.errors import PerdureError
from perdure.core.journal.events import ActType
from perdure.core.runs.acts import Actor
from perdure.store.rows.lists import RunCount

MOST_HELD: Final = 100
"""Bulk acts that are remembered."""

MOST_NAMED: Final = 10_000
"""Runs that one request may name."""

MOST_FAILURES: Final = 100
"""Failures that are shown one by one."""

MOST_UNDECIDED: Final = 200
"""Acts that wait for a decision at the same time."""

DECISION_S: Final = 10.0
SAMPLE: Final = 10
PROGRESS_S: Final = 0.5

KINDS: Final = frozenset(
    {ActType.PAUSE, ActType.RESUME, ActType.CANCEL, ActType.APPROVE, ActType.EMERGENCY_STOP}
)


class BulkRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An act on all runs that `where` or `filters` select, or on those that `runs` names. `rate` is acts per second."""

    type: ActType
    where: str | None = None
    filters: dict[str, Any] = {}
    runs: list[str] = []
    reason: str = ""
    id: str | None = None
    dry_run: bool = False
    rate: float = 100


class BulkPreview(msgspec.Struct, frozen=True):
    """How many runs the act would be sent to, and some of them."""

    count: RunCount
    sample: list[RunSummary]


class BulkFailure(msgspec.Struct, frozen=True):
    """Why the act was not sent to a run."""

    run_id: str
    code: str
    detail: str


class BulkAct(msgspec.Struct, kw_only=True):
    """A bulk act and its progress. `state` is `running`, `done`, `stopped` or `failed`.

    `undecided` acts were sent, and their runs' owners had not decided in time. `rejections` counts the codes of those
    that owners rejected; `failed` acts were not sent.
    """

    id: str
    type: ActType
    actor: str
    reason: str
    state: str = "running"
    total: int | None
    done: int = 0
    accepted: int = 0
    rejected: int = 0
    undecided: int = 0
    failed: int = 0
    rejections: dict[str, int] = {}
    failures: list[BulkFailure] = []
    started_at_ms: int
    ended_at_ms: int | None = None


class BulkActs(msgspec.Struct, frozen=True):
    """The bulk acts of this process, the newest first."""

    bulk_acts: list[BulkAct]


class _Running(msgspec.Struct):
    act: BulkAct
    scope: str | None
    task: asyncio.Task[None] | None = None


class _Registry:
    """The bulk acts of this process."""

    def __init__(self) -> None:
        self.held: OrderedDict[str, _Running] = OrderedDict()

    def add(self, running: _Running) -> None:
        self.held[running.act.id] = running
        for name in list(self.held):
            if len(self.held) <= MOST_HELD:
                return
            if self.held[name].act.state != "running":
                del self.held[name]


def _registry(exchange: Exchange) -> _Registry:
    registry: _Registry = exchange.shared.setdefault("bulk", _Registry())
    return registry


async def begin(exchange: Exchange) -> Any:
    body: BulkRequest = exchange.body
    if body.type not in KINDS:
        raise invalid(f"{body.type} is no bulk act", f"use {', '.join(sorted(KINDS))}")
    if not 0 < body.rate <= 10_000:
        raise invalid(f"rate is {body.rate:g}", "pass acts per second, more than 0")
    filters = _filters(exchange, body)
    if body.dry_run:
        return Reply(await _preview(exchange, body, filters))
    registry = _registry(exchange)
    name = body.id or exchange.host.dispatcher.sources.entropy(16).hex()
    known = registry.held.get(name)
    if known is None:
        total = len(body.runs) if body.runs else None
        if filters is not None:
            count = await exchange.engine.count(**filters)
            total = count.runs if count.is_complete else None
        act = BulkAct(
            id=name,
            type=body.type,
            actor=exchange.caller.name,
            reason=body.reason,
            total=total,
            rejections={},
            failures=[],
            started_at_ms=exchange.now_ms,
        )
        known = _Running(act, exchange.caller.scope)
        registry.add(known)
        known.task = asyncio.create_task(_Sending(exchange, body, act).run(filters))
    return Reply(known.act, 202, exchange.location(f"/v1/bulk-acts/{name}"))


def _filters(exchange: Exchange, body: BulkRequest) -> RunFilters | None:
    """The filters, limited to what the caller may see; `None` if the runs are named. One of them must be given."""
    chosen = [bool(body.where), bool(body.filters), bool(body.runs)]
    if sum(chosen) != 1:
        raise invalid("the runs are not given, or given twice", "pass where, filters or runs")
    if body.runs:
        if len(body.runs) > MOST_NAMED:
            raise invalid(f"{len(body.runs):,} runs are named", f"name at most {MOST_NAMED:,}")
        return None
    try:
        query = msgspec.convert({"where": body.where, **body.filters}, RunsQuery)
    except (msgspec.ValidationError, TypeError) as error:
        raise invalid(error, "use the filters of /v1/runs") from None
    filters = filters_of(query, exchange.now_ms)
    if not filters:
        raise invalid("no filter is given: every run would match", "give at least one")
    scope = exchange.scope_of(filters.get("scope"))
    if scope is not None:
        filters["scope"] = scope
    return filters


async def _preview(
    exchange: Exchange, body: BulkRequest, filters: RunFilters | None
) -> BulkPreview:
    if filters is not None:
        page = await exchange.engine.runs(limit=SAMPLE, **filters)
        return BulkPreview(await exchange.engine.count(**filters), page.runs)
    sample = []
    for name in body.runs[:SAMPLE]:
        run = await exchange.run(name)
        sample.append(await run_summary(exchange.engine, run.run_id))
    return BulkPreview(RunCount(len(set(body.runs)), is_complete=True), sample)


class _Sending:
    """Sends one bulk act."""

    def __init__(self, exchange: Exchange, body: BulkRequest, act: BulkAct) -> None:
        self._exchange = exchange
        self._act = act
        self._rate = body.rate
        self._runs = list(dict.fromkeys(body.runs))
        self._wanted = ActRequest(type=body.type, reason=body.reason, id=act.id)
        self._by: Actor = exchange.caller.actor
        self._room = asyncio.Semaphore(MOST_UNDECIDED)

    async def run(self, filters: RunFilters | None) -> None:
        act = self._act
        try:
            async with asyncio.TaskGroup() as waiting:
                await self._send_all(filters, waiting)
            act.state = "done"
        except asyncio.CancelledError:
            act.state = "stopped"
        except Exception as error:
            act.state = "failed"
            self._fail("", error)
        finally:
            act.ended_at_ms = self._exchange.now_ms

    async def _send_all(self, filters: RunFilters | None, waiting: asyncio.TaskGroup) -> None:
        clock = asyncio.get_running_loop().time
        began_s, number = clock(), 0
        async for run_id in self._names(filters):
            await asyncio.sleep(max(0.0, began_s + number / self._rate - clock()))
            number += 1
            await self._room.acquire()
            waiting.create_task(self._send(run_id))

    async def _names(self, filters: RunFilters | None) -> AsyncIterator[str]:
        if filters is None:
            for name in self._runs:
                yield name
            return
        async for run in self._exchange.engine.iterate_runs(**filters):
            yield run.run_id

    async def _send(self, run_id: str) -> None:
        act = self._act
        try:
            run = await self._exchange.run(run_id)
            await self._exchange.require_act(act.type, run, act.reason)
            handle = self._exchange.engine.handle(run.run_id)
            await self._decide(await send_act(handle, self._wanted, self._by))
        except (PerdureError, Refusal) as error:
            self._fail(run_id, error)
        finally:
            act.done += 1
            self._room.release()

    async def _decide(self, receipt: Receipt) -> None:
        act = self._act
        try:
            decision = await receipt.decision(DECISION_S)
        except TimeoutError:
            act.undecided += 1
            return
        if decision.accepted:
            act.accepted += 1
        else:
            act.rejected += 1
            act.rejections[decision.code] = act.rejections.get(decision.code, 0) + 1

    def _fail(self, run_id: str, error: Exception) -> None:
        self._act.failed += 1
        if len(self._act.failures) < MOST_FAILURES:
            code = getattr(error, "code", "internal")
            self._act.failures.append(BulkFailure(run_id, code, str(error)))


def _found(exchange: Exchange) -> _Running:
    name = exchange.part("bulk")
    running = _registry(exchange).held.get(name)
    if running is None or not exchange.caller.covers(running.scope or ""):
        raise Refusal(
            404,
            "not-found",
            f"there is no bulk act {name!r:.200} in this process",
            "send it again with this id: no act is sent twice",
        )
    return running


async def show(exchange: Exchange) -> BulkAct | Response:
    running = _found(exchange)
    await asyncio.sleep(0)
    if exchange.wants_events:
        return event_stream(exchange, _progress(running.act))
    return running.act


async def _progress(act: BulkAct) -> AsyncGenerator[ServerEvent, None]:
    while act.state == "running":
        yield ServerEvent("progress", json_bytes(act))
        await asyncio.sleep(PROGRESS_S)
    yield ServerEvent("end", json_bytes(act))


async def show_all(exchange: Exchange) -> BulkActs:
    await asyncio.sleep(0)
    held = reversed(_registry(exchange).held.values())
    return BulkActs([each.act for each in held if exchange.caller.covers(each.scope or "")])


async def stop(exchange: Exchange) -> BulkAct:
    """Stops it: acts that were sent stay sent."""
    running = _found(exchange)
    if running.task is not None and running.act.state == "running":
        running.task.cancel()
        await asyncio.wait([running.task])
    return running.act
