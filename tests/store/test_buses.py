"""Event buses of a store: marks, leases, dead letters, and what a bus costs."""

import pytest

from perdure.core.ids import HostId, RunId
from perdure.store.bus_table import DeadLetter, PublicationKey, RelayProgress, ReplayedPart
from perdure.store.rows.records import Enrolment
from perdure.store.store import Store
from tests.store.builders import NOW, Driven, Meter, begun, raw, together

pytestmark = pytest.mark.asyncio

ENROLLED = (Enrolment("hook"), Enrolment("log", "relay-1", NOW + 10))


async def enrolled(store: Store) -> Driven:
    run = Driven()
    await store.commit(together(run.start(enrolments=ENROLLED), run.first_step()))
    return run


def key(run: Driven, replay: str = "") -> PublicationKey:
    return PublicationKey(run.run_id, replay)


def letter(run: Driven, seq: int, tries: int = 8) -> DeadLetter:
    return DeadLetter("hook", run.run_id, seq, "RunStarted", "no", tries, NOW)


async def ahead(
    store: Store, bus: str, holder: str = "relay-2", now_ms: int = NOW
) -> list[PublicationKey]:
    return (await store.buses.ahead(bus, holder, None, now_ms, 100)).ahead


async def test_a_new_run_has_a_mark_for_each_bus_in_the_commit_that_creates_it(
    store: Store,
) -> None:
    run = await enrolled(store)
    rows = await raw(store, "SELECT bus, run_id, seq, holder FROM {}publication ORDER BY bus")
    assert rows == [("hook", run.run_id, 0, None), ("log", run.run_id, 0, "relay-1")]
    assert await ahead(store, "hook") == [key(run)]
    assert await ahead(store, "log") == [], "another relay holds it"
    assert await ahead(store, "log", "relay-1") == [key(run)]
    assert await ahead(store, "log", now_ms=NOW + 10) == [key(run)], "the lease has ended"


async def test_two_relays_never_hold_one_publication(store: Store) -> None:
    run, other = await enrolled(store), await enrolled(store)
    keys = [key(run), key(other)]
    claimed = await store.buses.claim("hook", "relay-1", keys[:1], NOW, NOW + 5)
    assert [(each.key, each.seq, each.end_seq) for each in claimed] == [(key(run), 0, None)]
    claimed = await store.buses.claim("hook", "relay-2", keys, NOW, NOW + 5)
    assert [each.key for each in claimed] == [key(other)]
    late = await store.buses.claim("hook", "relay-2", keys, NOW + 5, NOW + 9)
    assert [each.key for each in late] == sorted(keys)


async def test_a_mark_moves_forward_only_and_only_for_its_holder(store: Store) -> None:
    run = await enrolled(store)
    await store.buses.claim("hook", "relay-1", [key(run)], NOW, NOW + 5)
    for holder, seq, expected in (("relay-1", 2, 2), ("relay-1", 1, 2), ("relay-2", 4, 2)):
        await store.buses.advance("hook", holder, RelayProgress({key(run): seq}), NOW + 7)
        assert await raw(store, "SELECT seq FROM {}publication WHERE bus = 'hook'") == [(expected,)]
    end = await store.run(run.run_id)
    assert end is not None
    await store.buses.advance("hook", "relay-1", RelayProgress({key(run): end.seq}), 0)
    assert await ahead(store, "hook") == []
    await store.commit(run.finish())
    assert await ahead(store, "hook") == [key(run)]
    await store.buses.advance("hook", "relay-1", RelayProgress({}, [key(run)]), 0)
    assert await raw(store, "SELECT run_id FROM {}publication WHERE bus = 'hook'") == []


async def test_dead_letters_commit_with_the_mark_and_are_listed_in_order(store: Store) -> None:
    run = await enrolled(store)
    await store.buses.claim("hook", "relay-1", [key(run)], NOW, NOW + 5)
    progress = RelayProgress({key(run): 2}, [], [letter(run, 1), letter(run, 0)])
    await store.buses.advance("hook", "relay-1", progress, NOW)
    found = await store.buses.dead_letters(None, None, None, 10)
    assert found == [letter(run, 0), letter(run, 1)]
    assert await store.buses.dead_letters("hook", run.run_id, found[0], 10) == found[1:]
    assert await store.buses.dead_letters("log", None, None, 10) == []
    await store.buses.advance("hook", "relay-1", RelayProgress({}, [], [letter(run, 1)]), NOW)
    (_, again) = await store.buses.dead_letters("hook", None, None, 10)
    assert again.tries == 16, "a letter that is refused again counts on"
    await store.buses.drop(found[:1])
    assert await store.buses.dead_letters("hook", None, None, 10) == [again]


