"""Timetables: the instants at which a schedule ticks, as milliseconds since 1970."""

from datetime import UTC, datetime
from typing import Any, Final
from zoneinfo import ZoneInfo

import msgspec

from perdure.core.errors import InputError

SHORTEST_INTERVAL_MS: Final = 1000
"""A host looks at schedules about once a second."""

_LATEST_MS: Final = 253_402_300_799_000
"""The end of the year 9999, beyond which there are no dates."""


class Timetable(msgspec.Struct, frozen=True, omit_defaults=True):
    """Exactly one of `cron`, `every_ms` and `at_ms` is set.

    A cron expression is read in `zone`. A local time that a change of clocks skips ticks as soon as the clocks have
    changed; one that occurs twice ticks once. An interval counts from `anchor_ms`.
    """

    cron: str | None = None
    every_ms: int | None = None
    at_ms: int | None = None
    zone: str = "UTC"
    anchor_ms: int = 0

    def next_after(self, after_ms: int) -> int | None:
        """The first instant after `after_ms`; `None` if there is none."""
        if self.at_ms is not None:
            return self.at_ms if self.at_ms > after_ms else None
        if self.every_ms is not None:
            passed = max(0, after_ms - self.anchor_ms) // self.every_ms
            return self.anchor_ms + (passed + 1) * self.every_ms
        if after_ms >= _LATEST_MS:
            return None
        local = datetime.fromtimestamp(max(0, after_ms) // 1000, UTC).astimezone(
            ZoneInfo(self.zone)
        )
        found = next(_parse(self.cron or "", local), None)
        return None if found is None else round(found.timestamp()) * 1000

    @property
    def in_words(self) -> str:
        """The timetable as a sentence for people."""
        if self.at_ms is not None:
            return f"once, at {iso(self.at_ms)}"
        if self.every_ms is not None:
            return f"every {self.every_ms / 1000:g} seconds"
        try:
            words = str(_parse(self.cron or "", datetime(2000, 1, 1, tzinfo=UTC)).explain())
        except InputError:  # a process that only lists schedules need not have cronsim
            words = f"cron {self.cron}"
        return words if self.zone == "UTC" else f"{words} ({self.zone})"


def require_timetable(timetable: Timetable) -> Timetable:
    """Refuse a timetable that never ticks, or that can't be read."""
    if timetable.every_ms is not None and timetable.every_ms < SHORTEST_INTERVAL_MS:
        raise InputError(
            f"a schedule that ticks every {timetable.every_ms / 1000:g} seconds",
            f"pass at least {SHORTEST_INTERVAL_MS // 1000} second",
        )
    _require_zone(timetable.zone)
    if timetable.cron is not None and timetable.next_after(timetable.anchor_ms) is None:
        raise InputError(f"cron {timetable.cron!r} never ticks", "name a date that exists")
    return timetable


def iso(instant_ms: int) -> str:
    """The instant as text, in UTC; part of start keys."""
    return datetime.fromtimestamp(instant_ms / 1000, UTC).isoformat(timespec="milliseconds")


def _require_zone(zone: str) -> None:
    try:
        ZoneInfo(zone)
    except (OSError, ValueError, KeyError) as error:
        raise InputError(
            f"there is no time zone {zone!r} here",
            "use a name such as 'Europe/Berlin'; if all are missing, pip install tzdata",
        ) from error


def _parse(cron: str, after: datetime) -> Any:
    try:
        from cronsim import CronSim, CronSimError  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise InputError(
            "cron expressions need the package cronsim", "pip install 'perdure[cron]'"
        ) from error
    try:
        return CronSim(cron, after)
    except CronSimError as error:
        raise InputError(
            f"cron {cron!r} can't be read: {error}",
            "write minute, hour, day, month and weekday, such as '30 2 * * MON'",
        ) from error
