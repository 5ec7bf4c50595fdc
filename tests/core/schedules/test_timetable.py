import sys
from datetime import UTC, datetime
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest

from perdure.core.errors import InputError
from perdure.core.schedules.timetable import Timetable, require_timetable

BERLIN = ZoneInfo("Europe/Berlin")


def ms(*local: int, zone: ZoneInfo = BERLIN) -> int:
    return round(datetime(*local, tzinfo=zone).timestamp() * 1000)  # type: ignore[misc, arg-type]


def instants(timetable: Timetable, after_ms: int, count: int) -> list[int]:
    found = []
    instant: int | None = after_ms
    for _ in range(count):
        assert instant is not None
        instant = timetable.next_after(instant)
        found.append(instant)
    return found  # type: ignore[return-value]


def test_a_time_that_occurs_twice_ticks_once() -> None:
    timetable = Timetable(cron="30 2 * * *", zone="Europe/Berlin")
    found = instants(timetable, ms(2026, 10, 24, 12), 2)
    assert found == [ms(2026, 10, 25, 2, 30), ms(2026, 10, 26, 2, 30)]


def test_a_time_that_is_skipped_ticks_once_the_clocks_have_changed() -> None:
    timetable = Timetable(cron="30 2 * * *", zone="Europe/Berlin")
    found = instants(timetable, ms(2026, 3, 28, 12), 2)
    assert found == [ms(2026, 3, 29, 3, 0), ms(2026, 3, 30, 2, 30)]


def test_every_hour_ticks_each_hour_when_clocks_change() -> None:
    timetable = Timetable(cron="0 * * * *", zone="Europe/Berlin")
    found = instants(timetable, ms(2026, 10, 25, 0, 30), 5)
    assert {later - earlier for earlier, later in pairwise(found)} == {3_600_000}


def test_an_interval_counts_from_its_anchor() -> None:
    timetable = Timetable(every_ms=60_000, anchor_ms=1_000)
    assert instants(timetable, 1_000, 3) == [61_000, 121_000, 181_000]
    assert timetable.next_after(61_500) == 121_000


def test_one_time_ticks_once() -> None:
    timetable = Timetable(at_ms=5_000)
    assert timetable.next_after(4_999) == 5_000
    assert timetable.next_after(5_000) is None


@pytest.mark.parametrize(
    "cron", ["", "* * * *", "61 * * * *", "0 0 30 2 *", "hello", "* * * * * * *"]
)
def test_a_cron_expression_that_never_ticks_is_refused(cron: str) -> None:
    with pytest.raises(InputError):
        require_timetable(Timetable(cron=cron))


@pytest.mark.parametrize("zone", ["Mars/Base", "", "../etc/passwd", "/etc/passwd"])
def test_an_unknown_zone_is_refused(zone: str) -> None:
    with pytest.raises(InputError, match="time zone"):
        require_timetable(Timetable(cron="* * * * *", zone=zone))


def test_a_shorter_interval_than_a_host_can_keep_is_refused() -> None:
    with pytest.raises(InputError, match=r"0\.5 seconds"):
        require_timetable(Timetable(every_ms=500))


def test_a_timetable_can_be_said_in_words() -> None:
    assert Timetable(every_ms=90_000).in_words == "every 90 seconds"
    assert "02:30" in Timetable(cron="30 2 * * *", zone="Europe/Berlin").in_words
    at = round(datetime(2030, 1, 1, tzinfo=UTC).timestamp() * 1000)
    assert Timetable(at_ms=at).in_words == "once, at 2030-01-01T00:00:00.000+00:00"


def test_a_process_without_cronsim_lists_schedules(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cronsim", None)
    assert Timetable(cron="30 2 * * *", zone="Europe/Berlin").in_words == (
        "cron 30 2 * * * (Europe/Berlin)"
    )
    with pytest.raises(InputError, match="cronsim"):
        require_timetable(Timetable(cron="30 2 * * *"))
