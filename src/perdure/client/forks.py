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
from perdure.core.messages import AT_ONCE, Message
from perdure.core.runs.forking import START, ForkPlan, ForkRequest, fork_id, plan_fork, renamed_guid
from perdure.engine.programs.forking import fork_bundle
from perdure.host.host import Host
from perdure.store.commit.bundle import Bundle
from perdure.store.rows.records import Run


class ForkOptions(msgspec.Struct, frozen=True):
    """The arguments of `Handle.fork`. `act` identifies the request: repeated, it makes one run."""

    step: str
    values: Mapping[str, Any]
    arguments: Mapping[str, Any] | None
    signals: bool
    reason: str
    act: str


async def preview_fork(host: Host, source: Run, options: ForkOptions) -> ForkPreview:
    """What the fork would do. Replays it on the code at hand, and stores nothing."""
    plan, _ = await _prepare(host, source, options)
    return preview_of(
        source.run_id, fork_id(source.run_id, options.act), plan, signals=options.signals
    )


async def fork_run(host: Host, source: Run, options: ForkOptions) -> RunId:
    """Commits: the fork, and the later signals to it. Returns its id; the same act makes the same run."""
    fork = fork_id(source.run_id, options.act)
    store = host.dispatcher.store
    if await store.run(fork) is None:
        _, bundle = await _prepare(host, source, options)
        await store.commit(bundle)
        host.runs_released()
    return fork


async def _prepare(host: Host, source: Run, options: ForkOptions) -> tuple[ForkPlan, Bundle]:
    dispatcher = host.dispatcher
    codec, sources, programs = dispatcher.codec, dispatcher.sources, dispatcher.programs
    entries = await dispatcher.store.entries(source.run_id, 0, source.seq)
    journal = [entry.event for entry in entries]
    step = find_forked_step(source.run_id, options.step, journal)
    fork = fork_id(source.run_id, options.act)
    request = ForkRequest(
        source.run_id,
        source.origin,
        fork,
        step,
        encoded_values(source.run_id, options.values, journal, codec, programs),
        options.act,
        options.reason,
        sources.now_ms(),
        lost_child(codec, source.run_id),
    )
    plan = plan_fork(request, journal)
    require_kept_payloads(source, entries, plan.cut)
    if options.arguments is not None:
        plan = _with_arguments(host, source, plan, step, options.arguments)
    await dispatcher.catalogue.find_version(source.program, source.version)
    bundle = fork_bundle(source, fork, plan.events, codec, sources, programs)
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
