"""One run: its header, why it does not move, what it waits for, its result."""

import asyncio
from contextlib import suppress
from importlib.metadata import version
from typing import Any

import msgspec

from perdure.api.endpoint import Reply
from perdure.api.exchange import Exchange, etag_of
from perdure.api.registered_programs import (
    kind_of,
    registered_program,
    schema_of_signal,
    step_schema,
)
from perdure.api.runs.errors_of_runs import ErrorDetail, error_detail
from perdure.client.runs.lists import RunSummary
from perdure.client.runs.status import RunStatus
from perdure.client.served import run_summary, status_of_run, wait_for_end
from perdure.core.errors import CorruptJournal
from perdure.core.ids import RunId
from perdure.core.journal import events as e
from perdure.core.runs.description import Description
from perdure.core.runs.explaining import Explanation
from perdure.core.runs.obstacles import Cause, CauseKind
from perdure.core.runs.tracing import otlp
from perdure.core.runs.waits import (
    AnswerWait,
    AnyWait,
    ChildWait,
    JoinWait,
    OperatorWait,
    RetryWait,
    SignalWait,
    TaskWait,
    TimerWait,
)
from perdure.core.schedules.schedule import schedule_of_key
from perdure.store.rows.records import Run


class RunHeader(RunSummary, frozen=True, kw_only=True, omit_defaults=False):
    """A run at a glance. Status, `current_...` and `semaphore` are of the last run of its chain.

    `kind` is `workflow` or `graph`; `None` if this process does not have the program. `schedule` is the name of the
    schedule that started it.
    """

    kind: str | None
    is_known: bool
    digest: str
    current_run_id: RunId
    current_entries: int
    semaphore: int
    schedule: str | None


class Action(msgspec.Struct, frozen=True):
    """The request that does what a command does. `needs` are fields of the body that a person fills in."""

    method: str
    path: str
    body: dict[str, Any]
    needs: tuple[str, ...] = ()


class ExplainedRun(Explanation, frozen=True, kw_only=True):
    """An explanation, with the request that moves the run; `None` if there is none."""

    action: Action | None


class RunWaits(msgspec.Struct, frozen=True):
    """What a run waits for. Each wait has its `kind`; signals and parked steps have the JSON Schema of their values."""

    waits: list[dict[str, Any]]


