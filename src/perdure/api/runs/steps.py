"""The steps of a run: pages of them, one with its values and attempts, and all of them on a timeline."""

from collections import Counter
from typing import Any

import msgspec

from perdure.api.endpoint import Reply
from perdure.api.exchange import Exchange, etag_of
from perdure.api.registered_programs import Schema, step_schema
from perdure.api.runs.errors_of_runs import ErrorDetail, error_detail
from perdure.api.runs.step_cache import steps_of_chain
from perdure.core.errors import UnknownStep
from perdure.core.ids import RunId, StepId
from perdure.core.journal.entry import Entry
from perdure.core.journal.events import ArtifactRef
from perdure.core.large_payloads import value_bytes
from perdure.core.ledger import layout_of, spell_balance, step_account
from perdure.core.replay.identity import idempotency_text
from perdure.core.runs.snapshot import ApplicationError, StepStatus
from perdure.core.runs.step_records import AttemptRecord, StepRecord, TimeKind
from perdure.core.runs.timeline import Timeline, Window, timeline_of
from perdure.store.rows.records import Run

PAYLOAD_LIMIT = 64 * 1024
"""Bytes of an input or output that the page of a step shows."""


class StepsQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which steps of a run. `parent` is the step below which they are. `order` is `begun` or `-begun`."""

    status: list[StepStatus] = []
    name: str | None = None
    kind: str | None = None
    parked: bool | None = None
    parent: str | None = None
    after: int = 0
    limit: int = 200
    order: str = "begun"

    def __post_init__(self) -> None:
        if not 1 <= self.limit <= 1000:
            raise ValueError(f"limit is {self.limit}: pass a number from 1 to 1000")
        if self.after < 0:
            raise ValueError("after is negative: pass the cursor of the page before")
        if self.order not in ("begun", "-begun"):
            raise ValueError(f"order is {self.order!r}: use begun or -begun")


class ShownStep(msgspec.Struct, frozen=True, kw_only=True):
    """A step as lists show it. `times` are milliseconds by kind of time, up to now."""

    step: StepId
    run_id: RunId
    name: str
    kind: str
    status: StepStatus
    logical_attempt: int
    engine_attempt: int | None
    scheduled_at_ms: int
    started_at_ms: int | None
    completed_at_ms: int | None
    artifacts: tuple[ArtifactRef, ...]
    error: ApplicationError | None
    reason: str
    child_run_id: RunId | None
    is_parked: bool
    times: dict[TimeKind, int]


class StepPage(msgspec.Struct, frozen=True):
    """Some steps of a run. `total` is the number of all steps, `counts` are those by status."""

    steps: list[ShownStep]
    cursor: str | None
    total: int
    counts: dict[StepStatus, int]


class ShownAttempt(msgspec.Struct, frozen=True, kw_only=True):
    """A physical attempt. `outcome` is `ok`, `failed`, `in doubt`, or empty while it executes."""

    engine_attempt: int
    logical_attempt: int
    started_at_ms: int
    ended_at_ms: int | None
    outcome: str
    retry_at_ms: int | None
    error: ErrorDetail | None


class StepQuery(msgspec.Struct, frozen=True, kw_only=True):
    """How much of a step's values."""

    payload_limit: int = PAYLOAD_LIMIT

    def __post_init__(self) -> None:
        if not 0 <= self.payload_limit <= 1024 * 1024:
            raise ValueError("payload_limit is out of range: pass at most 1048576")


class StepDetail(ShownStep, frozen=True, kw_only=True):
    """A step with its values. A value over the limit is left out, and `is_cut` says so. `schema` is of its result."""

    input: Any | msgspec.UnsetType
    output: Any | msgspec.UnsetType
    input_bytes: int
    output_bytes: int
    is_cut: bool
    is_erased: bool
    error_traceback: str | None
    key: str
    attempts: list[ShownAttempt]
    entries: list[int]
    account: str
    balance: int
    balance_text: str
    is_retryable: bool
    is_skippable: bool
    is_answerable: bool
    schema: Schema | None


