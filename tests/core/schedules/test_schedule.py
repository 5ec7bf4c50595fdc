from collections import Counter
from datetime import UTC, datetime

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.core.errors import InputError
from perdure.core.schedules.schedule import (
    Overlap,
    PlannedStart,
    Schedule,
    TickOutcome,
    advance,
    backfilled,
    carried_out,
    jitter_of,
    look_at_ms,
    paused,
    resumed,
    triggered,
)
from perdure.core.schedules.timetable import Timetable

MINUTE = 60_000
NAME = "nightly"


def schedule(overlap: Overlap = Overlap.SKIP, **other: object) -> Schedule:
    timetable = Timetable(every_ms=MINUTE)
    return Schedule(timetable, overlap, next_ms=MINUTE, **other)  # type: ignore[arg-type]


def starts(given: Schedule) -> list[int]:
    return [start.instant_ms for start in given.starts]


def test_nothing_is_decided_before_a_tick_is_due() -> None:
    assert advance(NAME, schedule(), MINUTE - 1, is_open=False).schedule == schedule()


@pytest.mark.parametrize(
    ("overlap", "planned", "waiting", "skipped"),
    [
        (Overlap.SKIP, [], None, [1, 2, 3]),
        (Overlap.BUFFER, [], 1, [2, 3]),
        (Overlap.ALLOW, [1, 2, 3], None, []),
        (Overlap.REPLACE, [3], None, [1, 2]),
    ],
)
def test_ticks_while_a_run_is_open(
    overlap: Overlap, planned: list[int], waiting: int | None, skipped: list[int]
) -> None:
    given = schedule(overlap, last_run="r_open")
    decided = advance(NAME, given, 3 * MINUTE, is_open=True)
    assert starts(decided.schedule) == [each * MINUTE for each in planned]
    held = decided.schedule.waiting
    assert (None if held is None else held.instant_ms // MINUTE) == waiting
    assert [tick.instant_ms // MINUTE for tick in decided.ticks] == skipped
    assert {tick.outcome for tick in decided.ticks} <= {TickOutcome.SKIPPED}
    if overlap is Overlap.REPLACE:
        assert decided.schedule.starts[0].replaces == "r_open"


def test_a_tick_that_waits_starts_when_the_run_before_has_ended() -> None:
    given = schedule(Overlap.BUFFER, last_run="r_open")
    waits = advance(NAME, given, MINUTE, is_open=True).schedule
    assert look_at_ms(NAME, waits, MINUTE) == MINUTE + 1000
    decided = advance(NAME, waits, MINUTE + 5, is_open=False).schedule
    assert starts(decided) == [MINUTE]
    assert decided.waiting is None


def test_nothing_is_decided_while_starts_are_to_be_carried_out() -> None:
    decided = advance(NAME, schedule(), MINUTE, is_open=False).schedule
    assert look_at_ms(NAME, decided, MINUTE) == 0
    assert advance(NAME, decided, 9 * MINUTE, is_open=False).schedule == decided


def test_ticks_beyond_the_catch_up_window_are_missed_together() -> None:
    given = schedule(Overlap.ALLOW, catch_up_ms=2 * MINUTE)
    decided = advance(NAME, given, 10 * MINUTE, is_open=False)
    (missed,) = decided.ticks
    assert (missed.outcome, missed.count) == (TickOutcome.MISSED, 7)
    assert (missed.instant_ms, missed.until_ms) == (MINUTE, 7 * MINUTE)
    assert starts(decided.schedule) == [8 * MINUTE, 9 * MINUTE, 10 * MINUTE]


def test_a_start_that_another_host_carried_out_is_not_counted_twice() -> None:
    decided = advance(NAME, schedule(), MINUTE, is_open=False).schedule
    once = carried_out(decided, decided.starts[0], "r_1")
    assert once.schedule.last_run == "r_1"
    assert [tick.run_id for tick in once.ticks] == ["r_1"]
    assert carried_out(once.schedule, decided.starts[0], "r_1").ticks == ()


def test_a_resumed_schedule_skips_what_was_due_while_it_was_paused() -> None:
    stopped = paused(schedule(), "holiday").schedule
    assert look_at_ms(NAME, stopped, MINUTE) is None
    assert advance(NAME, stopped, 5 * MINUTE, is_open=False).schedule == stopped
    again = resumed(stopped, 5 * MINUTE)
    assert again.schedule.next_ms == 6 * MINUTE
    (skipped,) = again.ticks
    assert (skipped.count, skipped.reason) == (5, "paused: holiday")


def test_a_trigger_starts_whatever_the_overlap_says() -> None:
    given = schedule(last_run="r_open")
    (start,) = triggered(given, 30_000, "abc").schedule.starts
    assert start.key(NAME) == "schedule:nightly:trigger:abc"


def test_a_backfill_gives_each_instant_the_key_of_its_tick() -> None:
    given = backfilled(schedule(), MINUTE, 3 * MINUTE).schedule
    assert [start.key(NAME) for start in given.starts] == [
        "schedule:nightly:1970-01-01T00:01:00.000+00:00",
        "schedule:nightly:1970-01-01T00:02:00.000+00:00",
    ]
    assert backfilled(given, MINUTE, 3 * MINUTE).schedule == given


def test_too_long_a_backfill_is_refused() -> None:
    with pytest.raises(InputError, match="shorter range"):
        backfilled(schedule(), 0, 2000 * MINUTE)


def test_jitter_is_the_same_on_every_host_and_below_its_bound() -> None:
    given = schedule(jitter_ms=10_000)
    late = [jitter_of(NAME, given, instant) for instant in range(0, 100 * MINUTE, MINUTE)]
    assert late == [jitter_of(NAME, given, instant) for instant in range(0, 100 * MINUTE, MINUTE)]
    assert 0 <= min(late) < max(late) < 10_000


def test_the_state_survives_its_stored_form() -> None:
    given = schedule(
        Overlap.BUFFER, waiting=PlannedStart(5), starts=(PlannedStart(7, replaces="r_1"),), pause=""
    )
    stored = msgspec.json.encode(given)
    assert msgspec.json.decode(stored, type=Schedule) == given


@given(
    overlap=st.sampled_from(Overlap),
    moves=st.lists(st.tuples(st.integers(0, 200_000), st.booleans()), max_size=20),
    catch_up_ms=st.integers(0, 400_000),
    jitter_ms=st.integers(0, 50_000),
)
def test_each_instant_has_exactly_one_fate(
    overlap: Overlap, moves: list[tuple[int, bool]], catch_up_ms: int, jitter_ms: int
) -> None:
    """Whatever hosts do, and however late: each instant up to the last look starts, is skipped or is missed, once."""
    given = schedule(overlap, catch_up_ms=catch_up_ms, jitter_ms=jitter_ms)
    now, fates = 0, Counter[int]()
    for delay, is_open in moves:
        now += delay
        is_busy = is_open and given.last_run is not None
        decided = advance(NAME, given, now, is_open=is_busy)
        given = decided.schedule
        ticks = list(decided.ticks)
        for start in given.starts:
            done = carried_out(given, start, f"r_{start.instant_ms}")
            given = done.schedule
            ticks += done.ticks
        for tick in ticks:
            last = tick.instant_ms if tick.until_ms is None else tick.until_ms
            instants = range(tick.instant_ms, last + 1, MINUTE)
            assert len(instants) == tick.count
            fates.update(instants)
    if given.waiting is not None:
        fates[given.waiting.instant_ms] += 1
    assert given.next_ms is not None
    assert fates == Counter(range(MINUTE, given.next_ms, MINUTE))


def test_a_cron_schedule_in_a_zone_has_keys_in_utc() -> None:
    at = round(datetime(2026, 7, 1, 0, 30, tzinfo=UTC).timestamp() * 1000)
    timetable = Timetable(cron="30 2 * * *", zone="Europe/Berlin")
    assert timetable.next_after(at - 1) == at
    assert PlannedStart(at).key("x") == "schedule:x:2026-07-01T00:30:00.000+00:00"
