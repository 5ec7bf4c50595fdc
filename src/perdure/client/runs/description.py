"""Describes a run from its store alone: which rows it reads, and in which order."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from perdure.authoring.graphs.program import GraphProgram
from perdure.authoring.values.failures import failure_text
from perdure.client.runs.answerable_steps import answerable_steps
from perdure.core.codec import Codec
from perdure.core.errors import UnreadableProgram
from perdure.core.graph.vertex import SignalRequest
from perdure.core.ids import RunId, StepId
from perdure.core.journal import events as e
from perdure.core.journal.entry import Entry
from perdure.core.journal.state import TERMINAL
from perdure.core.messages import OUTCOMES
from perdure.core.runs.description import (
    DescribedSteps,
    Description,
    RunRows,
    WaitingHook,
    waits_of,
)
from perdure.core.runs.waits import AnyWait, JoinWait
from perdure.host.runs.dispatcher import Dispatcher
from perdure.store.rows.records import Run
from perdure.store.store import Store

MAX_READS = 3
"""How often `describe_run` reads a run that changes during the read, before it describes the last read."""


class _RunRead(NamedTuple):
    run: Run
    entries: list[Entry]
    steps: DescribedSteps
    rows: RunRows


class DescribedRun(NamedTuple):
    """A description, and the journal that it was made from."""

    description: Description
    entries: list[Entry]
    steps: DescribedSteps


async def describe_run(
    dispatcher: Dispatcher, run_id: RunId, status_of: Callable[[Run], str]
) -> Description:
    """The state of the run."""
    return (await describe_with_journal(dispatcher, run_id, status_of)).description


async def describe_with_journal(
    dispatcher: Dispatcher, run_id: RunId, status_of: Callable[[Run], str]
) -> DescribedRun:
    """Reads the journal, then the other rows, and reads again if the run advanced meanwhile."""
    read = await _read(dispatcher, run_id)
    for _ in range(MAX_READS - 1):
        after = await dispatcher.store.run(run_id)
        if after is None or (after.seq, after.epoch) == (read.run.seq, read.run.epoch):
            break
        read = await _read(dispatcher, run_id)
    run, entries, steps, rows = read
    error_text, now_ms = partial(_error_text, dispatcher.codec), dispatcher.sources.now_ms()
    waits = waits_of(run.run_id, run.owner, steps, rows, error_text, now_ms)
    description = _description(
        run, status_of(run), waits, (steps.cancel_reason, steps.pause_reason)
    )
    return DescribedRun(description, entries, steps)


def describe_closed(run: Run, status: str, last: Sequence[Entry]) -> Description:
    """A closed run, from its row and the last entries of its journal."""
    reason = None
    for event in (entry.event for entry in last):
        if isinstance(event, e.CancelRequested | e.ExecutionCancelled):
            reason = event.reason or reason or ""
    return _description(run, status, (), (reason, None))


def _description(
    run: Run, status: str, waits: tuple[AnyWait, ...], reasons: tuple[str | None, str | None]
) -> Description:
    """`reasons` are those of a cancellation and of a pause."""
    return Description(
        run_id=run.run_id,
        program=run.program,
        version=run.version,
        key=run.key,
        status=status,
        owner=run.owner,
        created_at_ms=run.created_at_ms,
        closed_at_ms=run.closed_at_ms,
        parked=run.parked,
        cancel_reason=reasons[0],
        waits=waits,
        pause_reason=reasons[1],
    )


async def _read(dispatcher: Dispatcher, run_id: RunId) -> _RunRead:
    ((run, entries),) = await dispatcher.store.load([run_id])
    steps = DescribedSteps(entries)
    rows = RunRows() if run.status in TERMINAL else await _rows(dispatcher, run, entries, steps)
    return _RunRead(run, entries, steps, rows)


async def _rows(
    dispatcher: Dispatcher, run: Run, entries: list[Entry], steps: DescribedSteps
) -> RunRows:
    store, run_id = dispatcher.store, run.run_id
    work = await store.queued_work(run_id)
    hooks = await store.hooks_waiting(run_id)
    is_graph = any(steps.state.scheduled.values())
    answerable = answerable_steps(entries, dispatcher.codec) if is_graph else {}
    children = await store.statuses(list(steps.possible_children(run_id).values()))
    return RunRows(
        {each.step: each for each in work},
        {
            hook.step: WaitingHook(hook.step, hook.topic, hook.key or None, hook.since_ms)
            for hook in hooks
        },
        [
            JoinWait(join.step, join.required, join.completed)
            for join in await store.readiness(run_id)
        ],
        await _reported(store, run_id),
        {child: status.value for child, status in children.items()},
        frozenset(step for step in steps.ended if answerable.get(step)),
        _topics(dispatcher, run),
    )


async def _reported(store: Store, run_id: RunId) -> frozenset[StepId]:
    """Steps whose outcome was sent to the run, and that it has not received."""
    return frozenset(
        message.step
        for message, state, _ in await store.messages(run_id)
        if state == "pending"
        and message.step is not None
        and message.kind.partition(":")[0] in OUTCOMES
    )


def _topics(dispatcher: Dispatcher, run: Run) -> dict[str, str]:
    """The topics that the activities of a graph wait for; empty if its definition is not known in this process."""
    try:
        program = dispatcher.programs.find(run.program, run.version, run.digest)
    except UnreadableProgram:
        return {}
    if not isinstance(program, GraphProgram):
        return {}
    return {
        vertex.name: vertex.request.topic or str(getattr(vertex.request.named_by, "text", ""))
        for vertex in program.lowered.vertices
        if isinstance(vertex.request, SignalRequest)
    }


def _error_text(codec: Codec, payload: bytes | None) -> str:
    error = failure_text(codec, payload)
    return f"{error.type_name}: {error.message}" if error.message else error.type_name
