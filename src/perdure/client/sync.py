"""The engine for sync code: scripts, and notebooks, whose own loop is busy."""

import asyncio
from collections.abc import (
    Coroutine,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import contextmanager, suppress
from threading import Event, Thread, current_thread
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack

from perdure.authoring.call import discard
from perdure.authoring.durations import Duration
from perdure.authoring.graphs.program import GraphProgram
from perdure.authoring.program import Program, ProgramCall
from perdure.authoring.response import OK
from perdure.authoring.tags import TagValue
from perdure.client.admission_terms import StartTerms
from perdure.client.caller_checks import require_no_workflow
from perdure.client.deployments import GraphVersion
from perdure.client.engine import Engine
from perdure.client.engine_services import EngineServices
from perdure.client.limits import Limits
from perdure.client.runs.comparing import RunDiff
from perdure.client.runs.lists import Page, RunFilters, RunSummary
from perdure.client.runs.status import RunStatus
from perdure.client.start_keys import IfEnded
from perdure.client.sync_artifacts import SyncArtifacts
from perdure.client.sync_buses import SyncBuses
from perdure.client.sync_handle import SyncHandle
from perdure.client.sync_retention import SyncRetention
from perdure.client.sync_schedules import SyncSchedules
from perdure.client.sync_transaction import SyncTransaction, TransactionTask
from perdure.core.codec import Codec
from perdure.core.errors import EngineClosed, InputError, PerdureError
from perdure.core.graph.model import Graph
from perdure.core.runs.listing import MAX_LIMIT
from perdure.engine.programs.preflight import Preflight
from perdure.host.runs.memory import WarmMemory
from perdure.host.settings import Settings
from perdure.store.inspection import Report
from perdure.store.opening import without_password
from perdure.store.process import OwnProcess, never_free_in_child
from perdure.store.rows.lists import RunCount, SqlRows

R = TypeVar("R")
T = TypeVar("T")


class SyncEngine(SyncSchedules):
    """An `Engine` with an event loop in a thread of its own: `with SyncEngine("sqlite:///orders.db") as engine:`."""

    def __init__(
        self,
        url: str,
        *,
        queues: Sequence[str] = (),
        settings: Settings | None = None,
        codec: Codec | None = None,
        hosts: bool = True,
        **services: Unpack[EngineServices],
    ) -> None:
        self._engine = Engine(
            url, queues=queues, settings=settings, codec=codec, hosts=hosts, **services
        )
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closing: asyncio.Future[None] | None = None
        self._thread: Thread | None = None
        self._name = f"a SyncEngine on {without_password(url)}"
        self._process = OwnProcess(self._name)

    def open(self) -> None:
        """Open the store and start the host; `with` does it for you."""
        if self._loop is not None and self._process.is_here:
            raise InputError("the engine is open already", "open it once")
        self._start_thread()
        try:
            self.wait_for(self._engine.open())
        except BaseException:
            self._stop_thread()
            raise

    def _start_thread(self) -> None:
        ready = Event()
        self._process = OwnProcess(self._name)
        never_free_in_child(self)

        async def serve() -> None:
            self._loop = asyncio.get_running_loop()
            self._closing = self._loop.create_future()
            ready.set()
            await self._closing

        # A daemon thread: a second interrupt ends the process at once, and nothing durable is lost.
        self._thread = Thread(
            target=lambda: asyncio.run(serve()), name="perdure-engine", daemon=True
        )
        self._thread.start()
        ready.wait()

    def close(self) -> None:
        """Close as `Engine.close` does. In a process that was forked while the engine was open, the parent's engine
        stays open."""
        if self._loop is None:
            return
        if not self._process.is_here:
            self._loop = None
            return
        self._require_loop()
        try:
            self.wait_for(self._engine.close())
        finally:
            self._stop_thread()

    def _stop_thread(self) -> None:
        loop, self._loop = self._loop, None
        if loop is not None and self._closing is not None and self._thread is not None:
            loop.call_soon_threadsafe(self._closing.set_result, None)
            self._thread.join()

    def wait_for(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the engine's loop, and wait for its result."""
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
        """The engine's loop, if this thread may wait for it. Otherwise discards `calls`, which will not be awaited."""
        try:
            if self._loop is None:
                raise EngineClosed("the engine is not open", "use it inside `with SyncEngine(...)`")
            self._process.require()
            if current_thread() is self._thread:
                require_no_workflow()
                raise InputError(
                    "a SyncEngine is used in the thread of its own loop, which would wait for itself forever",
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
        try:
            self.close()
        except KeyboardInterrupt:
            # The second one, which ends the wait for tasks: one traceback is enough.
            if kind is not KeyboardInterrupt:
                raise

    def start(
        self,
        call: ProgramCall[R],
        *,
        key: str | None = None,
        scope: str = "",
        tags: Mapping[str, TagValue] | None = None,
        if_ended: IfEnded = "return",
        **terms: Unpack[StartTerms],
    ) -> "SyncHandle[R]":
        """Start a workflow, as `Engine.start`."""
        self._require_loop(call)
        starting = self._engine.start(
            call, key=key, scope=scope, tags=tags, if_ended=if_ended, **terms
        )
        return SyncHandle(self, self.wait_for(starting))

    def find(
        self, program: Program[..., R] | str, key: str, *, scope: str = ""
    ) -> "SyncHandle[R] | None":
        """The run that holds a start key, as `Engine.find`."""
        found = self.wait_for(self._engine.find(program, key, scope=scope))
        return None if found is None else SyncHandle(self, found)

    def start_many(
        self,
        calls: Iterable[ProgramCall[R]],
        *,
        keys: Iterable[str] | None = None,
        scope: str = "",
        tags: Mapping[str, TagValue] | None = None,
        if_ended: IfEnded = "return",
        **terms: Unpack[StartTerms],
    ) -> list["SyncHandle[R]"]:
        """Start many runs with shared commits, as `Engine.start_many`."""
        self._require_loop(*(calls if isinstance(calls, Sequence) else ()))
        starting = self._engine.start_many(
            calls, keys=keys, scope=scope, tags=tags, if_ended=if_ended, **terms
        )
        started = self.wait_for(starting)
        return [SyncHandle(self, handle) for handle in started]

    def start_graph(
        self,
        name: str,
        input: dict[str, Any] | None = None,  # noqa: A002 - as in Engine
        *,
        key: str | None = None,
        scope: str = "",
        tags: Mapping[str, TagValue] | None = None,
        version: str | None = None,
        if_ended: IfEnded = "return",
        **terms: Unpack[StartTerms],
    ) -> "SyncHandle[Any]":
        """Start a deployed graph by name, as `Engine.start_graph`."""
        how: Any = {"tags": tags, "version": version, "if_ended": if_ended, **terms}
        starting = self._engine.start_graph(name, input, key=key, scope=scope, **how)
        return SyncHandle(self, self.wait_for(starting))

    @property
    def limits(self) -> Limits:
        """The limits of programs: `engine.wait_for(engine.limits.list())`."""
        return self._engine.limits

    def deploy(self, graph: GraphProgram[..., Any] | Graph) -> GraphVersion:
        """Deploy a version of a graph, as `Engine.deploy`."""
        return self.wait_for(self._engine.deploy(graph))

    def activate(self, name: str, version: str) -> GraphVersion:
        """Make a version of a graph the one for new runs, as `Engine.activate`."""
        return self.wait_for(self._engine.activate(name, version))

    def graphs(self) -> list[GraphVersion]:
        return self.wait_for(self._engine.graphs())

    def warm_memory(self) -> WarmMemory:
        """What this engine's runs hold in memory, and how often runs were evicted and replayed since it opened."""
        return self._engine.warm_memory()

    def statistics(self, graph: str, key_name: str) -> dict[str, dict[RunStatus, int]]:
        return self.wait_for(self._engine.statistics(graph, key_name))

    def runs(
        self, *, after: str | None = None, limit: int = 100, **filters: Unpack[RunFilters]
    ) -> Page:
        """A page of runs, as `Engine.runs`."""
        return self.wait_for(self._engine.runs(after=after, limit=limit, **filters))

    def iterate_runs(self, **filters: Unpack[RunFilters]) -> Iterator[RunSummary]:
        """All runs of a list, as `Engine.iterate_runs`."""
        after: str | None = None
        while True:
            page = self.runs(after=after, limit=MAX_LIMIT, **filters)
            yield from page.runs
            after = page.cursor
            if after is None:
                return

    def count(self, **filters: Unpack[RunFilters]) -> RunCount:
        """How many runs a list has, as `Engine.count`."""
        return self.wait_for(self._engine.count(**filters))

    def sql(self, query: str, *args: Any, limit: int = 1000, timeout: Duration = 10) -> SqlRows:
        """Read from the store with a query of your own, as `Engine.sql`."""
        return self.wait_for(self._engine.sql(query, *args, limit=limit, timeout=timeout))

    def send(
        self,
        topic: str,
        key: object,
        value: object = None,
        *,
        code: int = OK,
        id: str | None = None,  # noqa: A002 - as in Engine
        scope: str = "",
    ) -> None:
        """Send a signal to a topic and key, as `Engine.send`."""
        self.wait_for(self._engine.send(topic, key, value, code=code, id=id, scope=scope))

    def handle(self, run_id: str) -> "SyncHandle[Any]":
        """A handle of a run, by its id."""
        return SyncHandle(self, self._engine.handle(run_id))

    @property
    def artifacts(self) -> SyncArtifacts:
        """The artifacts that tasks have stored."""
        return SyncArtifacts(self, self._engine.artifacts)

    @property
    def buses(self) -> SyncBuses:
        """The event buses of the store."""
        return SyncBuses(self, self._engine.buses)

    @property
    def retention(self) -> SyncRetention:
        """Archives, erases and purges runs that are over."""
        return SyncRetention(self, self._engine.retention)

    @contextmanager
    def transaction(self) -> Iterator[SyncTransaction]:
        """A transaction of the engine's own, as `Engine.transaction`. The block commits when it ends."""
        task = TransactionTask(self._engine)
        transaction = self.wait_for(task.begin())
        try:
            # Calls of the engine from this thread carry its context, and so join the transaction.
            with transaction.current():
                yield SyncTransaction(self, transaction.statements)
        except BaseException:
            with suppress(TimeoutError):
                self.wait_for(task.end(commit=False))
            raise
        self.wait_for(task.end(commit=True))

    def alerts(self) -> dict[str, int]:
        """How often each alert was raised, as `Engine.alerts`."""
        return self._engine.alerts()

    def diff(self, a: str, b: str) -> RunDiff:
        """How two runs differ, as `Engine.diff`."""
        return self.wait_for(self._engine.diff(a, b))

    def audit(self) -> Report:
        return self.wait_for(self._engine.audit())

    def verify(self, *, heads: Mapping[str, str] | None = None) -> Report:
        return self.wait_for(self._engine.verify(heads=heads))

    def preflight(self, programs: Sequence[str] | None = None) -> Preflight:
        """Replay every open run on the registered code, as `Engine.preflight`; the engine may be closed."""
        if self._loop is not None:
            return self.wait_for(self._engine.preflight(programs))
        self._start_thread()
        try:
            return self.wait_for(self._engine.preflight(programs))
        finally:
            self._stop_thread()


def run(
    call: ProgramCall[R],
    *,
    store: str = "sqlite:///perdure.db",
    key: str | None = None,
    settings: Settings | None = None,
) -> R:
    """Run a workflow to its end, from a script or a notebook, and return its result.

    With a `key`, a script that was killed and is started again resumes the same run.
    """
    with SyncEngine(store, settings=settings) as engine:
        return engine.start(call, key=key).result()