async def test_a_replay_has_a_mark_of_its_own_and_takes_its_dead_letters_away(store: Store) -> None:
    run = await enrolled(store)
    await store.buses.advance("hook", "", RelayProgress({}, [], [letter(run, 1)]), NOW)
    part = ReplayedPart(run.run_id, 1, 2)
    await store.buses.replay("hook", "again", [part], [letter(run, 1)])
    await store.buses.replay("hook", "again", [part])
    assert await store.buses.dead_letters("hook", None, None, 10) == []
    assert await ahead(store, "hook") == [key(run), key(run, "again")]
    (claimed,) = await store.buses.claim("hook", "r", [key(run, "again")], NOW, NOW + 5)
    assert (claimed.seq, claimed.end_seq) == (1, 2)


async def test_pages_of_a_sweep_are_bounded_and_end(store: Store) -> None:
    runs = sorted([await enrolled(store) for _ in range(3)], key=lambda run: run.run_id)
    page = await store.buses.ahead("hook", "r", None, NOW, 2)
    assert (page.ahead, page.last) == ([key(runs[0]), key(runs[1])], key(runs[1]))
    page = await store.buses.ahead("hook", "r", page.last, NOW, 2)
    assert (page.ahead, page.last) == ([key(runs[2])], None)


async def test_open_runs_are_enrolled_where_they_are_and_newer_ones_from_their_start(
    store: Store,
) -> None:
    old, new, over = await begun(store), Driven(), await begun(store)
    await store.commit(over.finish())
    await store.buses.register("hook", ["checkout"], NOW + 5)
    await store.commit(new.start(created_at_ms=NOW + 6))
    ids = [old.run_id, new.run_id, over.run_id]
    for _ in range(2):
        await store.buses.enrol_open("hook", ids)
    rows = await raw(store, "SELECT run_id, seq FROM {}publication")
    assert dict(rows) == {old.run_id: 4, new.run_id: 0}


async def test_a_bus_keeps_the_time_of_its_registration_and_can_be_removed(store: Store) -> None:
    run = await enrolled(store)
    for programs, at_ms in ((["b", "a"], NOW), (None, NOW + 1)):
        await store.buses.register("hook", programs, at_ms)
    (bus,) = await store.buses.all()
    assert (bus.name, bus.programs, bus.since_ms) == ("hook", None, NOW)
    await store.buses.note("hook", NOW, "no answer")
    await store.buses.note("hook", NOW + 1, "later reasons don't change it")
    (bus,) = await store.buses.all()
    assert (bus.down_since_ms, bus.error) == (NOW, "no answer")
    counts = await store.buses.counts("hook")
    assert (counts.behind, counts.oldest_ms, counts.dead_letters) == (1, NOW, 0)
    await store.buses.advance("hook", "", RelayProgress({}, [], [letter(run, 1)]), NOW)
    await store.buses.remove("hook")
    assert await store.buses.all() == []
    assert await raw(store, "SELECT bus FROM {}publication") == [("log",)]
    assert await store.buses.dead_letters(None, None, None, 10) == []


async def test_what_was_written_in_a_span_of_time_can_be_replayed(store: Store) -> None:
    run, other = await begun(store), await begun(store, key="other")
    found = await store.buses.replayable(None, NOW, NOW + 1, ["checkout"], 10)
    ids = sorted([run.run_id, other.run_id])
    assert found == [(RunId(each), ReplayedPart(RunId(each), 0, 4)) for each in ids]
    assert await store.buses.replayable(None, NOW + 1, NOW + 2, None, 10) == [
        (RunId(i), None) for i in ids
    ]
    assert await store.buses.replayable(None, 0, NOW, None, 10) == []
    assert await store.buses.replayable(None, NOW, NOW + 1, ["another"], 10) == []


async def test_a_bus_costs_one_statement_for_each_group_of_new_runs_and_nothing_for_steps(
    store: Store,
) -> None:
    await begun(store)
    meter = await Meter.of(store)
    run = Driven(owner=HostId("host"))
    await store.commit(run.start(enrolments=ENROLLED))
    assert meter.commits == 1
    assert sum("publication" in sql for sql in meter.statements) == 1
    await store.commit(run.first_step())
    meter = await Meter.of(store)
    await store.commit(run.step())
    await store.commit(run.finish())
    assert not any("publication" in sql for sql in meter.statements)
