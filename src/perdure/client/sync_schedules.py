"""Schedules, for sync code."""

from abc import abstractmethod
from collections.abc import Coroutine
from typing import Any, Literal, TypeVar

from perdure.authoring.durations import Duration
from perdure.authoring.program import ProgramCall
from perdure.client.engine import Engine
from perdure.client.schedules.schedules import ScheduleHandle, ScheduleInfo
from perdure.client.schedules.timetables import Cron, Every, Once

T = TypeVar("T")


class SyncSchedules:
    """The schedules of a sync engine. Each method is the sync form of the same method of `Engine`."""

    _engine: Engine

    @abstractmethod
    def wait_for(self, work: Coroutine[Any, Any, T]) -> T: ...

    @abstractmethod
    def _require_loop(self, *calls: object) -> Any: ...

    def schedule(
        self,
        name: str,
        call: ProgramCall[Any],
        timetable: Cron | Every | Once,
        *,
        overlap: Literal["skip", "buffer", "allow", "replace"] = "skip",
        jitter: Duration = 0,
        catch_up: Duration = 3600,
        scope: str = "",
    ) -> None:
        """Start runs by themselves, as `Engine.schedule`. `wait_for` calls the methods of `schedule_handle`."""
        self._require_loop(call)
        scheduling = self._engine.schedule(
            name,
            call,
            timetable,
            overlap=overlap,
            jitter=jitter,
            catch_up=catch_up,
            scope=scope,
        )
        self.wait_for(scheduling)

    def schedules(self, *, scope: str | None = None) -> list[ScheduleInfo]:
        """The schedules of a scope, or all, as `Engine.schedules`."""
        return self.wait_for(self._engine.schedules(scope=scope))

    def schedule_handle(self, name: str, *, scope: str = "") -> ScheduleHandle:
        """A handle of a schedule: `engine.wait_for(engine.schedule_handle("nightly").pause())`."""
        return self._engine.schedule_handle(name, scope=scope)
