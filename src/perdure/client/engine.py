"""The engine: a store, and a host on it in this process."""

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from copy import copy
from itertools import repeat
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack

from perdure.authoring.call import Call, discard
from perdure.authoring.definition import require_name
from perdure.authoring.program import Program, ProgramCall
from perdure.authoring.registry import check_annotations
from perdure.authoring.response import OK
from perdure.authoring.tags import TagValue
from perdure.authoring.texts import require_user_text
from perdure.authoring.values.upcaster import reading_old_shapes
from perdure.client.admission_terms import StartTerms
from perdure.client.artifacts import EngineArtifacts
from perdure.client.buses import Buses
from perdure.client.caller_checks import require_no_workflow, require_own_loop
from perdure.client.deployments import GraphDeployments, version_to_start
from perdure.client.engine_arguments import (
    require_engine_settings,
    require_hosts,
    require_input_fields,
    require_on_alert,
    require_program_name,
    take_program,
)
from perdure.client.engine_services import EngineServices, services_from
from perdure.client.limits import Limits
from perdure.client.preflight import (
    preflight_closed_engine,
    preflight_open_engine,
    require_program_names,
)
from perdure.client.queues import require_queue_names, warn_of_unknown_queues
from perdure.client.retention import EngineRetention
from perdure.client.runs.comparing import RunDiff, compare_runs
from perdure.client.runs.handle import Handle
from perdure.client.runs.lists import RunLists
from perdure.client.runs.parameters import with_first_parameters
from perdure.client.runs.status import RunStatus
from perdure.client.schedules.schedules import Schedules
from perdure.client.signals import send_to_mailbox
from perdure.client.start_keys import IfEnded, key_holder, require_if_ended, require_key
from perdure.client.starts import prepare_start, start_all, start_one
from perdure.core.codec import Codec, JsonCodec
from perdure.core.errors import EngineClosed, InputError
from perdure.core.ids import parse_run_id
from perdure.core.limits import MAX_KEY_LENGTH
from perdure.core.transactions import Transaction
from perdure.engine.programs.preflight import Preflight
from perdure.engine.sources import Sources
from perdure.host.clock import HostSources
from perdure.host.cluster.identity import new_host, retire
from perdure.host.front_end import FrontEnd
from perdure.host.host import Host
from perdure.host.runs.memory import WarmMemory
from perdure.host.services import reading_codec
from perdure.host.settings import Settings
from perdure.host.transactions.joining import current
from perdure.store.inspection import Report, audit_store, verify_store
from perdure.store.opening import open_store
from perdure.store.store import Store

R = TypeVar("R")


