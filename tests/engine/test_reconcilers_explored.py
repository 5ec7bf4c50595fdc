"""Several hosts admit from one line, in every order, and die around each of their transactions."""

import os

import pytest

from perdure.core.admission.deciding import Standing, room
from perdure.core.admission.rules import Rules
from perdure.core.errors import StaleFence
from perdure.core.ids import HostId, RunId
from perdure.core.journal import events as e
from perdure.core.journal.entry import NONCE_BYTES
from perdure.core.journal.journal import Journal
from perdure.store import admission_steps
from perdure.store.commit.bundle import Bundle
from perdure.store.commit.fence import Fence
from perdure.store.rows.records import Run
from perdure.testing.explorer import ScheduleFailed, World, explore
from tests.engine.catching import Record
from tests.store.builders import NOW
from tests.store.entrants import PROGRAM, begin, entrant

RUNNING = 2
STARTS = 4


class Reconciler:
    """A host that admits runs, begins each and ends it, one transaction per move."""

    def __init__(self, world: World, host: HostId) -> None:
        self._world = world
        self.host = host
        self.owned: dict[RunId, Run] = {}
        self._begun: dict[RunId, Journal] = {}

    def take(self, runs: list[Run]) -> None:
        """Runs of a dead host: those that have begun are read again."""
        for run in runs:
            self.owned[run.run_id] = run

    async def move(self) -> None:
        fresh = [run for run in self.owned.values() if run.run_id not in self._begun]
        if fresh:
            await self._begin(fresh[0])
        elif self.owned:
            await self._end(next(iter(self.owned.values())))
        else:
            admission = self._world.store.admission
            admitted = await admission.dequeue(self.host, [PROGRAM], NOW)
            self.take(list(admitted.runs))

    async def _begin(self, run: Run) -> None:
        if run.seq:
            journal = Journal(run.run_id)
            journal.replay(await self._world.store.entries(run.run_id))
        else:
            journal = await begin(self._world.store, run)
        self._begun[run.run_id] = journal

    async def _end(self, run: Run) -> None:
        journal, bundle = self._begun.pop(run.run_id), Bundle()
        del self.owned[run.run_id]
        ending = e.ExecutionCompleted(released=1, payload=b"null")
        appended = journal.append([ending], NOW, os.urandom(NONCE_BYTES))
        bundle.append(Fence(run.run_id, run.epoch), appended)
        await self._world.store.commit(bundle)


async def scenario(world: World) -> None:
    """Two hosts work off a line; one that dies is replaced, and the other takes its runs over."""
    starts = [entrant(n, Rules(RUNNING)) for n in range(STARTS)]
    await world.store.admission.enter(starts, HostId("starter"), NOW)
    hosts = [Reconciler(world, HostId(f"host-{n}")) for n in range(2)]
    hosts[0].take(await world.store.take_over(HostId("starter"), hosts[0].host, STARTS))
    number = turn = 0
    while await is_any_open(world):
        number += 1
        assert number < 100, "the line stands still"
        turn = 1 - turn
        if world.choose(f"move {number}", ["in turn", "the same again"]) == "the same again":
            turn = 1 - turn
        acting, other = hosts[turn], hosts[1 - turn]
        fault = world.choose(f"transaction {number}", ["is done", "crash before", "crash after"])
        if fault != "crash before":
            await acting.move()
        if fault != "is done":
            hosts[turn] = Reconciler(world, HostId(f"host-{number}-again"))
            other.take(await world.store.take_over(acting.host, other.host, STARTS))
        (slot,) = await world.store.admission.slots("L", "", 10)
        assert slot.running <= RUNNING, f"{slot.running} runs are open"
    for start in starts:
        entries = await world.store.entries(start.run.run_id)
        assert [type(each.event) for each in entries] == [e.ExecutionStarted, e.ExecutionCompleted]
        assert await world.store.messages(start.run.run_id) == []


async def is_any_open(world: World) -> bool:
    (slot,) = await world.store.admission.slots("L", "", 10)
    return bool(slot.running or slot.waiting)


async def test_each_run_begins_and_ends_once_whichever_hosts_die(record_property: Record) -> None:
    explored = await explore(scenario)
    record_property("explored", f"two reconcilers: {explored}")
    assert explored.schedules > 30


@pytest.mark.deep
async def test_each_run_begins_once_with_any_two_faults(record_property: Record) -> None:
    explored = await explore(scenario, max_faults=2)
    record_property("explored", f"two reconcilers, two faults: {explored}")


def one_too_many(rules: Rules, standing: Standing, now_ms: int, most: int) -> int:
    return room(rules, standing, now_ms, most) + 1


async def test_the_explorer_finds_an_admission_beyond_the_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(admission_steps, "room", one_too_many)
    with pytest.raises(ScheduleFailed, match="3 runs are open"):
        await explore(scenario)


async def test_a_host_that_was_taken_over_cannot_begin_a_run(record_property: Record) -> None:
    async def stale(world: World) -> None:
        start = entrant(0, Rules(1))
        await world.store.admission.enter([start], HostId("dead"), NOW)
        run = await world.store.run(start.run.run_id)
        assert run is not None
        (taken,) = await world.store.take_over(HostId("dead"), HostId("alive"), 1)
        with pytest.raises(StaleFence):
            await begin(world.store, run)
        await begin(world.store, taken)

    record_property("explored", str(await explore(stale)))
