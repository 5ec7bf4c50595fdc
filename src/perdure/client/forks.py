"""Forks a run: stores a new run that begins like it, and takes another way from one of its steps on."""

from collections.abc import Mapping
from typing import Any

import msgspec

from perdure.client.fork_requests import (
    ForkPreview,
    encoded_values,
    find_forked_step,
    lost_child,
    preview_of,
    require_kept_payloads,
)
from perdure.core.errors import CorruptJournal, InputError
from perdure.core.ids import RunId
from perdure.core.journal import events as e
from perdure.core.journal.events import ActType
from perdure.core.messages import AT_ONCE, Message
from perdure.core.runs.acts import Act, act_message
from perdure.core.runs.forking import START, ForkPlan, ForkRequest, fork_id, plan_fork, renamed_guid
from perdure.engine.programs.forking import fork_bundle
from perdure.host.host import Host
from perdure.store.commit.bundle import Bundle
from perdure.store.rows.records import Run


class ForkOptions(msgspec.Struct, frozen=True):
    """What the caller of `Handle.fork` asks for, besides the act."""

    step: str
    values: Mapping[str, Any] = {}
    arguments: Mapping[str, Any] | None = None
    signals: bool = True


async def preview_fork(host: Host, source: Run, options: ForkOptions) -> ForkPreview:
    """What the fork would do. Replays it on the code at hand, and stores nothing."""
    act = Act("preview", ActType.FORK)
    plan, _ = await _prepare(host, source, options, act)
    fork = fork_id(source.run_id, act.id)
    return preview_of(source.run_id, fork, plan, signals=options.signals)


async def fork_run(host: Host, source: Run, options: ForkOptions, act: Act) -> RunId:
    """Commits: the fork, the later signals to it, and the act in the source. The same act makes the same run."""
    fork = fork_id(source.run_id, act.id)
    dispatcher = host.dispatcher
    if await dispatcher.store.run(fork) is not None:
        return fork
    _, bundle = await _prepare(host, source, options, act)
    recorded = act_message(source.origin, act, dispatcher.sources.arrival(source.origin))
    bundle.enqueue(recorded)
    if source.chain is not None:
        bundle.forward(source.origin, recorded.guid, source.run_id)
    await dispatcher.store.commit(bundle)
    host.runs_released()
    delivered = msgspec.structs.replace(recorded, run_id=source.run_id)
    host.message_sent(delivered, source.owner)
    return fork


async def _prepare(
    host: Host, source: Run, options: ForkOptions, act: Act
) -> tuple[ForkPlan, Bundle]:
    dispatcher = host.dispatcher
    codec, sources, programs = dispatcher.codec, dispatcher.sources, dispatcher.programs
    entries = await dispatcher.store.entries(source.run_id, 0, source.seq)
    journal = [entry.event for entry in entries]
    step = find_forked_step(source.run_id, options.step, journal)
    fork = fork_id(source.run_id, act.id)
    request = ForkRequest(
        source.run_id,
        source.origin,
        fork,
        step,
        encoded_values(source.run_id, options.values, journal, codec, programs),
        act.id,
        act.reason,
        sources.now_ms(),
        lost_child(codec, source.run_id),
    )
    plan = plan_fork(request, journal)
    require_kept_payloads(source, entries, plan.cut)
    if options.arguments is not None:
        plan = _with_arguments(host, source, plan, step, options.arguments)
    await dispatcher.catalogue.find_version(source.program, source.version)
    bundle = fork_bundle(source, fork, plan.events, codec, sources, programs)
    if plan.is_paused:
        resume = Act(f"{act.id}/resume", ActType.RESUME, act.by, act.role, act.reason)
        bundle.enqueue(act_message(fork, resume, sources.now_ms()))
    if options.signals:
        for message in _later_signals(request, plan, sources.now_ms()):
            bundle.enqueue(message)
    return plan, bundle


def _with_arguments(
    host: Host, source: Run, plan: ForkPlan, step: str, arguments: Mapping[str, Any]
) -> ForkPlan:
    """The fork with other arguments, which only a fork at the start may have."""
    codec = host.dispatcher.codec
    if step != START:
        raise InputError(
            f"a fork of run {source.run_id!r} at step {step!r} can't have other arguments",
            "fork at 'root' to change the input, or set the outcome of a step",
        )
    first = plan.events[0]
    if not isinstance(first, e.ExecutionStarted):
        raise CorruptJournal(
            f"the first entry of run {source.run_id!r} is no start", "see the audit"
        )
    given = codec.decode(first.payload or b"{}", dict[str, Any])
    payload = codec.encode({**given, **arguments})
    program = host.dispatcher.programs.find(source.program, source.version, source.digest)
    if program is not None:
        program.check_input(codec, payload)
    return msgspec.structs.replace(
        plan, events=(msgspec.structs.replace(first, payload=payload), *plan.events[1:])
    )


def _later_signals(request: ForkRequest, plan: ForkPlan, now_ms: int) -> list[Message]:
    """The signals to send to the fork, in their order. Those for one step go to that step, if it is open."""
    messages = []
    for number, event in enumerate(plan.signals):
        if event.guid is None:
            continue
        name, _, step = event.signal_name.partition("@")
        guid = renamed_guid(event.guid, request)
        if step or not guid.startswith(f"m_{request.fork[2:]}"):
            continue
        kind = f"signal:{name}"
        messages.append(
            Message(request.fork, guid, kind, AT_ONCE, now_ms + number, payload=event.payload)
        )
    return messages