class Engine(RunLists, Schedules, Buses, GraphDeployments):
    """Runs workflows on a store: `async with Engine("sqlite:///orders.db") as engine:`.

    When it opens, its host takes over the runs of dead hosts on this store. `queues` names the queues whose tasks it
    executes. With `hosts=False` it owns and executes nothing: it reads, starts runs and sends messages, and other
    engines on the store execute the runs. `codec` may encrypt what is stored. `artifacts` is a place for large results
    (a directory, or an `ArtifactStore`), `secrets` are asked for the secrets that tasks read, the `authorizer` decides
    who may act on runs as an operator, `on_alert` is called with each alert, and `resources` make what tasks share.
    """

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
        """`services` are those of `EngineServices`, such as `artifacts` and `secrets`."""
        self._url = require_user_text("the URL of a store", url, MAX_KEY_LENGTH)
        self._queues = require_queue_names(queues)
        self._settings = require_engine_settings(settings)
        self._hosts = require_hosts(hosts, self._queues)
        self._on_alert = require_on_alert(services.get("on_alert"))
        self._codec = reading_old_shapes(codec or JsonCodec())
        self._services = services_from(services)
        self._store: Store | None = None
        self._host: Host | None = None

    @property
    def settings(self) -> Settings:
        return self._settings

    @property
    def queues(self) -> tuple[str, ...]:
        """The queues whose tasks this engine executes."""
        return self._queues

    @property
    def hosts(self) -> bool:
        """Whether the engine owns and executes runs while it is open."""
        return self._hosts

    @property
    def clock_skew(self) -> float:
        """How many seconds this machine's clock is ahead of the store's clock, which decides timers and leases.

        0 on SQLite, whose clock is the machine's, and while the engine is closed.
        """
        return 0.0 if self._host is None else self._host.dispatcher.sources.skew_ms / 1000

    @property
    def artifacts(self) -> EngineArtifacts:
        """The artifacts that tasks have stored."""
        return EngineArtifacts(self._require_host)

    @property
    def retention(self) -> EngineRetention:
        """Archives, erases and purges runs that are over."""
        return EngineRetention(self._require_host)

    def replace(
        self,
        *,
        queues: Sequence[str] | None = None,
        settings: Settings | None = None,
        hosts: bool | None = None,
    ) -> "Engine":
        """A closed engine like this one, with the given queues, settings or `hosts`."""
        other = copy(self)
        other._store = other._host = None
        other._hosts = require_hosts(
            self._hosts if hosts is None else hosts, queues if queues is not None else self._queues
        )
        if queues is not None:
            other._queues = require_queue_names(queues)
            require_hosts(other._hosts, other._queues)
        if settings is not None:
            other._settings = require_engine_settings(settings)
        return other

    @property
    def limits(self) -> Limits:
        """The limits of programs, and the runs that wait for them."""
        return Limits(self._require_host)

    async def open(self) -> None:
        """Open the store and start the host; `async with` does it for you."""
        await self._open(HostSources())

    async def _open(self, sources: Sources) -> Host:
        if self._host is not None and self._host.process.is_here:
            raise InputError("the engine is open already", "open it once")
        check_annotations()
        warn_of_unknown_queues(self._queues)
        self._store = self._host = None
        store = await open_store(self._url)
        try:
            self._store = store
            parts = new_host(), self._codec, sources, self._settings, self._queues, self._services
            self._host = (Host if self._hosts else FrontEnd)(store, *parts)
            if self._on_alert is not None:
                self._host.context.alerts.subscribe(self._on_alert)
            await self._host.start()
        except BaseException:
            await self._abort()
            raise
        return self._host

    async def close(self) -> None:
        """Let running tasks end, up to the grace time, and hand all runs and work back. Nothing is lost.

        In a process that was forked while the engine was open it closes nothing: the engine stays open in the parent.
        """
        if self._host is None:
            return
        if not self._host.process.is_here:
            self._store = self._host = None
            return
        if self._host.failure is not None:
            # The host has stopped itself, and must not write to the store again.
            await self._abort()
            return
        host, self._host = self._require_host(), None
        try:
            await host.stop()
        finally:
            retire(host.dispatcher.host_id)
            await self._close_store()

    async def wait_failed(self) -> None:
        """Wait until the engine stops itself, and raise the reason: its store was migrated to a newer schema."""
        host = self._require_host()
        await host.has_failed.wait()
        self._require_open()

    async def _abort(self) -> None:
        """Stop at once, as a crash would: nothing is handed back."""
        host, self._host = self._host, None
        if host is not None:
            host.kill()
            retire(host.dispatcher.host_id)
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
        self,
        call: ProgramCall[R],
        *,
        key: str | None = None,
        scope: str = "",
        tags: Mapping[str, TagValue] | None = None,
        if_ended: IfEnded = "return",
        **terms: Unpack[StartTerms],
    ) -> Handle[R]:
        """Start a workflow; returns when the run and the intent of its first step are durable.

        A `key` identifies one run per scope and workflow: another start with that key and the same arguments returns
        a handle of the same run. Inside a transaction the run starts when the transaction commits, or never.

        `tags` are names and values by which `runs` finds the run, such as {"customer": "acme"}. Its child runs get
        them, too.

        `if_ended` decides what happens if the run that holds the key failed or was cancelled: "return" returns its
        handle and logs a warning, "rerun" starts a new run with these arguments, which takes the key over, and "raise"
        raises `KeySpent`. A completed run is always returned.

        If the program has a `Limit`, the run may be pending before it begins. The `terms` say so, too: `priority`,
        `delay`, `approval`, `debounce` and `max_wait`, which `StartTerms` describes.
        """
        program = take_program(call)
        require_if_ended(if_ended)
        host = self._require_host()
        start = prepare_start(host, program, call.arguments, key, scope, tags, terms)
        return await start_one(host, start, if_ended)

    async def start_many(
        self,
        calls: Iterable[ProgramCall[R]],
        *,
        keys: Iterable[str] | None = None,
        scope: str = "",
        tags: Mapping[str, TagValue] | None = None,
        if_ended: IfEnded = "return",
        **terms: Unpack[StartTerms],
    ) -> list[Handle[R]]:
        """Start many runs with shared commits. `keys` has one key for each call, and all runs get the `tags`;
        `if_ended` is as in `start`.

        If a call can't be started, none is. Whether a key belongs to a run with other arguments is known only later:
        then the other runs are started, and the first such failure is raised.
        """
        if isinstance(calls, Call):
            discard(calls)
            raise InputError(f"start_many was given one call, {calls!r}", "pass a list of calls")
        calls = list(calls)
        try:
            require_if_ended(if_ended)
            host = self._require_host()
            key_of_each = list(repeat(None, len(calls)) if keys is None else keys)
            if len(key_of_each) != len(calls):
                what = f"{len(key_of_each)} keys for {len(calls)} calls"
                raise InputError(what, "pass one key for each")
            starts = [
                prepare_start(host, take_program(call), call.arguments, key, scope, tags, terms)
                for call, key in zip(calls, key_of_each, strict=True)
            ]
        except BaseException:
            for call in calls:
                discard(call)
            raise
        return await start_all(host, starts, if_ended)

    async def start_graph(
        self,
        name: str,
        input: dict[str, Any] | None = None,  # noqa: A002 - what graphs call it
        *,
        key: str | None = None,
        scope: str = "",
        tags: Mapping[str, TagValue] | None = None,
        version: str | None = None,
        if_ended: IfEnded = "return",
        **terms: Unpack[StartTerms],
    ) -> Handle[Any]:
        """Start the active version of a deployed graph, as `start` starts a workflow.

        `version` names the active version, or one that was never active, for a trial. If the graph declares parameters,
        `params` in the input gives their first values.
        """
        require_if_ended(if_ended)
        dispatcher = self._require_host().dispatcher
        require_name("graph", name)
        arguments = require_input_fields(name, {} if input is None else input)
        chosen = version_to_start(name, version, await dispatcher.catalogue.versions(name))
        program, host = dispatcher.programs.deployed(name, chosen), self._require_host()
        arguments = with_first_parameters(program, arguments)
        start = prepare_start(host, program, arguments, key, scope, tags, terms)
        return await start_one(host, start, if_ended)

    async def find(
        self, program: Program[..., R] | str, key: str, *, scope: str = ""
    ) -> Handle[R] | None:
        """The run of a workflow or graph that holds a start key; `None` if there is none. Starts nothing."""
        host = self._require_host()
        name, key = require_program_name(program), require_key(key)
        joined = current(host.dispatcher)
        scope = require_user_text("a scope", scope, least=0)
        run_id = await key_holder(host.dispatcher, joined, name, key, scope)
        if run_id is None:
            return None
        is_started_here = joined is not None and joined.has_started(run_id)
        return Handle(host, run_id, None, joined if is_started_here else None)

    def handle(self, run_id: str) -> Handle[Any]:
        """A handle of a run that any process has started on this store."""
        text = require_user_text("a run id", run_id, least=0)
        return Handle(self._require_open(), parse_run_id(text))

    async def diff(self, a: str, b: str) -> RunDiff:
        """Where the journals of two runs part, and how each step compares."""
        dispatcher = self._require_host().dispatcher
        ids = [parse_run_id(require_user_text("a run id", each, least=0)) for each in (a, b)]
        return await compare_runs(dispatcher.store, dispatcher.codec, *ids)

    async def send(
        self,
        topic: str,
        key: object,
        value: object = None,
        *,
        code: int = OK,
        id: str | None = None,  # noqa: A002 - as in Handle.signal
        scope: str = "",
    ) -> None:
        """Send a signal to a topic and key; returns when it is durable.

        One run of the scope receives it: the one that waits for that topic and key, or the first that does so later. In
        a transaction the signal is sent when the transaction commits, or never.

        Two signals with the same `id` are one, as long as no run has received the first, and for the run that has.
        While the first is not received, another value with that `id` is refused with `SignalReused`.
        """
        await send_to_mailbox(self._require_host().dispatcher, topic, key, value, code, id, scope)

    @asynccontextmanager
    async def transaction(self, *, connection: object = None) -> AsyncIterator[Transaction]:
        """A transaction for your own rows. It commits when the block ends, and rolls back if the block raises.

        Runs that the block starts and signals that it sends commit with these rows.

        With a `connection` of your own (asyncpg, psycopg or SQLAlchemy) the block joins the open transaction of that
        connection, and you commit it. Perdure is not notified of the commit: a host finds the runs by polling, within
        about a second. If the block raises, its writes are undone and your transaction is as it was before the block.
        """
        transactions = self._require_host().transactions
        transactions.require_none()
        if connection is not None:
            async with transactions.join(connection) as joined:
                yield joined.statements
            return
        async with transactions.begin() as transaction:
            yield transaction.statements
            await transaction.commit()

    def warm_memory(self) -> WarmMemory:
        """What this engine's runs hold in memory, and how often runs were evicted and replayed since it opened.

        It may be called in any thread.
        """
        cache = self._require_open().dispatcher.cache
        return cache.use.statistics(len(cache))

    async def statistics(self, graph: str, key_name: str) -> dict[str, dict[RunStatus, int]]:
        """The number of runs of a graph, by value of a search key and by status."""
        store = self._require_host().dispatcher.store
        counts: dict[str, dict[RunStatus, int]] = {}
        names = require_name("graph", graph), require_name("search key", key_name)
        for value, status, count in await store.statistics(*names):
            counts.setdefault(value, {})[RunStatus(status.value)] = count
        return counts

    def alerts(self) -> dict[str, int]:
        """How often each alert was raised in this process since the engine opened, by its code."""
        return dict(self._require_open().context.alerts.counts)

    async def audit(self) -> Report:
        """Whether journal and ledger agree in every run."""
        dispatcher = self._require_host().dispatcher
        return await audit_store(dispatcher.store, dispatcher.sources.now_ms())

    async def verify(self, *, heads: Mapping[str, str] | None = None) -> Report:
        """Whether every entry is as it was written.

        `heads` are those of an earlier report, kept outside the store. With them, a run that is missing, is shorter or
        has another journal is reported too, which detects an older copy of the store.
        """
        return await verify_store(self._require_host().dispatcher.store, heads)

    async def preflight(self, programs: Sequence[str] | None = None) -> Preflight:
        """Replay every open run, or those of `programs`, on the code that is registered in this process.

        It executes, writes and owns nothing. A closed engine opens its store for the check alone and takes over no
        run, so that you can check new code before it affects any run. Raises if the store does not exist, or would
        need a migration. The report contains users' values only with `Settings(reveal_payloads=True)`.
        """
        names, reveal = require_program_names(programs), self._settings.reveal_payloads
        if self._host is not None:
            dispatcher = self._require_host().dispatcher
            return await preflight_open_engine(dispatcher, names, reveal=reveal)
        codec = reading_codec(self._codec, self._services)
        return await preflight_closed_engine(self._url, codec, names, reveal=reveal)

    def _list_store(self) -> Store:
        return self._require_host().dispatcher.store

    def _require_host(self) -> Host:
        """The open host. Raises if the caller is not on its event loop."""
        host = self._require_open()
        require_own_loop(host)
        return host

    def _require_open(self) -> Host:
        """The open host, from any event loop."""
        require_no_workflow()
        if self._host is None:
            raise EngineClosed("the engine is not open", "use it inside `async with Engine(...)`")
        self._host.process.require()
        if self._host.failure is not None:
            raise self._host.failure
        return self._host
