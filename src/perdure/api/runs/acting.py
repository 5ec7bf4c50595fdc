"""Acts on one run, signals to it, answers of its steps, and signals to topics."""

from collections.abc import Awaitable
from contextlib import suppress
from typing import Any, Final

import msgspec
from msgspec import UNSET, UnsetType

from perdure.api.endpoint import Reply
from perdure.api.exchange import Exchange, etag_of
from perdure.api.problems import invalid
from perdure.api.registered_programs import registered_program, signals_of
from perdure.authoring.graphs.program import GraphProgram
from perdure.authoring.response import OK
from perdure.authoring.signal import Signal
from perdure.client.runs.acts import NO_VALUE, Receipt
from perdure.client.runs.handle import Handle
from perdure.client.served import decision_on
from perdure.core.errors import NotDecodable
from perdure.core.journal.events import ActType
from perdure.core.runs.acts import Actor, Decision

DECISION_S: Final = 2.0
"""How long an answer waits for the decision of the run's owner, unless the caller asks otherwise."""

ACTS: Final = frozenset(
    {
        *(ActType.PAUSE, ActType.RESUME, ActType.CANCEL, ActType.APPROVE),
        *(ActType.RETRY_STEP, ActType.SKIP_STEP, ActType.EMERGENCY_STOP),
    }
)
"""The acts that this route takes; forks have one of their own."""


class ActRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An act. Acts with one `id` are one, so a repeated request is safe.

    `descends` sends a pause or its end to open child runs, too. `step` and `value` are for parked steps.
    """

    type: ActType
    reason: str = ""
    id: str | None = None
    descends: bool = False
    step: str | None = None
    value: Any | UnsetType = UNSET


class ActReply(msgspec.Struct, frozen=True):
    """An act that is durable. `decision` is that of the run's owner; `null` while there is none."""

    signal_id: str
    decision: Decision | None


class SignalRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A signal. Signals with one `id` are one."""

    name: str
    value: Any = None
    id: str | None = None


class Reason(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Why, and the id under which a repeated request is the same."""

    reason: str = ""
    id: str | None = None


class SkipRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The value that the program gets in place of the step's result; without one it gets none."""

    reason: str = ""
    id: str | None = None
    value: Any | UnsetType = UNSET


class Answer(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A value for a step or a topic. Two with one `id` are one. With code 202 a step takes more answers."""

    value: Any = None
    code: int = OK
    id: str | None = None


class Sent(msgspec.Struct, frozen=True):
    """It is durable."""

    sent: bool = True


async def act(exchange: Exchange) -> Reply:
    body: ActRequest = exchange.body
    if body.type not in ACTS:
        raise invalid(f"{body.type} is no act of this route", f"use {', '.join(sorted(ACTS))}")
    return await _acted(exchange, body)


async def retry_step(exchange: Exchange) -> Reply:
    body: Reason = exchange.body
    step = exchange.part("step")
    wanted = ActRequest(type=ActType.RETRY_STEP, reason=body.reason, id=body.id, step=step)
    return await _acted(exchange, wanted)


async def skip_step(exchange: Exchange) -> Reply:
    body: SkipRequest = exchange.body
    wanted = ActRequest(
        type=ActType.SKIP_STEP,
        reason=body.reason,
        id=body.id,
        step=exchange.part("step"),
        value=body.value,
    )
    return await _acted(exchange, wanted)


async def _acted(exchange: Exchange, wanted: ActRequest) -> Reply:
    run = await exchange.run()
    last = (await exchange.chain_of(run))[-1]
    exchange.require_match(etag_of(last))
    await exchange.require_act(wanted.type, run, wanted.reason)
    receipt = await send_act(exchange.engine.handle(run.run_id), wanted, exchange.caller.actor)
    decision: Decision | None = None
    wait_s = DECISION_S if exchange.wait_s is None else exchange.wait_s
    if wait_s:
        with suppress(TimeoutError):
            decision = await receipt.decision(wait_s)
    location = exchange.location(f"/v1/runs/{run.run_id}/acts/{receipt.signal_id}")
    return Reply(
        ActReply(receipt.signal_id, decision),
        202 if decision is None else 200,
        location if decision is None else {},
    )


def send_act(handle: Handle[Any], wanted: ActRequest, by: Actor) -> Awaitable[Receipt]:
    """Send the act. Refuses one that names no step and needs one."""
    if wanted.type in (ActType.RETRY_STEP, ActType.SKIP_STEP):
        if wanted.step is None:
            raise invalid(f"{wanted.type} names no step", "pass the step")
        if wanted.type is ActType.RETRY_STEP:
            return handle.retry_step(wanted.step, wanted.reason, by=by, id=wanted.id)
        value = NO_VALUE if wanted.value is UNSET else wanted.value
        return handle.skip_step(wanted.step, wanted.reason, value=value, by=by, id=wanted.id)
    match wanted.type:
        case ActType.PAUSE:
            return handle.pause(wanted.reason, by=by, id=wanted.id, descends=wanted.descends)
        case ActType.RESUME:
            return handle.resume(wanted.reason, by=by, id=wanted.id, descends=wanted.descends)
        case ActType.CANCEL:
            return handle.cancel(wanted.reason, by=by, id=wanted.id)
        case ActType.APPROVE:
            return handle.approve(wanted.reason, by=by, id=wanted.id)
        case _:
            return handle.emergency_stop(wanted.reason, by=by, id=wanted.id)


async def show_act(exchange: Exchange) -> Reply:
    signal_id = exchange.part("act")
    decision = await decision_on(await exchange.handle(), signal_id)
    return Reply(ActReply(signal_id, decision), 202 if decision is None else 200)


async def send_signal(exchange: Exchange) -> Reply:
    body: SignalRequest = exchange.body
    run = await exchange.run()
    program = registered_program(exchange.host, run)
    known = None
    if program is not None and not isinstance(program, GraphProgram):
        known = signals_of(program).get(body.name)
    signal = known or Signal(body.name, Any)
    handle = exchange.engine.handle(run.run_id)
    await handle.signal(signal, _typed(exchange, signal, body.value), id=body.id)
    return Reply(Sent(), 202)


def _typed(exchange: Exchange, signal: Signal[Any], value: Any) -> Any:
    """The value as the signal's type has it."""
    codec = exchange.host.dispatcher.context.caller_codec
    try:
        return codec.decode(codec.encode(value), signal.of)
    except NotDecodable as error:
        raise invalid(
            f"signal {signal.name!r} can't carry this value: {error.what}",
            "pass a value of the signal's type",
        ) from None


async def respond(exchange: Exchange) -> Reply:
    body: Answer = exchange.body
    handle = await exchange.handle()
    await handle.respond(exchange.part("step"), body.value, code=body.code, id=body.id)
    return Reply(Sent(), 202)


async def send_to_topic(exchange: Exchange) -> Reply:
    body: Answer = exchange.body
    topic = exchange.part("topic")
    await exchange.engine.send(topic, exchange.part("key"), body.value, code=body.code, id=body.id)
    return Reply(Sent(), 202)
