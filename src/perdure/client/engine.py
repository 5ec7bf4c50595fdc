"""The engine: a store and a host in your process."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from copy import copy
from itertools import repeat
from types import TracebackType
from typing import Any, Self, TypeVar

from perdure.authoring.call import Call, discard
from perdure.authoring.definition import require_name
from perdure.authoring.graphs.program import GraphProgram
from perdure.authoring.program import Program, ProgramCall
from perdure.authoring.registry import register
from perdure.authoring.response import OK
from perdure.authoring.texts import require_text
from perdure.authoring.upcaster import reading_old_shapes
from perdure.client import graphs
from perdure.client.callers import require_no_workflow, require_own_loop
from perdure.client.graphs import GraphVersion
from perdure.client.handle import Handle, RunStatus
from perdure.client.sending import send
from perdure.core.codec import Codec, JsonCodec
from perdure.core.errors import EngineClosed, InputError, KeyReused, RunExists
from perdure.core.graph.model import Graph
from perdure.core.ids import RunId, parse_run_id
from perdure.core.journal.events import ExecutionStarted
from perdure.core.limits import MAX_KEY_LENGTH
from perdure.core.transactions import Transaction
from perdure.engine.preflight import Preflight, preflight
from perdure.engine.programs import Programs
from perdure.host.batch import Start
from perdure.host.catalogue import Catalogue
from perdure.host.clock import HostSources
from perdure.host.host import Host
from perdure.host.hosting import Hosting
from perdure.host.identity import new_host, retire
from perdure.host.joining import Joining, current
from perdure.host.settings import Settings
from perdure.store.inspection import Report, audit, verify
from perdure.store.opening import open_store
from perdure.store.store import Store

R = TypeVar("R")


class Engine:
    """Runs workflows on a store: `async with Engine("sqlite:///orders.db") as engine:`.

    On entry every run that was left behind on this store by a host that is gone is taken up. `queues` names
    the queues whose tasks this engine executes.
    """

    def __init__(
        self,
        url: str,
        *,
        queues: Sequence[str] = (),
        settings: Settings | None = None,
        codec: Codec | None = None,
    ) -> None:
        self._url = require_text("the URL of a store", url, MAX_KEY_LENGTH)
        self._queues = _names_of(queues)
        self._settings = _checked(settings)
        self._codec = reading_old_shapes(codec or JsonCodec())
        self._store: Store | None = None
        self._hosting: Hosting | None = None

    @property
    def settings(self) -> Settings:
        return self._settings

    def replace(
        self, *, queues: Sequence[str] | None = None, settings: Settings | None = None
    ) -> "Engine":
        """An engine like this one, not open, with other queues or settings where they are given."""
        other = copy(self)
        other._store = other._hosting = None
        if queues is not None:
            other._queues = _names_of(queues)
        if settings is not None:
            other._settings = _checked(settings)
        return other

    async def open(self) -> None:
        """Open the store and begin; `async with` does it for you."""
        if self._hosting is not None:
            raise InputError("the engine is open already", "open it once")
        store = await open_store(self._url)
        host_id = new_host()
        try:
            self._store = store
            self._hosting = Hosting(
                store, host_id, self._codec, HostSources(), self._settings, self._queues
            )
            await self._hosting.start()
        except BaseException:
            await self._abort()
            raise

    async def close(self) -> None:
        """Let running tasks end, up to the grace time, and hand everything else back. Nothing is lost."""
        if self._hosting is None:
            return
        hosting, self._hosting = self._here(), None
        try:
            await hosting.stop()
        finally:
            retire(hosting.host.host_id)
            await self._close_store()

    async def _abort(self) -> None:
        hosting, self._hosting = self._hosting, None
        if hosting is not None:
            hosting.kill()
            retire(hosting.host.host_id)
        await self._close_store()

    async def _close_store(self) -> None:
        store, self._store = self._store, None
        if store is not None:
            await store.close()

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def start(
        self, call: ProgramCall[R], *, key: str | None = None, scope: str = ""
    ) -> Handle[R]:
        """Start a workflow; returns when the run and its first step's intent are durable.

        With a `key` there is one run per scope and workflow: starting it again, with the same arguments, gives
        a handle of the same run. Inside a transaction the run starts with its commit, or never.
        """
        workflow = _program_of(call)
        hosting = self._here()
        start = self._prepared(hosting, workflow, call.arguments, key, scope)
        return await self._started(hosting, start, current(hosting.host))

    async def start_graph(
        self,
        name: str,
        input: dict[str, Any] | None = None,  # noqa: A002 - what graphs call it
        *,
        key: str | None = None,
        scope: str = "",
        version: str | None = None,
    ) -> Handle[Any]:
        """Start a graph that was deployed, by its name: the active version; as `start` does.

        `version` names another that was never active, to try it out. One that was is not started any more.
        """
        host = self._here().host
        require_name("graph", name)
        arguments = _fields_of(name, {} if input is None else input)
        chosen = graphs.startable(name, version, await host.catalogue.versions(name))
        program, hosting = host.programs.deployed(name, chosen), self._here()
        start = self._prepared(hosting, program, arguments, key, scope)
        return await self._started(hosting, start, current(hosting.host))

    def _prepared(
        self,
        hosting: Hosting,
        workflow: Program[..., Any],
        arguments: dict[str, Any],
        key: str | None,
        scope: str,
    ) -> Start:
        """A run that can be started, as far as that is known before."""
        if not hosting.host.programs.is_deployed(workflow):
            # A program defined inside a function is the newest of its name from now on.
            register(workflow)
        if key is not None:
            require_text("a key", key, MAX_KEY_LENGTH)
        require_text("a scope", scope, least=0)
        payload = self._codec.encode(arguments)
        workflow.check_input(self._codec, payload)
        return Start(workflow, payload, key, scope)

    async def _started(
        self,
        hosting: Hosting,
        start: Start,
        joined: Joining | None,
        begun: asyncio.Future[RunId] | None = None,
    ) -> Handle[Any]:
        """Its run, once that is durable; `begun` tells, if it is begun already."""
        workflow = start.workflow
        try:
            run_id = await (begun or (joined or hosting.host).start(start))
        except RunExists as taken:
            run_id = RunId(taken.run_id)
            self._require_same_call(run_id, start, await self._arguments(run_id, joined))
            if joined is None or not joined.has_started(run_id):
                # Its version may be another, and so may be what it returns.
                return Handle(hosting, run_id)
        return Handle(hosting, run_id, workflow, joined)

    async def _arguments(self, run_id: RunId, joined: Joining | None) -> bytes | None:
        """What a run was started with; `None` if that was erased."""
        if joined is not None:
            return await joined.arguments(run_id)
        entries = await self._here().host.store.entries(run_id, 0, 1)
        started = entries[0].event if entries else None
        return started.payload if isinstance(started, ExecutionStarted) else None

    def _require_same_call(self, run_id: RunId, start: Start, before: bytes | None) -> None:
        workflow = start.workflow
        if before is not None and not workflow.is_same_call(self._codec, before, start.payload):
            raise KeyReused(
                run_id,
                f"key {start.key!r} of {workflow.noun} {workflow.name!r} is taken by run {run_id!r}, "
                "which was started with other arguments",
                "use another key, or the same arguments",
            ) from None

    async def deploy(self, graph: GraphProgram[..., Any] | Graph) -> GraphVersion:
        """Deploy a version of a graph: every engine on this store can run it. It is not active until it is activated.

        Everything that is wrong with it is told at once, and nothing is deployed then. A version never changes: the
        same again is no harm, and another graph under its name and version is refused.
        """
        host = self._outside("deployed")
        (deployed,) = await graphs.deploy(host.store, [graph], host.sources.now_ms())
        await host.catalogue.look()
        return deployed

    async def activate(self, name: str, version: str) -> GraphVersion:
        """Let new runs of a graph be of this version. Runs that are under way stay on theirs."""
        host = self._outside("activated")
        activated = await graphs.activate(host.store, name, version)
        await host.catalogue.look()
        return activated

    def _outside(self, what: str) -> Host:
        host = self._here().host
        if current(host) is not None:
            raise InputError(f"a graph is {what} inside a transaction", "do it before or after")
        return host

    async def graphs(self) -> list[GraphVersion]:
        """All versions of all graphs that were deployed, and what may come of each."""
        return await graphs.graphs(self._here().host.store)

    async def statistics(self, graph: str, key_name: str) -> dict[str, dict[RunStatus, int]]:
        """How many runs of a graph have each value of a search key, by status."""
        store = self._here().host.store
        found: dict[str, dict[RunStatus, int]] = {}
        names = require_name("graph", graph), require_name("search key", key_name)
        for value, status, count in await store.statistics(*names):
            found.setdefault(value, {})[RunStatus(status.value)] = count
        return found

    async def send(
        self,
        topic: str,
        key: object,
        value: object = None,
        *,
        code: int = OK,
        id: str | None = None,  # noqa: A002 - as in Handle.signal
    ) -> None:
        """Send a signal to whoever waits for that topic and key, or is the first to; returns when it is durable.

        One hook gets it. Inside a transaction it is sent with its commit, or never. Sent again with the same `id` it is
        the same signal, as long as nobody took it, and to the run that did. While it waits, another value with that
        `id` is refused with `SignalReused`.
        """
        await send(self._here().host, topic, key, value, code, id)

    @asynccontextmanager
    async def transaction(self, *, connection: object = None) -> AsyncIterator[Transaction]:
        """Your own rows, and the runs and signals beside them: they commit together when the block is left, or
        not at all if it raises.

        With an asyncpg `connection` in a transaction of yours they commit with that, whenever you do so: Perdure
        does not learn of it, and some host takes the runs up within a second or so. A block that raises leaves
        nothing there, and your transaction as it was before.
        """
        transactions = self._here().transactions
        transactions.require_none()
        if connection is not None:
            async with transactions.join(connection) as joined:
                yield joined.statements
            return
        async with transactions.begin() as transaction:
            yield transaction.statements
            await transaction.commit()

    async def start_many(
        self, calls: Iterable[ProgramCall[R]], *, keys: Iterable[str] | None = None, scope: str = ""
    ) -> list[Handle[R]]:
        """Start many runs at once; their commits are shared. `keys` has one for each, if given.

        If one of the calls can't be started, none is. A key that is taken by a run with other arguments is known later:
        then the other runs are started, and the first such failure is raised.
        """
        if isinstance(calls, Call):
            discard(calls)
            raise InputError(f"start_many was given one call, {calls!r}", "pass a list of calls")
        calls = list(calls)
        try:
            hosting = self._here()
            given = list(repeat(None, len(calls)) if keys is None else keys)
            if len(given) != len(calls):
                what = f"{len(given)} keys for {len(calls)} calls"
                raise InputError(what, "pass one key for each")
            starts = [
                self._prepared(hosting, _program_of(call), call.arguments, key, scope)
                for call, key in zip(calls, given, strict=True)
            ]
        except BaseException:
            for call in calls:
                discard(call)
            raise
        joined = current(hosting.host)
        if joined is not None:
            return [await self._started(hosting, start, joined) for start in starts]
        return await self._started_together(hosting, starts)

    async def _started_together(self, hosting: Hosting, starts: list[Start]) -> list[Handle[Any]]:
        """Many runs, without a task for each: what one waits for, the others mostly wait for, too."""
        begun = [hosting.host.start_soon(start) for start in starts]
        handles: list[Handle[Any]] = []
        failure: Exception | None = None
        try:
            for start, each in zip(starts, begun, strict=True):
                try:
                    handles.append(await self._started(hosting, start, None, each))
                except Exception as error:  # told when the others are started
                    failure = failure or error
        except BaseException:
            for each in begun:
                each.cancel()
            raise
        if failure is not None:
            raise failure
        return handles

    def handle(self, run_id: str) -> Handle[Any]:
        """A handle of a run that was started before, here or elsewhere."""
        text = require_text("a run id", run_id, least=0)
        return Handle(self._require_open(), parse_run_id(text))

    async def audit(self) -> Report:
        """Whether journal and ledger agree, in every run."""
        return await audit(self._here().host.store)

    async def verify(self) -> Report:
        """Whether every entry is what it was when it was written."""
        return await verify(self._here().host.store)

    async def preflight(self, programs: Sequence[str] | None = None) -> Preflight:
        """Replay every open run on the code that is registered here; of these `programs`, if they are given.

        Nothing is executed, written or owned. An engine that is not open opens its store for the time of the
        check, and takes no run up: so new code is checked before it has touched anything. A store that is not there,
        or that this Perdure would have to bring up to date, is refused.
        """
        if isinstance(programs, str) or not isinstance(programs, Iterable | None):
            raise InputError(f"programs is {programs!r}", f"pass a sequence: [{programs!r}]")
        named = None if programs is None else [require_name("workflow", name) for name in programs]
        if self._hosting is not None:
            host = self._here().host
            return await preflight(host.store, self._codec, HostSources(), host.programs, named)
        store = await open_store(self._url, as_it_is=True)
        try:
            known = Programs()
            await Catalogue(store, known).look()
            return await preflight(store, self._codec, HostSources(), known, named)
        finally:
            await store.close()

    def _here(self) -> Hosting:
        """What is open, for whoever is on its loop."""
        hosting = self._require_open()
        require_own_loop(hosting)
        return hosting

    def _require_open(self) -> Hosting:
        require_no_workflow()
        if self._hosting is None:
            raise EngineClosed("the engine is not open", "use it inside `async with Engine(...)`")
        return self._hosting


def _names_of(queues: Sequence[str]) -> tuple[str, ...]:
    if isinstance(queues, str):
        raise InputError(f"queues is {queues!r}", f"pass a sequence: [{queues!r}]")
    return tuple(require_name("queue", queue) for queue in queues)


def _checked(settings: object) -> Settings:
    if settings is None:
        return Settings()
    if not isinstance(settings, Settings):
        raise InputError(f"settings is {settings!r}", "pass perdure.Settings(...)")
    return settings


def _fields_of(name: str, given: object) -> dict[str, Any]:
    if not isinstance(given, dict) or not all(isinstance(field, str) for field in given):
        what = f"the input of graph {name!r} is {given!r:.200}"
        raise InputError(what, "pass a dict of its fields")
    return given


def _program_of(call: object) -> Program[..., Any]:
    """The program of a call, which is used up, whatever becomes of it."""
    if not isinstance(call, Call):
        raise InputError(
            f"{call!r} can't be started", "pass a call of a workflow: `checkout(order)`"
        )
    call.use()
    if not isinstance(call.definition, Program):
        raise InputError(
            f"{call.definition.name!r} is a {call.definition.noun} and can't be started alone",
            "start a workflow that awaits it",
        )
    return call.definition
