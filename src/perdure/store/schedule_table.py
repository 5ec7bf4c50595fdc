"""The schedules of a store, each a row that changes by compare-and-set, and what became of their ticks."""

from collections.abc import Sequence
from typing import Any, Final, Protocol

import msgspec

from perdure.core.errors import StoreDamaged
from perdure.core.schedules.schedule import Schedule, Tick

KEPT_TICKS: Final = 1000
"""How many ticks of a schedule the store keeps."""

MOST_DUE: Final = 100
"""How many due schedules a host reads at a time."""


class StoredSchedule(msgspec.Struct, frozen=True):
    """A schedule: which program it starts, with which arguments, and its state. `revision` counts its writes.

    `look_at_ms` is when a host must look at it next; `None` is never, 0 at once.
    """

    scope: str
    name: str
    program: str
    payload: bytes
    schedule: Schedule
    look_at_ms: int | None
    revision: int


class ScheduleTable(Protocol):
    """The interface that both databases implement."""

    async def write(self, stored: StoredSchedule, ticks: Sequence[Tick] = ()) -> bool:
        """Commits: revision 1 of a new schedule, or the next revision of an existing one; and its ticks.

        False, and nothing is written, if another write made that revision first.
        """
        ...

    async def all(self, scope: str | None = None, name: str | None = None) -> list[StoredSchedule]:
        """The schedules in the order of their names: those of a scope, those of a name, or all."""
        ...

    async def due(
        self, programs: Sequence[str], now_ms: int, skipped: int = 0
    ) -> list[StoredSchedule | StoreDamaged]:
        """Schedules of these programs that a host must look at now, most urgent first, without the first `skipped`.

        A damaged one is an error.
        """
        ...

    async def delete(self, scope: str, name: str) -> None:
        """Commits: the schedule and its ticks are gone. Runs that it started stay."""
        ...

    async def ticks(self, scope: str, name: str, limit: int) -> list[Tick]:
        """What became of the newest ticks, newest first."""
        ...


def encoded(value: Schedule | Tick) -> str:
    return msgspec.json.encode(value).decode()


def schedule_from(row: Any) -> StoredSchedule:
    scope, name, program, payload, state, revision = row
    try:
        schedule = msgspec.json.decode(state, type=Schedule)
    except msgspec.DecodeError as error:
        raise StoreDamaged(
            f"schedule {name!r} can't be read: {error}", "delete it, and schedule it again"
        ) from error
    return StoredSchedule(scope, name, program, bytes(payload), schedule, None, revision)


def due_from(row: Any) -> StoredSchedule | StoreDamaged:
    """As `schedule_from`; a damaged schedule must not keep the others from ticking."""
    try:
        return schedule_from(row)
    except StoreDamaged as error:
        return error


def tick_from(row: Any) -> Tick:
    return msgspec.json.decode(row[0], type=Tick)
