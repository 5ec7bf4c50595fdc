"""Starting runs: one alone, or many with shared commits, inside or outside a transaction."""

import asyncio
from collections.abc import Mapping
from typing import Any

from perdure.authoring.program import Program
from perdure.authoring.registry import register
from perdure.authoring.tags import TagValue, tag_texts
from perdure.authoring.texts import require_user_text
from perdure.client.admission_terms import terms_from
from perdure.client.large import encode_input
from perdure.client.runs.handle import Handle
from perdure.client.start_keys import (
    IfEnded,
    ScopedKey,
    handle_of_earlier_start,
    handle_of_holder,
    key_holders,
    require_key,
    scoped_key,
)
from perdure.core.errors import InputError, RunExists, RunJoined
from perdure.core.ids import RunId
from perdure.core.secrets import refuse_secrets
from perdure.host.host import Host
from perdure.host.runs.batch import RunStart
from perdure.host.transactions.joining import JoinedWrites, current


def prepare_start(
    host: Host,
    program: Program[..., Any],
    arguments: dict[str, Any],
    key: str | None,
    scope: str,
    tags: Mapping[str, TagValue] | None = None,
    terms: Mapping[str, Any] | None = None,
) -> RunStart:
    """Validate a start and encode its arguments. Registers a program that is not deployed.

    A program defined inside a function becomes the newest of its name by that.
    """
    if not host.dispatcher.programs.is_deployed(program):
        register(program)
    if key is not None:
        require_key(key)
    require_user_text("a scope", scope, least=0)
    payload, run_id = encode_input(host, arguments)
    program.check_input(host.dispatcher.codec, payload)
    asked = terms_from(terms or {}, key)
    if asked is not None and asked.debounce_ms and run_id is not None:
        raise InputError(
            "a start with debounce, whose input is larger than a payload may be",
            "store the input as an artifact, and pass its reference",
        )
    texts = tag_texts({} if tags is None else tags)
    refuse_secrets(host.context.caller_codec, key or "", *texts.values())
    tracing = host.context.services.tracing
    trace = None if tracing is None else tracing.context()
    return RunStart(
        program, payload, key, scope, tags=texts, run_id=run_id, trace=trace, terms=asked
    )


async def start_one(host: Host, start: RunStart, if_ended: IfEnded) -> Handle[Any]:
    """A handle of the started run, or of the run that holds its key."""
    joined = current(host.dispatcher)
    is_debounced = start.terms is not None and start.terms.debounce_ms > 0
    if joined is None and start.key is not None and not is_debounced:
        # Look up the key before the program is driven: a taken key would waste that work.
        for holder in (await key_holders(host.dispatcher.store, [start])).values():
            return await handle_of_holder(host, start, None, if_ended, holder)
    return await _handle_of_start(host, start, joined, if_ended)


async def start_all(host: Host, starts: list[RunStart], if_ended: IfEnded) -> list[Handle[Any]]:
    """Handles of many runs, in the order of their starts. Outside a transaction the starts share commits.

    Raises the first failure after all other runs are started.
    """
    joined = current(host.dispatcher)
    if joined is not None:
        return [await _handle_of_start(host, start, joined, if_ended) for start in starts]
    begun = await _begin_all(host, starts)
    handles: list[Handle[Any]] = []
    failure: Exception | None = None
    try:
        # Without a task for each: most starts wait for the same commit.
        for start, (run_id, is_first) in zip(starts, begun, strict=True):
            try:
                if is_first:
                    handles.append(await _handle_of_start(host, start, None, if_ended, run_id))
                else:
                    handles.append(await handle_of_earlier_start(host, start, if_ended, run_id))
            except Exception as error:  # raised when the others are started
                failure = failure or error
    except BaseException:
        for run_id, _ in begun:
            run_id.cancel()
        raise
    if failure is not None:
        raise failure
    return handles


async def _begin_all(
    host: Host, starts: list[RunStart]
) -> list[tuple[asyncio.Future[RunId], bool]]:
    """Begin each start whose key no run and no earlier start has. Each run id comes with whether its start began it."""
    by_key: dict[ScopedKey | None, asyncio.Future[RunId]] = {}
    for taken, holder in (await key_holders(host.dispatcher.store, starts)).items():
        by_key[taken] = host.loop.create_future()
        by_key[taken].set_result(holder)
    begun: list[tuple[asyncio.Future[RunId], bool]] = []
    for start in starts:
        key = scoped_key(start)
        earlier = by_key.get(key)
        run_id = earlier or host.begin_soon(start)
        begun.append((run_id, earlier is None))
        if key is not None:
            by_key[key] = run_id
    return begun


async def _handle_of_start(
    host: Host,
    start: RunStart,
    joined: JoinedWrites | None,
    if_ended: IfEnded,
    begun: asyncio.Future[RunId] | None = None,
) -> Handle[Any]:
    """A handle of the run once it is durable. Begins the start, unless the caller has `begun` it."""
    if joined is not None and start.is_limited:
        raise InputError(
            f"{start.workflow.noun} {start.workflow.name!r} has a limit, or its start waits, inside a transaction",
            "start it when the transaction is committed",
        )
    try:
        run_id = await (begun or (joined.start if joined else host.begin_run)(start))
    except RunJoined as other:
        return Handle(host, RunId(other.run_id))
    except RunExists as taken:
        return await handle_of_holder(host, start, joined, if_ended, RunId(taken.run_id))
    return Handle(host, run_id, start.workflow, joined, is_new=True)