class TimelineQuery(msgspec.Struct, frozen=True, kw_only=True):
    """How fine the timeline is. With more than `rows` steps in it, those of one name share a bar."""

    bins: int = 200
    rows: int = 200
    from_ms: int | None = None
    to_ms: int | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.bins <= 2000:
            raise ValueError(f"bins is {self.bins}: pass a number from 1 to 2000")
        if not 0 <= self.rows <= 2000:
            raise ValueError(f"rows is {self.rows}: pass a number from 0 to 2000")


async def list_steps(exchange: Exchange) -> Reply:
    query: StepsQuery = exchange.query
    chain = await exchange.chain()
    headers = exchange.require_newer(etag_of(chain[-1])) if chain[-1].is_over else {}
    records = (await steps_of_chain(exchange, chain)).records
    chosen = [each for each in records if _matches(each, query)]
    if query.order == "-begun":
        chosen.reverse()
    now_ms = exchange.now_ms if not chain[-1].is_over else _end_ms(chain[-1])
    end = query.after + query.limit
    page = [_shown(each, now_ms) for each in chosen[query.after : end]]
    counts = Counter(each.status for each in records)
    cursor = str(end) if end < len(chosen) else None
    return Reply(StepPage(page, cursor, len(records), dict(counts)), headers=headers)


def _matches(record: StepRecord, query: StepsQuery) -> bool:
    return (
        (not query.status or record.status in query.status)
        and query.name in (None, record.name)
        and query.kind in (None, record.kind)
        and query.parked in (None, record.is_parked)
        and (
            query.parent is None or record.step.startswith((f"{query.parent}.", f"{query.parent},"))
        )
    )


def _end_ms(run: Run) -> int:
    return run.closed_at_ms or run.created_at_ms


def _times(record: StepRecord, now_ms: int) -> dict[TimeKind, int]:
    times: dict[TimeKind, int] = {}
    for kind, from_ms, to_ms in record.spans(now_ms):
        times[kind] = times.get(kind, 0) + to_ms - from_ms
    return times


def _fields(record: StepRecord, now_ms: int) -> dict[str, Any]:
    fields = {
        name: getattr(record, name) for name in ShownStep.__struct_fields__ if name != "times"
    }
    return fields | {"times": _times(record, now_ms)}


def _shown(record: StepRecord, now_ms: int) -> ShownStep:
    return ShownStep(**_fields(record, now_ms))


async def timeline(exchange: Exchange) -> Timeline:
    query: TimelineQuery = exchange.query
    chain = await exchange.chain()
    steps = await steps_of_chain(exchange, chain)
    is_open, now_ms = not chain[-1].is_over, exchange.now_ms
    first_ms = chain[0].created_at_ms if query.from_ms is None else query.from_ms
    last_ms = query.to_ms
    if last_ms is None:
        last_ms = now_ms if is_open else _end_ms(chain[-1])
    window = Window(first_ms, max(first_ms + 1, last_ms), query.bins, query.rows)
    return timeline_of(steps.records, window, now_ms, is_open=is_open)


async def found_step(exchange: Exchange) -> tuple[Run, StepRecord]:
    """The run of the chain that has the step of the path, and the step."""
    chain = await exchange.chain()
    record = (await steps_of_chain(exchange, chain)).find(exchange.part("step"))
    if record is None:
        raise UnknownStep(
            f"run {chain[0].run_id!r} has no step {exchange.part('step')!r:.200}",
            "see the list of its steps",
        )
    return next(run for run in chain if run.run_id == record.run_id), record


