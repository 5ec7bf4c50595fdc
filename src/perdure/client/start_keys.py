"""Start keys: which run holds a key, and what a start does if that run failed or was cancelled.

A key identifies one run per scope and program. Engines look up the holders of keys before they drive any program, for
many starts with one statement.
"""

import asyncio
import logging
from collections.abc import Iterable
from typing import Any, Literal, get_args

from perdure.authoring.program import Program
from perdure.authoring.texts import require_user_text
from perdure.client.runs.handle import Handle
from perdure.client.runs.inputs import input_of
from perdure.core.errors import InputError, KeyReused, KeySpent, RunExists
from perdure.core.ids import RunId
from perdure.core.journal.state import Status
from perdure.core.limits import MAX_KEY_LENGTH
from perdure.host.host import Host
from perdure.host.runs.batch import RunStart
from perdure.host.runs.dispatcher import Dispatcher
from perdure.host.transactions.joining import JoinedWrites
from perdure.store.rows.records import Run
from perdure.store.store import Store

ScopedKey = tuple[str, str, str]
"""A scope, the name of a program, and a key."""

IfEnded = Literal["return", "rerun", "raise"]
"""What a start does if the run that holds its key failed or was cancelled."""

_IF_ENDED_VALUES = get_args(IfEnded)
_UNSUCCESSFUL = (Status.FAILED, Status.CANCELLED)

log = logging.getLogger("perdure.client")


def require_if_ended(given: object) -> None:
    if given not in _IF_ENDED_VALUES:
        allowed = ", ".join(map(repr, _IF_ENDED_VALUES))
        raise InputError(f"if_ended is {given!r}", f"use one of {allowed}")


def require_key(key: object) -> str:
    return require_user_text("a key", key, MAX_KEY_LENGTH)


def scoped_key(start: RunStart) -> ScopedKey | None:
    return None if start.key is None else (start.scope, start.workflow.name, start.key)


async def key_holders(store: Store, starts: Iterable[RunStart]) -> dict[ScopedKey, RunId]:
    """The runs that hold the keys of these starts. One statement, or none if no start has a key.

    Two hosts may both find a key free. Then the store rejects the commit of the second start with `RunExists`.
    """
    keys = {key for start in starts if (key := scoped_key(start)) is not None}
    return await store.key_holders(sorted(keys)) if keys else {}


async def key_holder(
    dispatcher: Dispatcher, joined: JoinedWrites | None, program: str, key: str, scope: str
) -> RunId | None:
    """The run that holds a key, as the current transaction sees it."""
    if joined is not None:
        return await joined.holder_of(scope, program, key)
    found = await dispatcher.store.run_by_key(scope, program, key)
    return None if found is None else found.run_id


async def handle_of_holder(
    host: Host, start: RunStart, joined: JoinedWrites | None, if_ended: IfEnded, holder: RunId
) -> Handle[Any]:
    """A handle of the run that holds the start's key, or, with "rerun", of the new run that replaces it.

    Raises `KeyReused` if the holder was started with other arguments, and with "raise" `KeySpent` if it failed or was
    cancelled.
    """
    end = await _unsuccessful_end(host.dispatcher, joined, holder)
    if end is not None and if_ended == "raise":
        raise _spent(start, holder, end) from None
    if end is not None and if_ended == "rerun":
        try:
            begin = joined.start if joined else host.begin_run
            run_id = await begin(start._replace(replaces=holder))
        except RunExists as taken:
            # Another start replaced the holder first: both starts get its run, even if that has ended since.
            holder, end = RunId(taken.run_id), None
        else:
            return Handle(host, run_id, start.workflow, joined, is_new=True)
    _require_same_call(
        host.dispatcher, holder, start, await _arguments(host.dispatcher, joined, holder)
    )
    if end is not None:
        _warn_spent(start, holder, end)
    if joined is not None and joined.has_started(holder):
        return Handle(host, holder, start.workflow, joined)
    # Without the program of this start: the holder may be of another version, with another result type.
    return Handle(host, holder)


async def handle_of_earlier_start(
    host: Host, start: RunStart, if_ended: IfEnded, begun: asyncio.Future[RunId]
) -> Handle[Any]:
    """A handle of the run of an earlier start with the same key."""
    try:
        run_id = await begun
    except RunExists as taken:
        run_id = RunId(taken.run_id)
    return await handle_of_holder(host, start, None, if_ended, run_id)


async def _unsuccessful_end(
    dispatcher: Dispatcher, joined: JoinedWrites | None, run_id: RunId
) -> Run | None:
    """The last run of the chain that began with `run_id`, if it failed or was cancelled."""
    if joined is not None:
        end: Run | None = await joined.end_of(run_id)
    else:
        end = await dispatcher.store.chain_end(run_id)
    return end if end is not None and end.status in _UNSUCCESSFUL else None


async def _arguments(
    dispatcher: Dispatcher, joined: JoinedWrites | None, run_id: RunId
) -> bytes | None:
    """The arguments that a run was started with; `None` if they were erased."""
    if joined is not None:
        return await joined.arguments(run_id)
    return await input_of(dispatcher.store, run_id)


def _require_same_call(
    dispatcher: Dispatcher, run_id: RunId, start: RunStart, earlier: bytes | None
) -> None:
    program = start.workflow
    if earlier is None or program.is_same_call(dispatcher.codec, earlier, start.payload):
        return
    raise KeyReused(
        run_id,
        f"key {start.key!r} of {_named(program)} is taken by run {run_id!r}, "
        "which was started with other arguments",
        "use another key, or the same arguments",
    ) from None


def _spent(start: RunStart, holder: RunId, end: Run) -> KeySpent:
    return KeySpent(
        holder,
        end.status.value,
        f"key {start.key!r} of {_named(start.workflow)} is held by run {holder!r}, which {_ending(end)}",
        "start it with if_ended='rerun' to run it again under this key, or use another key",
    )


def _warn_spent(start: RunStart, holder: RunId, end: Run) -> None:
    """Without a warning, a start that returns an unsuccessful run looks like one that began a new run."""
    log.warning(
        "key %r of %s is held by run %s, which %s: the start returned that run and began none; "
        "if_ended='rerun' runs it again",
        *(start.key, _named(start.workflow), holder, _ending(end)),
    )


def _named(program: Program[..., Any]) -> str:
    return f"{program.noun} {program.name!r}"


def _ending(end: Run) -> str:
    return "failed" if end.status is Status.FAILED else "was cancelled"