class RunResult(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How a run ended, if it has. `reason` is that of a cancelled run."""

    run_id: RunId
    status: RunStatus
    result: Any | msgspec.UnsetType = msgspec.UNSET
    error: ErrorDetail | None = None
    reason: str = ""


class ChainedRun(msgspec.Struct, frozen=True):
    """A run of a chain."""

    run_id: RunId
    status: RunStatus


class RunChain(msgspec.Struct, frozen=True):
    """The runs of a chain, in order."""

    runs: list[ChainedRun]


async def header(exchange: Exchange) -> Reply:
    run = await exchange.run()
    last = (await exchange.chain_of(run))[-1]
    headers = exchange.require_newer(etag_of(last))
    summary = await run_summary(exchange.engine, run.run_id)
    fields = msgspec.structs.asdict(summary) | {"status": status_of_run(last)}
    program = registered_program(exchange.host, run)
    found = RunHeader(
        **fields,
        kind=kind_of(program),
        is_known=program is not None,
        digest=run.digest,
        current_run_id=last.run_id,
        current_entries=last.seq,
        semaphore=last.semaphore,
        schedule=schedule_of_key(run.key or ""),
    )
    return Reply(found, headers=headers)


async def explain(exchange: Exchange) -> ExplainedRun:
    found = await (await exchange.handle()).explain()
    fields = msgspec.structs.asdict(found)
    return ExplainedRun(**fields, action=_action(found.causes, found.command))


async def waits(exchange: Exchange) -> RunWaits:
    described = await (await exchange.handle()).describe()
    return RunWaits(await described_waits(exchange, described))


async def described_waits(exchange: Exchange, described: Description) -> list[dict[str, Any]]:
    """The waits with their kinds, and the schemas of the values that people can give."""
    run = await exchange.run(described.run_id)
    program = registered_program(exchange.host, run)
    found = []
    for wait in described.waits:
        plain: dict[str, Any] = {"kind": _KINDS[type(wait)], **msgspec.to_builtins(wait)}
        if isinstance(wait, SignalWait):
            plain["schema"] = schema_of_signal(program, wait.name)
        elif isinstance(wait, OperatorWait):
            plain["schema"] = step_schema(wait.task)
        found.append(plain)
    return found


_KINDS: dict[type[AnyWait], str] = {
    TimerWait: "timer",
    SignalWait: "signal",
    TaskWait: "task",
    RetryWait: "retry",
    OperatorWait: "operator",
    ChildWait: "child",
    AnswerWait: "answer",
    JoinWait: "join",
}


def _action(causes: tuple[Cause, ...], command: str) -> Action | None:
    """The request that does what the command does: that of the cause that names it."""
    cause = next((each for each in causes if each.command == command), None)
    if cause is None or not command:
        return None
    run, step = f"/v1/runs/{cause.run_id}", cause.step or ""
    words = command.split()
    match cause.kind:
        case CauseKind.SIGNAL if words[1] == "send":
            return Action("POST", f"/v1/topics/{words[2]}/{words[3]}", {}, ("value",))
        case CauseKind.SIGNAL:
            return Action("POST", f"{run}/signals", {"name": words[4]}, ("value",))
        case CauseKind.ANSWER:
            return Action("POST", f"{run}/steps/{step}/respond", {}, ("value",))
        case CauseKind.STEP_PARKED:
            return Action("POST", f"{run}/steps/{step}/retry", {})
        case CauseKind.PAUSED:
            return Action("POST", f"{run}/acts", {"type": "RESUME"})
        case CauseKind.PENDING:
            return Action("POST", f"{run}/acts", {"type": "APPROVE"})
        case _:
            return None


async def result(exchange: Exchange) -> Reply:
    run = await exchange.run()
    return await awaited_result(exchange, run)


async def awaited_result(exchange: Exchange, run: Run) -> Reply:
    """How the run ended; 202 with its state if it does not end while the caller waits. Needs no program."""
    handle = exchange.engine.handle(run.run_id)
    if exchange.wait_s:
        with suppress(TimeoutError):
            async with asyncio.timeout(exchange.wait_s):
                await wait_for_end(handle)
    last = (await exchange.chain_of(run))[-1]
    found = await _ending(exchange, run.run_id, last)
    return Reply(found, 200 if last.is_over else 202)


async def _ending(exchange: Exchange, run_id: RunId, last: Run) -> RunResult:
    status = status_of_run(last)
    if not last.is_over:
        return RunResult(run_id=run_id, status=status)
    entries = await exchange.store.entries(last.run_id, last.seq - 1, last.seq)
    event = entries[0].event if entries else None
    match event:
        case e.ExecutionCompleted():
            value = None if event.payload is None else exchange.codec.decode(event.payload, object)
            return RunResult(run_id=run_id, status=status, result=value)
        case e.ExecutionFailed():
            error = error_detail(exchange.codec, event.payload)
            return RunResult(run_id=run_id, status=status, error=error)
        case e.ExecutionCancelled():
            return RunResult(run_id=run_id, status=status, reason=event.reason)
        case _:
            raise CorruptJournal(
                f"run {last.run_id!r} is {last.status}, and its last entry does not say how it ended",
                "run `audit` to find what was changed, and restore the rows from a backup",
            )


async def chain(exchange: Exchange) -> RunChain:
    rows = await exchange.chain()
    return RunChain([ChainedRun(row.run_id, status_of_run(row)) for row in rows])


async def view(exchange: Exchange) -> Any:
    last = (await exchange.chain())[-1]
    headers = exchange.require_newer(etag_of(last))
    return Reply(await (await exchange.handle()).view(), headers=headers)


async def published(exchange: Exchange) -> dict[str, Any]:
    return {"values": await (await exchange.handle()).published()}


async def show_params(exchange: Exchange) -> dict[str, Any]:
    return {"values": await (await exchange.handle()).params()}


async def show_trace(exchange: Exchange) -> dict[str, Any]:
    return otlp(await (await exchange.handle()).trace(), version("perdure"))
