"""Projections under the crash explorer: projectors that are killed, and read what a replica shows them."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import msgspec

from perdure.core.codec import JsonCodec
from perdure.core.ids import RunId
from perdure.core.journal import events as e
from perdure.core.journal.state import TERMINAL, Status
from perdure.core.runs.contract_event import ContractEvent, EngineRunRef
from perdure.core.runs.contract_reader import ContractReader, RunOrigin
from perdure.core.runs.projector import SnapshotProjector
from perdure.core.runs.snapshot import RunSnapshot, SnapshotStatus, StepStatus
from perdure.store.commit.bundle import Bundle
from perdure.store.store import Store
from perdure.testing.explorer import World, memory_store
from tests.store.builders import begun

MOST_READS = 20


async def events_of(store: Store, run_id: RunId) -> list[ContractEvent]:
    """The whole history of one run."""
    return await Journal(store, run_id).events()


class Journal:
    """A run's history, of which each read adds what is new."""

    def __init__(self, store: Store, run_id: RunId) -> None:
        self._store, self._run_id = store, run_id
        self._reader: ContractReader | None = None
        self._events: list[ContractEvent] = []

    async def events(self) -> list[ContractEvent]:
        if self._reader is None:
            run = await self._store.run(self._run_id)
            assert run is not None
            ref = EngineRunRef(run.program, run.version, run.digest, run.scope)
            self._reader = ContractReader(RunOrigin(self._run_id, ref), JsonCodec())
        entries = await self._store.entries(self._run_id, self._reader.seq)
        self._events += map(self._reader.read, entries)
        return self._events


class KilledProjectors:
    """After each commit a new projector resumes the run's stored snapshot, and is killed."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._stored: dict[RunId, bytes] = {}
        self._journals: dict[RunId, Journal] = {}
        self.snapshots = 0

    async def project(self, bundle: Bundle) -> None:
        for run_id in {appended.run_id for _, appended in bundle.appends}:
            journal = self._journals.setdefault(run_id, Journal(self._store, run_id))
            stored = self._stored.get(run_id)
            snapshot = RunSnapshot(run_id=run_id)
            if stored is not None:
                snapshot = msgspec.json.decode(stored, type=RunSnapshot)
            # It reads a little more than is new, as a projector does that was killed before it stored its snapshot.
            new = (await journal.events())[max(0, snapshot.last_event_seq - 2) :]
            after = SnapshotProjector().incremental_project(snapshot, new)
            self._stored[run_id] = msgspec.json.encode(after)
            self.snapshots += 1

    async def check(self) -> None:
        """Each stored snapshot is that of one go, and agrees with the row of its run."""
        for run_id, stored in self._stored.items():
            events, run = await events_of(self._store, run_id), await self._store.run(run_id)
            snapshot = msgspec.json.decode(stored, type=RunSnapshot)
            assert snapshot == SnapshotProjector().project_run(run_id, events)
            assert len({event.idempotency_key for event in events}) == len(events)
            assert run is not None
            if run.status in TERMINAL and run.status is not Status.CONTINUED:
                assert snapshot.status.value == run.status.value.upper()
                assert snapshot.is_over
            if snapshot.status is SnapshotStatus.COMPLETED:
                is_open = (StepStatus.PENDING, StepStatus.RUNNING)
                assert not [step for step in snapshot.steps if step.status in is_open]


@asynccontextmanager
async def projected_store() -> AsyncIterator[Store]:
    """A store in memory, whose journals are projected after every commit and checked after the schedule."""
    async with memory_store() as opened:
        store: Any = opened
        projectors, commit = KilledProjectors(store), store.commit

        async def commit_and_project(bundle: Bundle) -> None:
            await commit(bundle)
            await projectors.project(bundle)

        store.commit = commit_and_project
        yield store
        await projectors.check()
        assert projectors.snapshots


@dataclass
class LaggingReplica:
    """A projector reads a journal that grows, from a replica on which one entry may come later than the ones after it.

    The projector may be killed after each read. In the end its snapshot must be that of the whole journal.
    """

    make_projector: Callable[[], SnapshotProjector] = SnapshotProjector

    async def __call__(self, world: World) -> None:
        run = await begun(world.store)
        projector = self.make_projector()
        snapshot = projector.project_run(run.run_id, [])
        growth = [run.step, run.finish]
        for read in range(MOST_READS):
            events = await events_of(world.store, run.run_id)
            if snapshot.last_event_seq == len(events) - 1 and not growth:
                break
            seen = self._seen(world, read, events[snapshot.last_event_seq + 1 :])
            after = projector.incremental_project(snapshot, seen)
            if world.choose(f"read {read}", ["is stored", "is lost"]) == "is stored":
                snapshot = after
            if growth:
                await world.store.commit(growth.pop(0)())
        events = await events_of(world.store, run.run_id)
        assert snapshot == SnapshotProjector().project_run(run.run_id, events), "snapshots differ"
        assert isinstance((await world.store.entries(run.run_id))[-1].event, e.ExecutionCompleted)

    def _seen(
        self, world: World, read: int, events: Sequence[ContractEvent]
    ) -> Sequence[ContractEvent]:
        lacking = [f"lacks {event.offset}" for event in events[:-1]]
        choice = world.choose(f"replica {read}", ["has all", *lacking])
        return [event for event in events if choice != f"lacks {event.offset}"]