async def show_step(exchange: Exchange) -> StepDetail:
    run, record = await found_step(exchange)
    query: StepQuery = exchange.query
    entries = await _entries(exchange, record)
    given, taken = _payload(entries, record.scheduled), _payload(entries, record.outcome)
    is_ok = record.status is not StepStatus.FAILED
    limit = query.payload_limit
    account = step_account(record.step)
    balance = await exchange.store.balance(run.run_id, account)
    failed = entries.get(record.completed if record.completed is not None else -1)
    attempts = [_attempt(exchange, each, entries) for each in record.attempts]
    error = attempts[-1].error if attempts and failed is None else None
    if failed is not None and not is_ok:
        error = error_detail(exchange.codec, _carried(failed))
    is_answerable = not record.is_open and record.status is StepStatus.SUCCESS
    now_ms = exchange.now_ms if not run.is_over else _end_ms(run)
    return StepDetail(
        **_fields(record, now_ms),
        input=_value(exchange, given, limit),
        output=_value(exchange, taken, limit) if is_ok else msgspec.UNSET,
        input_bytes=value_bytes(given or b""),
        output_bytes=value_bytes(taken or b"") if is_ok else 0,
        is_cut=value_bytes(given or b"") > limit or (is_ok and value_bytes(taken or b"") > limit),
        is_erased=any(
            entry.erased is not None and entry.sealed is None for entry in entries.values()
        ),
        error_traceback=None if error is None else error.traceback,
        key=idempotency_text(run.run_id, record.step, record.logical_attempt),
        attempts=attempts,
        entries=sorted(entries),
        account=account,
        balance=balance,
        balance_text=spell_balance(balance, layout_of(account)),
        is_retryable=record.is_parked,
        is_skippable=record.is_parked,
        is_answerable=is_answerable and await _is_answerable(exchange, run, record),
        schema=step_schema(record.name),
    )


async def _is_answerable(exchange: Exchange, run: Run, record: StepRecord) -> bool:
    described = await exchange.engine.handle(run.run_id).waits()
    return any(wait.step == record.step for wait in described.answers)


async def _entries(exchange: Exchange, record: StepRecord) -> dict[int, Entry]:
    """The entries that hold the values of the step and the errors of its attempts."""
    wanted = {
        record.scheduled,
        record.completed,
        record.outcome,
        *(each.ended for each in record.attempts),
    }
    found: dict[int, Entry] = {}
    for seq in sorted(each for each in wanted if each is not None):
        for entry in await exchange.store.entries(record.run_id, seq, seq + 1):
            found[seq] = entry
    return found


def _carried(entry: Entry) -> bytes | None:
    return getattr(entry.event, "payload", None)


def _payload(entries: dict[int, Entry], seq: int | None) -> bytes | None:
    """The payload of an entry, unless it only says that the program waits."""
    entry = None if seq is None else entries.get(seq)
    return None if entry is None else _carried(entry)


def _value(exchange: Exchange, payload: bytes | None, limit: int) -> Any:
    """The decoded value; nothing if it is too large."""
    if payload is None:
        return None
    if value_bytes(payload) > limit:
        return msgspec.UNSET
    return exchange.codec.decode(payload, object)


def _attempt(exchange: Exchange, attempt: AttemptRecord, entries: dict[int, Entry]) -> ShownAttempt:
    entry = None if attempt.ended is None else entries.get(attempt.ended)
    error = None
    if entry is not None and attempt.outcome == "failed":
        error = error_detail(exchange.codec, _carried(entry))
    return ShownAttempt(
        engine_attempt=attempt.engine_attempt,
        logical_attempt=attempt.logical_attempt,
        started_at_ms=attempt.started_at_ms,
        ended_at_ms=attempt.ended_at_ms,
        outcome=attempt.outcome,
        retry_at_ms=attempt.retry_at_ms,
        error=error,
    )


async def step_input(exchange: Exchange) -> Any:
    _, record = await found_step(exchange)
    entries = await _entries(exchange, record)
    return Reply(_value(exchange, _payload(entries, record.scheduled), 1 << 62))


async def step_output(exchange: Exchange) -> Any:
    _, record = await found_step(exchange)
    entries = await _entries(exchange, record)
    payload = _payload(entries, record.outcome)
    if record.status is StepStatus.FAILED:
        return Reply(error_detail(exchange.codec, payload))
    return Reply(_value(exchange, payload, 1 << 62))
