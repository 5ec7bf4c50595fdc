"""A host: the process that owns runs and advances them, put together from its parts."""

import asyncio
import logging
from collections.abc import Sequence

from perdure.core.codec import Codec
from perdure.core.errors import EngineClosed, SchemaTooNew
from perdure.core.hosts.hints import Awaited, Hint
from perdure.core.ids import HostId, RunId
from perdure.core.messages import Message, Work
from perdure.engine.known_programs import KnownPrograms
from perdure.engine.runs.attempt_outcome import AttemptOutcome
from perdure.engine.runs.warm import WarmRun
from perdure.engine.sources import Sources
from perdure.host.admission.admissions import Admissions
from perdure.host.cluster.hints import Hints
from perdure.host.cluster.membership import Membership
from perdure.host.cluster.takeover import Takeover
from perdure.host.cluster.takeover_loop import TakeoverLoop
from perdure.host.context import HostContext
from perdure.host.messages.polling import Poller
from perdure.host.relays.relays import Relays
from perdure.host.runs.batch import RunStart
from perdure.host.runs.cache import RunCache
from perdure.host.runs.dispatcher import Dispatcher
from perdure.host.runs.feed import JournalFeed
from perdure.host.runs.memory import MemoryUse
from perdure.host.runs.readers import Readers
from perdure.host.runs.remote import RemoteRuns
from perdure.host.runs.retaining import retain_regularly
from perdure.host.runs.views import Views
from perdure.host.schedules.ticker import Ticker
from perdure.host.services import NO_SERVICES, Services
from perdure.host.settings import Settings
from perdure.host.tasks.attempt import Attempt
from perdure.host.tasks.draining import note_stopping
from perdure.host.tasks.executor import Executor
from perdure.host.tasks.gate import Gate
from perdure.host.tasks.published import Publisher
from perdure.host.tasks.queues import QueueWorker
from perdure.host.tasks.streams import StreamWriter
from perdure.host.tasks.sweeping import sweep_regularly
from perdure.host.transactions.steps import Transactions
from perdure.host.watchers import Topic
from perdure.store.hints import HintChannel
from perdure.store.process import OwnProcess, never_free_in_child
from perdure.store.rows.hosts import HostSnapshot
from perdure.store.store import Store

POLL_MS = 1000
"""How often a host polls a store in memory, for which it has no heartbeat."""


LONGEST_FAREWELL_S = 10.0
"""How long a stop waits for a store that does not answer."""

LAST_COMMITS_S = 0.5
"""How long a host that stops by itself waits for commits under way."""

log = logging.getLogger("perdure.host")


