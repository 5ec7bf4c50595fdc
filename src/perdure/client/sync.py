"""The engine for code that is not async: plain scripts, and notebooks whose own loop is busy."""

import asyncio
from collections.abc import AsyncGenerator, Coroutine, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from threading import Event, Thread, current_thread
from types import TracebackType
from typing import Any, Generic, Literal, Self, TypeVar, overload

from perdure.authoring.call import discard
from perdure.authoring.durations import Duration
from perdure.authoring.graphs.program import GraphProgram
from perdure.authoring.program import ProgramCall
from perdure.authoring.response import OK
from perdure.authoring.signal import Signal
from perdure.client.callers import require_no_workflow
from perdure.client.engine import Engine
from perdure.client.graphs import GraphVersion
from perdure.client.handle import Handle, RunStatus
from perdure.client.streams import Abandoned, Chunk
from perdure.client.sync_transaction import BlockTask, SyncTransaction
from perdure.client.waits import Waits
from perdure.core.codec import Codec
from perdure.core.errors import EngineClosed, InputError, PerdureError
from perdure.core.graph.model import Graph
from perdure.core.ids import RunId
from perdure.core.journal.entry import Entry
from perdure.engine.preflight import Preflight
from perdure.host.settings import Settings
from perdure.store.inspection import Report

R = TypeVar("R")
T = TypeVar("T")


