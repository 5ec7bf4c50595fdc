"""What the journals of a store say of chains: workflows of one step after the other, each run known by its key."""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from perdure.core.ids import HostId, StepId
from perdure.core.journal import events as e
from perdure.core.journal.entry import Entry
from perdure.core.replay.doubt import MAX_DOUBTS, doubted_steps
from perdure.store.inspection import audit_store, verify_store
from perdure.store.opening import open_store
from perdure.store.rows.hosts import HostScope
from perdure.store.store import Store

Step = tuple[int, int]
"""The number of a run, and of a step in it."""


class Journal(NamedTuple):
    """What the store says of all runs."""

    completed: set[Step]
    started: Counter[Step]
    doubted: Counter[Step]
    results: dict[int, bytes | None]

    def at_risk(self) -> set[Step]:
        """Steps that have been in doubt so often that they fail if they are once more after the next."""
        doubts = MAX_DOUBTS - 1
        return {s for s, n in self.doubted.items() if n >= doubts} - self.completed


async def holders(store: Store) -> frozenset[HostId]:
    """Who owns open runs, or has claimed work."""
    glance = await store.host_snapshot(HostScope(HostId("nobody"), (), (), 0))
    return glance.holders


async def read_journal(url: str) -> Journal:
    journal = Journal(set(), Counter(), Counter(), {})
    store = await open_store(url)
    try:
        async for books in store.books():
            _add_run(journal, books.entries)
    finally:
        await store.close()
    return journal


def _add_run(journal: Journal, entries: Sequence[Entry]) -> None:
    started = entries[0].event
    assert isinstance(started, e.ExecutionStarted)
    run = int(started.idempotency_key or "")
    for entry in entries:
        event = entry.event
        if isinstance(event, e.InvokeCompleted):
            assert event.ok
            journal.completed.add((run, _number(event.promise_id)))
        elif isinstance(event, e.InvokeStarted):
            journal.started[run, _number(event.promise_id)] += 1
        elif isinstance(event, e.Posted):
            assert event.label == "in doubt: retry"
            ((step, count),) = doubted_steps(event)
            journal.doubted[run, _number(step)] += count
        elif isinstance(event, e.ExecutionCompleted):
            journal.results[run] = event.payload


def _number(step: StepId) -> int:
    return int(step.removeprefix("root."))


async def assert_clean(url: str, runs: int) -> None:
    """The books of so many runs are sound."""
    store = await open_store(url)
    try:
        for report in (await audit_store(store), await verify_store(store)):
            assert report.findings == []
            assert report.runs == runs
    finally:
        await store.close()
