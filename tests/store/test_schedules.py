"""Schedules of a store: rows that change by compare-and-set, and their ticks."""

import pytest

from perdure.core.errors import StoreDamaged
from perdure.core.schedules.schedule import Schedule, Tick, TickOutcome
from perdure.core.schedules.timetable import Timetable
from perdure.store.schedule_table import KEPT_TICKS, StoredSchedule
from perdure.store.store import Store
from tests.store.builders import raw


def stored(name: str = "s", revision: int = 1, look_at_ms: int | None = 5) -> StoredSchedule:
    schedule = Schedule(Timetable(every_ms=1000), next_ms=revision)
    return StoredSchedule("", name, "report", b"{}", schedule, look_at_ms, revision)


def tick(instant_ms: int) -> Tick:
    return Tick(instant_ms, TickOutcome.STARTED, "r_1")


async def test_of_two_writes_of_one_revision_the_first_counts(store: Store) -> None:
    table = store.schedules
    assert await table.write(stored())
    assert not await table.write(stored())
    assert await table.write(stored(revision=2), [tick(1)])
    assert not await table.write(stored(revision=2), [tick(2)])
    (found,) = await table.all()
    assert (found.revision, found.schedule.next_ms) == (2, 2)
    assert await table.ticks("", "s", 10) == [tick(1)]


async def test_a_deleted_schedule_is_not_made_again_by_a_late_write(store: Store) -> None:
    await store.schedules.write(stored(), [tick(1)])
    await store.schedules.delete("", "s")
    assert not await store.schedules.write(stored(revision=2), [tick(2)])
    assert await store.schedules.all() == []
    assert await store.schedules.ticks("", "s", 10) == []


async def test_due_schedules_are_those_of_the_programs_most_urgent_first(store: Store) -> None:
    for name, at in (("late", 3), ("at once", 0), ("later", 9), ("never", None)):
        await store.schedules.write(stored(name, look_at_ms=at))
    due = await store.schedules.due(["report"], 5)
    assert [each.name for each in due if isinstance(each, StoredSchedule)] == ["at once", "late"]
    assert await store.schedules.due(["other"], 5) == []


async def test_the_store_keeps_the_newest_ticks(store: Store) -> None:
    await store.schedules.write(stored(), [tick(n) for n in range(KEPT_TICKS + 5)])
    kept = await store.schedules.ticks("", "s", 2 * KEPT_TICKS)
    assert [each.instant_ms for each in kept] == list(range(KEPT_TICKS + 4, 4, -1))


async def test_a_damaged_schedule_is_named(store: Store) -> None:
    await store.schedules.write(stored())
    await raw(store, "UPDATE {}schedule SET state = ''")
    with pytest.raises(StoreDamaged, match="schedule 's'"):
        await store.schedules.all()