class SyncEngine:
    """An `Engine` whose loop has a thread of its own: `with SyncEngine("sqlite:///orders.db") as engine:`."""

    def __init__(
        self,
        url: str,
        *,
        queues: Sequence[str] = (),
        settings: Settings | None = None,
        codec: Codec | None = None,
    ) -> None:
        self._engine = Engine(url, queues=queues, settings=settings, codec=codec)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._over: asyncio.Future[None] | None = None
        self._thread: Thread | None = None

    def open(self) -> None:
        """Open the store and begin; `with` does it for you."""
        if self._loop is not None:
            raise InputError("the engine is open already", "open it once")
        self._begin_thread()
        try:
            self.wait_for(self._engine.open())
        except BaseException:
            self._end_thread()
            raise

    def _begin_thread(self) -> None:
        ready = Event()

        async def live() -> None:
            self._loop = asyncio.get_running_loop()
            self._over = self._loop.create_future()
            ready.set()
            await self._over

        # A daemon: a second interrupt ends the process at once, and loses nothing that is durable.
        self._thread = Thread(
            target=lambda: asyncio.run(live()), name="perdure-engine", daemon=True
        )
        self._thread.start()
        ready.wait()

    def close(self) -> None:
        """Let running tasks end, up to the grace time, and hand everything else back."""
        if self._loop is None:
            return
        self._require_loop()
        try:
            self.wait_for(self._engine.close())
        finally:
            self._end_thread()

    def _end_thread(self) -> None:
        loop, self._loop = self._loop, None
        if loop is not None and self._over is not None and self._thread is not None:
            loop.call_soon_threadsafe(self._over.set_result, None)
            self._thread.join()

    def wait_for(self, work: Coroutine[Any, Any, T]) -> T:
        """Let the engine's own loop do something, and wait for it."""
        try:
            loop = self._require_loop()
        except PerdureError:
            work.close()
            raise
        future = asyncio.run_coroutine_threadsafe(work, loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def _require_loop(self, *calls: object) -> asyncio.AbstractEventLoop:
        """The engine's loop, for whoever may wait for it. Nobody will await the calls if it is refused."""
        try:
            if self._loop is None:
                raise EngineClosed("the engine is not open", "use it inside `with SyncEngine(...)`")
            if current_thread() is self._thread:
                require_no_workflow()
                raise InputError(
                    "a SyncEngine is used in the thread of its own loop, which would wait for itself for ever",
                    "make the task a plain `def`, use `await asyncio.to_thread(...)`, or an async Engine there",
                )
        except PerdureError:
            for call in calls:
                discard(call)
            raise
        return self._loop

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def start(
        self, call: ProgramCall[R], *, key: str | None = None, scope: str = ""
    ) -> "SyncHandle[R]":
        """Start a workflow; returns when the run is durable."""
        self._require_loop(call)
        return SyncHandle(self, self.wait_for(self._engine.start(call, key=key, scope=scope)))

    def start_many(
        self, calls: Iterable[ProgramCall[R]], *, keys: Iterable[str] | None = None, scope: str = ""
    ) -> list["SyncHandle[R]"]:
        """Start many runs at once."""
        self._require_loop(*(calls if isinstance(calls, Sequence) else ()))
        started = self.wait_for(self._engine.start_many(calls, keys=keys, scope=scope))
        return [SyncHandle(self, handle) for handle in started]

    def start_graph(
        self,
        name: str,
        input: dict[str, Any] | None = None,  # noqa: A002 - as in Engine
        *,
        key: str | None = None,
        scope: str = "",
        version: str | None = None,
    ) -> "SyncHandle[Any]":
        """Start a graph that was deployed, by its name."""
        starting = self._engine.start_graph(name, input, key=key, scope=scope, version=version)
        return SyncHandle(self, self.wait_for(starting))

    def deploy(self, graph: GraphProgram[..., Any] | Graph) -> GraphVersion:
        """Deploy a version of a graph; it is not active until it is activated."""
        return self.wait_for(self._engine.deploy(graph))

    def activate(self, name: str, version: str) -> GraphVersion:
        """Let new runs of a graph be of this version."""
        return self.wait_for(self._engine.activate(name, version))

    def graphs(self) -> list[GraphVersion]:
        return self.wait_for(self._engine.graphs())

    def statistics(self, graph: str, key_name: str) -> dict[str, dict[RunStatus, int]]:
        return self.wait_for(self._engine.statistics(graph, key_name))

    def send(
        self,
        topic: str,
        key: object,
        value: object = None,
        *,
        code: int = OK,
        id: str | None = None,  # noqa: A002 - as in Engine
    ) -> None:
        """Send a signal to whoever waits for that topic and key, or is the first to."""
        self.wait_for(self._engine.send(topic, key, value, code=code, id=id))

    def handle(self, run_id: str) -> "SyncHandle[Any]":
        """A handle of a run that was started before."""
        return SyncHandle(self, self._engine.handle(run_id))

    @contextmanager
    def transaction(self) -> Iterator[SyncTransaction]:
        """As `Engine.transaction`, on a transaction of the engine's own."""
        block = BlockTask(self._engine)
        transaction = self.wait_for(block.begin())
        try:
            # What this thread asks of the engine carries its context along.
            with transaction.current():
                yield SyncTransaction(self, transaction.statements)
        except BaseException:
            with suppress(TimeoutError):
                self.wait_for(block.end(is_good=False))
            raise
        self.wait_for(block.end(is_good=True))

    def audit(self) -> Report:
        return self.wait_for(self._engine.audit())

    def verify(self) -> Report:
        return self.wait_for(self._engine.verify())

    def preflight(self, programs: Sequence[str] | None = None) -> Preflight:
        """Replay every open run on the code that is registered here; works on a closed engine, too."""
        if self._loop is not None:
            return self.wait_for(self._engine.preflight(programs))
        self._begin_thread()
        try:
            return self.wait_for(self._engine.preflight(programs))
        finally:
            self._end_thread()


class SyncHandle(Generic[R]):
    """A run, for code that is not async. Each method does what its namesake of `Handle` does."""

    def __init__(self, engine: SyncEngine, handle: Handle[R]) -> None:
        self._engine = engine
        self._handle = handle

    @property
    def run_id(self) -> RunId:
        return self._handle.run_id

    def result(self, timeout: Duration | None = None) -> R:
        return self._engine.wait_for(self._handle.result(timeout))

    def signal(self, signal: Signal[T], value: T, *, id: str | None = None) -> None:  # noqa: A002 - as in Handle
        self._engine.wait_for(self._handle.signal(signal, value, id=id))

    def respond(
        self,
        step: str,
        value: object = None,
        *,
        code: int = OK,
        id: str | None = None,  # noqa: A002 - as in Handle
    ) -> None:
        self._engine.wait_for(self._handle.respond(step, value, code=code, id=id))

    def waits(self) -> Waits:
        return self._engine.wait_for(self._handle.waits())

    def cancel(self, reason: str = "") -> None:
        self._engine.wait_for(self._handle.cancel(reason))

    def status(self) -> RunStatus:
        return self._engine.wait_for(self._handle.status())

    def runs(self) -> dict[RunId, RunStatus]:
        return self._engine.wait_for(self._handle.runs())

    def published(self) -> dict[str, Any]:
        return self._engine.wait_for(self._handle.published())

    def events(self, first: int = 0) -> Iterator[Entry]:
        entries = self._handle.events(first)
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
            # Whoever reads stops halfway.
            with suppress(EngineClosed):
                self._engine.wait_for(items.aclose())
            raise


def run(
    call: ProgramCall[R],
    *,
    store: str = "sqlite:///perdure.db",
    key: str | None = None,
    settings: Settings | None = None,
) -> R:
    """Run a workflow to its end, from a script or a notebook, and return its result.

    Give it a `key`, and a script that was killed goes on where it was when it is started again.
    """
    with SyncEngine(store, settings=settings) as engine:
        return engine.start(call, key=key).result()