class Host:
    """The parts of a host, wired together. It passes on what they report (`HostListener`).

    Belongs to the event loop that made it.
    """

    def __init__(
        self,
        store: Store,
        host_id: HostId,
        codec: Codec,
        sources: Sources,
        settings: Settings,
        queues: Sequence[str] = (),
        services: Services = NO_SERVICES,
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self.process = OwnProcess(f"an engine on {store.name}")
        never_free_in_child(self)
        stale_after_ms = round(settings.stale_after * 1000)
        self.context = HostContext(store, host_id, codec, sources, settings, self, services)
        gate = Gate(stale_after_ms)
        self.publisher = Publisher(self.context)
        self.executor = self._make_executor(gate, StreamWriter(self.context))
        on_regained = self.publisher.publish_again
        cache = self._make_cache(MemoryUse(settings.warm_memory, sources.elapsed_ms))
        self.dispatcher = Dispatcher(
            self.context, self.executor, cache, on_regained, self._make_programs()
        )
        self.transactions = self._make_transactions()
        self.admissions = self._make_admissions()
        self.worker = QueueWorker(
            self.context, self.executor, self.dispatcher.quarantine, on_regained, queues
        )
        self.takeover = takeover = Takeover(self.dispatcher, stale_after_ms, self.runs_taken)
        self.takeovers = TakeoverLoop(self.dispatcher, takeover, self.runs_taken)
        self.remote_runs = RemoteRuns(self.context, cache)
        self.feed = JournalFeed(self.context)
        self.views = Views(self.context)
        self.readers = Readers()
        self.relays = Relays(self.context)
        self.poller = Poller(
            *(self.dispatcher, self.worker, takeover, self.takeovers, self.remote_runs),
            Ticker(self.context, self.dispatcher, self.begin_soon),
            interval_ms=round(settings.heartbeat * 1000) if store.is_shared else POLL_MS,
        )
        self.hints = self._make_hints()
        self.membership = Membership(self.dispatcher, self.worker, takeover, gate, self)
        self.authorizer = services.authorizer
        """Decides who may act on runs through this process."""
        self.failure: SchemaTooNew | None = None
        """Why this host has stopped by itself, if it has."""
        self.has_failed = asyncio.Event()

    def _make_executor(self, gate: Gate, streams: StreamWriter) -> Executor:
        return Executor(self.context, self, gate, self.publisher, streams)

    def _make_admissions(self) -> Admissions:
        return Admissions(self.dispatcher, self._owner)

    def _owner(self) -> HostId | None:
        """The host that gets the runs that this process admits."""
        return self.context.host_id

    def _make_programs(self) -> KnownPrograms:
        return KnownPrograms()

    def _make_cache(self, use: MemoryUse) -> RunCache:
        return RunCache(use, self.is_about_to_continue)

    def _make_transactions(self) -> Transactions:
        return Transactions(self.dispatcher)

    def _make_hints(self) -> Hints:
        return Hints(self.context, self)

    def _make_hint_channel(self) -> HintChannel | None:
        return self.context.store.hint_channel(self.context.host_id, self.hints.receive)

    def is_about_to_continue(self, run: WarmRun) -> bool:
        """Whether a run will be needed in memory soon: by an attempt, a slot or a message."""
        return (
            self.executor.executes(run.run_id)
            or self.dispatcher.waiting.has_steps_of(run.run_id)
            or self.poller.delivery.has_messages(run.chain or run.run_id)
        )

    # What the parts report

    def message_sent(self, message: Message, owner: HostId | None = None) -> None:
        is_here = message.run_id in self.dispatcher.cache
        if not is_here and self.hints.message_sent(message, owner):
            return
        # Only the owner delivers it: any other host would have to read the run to find that out.
        if is_here or owner in (None, self.context.host_id):
            self.poller.sent(message)

    def message_kept(self, message: Message) -> None:
        self.poller.sent(message)

    def work_queued(self, work: Work) -> None:
        self.poller.queued(work)
        self.hints.work_queued(work)

    def run_resumed(self) -> None:
        self.poller.deliver_soon()
        self.poller.claim_soon()
        self.hints.look()

    def signals_broadcast(self) -> None:
        self.poller.deliver_soon()
        self.hints.signals_broadcast()

    def hooks_changed(self) -> None:
        self.poller.matcher.look()

    def runs_released(self) -> None:
        self.hints.look()

    def runs_added(self) -> None:
        """Open runs without an owner are in the store: this host or another takes them at once."""
        self.poller.look_soon()
        self.hints.look()

    def versions_changed(self) -> None:
        """A version of a graph was deployed or activated here: other hosts read it at once."""
        self.hints.look()

    def run_changed(self, run_id: RunId, change: Awaited) -> None:
        self.hints.run_changed(run_id, change)

    def schedules_changed(self) -> None:
        """A schedule was changed here: this host and all others look at it at once."""
        self.poller.look_soon()
        self.hints.look()

    def hint_arrived(self, hint: Hint) -> None:
        if hint.look:
            self.relays.refresh_soon(is_changed=True)
            self.poller.look_soon()
        if hint.messages:
            self.poller.deliver_soon()
        if not hint.queues.isdisjoint(self.worker.queues):
            self.poller.claim_soon()
        self.remote_runs.heed(hint)

    def hints_lost(self) -> None:
        self.poller.look_soon()
        self.poller.deliver_soon()
        self.poller.claim_soon()
        self.remote_runs.look()

    def runs_unfinished(self, runs: Sequence[WarmRun]) -> None:
        self.poller.continue_runs(runs)

    def runs_taken(self) -> None:
        """Runs of dead hosts, or unowned ones, are this host's now."""
        self.poller.deliver_soon()
        self.poller.claim_soon()

    def snapshot_taken(self, snapshot: HostSnapshot, at_ms: int) -> None:
        self.poller.show(snapshot, at_ms)

    def slot_left(self, slot: str) -> None:
        self.admissions.look_soon(slot)

    def snapshot_read(self, snapshot: HostSnapshot) -> None:
        self.admissions.note_next(snapshot.next_admission_ms)
        self.relays.refresh_soon()
        self.hints.see([peer.host for peer in snapshot.peers])
        self.ask_for_hints()

    def awaits(self, run_id: RunId) -> None:
        """A caller waits for the end of a run: another process may have it."""
        if run_id not in self.dispatcher.cache:
            self.hints.ask_for(Awaited.END)

    def follows(self, topic: Topic) -> None:
        """A caller follows a journal, to which the owner of its run adds, or a stream, to which any process may."""
        if topic not in self.dispatcher.cache:
            self.hints.ask_for(Awaited.GROWTH)

    def ask_for_hints(self) -> None:
        """Ask other processes for hints about the runs that callers of this one wait for."""
        if self.remote_runs.awaited:
            self.hints.ask_for(Awaited.END)
        if self.remote_runs.followed:
            self.hints.ask_for(Awaited.GROWTH)

    def host_renamed(self) -> None:
        """This host continues under another id."""
        self.context.spawn(self.hints.rename())

    def slot_freed(self) -> bool:
        waiting = self.dispatcher.waiting
        if not waiting.fill():
            self.poller.slot_freed()
        return bool(waiting)

    def may_keep_slot(self, attempt: Attempt) -> bool:
        run = None if attempt.is_claimed else self.dispatcher.cache.get(attempt.info.run_id)
        return run is not None and self.dispatcher.waiting.may_keep_slot(run, attempt.task)

    async def transact(self, attempt: Attempt) -> AttemptOutcome | None:
        return await self.transactions.execute(attempt)

    def rows_repaired(self, run_id: RunId, rows: Sequence[str]) -> None:
        log.warning(
            "run %s lacked rows that its journal demands; the host wrote them again: %s",
            *(run_id, ", ".join(rows)),
        )

    def advance_failed(self, run_id: RunId, problem: Exception) -> None:
        """The caller of `advance` handles it: it parks the run, or tries again."""

    def failed(self, error: BaseException) -> None:
        log.error("background work of the host failed", exc_info=error)

    def schema_outgrown(self, error: SchemaTooNew) -> None:
        """Stop writing: the rules of the store may have changed. Hosts with newer code take over."""
        log.error("this host stops, and hosts with a newer Perdure continue its runs: %s", error)
        self.failure = error
        self._end()
        self.executor.close()
        self.dispatcher.watchers.fail(error)
        self.has_failed.set()
        # Callers that wait for a commit under way still get its outcome.
        self.loop.call_later(LAST_COMMITS_S, self.kill)

    # Life

    async def start(self) -> None:
        """Register, poll once, then poll in the background. Runs of dead hosts are taken over in the background."""
        await self.dispatcher.catalogue.refresh()
        await self.membership.join()
        await self.relays.open()
        await self.hints.open(self._make_hint_channel())
        await self.poller.serve()
        self.poller.start()
        artifacts = self.context.services.artifacts
        if artifacts is not None and artifacts.sweep_every_s:
            self.context.spawn_endless(sweep_regularly(self.context, artifacts))
        if self.context.settings.retention_every:
            self.context.spawn_endless(retain_regularly(self.context))

    async def begin_run(self, start: RunStart) -> RunId:
        """Create a run and commit its first turn. Raises `RunExists` if its key is taken."""
        if start.is_limited:
            return await self.admissions.start(start)
        return await self.dispatcher.start(start)

    def begin_soon(self, start: RunStart) -> asyncio.Future[RunId]:
        """As `begin_run`, without waiting: runs that are begun together share commits."""
        if start.is_limited:
            return asyncio.ensure_future(self.admissions.start(start))
        return self.dispatcher.start_soon(start)

    async def stop(self) -> None:
        """Let running attempts finish within the grace time, then release all runs and work."""
        self.worker.pause()
        grace_s = self.context.settings.grace
        note_stopping(self.executor.under_way, grace_s)
        await self.poller.stop(grace_s)
        try:
            await self.dispatcher.stop(grace_s)
            await self.relays.stop(grace_s)
            await self.executor.requests.resources.close()
            await self._hand_back()
        finally:
            self.kill()

    async def _hand_back(self) -> None:
        """Release all runs and work, then remove the host's row."""
        try:
            async with asyncio.timeout(LONGEST_FAREWELL_S):
                await self.context.store.release_runs(self.context.host_id)
                await self.worker.stop()
                await self.membership.leave()
                self.hints.look()  # others take over at once what was handed back
                await self.hints.flush()
        except TimeoutError:
            log.warning(
                "%s did not answer for %g s: other hosts take this host's runs over when they miss its heartbeats",
                *(self.context.store.name, LONGEST_FAREWELL_S),
            )

    def kill(self) -> None:
        """Stop at once, as a crash would."""
        self._end()
        self.dispatcher.kill()
        self.executor.requests.resources.kill()

    def _end(self) -> None:
        """Stop the heartbeat, the poller and the queues."""
        stopped = EngineClosed("the engine was closed", "open an engine, and follow the run again")
        self.feed.close(self.failure or stopped)
        self.hints.close()
        self.relays.kill()
        self.membership.kill()
        self.poller.kill()
        self.worker.close()
