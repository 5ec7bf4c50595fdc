"""What a schedule ticks by: a cron expression, an interval, or one time."""

from datetime import datetime

import msgspec

from perdure.authoring.durations import Duration, milliseconds
from perdure.core.errors import InputError
from perdure.core.schedules.timetable import Timetable, require_timetable


class Cron(msgspec.Struct, frozen=True):
    """Ticks at the times of a cron expression, `minute hour day month weekday`, by the clocks of a time zone.

    A local time that is skipped when clocks go forward ticks right after; one that occurs twice ticks once. Needs
    `perdure[cron]`.
    """

    expression: str
    zone: str = "UTC"

    def compiled(self) -> Timetable:
        if not all(isinstance(each, str) for each in msgspec.structs.astuple(self)):
            raise InputError(
                f"{self!r} is not of texts", "pass Cron('30 2 * * MON', 'Europe/Berlin')"
            )
        return require_timetable(Timetable(cron=self.expression, zone=self.zone))


class Every(msgspec.Struct, frozen=True):
    """Ticks in equal intervals, in seconds or as a timedelta, counted from the moment when the schedule is made."""

    interval: Duration

    def compiled(self) -> Timetable:
        return require_timetable(Timetable(every_ms=milliseconds(self.interval, "the interval")))


class Once(msgspec.Struct, frozen=True):
    """Ticks once. A time that has passed ticks at once if it is within the schedule's `catch_up`."""

    time: datetime

    def compiled(self) -> Timetable:
        return require_timetable(Timetable(at_ms=instant_of(self.time, "the time")))


def instant_of(time: object, what: str) -> int:
    """Milliseconds since 1970."""
    if not isinstance(time, datetime) or time.tzinfo is None:
        raise InputError(
            f"{what} is {time!r}",
            "pass a datetime with a time zone: datetime(2030, 1, 1, tzinfo=UTC)",
        )
    return round(time.timestamp() * 1000)
