"""A run, for sync code."""

from collections.abc import (
    AsyncGenerator,
    Coroutine,
    Iterator,
    Mapping,
)
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

from perdure.authoring.durations import Duration
from perdure.authoring.request import Request
from perdure.authoring.response import OK
from perdure.authoring.signal import Signal
from perdure.client.runs.fork_requests import ForkPreview
from perdure.client.runs.handle import Handle
from perdure.client.runs.status import RunStatus
from perdure.client.runs.streams import Abandoned, Chunk
from perdure.client.runs.sync_acts import SyncActs
from perdure.client.runs.sync_history import SyncHistoryMethods
from perdure.client.runs.waits import Waits
from perdure.core.errors import EngineClosed
from perdure.core.ids import RunId
from perdure.core.journal.entry import Entry
from perdure.core.runs.acts import Actor
from perdure.core.runs.description import Description
from perdure.core.runs.explaining import Explanation

if TYPE_CHECKING:
    from perdure.client.sync import SyncEngine

R = TypeVar("R")
A = TypeVar("A")
T = TypeVar("T")


class SyncHandle(SyncHistoryMethods, SyncActs[R]):
    """A run, for sync code. Each method is the sync form of the same method of `Handle`."""

    _engine: "SyncEngine"

    def __init__(self, engine: "SyncEngine", handle: Handle[R]) -> None:
        self._engine = engine
        self._handle = handle

    @property
    def run_id(self) -> RunId:
        return self._handle.run_id

    @property
    def is_new(self) -> bool:
        return self._handle.is_new

    @property
    def _of_run(self) -> Handle[R]:
        return self._handle

    def _wait_for(self, work: Coroutine[Any, Any, T]) -> T:
        return self._engine.wait_for(work)

    def result(self, timeout: Duration | None = None) -> R:
        return self._engine.wait_for(self._handle.result(timeout))

    def signal(self, signal: Signal[T], value: T, *, id: str | None = None) -> None:  # noqa: A002 - as in Handle
        self._engine.wait_for(self._handle.signal(signal, value, id=id))

    def ask(
        self,
        request: Request[T, A],
        value: T,
        *,
        id: str | None = None,  # noqa: A002 - as in Handle
        timeout: Duration | None = None,
    ) -> A:
        return self._engine.wait_for(self._handle.ask(request, value, id=id, timeout=timeout))

    def respond(
        self,
        step: str,
        value: object = None,
        *,
        code: int = OK,
        id: str | None = None,  # noqa: A002 - as in Handle
    ) -> None:
        self._engine.wait_for(self._handle.respond(step, value, code=code, id=id))

    def fork(
        self,
        step: str = "root",
        *,
        set: Mapping[str, Any] | None = None,  # noqa: A002 - as in Handle
        input: Mapping[str, Any] | None = None,  # noqa: A002 - as in Handle
        signals: bool = True,
        reason: str = "",
        by: Actor | None = None,
        id: str | None = None,  # noqa: A002 - as in Handle
    ) -> "SyncHandle[R]":
        forking = self._handle.fork(
            step, set=set, input=input, signals=signals, reason=reason, by=by, id=id
        )
        return SyncHandle(self._engine, self._engine.wait_for(forking))

    def preview_fork(
        self,
        step: str = "root",
        *,
        set: Mapping[str, Any] | None = None,  # noqa: A002 - as in Handle
        input: Mapping[str, Any] | None = None,  # noqa: A002 - as in Handle
        signals: bool = True,
        id: str | None = None,  # noqa: A002 - as in Handle
    ) -> ForkPreview:
        previewing = self._handle.preview_fork(step, set=set, input=input, signals=signals, id=id)
        return self._engine.wait_for(previewing)

    def retry(
        self,
        reason: str = "",
        *,
        by: Actor | None = None,
        id: str | None = None,  # noqa: A002 - as in Handle
    ) -> "SyncHandle[R]":
        return self.fork(reason=reason, by=by, id=id)

    def waits(self) -> Waits:
        return self._engine.wait_for(self._handle.waits())

    def describe(self) -> Description:
        return self._engine.wait_for(self._handle.describe())

    def explain(self) -> Explanation:
        return self._engine.wait_for(self._handle.explain())

    def status(self) -> RunStatus:
        return self._engine.wait_for(self._handle.status())

    def runs(self) -> dict[RunId, RunStatus]:
        return self._engine.wait_for(self._handle.runs())

    def published(self) -> dict[str, Any]:
        return self._engine.wait_for(self._handle.published())

    def events(self, first: int = 0, *, follow: bool = True) -> Iterator[Entry]:
        entries = self._handle.events(first, follow=follow)
        while (entry := self._engine.wait_for(anext(entries, None))) is not None:
            yield entry

    @overload
    def stream(
        self, name: str, *, of: type[T], start: int = 0, completed_only: Literal[True]
    ) -> Iterator[Chunk[T]]: ...
    @overload  # a union, such as `str | None`, is no `type[T]`
    def stream(
        self, name: str, *, of: object = ..., start: int = 0, completed_only: Literal[True]
    ) -> Iterator[Chunk[Any]]: ...
    @overload
    def stream(
        self, name: str, *, of: type[T], start: int = 0, completed_only: bool = False
    ) -> Iterator[Chunk[T] | Abandoned]: ...
    @overload
    def stream(
        self, name: str, *, of: object = ..., start: int = 0, completed_only: bool = False
    ) -> Iterator[Chunk[Any] | Abandoned]: ...
    def stream(
        self, name: str, *, of: Any = object, start: int = 0, completed_only: bool = False
    ) -> Iterator[Any]:
        options: Any = {"of": of, "start": start, "completed_only": completed_only}
        return self._each(self._handle.stream(name, **options))

    def _each(self, items: AsyncGenerator[T, None]) -> Iterator[T]:
        try:
            while (item := self._engine.wait_for(anext(items, None))) is not None:
                yield item
        except GeneratorExit:
            # The reader stopped early.
            with suppress(EngineClosed):
                self._engine.wait_for(items.aclose())
            raise
