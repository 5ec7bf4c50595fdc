"""Relays under all schedules of crashes, lost hints and two hosts: no event is lost, first occurrences are in order."""

from collections.abc import Awaitable, Callable
from functools import partial

import pytest

from perdure.core.ids import HostId
from perdure.host.bus.enrolling import LEASE_MS
from perdure.host.relays.relay import Relay
from perdure.host.relays.track import Track
from perdure.store.bus_table import Publication
from perdure.store.commit.bundle import Bundle
from perdure.testing.explorer import ScheduleFailed, World, explore
from tests.host.relays.relaying import (
    BUS,
    ENROLLED,
    DyingBus,
    DyingHost,
    Recorder,
    assert_all_published,
    finish_publishing,
)
from tests.store.builders import NOW, Driven

Record = Callable[[str, object], None]


def publishing(kind: type[Relay]) -> Callable[[World], Awaitable[None]]:
    """Two runs advance in turns; after each commit one of two hosts publishes, and may die."""

    async def scenario(world: World) -> None:
        store, sources, recorder = world.store, world.sources, Recorder()
        await store.buses.register(BUS, None, NOW)
        first, second = (Driven(owner=HostId("host")) for _ in range(2))
        hosts = [DyingHost(store, sources, recorder, world.choose, kind) for _ in range(2)]
        bundles: list[tuple[Driven, Callable[[], Bundle]]] = [
            (first, partial(first.start, enrolments=ENROLLED)),
            (second, partial(second.start, enrolments=ENROLLED)),
            (first, first.first_step),
            (second, second.first_step),
            (second, second.finish),
            (first, first.step),
            (first, first.finish),
        ]
        for run, bundle in bundles:
            await store.commit(bundle())
            which = world.choose("who publishes", ["host 1", "host 2", "nobody"])
            if which == "nobody":
                continue
            at = int(which == "host 2")
            if world.choose("hint", ["arrives", "is lost"]) == "arrives":
                hosts[at].relay.run_grew(run.run_id)
            await hosts[at].work()
            if hosts[at].is_dead.is_set():
                hosts[at] = DyingHost(store, sources, recorder, world.choose, kind)
            if world.choose("time", ["stands", "passes"]) == "passes":
                sources.advance(LEASE_MS + 1)
        for host in hosts:
            sources.advance(LEASE_MS + 1)
            await host.work()
        last = DyingHost(store, sources, recorder, lambda _, options: options[0], kind)
        await finish_publishing(last.relay, sources)
        await assert_all_published(store, recorder, [first.run_id, second.run_id])
        for host in (*hosts, last):
            failures = host.context.listener.failures  # type: ignore[attr-defined]
            assert failures == []

    return scenario


@pytest.mark.parametrize("max_faults", [1, pytest.param(2, marks=pytest.mark.deep)])
async def test_no_schedule_of_crashes_loses_or_reorders_events(
    max_faults: int, record_property: Record
) -> None:
    explored = await explore(publishing(Relay), max_faults=max_faults)
    record_property("explored", f"relays: {explored}")
    assert {"publish 3: crash before", "publish 3: crash after"} <= explored.faults
    assert {
        "claim: crash after",
        "advance: crash before",
        "advance: crash after",
    } <= explored.faults


class MarksFirst(Relay):
    """Writes the mark, then publishes."""

    async def _publish(self, track, event):  # type: ignore[no-untyped-def]
        self._passed(track, event.seq)
        await self._write(self._lease_until_ms())
        return await super()._publish(track, event)


class SweepsOnce(Relay):
    """Takes the order of ids for that of commits: no relay looks again at what one has passed."""

    async def _sweep(self, now_ms):  # type: ignore[no-untyped-def]
        assert isinstance(self.bus, DyingBus)
        place = self.bus.recorder
        page = await self._store.buses.ahead(BUS, self.holder, place.passed, now_ms, 100)
        if page.ahead:
            place.passed = page.ahead[-1]
            self._unclaimed |= dict.fromkeys(page.ahead)


class SkipsAtTakeover(Relay):
    """Publishes what is newest first after it has claimed a run."""

    async def _claim(self, now_ms):  # type: ignore[no-untyped-def]
        await super()._claim(now_ms)
        for key, track in list(self._active.items()):
            if track.reader is None and track.seq:
                (run,) = await self._store.runs([key.run_id])
                newest = Publication(key, run.seq - 1, None)
                self._tracks[key] = self._active[key] = Track.of(newest, track.lease_until_ms)


class EndsEarly(Relay):
    """Deletes the mark of a run when it reads its end, not when the end is published."""

    def _event(self, track, entry):  # type: ignore[no-untyped-def]
        event = super()._event(track, entry)
        if event is not None and event.type == "RunCompleted":
            self._marks.end(track.key)
        return event

    async def _publish(self, track, event):  # type: ignore[no-untyped-def]
        await self._write(self._lease_until_ms())
        return await super()._publish(track, event)


@pytest.mark.parametrize("bug", [MarksFirst, SweepsOnce, SkipsAtTakeover, EndsEarly])
async def test_a_seeded_bug_is_found(bug: type[Relay], record_property: Record) -> None:
    with pytest.raises(ScheduleFailed) as failed:
        await explore(publishing(bug))
    schedule = str(failed.value).rpartition("schedule\n")[2].replace("\n", ";")
    record_property("explored", f"{bug.__name__}: found under{schedule}")
