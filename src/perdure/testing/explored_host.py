"""The host of an exploration: a real host that works in discrete moves, moves the virtual time, and can be killed."""

import asyncio
from collections.abc import Coroutine, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from perdure.core.errors import IllegalAppend, LedgerError, ReadinessOverflow
from perdure.core.hosts.hints import Hint
from perdure.core.ids import HostId, RunId
from perdure.engine.known_programs import KnownPrograms
from perdure.host.cluster.hints import Hints
from perdure.host.host import POLL_MS, Host
from perdure.host.runs.cache import RunCache
from perdure.host.runs.memory import MemoryUse
from perdure.host.tasks.gate import Gate
from perdure.host.tasks.streams import StreamWriter
from perdure.testing.crashing_store import CrashingStore
from perdure.testing.front_ends import (
    FewPrograms,
    ask_first,
    ask_for_runs_of,
    programs_of,
    send_again,
    survive,
)
from perdure.testing.host_parts import FaultyRunCache, WatchedExecutor
from perdure.testing.simulated_hints import SimulatedHints, channel_in
from perdure.testing.skewed_clocks import sources_of

if TYPE_CHECKING:
    from perdure.testing.simulation import Simulation

T = TypeVar("T")

MAX_IDLE_POLLS = 40
"""Polls without anything to do after which a host counts as stuck."""

PAUSE_S = 0.005
"""Real time between two such polls."""


class ExploredHost(Host):
    """Advances the runs of a simulation until all are over or it dies. Time moves only when it has nothing to do."""

    def __init__(self, simulation: "Simulation", host_id: HostId) -> None:
        self.simulation = self._simulation = simulation
        self.host_id = host_id
        self._idle_polls_left = MAX_IDLE_POLLS
        self._must_poll = False
        """Whether a hint has arrived since the last poll."""
        self.victims: set[HostId] = set()
        """Living hosts that this one takes for dead. It takes over their runs, also those that they still create."""
        self.crashing_store = CrashingStore(simulation, host_id)
        store: Any = self.crashing_store
        super().__init__(
            *(store, host_id, simulation.codec, sources_of(simulation, host_id)),
            *(simulation.settings, simulation.queues, simulation.artifacts.services),
        )

    executor: WatchedExecutor

    def _make_executor(self, gate: Gate, streams: StreamWriter) -> WatchedExecutor:
        parts = self.context, self, gate, self.publisher, streams
        return WatchedExecutor(self._simulation, *parts)

    def _make_programs(self) -> KnownPrograms:
        return programs_of(self._simulation, self.host_id)

    def _make_cache(self, use: MemoryUse) -> RunCache:
        return FaultyRunCache(self._simulation, use, self.is_about_to_continue)

    def _make_hints(self) -> Hints:
        return Hints(self.context, self, assumes_hosts=self._simulation.hints is not None)

    def _make_hint_channel(self) -> SimulatedHints | None:
        return channel_in(self._simulation, self.host_id, self.hints.receive)

    def hint_arrived(self, hint: Hint) -> None:
        super().hint_arrived(hint)
        self._must_poll = self._must_poll or hint.look or hint.messages or bool(hint.queues)

    def failed(self, error: BaseException) -> None:
        self._simulation.violations.append(f"the host failed: {error!r}")

    def rows_repaired(self, run_id: RunId, rows: Sequence[str]) -> None:
        """The explorer deletes no rows, so rows that a load had to restore were lost by the engine."""
        self._simulation.violations.append(f"run {run_id} has lost rows: {', '.join(rows)}")

    def advance_failed(self, run_id: RunId, problem: Exception) -> None:
        """A write that breaks the rules of journal, ledger or readiness is the engine's fault, not the program's.

        It is a violation even if the host could retry it with fewer facts.
        """
        what = f"run {run_id} can't be written: {problem}"
        is_engines_fault = isinstance(problem, IllegalAppend | LedgerError | ReadinessOverflow)
        if is_engines_fault and what not in self._simulation.violations:
            self._simulation.violations.append(what)

    @property
    def is_dead(self) -> bool:
        return self.crashing_store.death.done()

    @property
    def tasks(self) -> set[asyncio.Task[Any]]:
        """The background tasks of the host and of its store."""
        return self.dispatcher.tasks | self.crashing_store.tasks

    async def survive(self, work: Coroutine[Any, Any, T]) -> T | None:
        """The result of `work`, or `None` if the host dies before `work` ends."""
        return await survive(work, self.crashing_store.death)

    async def live(self) -> None:
        """Advance every run until all are over, or until the host dies."""
        try:
            await self.survive(self.hints.open(self._make_hint_channel()))
            while self._simulation.open and not self.is_dead:
                await self.survive(self._move())
            if not self.is_dead:
                # Messages to runs that are over must be handled, too.
                await send_again(self._simulation, is_end=True)
                await self.survive(self.poller.poll())
        except asyncio.CancelledError:
            # The schedule exceeded its time limit, or the host whose commit this one interrupted was cancelled.
            self._simulation.unfinished.update(self.executor.executing)
            raise
        finally:
            await self._clean_up()

    async def _move(self) -> None:
        """Take over, poll, or wait for a background task; if there is nothing of these to do, let time pass."""
        if self._simulation.explored_program is not None:
            for dead in [*self._simulation.dead]:
                await ask_for_runs_of(self, dead)
        for dead in [*self._simulation.dead, *self.victims]:
            runs = await self.context.store.take_over(dead, self.host_id, 1000)
            self._simulation.dead.discard(dead)
            await self.dispatcher.resume(runs)
        if self._simulation.explored_program is not None:
            await ask_first(self)
            await send_again(self._simulation)
        if self._simulation.script.must_poll or self._must_poll:
            self._simulation.script.must_poll = self._must_poll = False
            await self.poller.poll()
        if tasks := self.tasks:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            return
        await self.poller.poll()
        if self._simulation.open and not self.tasks:
            await self._pass_time()

    async def _pass_time(self) -> None:
        """Move the time to the next due message or work, or play the script."""
        store, sources = self.context.store, self._simulation.sources
        if isinstance(self.dispatcher.programs, FewPrograms):
            await self.crashing_store.die()
        times = [await store.next_due(self.host_id), await store.next_work(self._simulation.queues)]
        due = min((time for time in times if time is not None), default=None)
        if due is None or await self._simulation.awaits_signal():
            # Play the script before a timeout passes: later, the wait that it is for would be over.
            if await self._simulation.script.play():
                return
        if due is None and self._idle_polls_left:
            # Another host may be in the middle of a commit, and real hosts poll from time to time.
            self._idle_polls_left -= 1
            sources.advance(POLL_MS)
            await asyncio.sleep(PAUSE_S)
            return
        if due is None:
            raise AssertionError(f"nothing is due and nothing runs, but {await self._open_runs()}")
        self._idle_polls_left = MAX_IDLE_POLLS
        sources.advance(max(0, due - self.context.sources.now_ms()))

    async def _open_runs(self) -> str:
        """The open runs with their last entries and messages, for the error text."""
        stuck = []
        for run_id in sorted(self._simulation.open):
            run = await self._simulation.store.run(run_id)
            entries = await self._simulation.store.entries(run_id)
            events = "".join(f"\n    {entry.seq} {entry.body}" for entry in entries[-8:])
            messages = "".join(
                f"\n    {message.kind} for {message.step}: {state}, {reason}"
                for message, state, reason in await self._simulation.store.messages(run_id)
            )
            state = "gone" if run is None else f"of {run.owner}, {run.parked or 'not parked'}"
            stuck.append(f"{run_id} is open ({state}):{events}{messages}")
        return "\n".join(stuck)

    async def _clean_up(self) -> None:
        """Kill the host and wait until none of its tasks is left."""
        tasks = self.tasks | self.dispatcher.loader.tasks
        self.kill()
        if self._simulation.open:
            self._simulation.dead.add(self.host_id)
        while tasks:
            # A cancelled attempt may load its run once more, and the store of a dead host never replies: cancel again.
            for task in self.crashing_store.tasks | self.dispatcher.loader.tasks:
                task.cancel()
            await asyncio.wait(tasks, timeout=PAUSE_S)
            tasks = {task for task in tasks | self.tasks if not task.done()}
        if outliving := self._simulation.writing | self._simulation.script.playing:
            await asyncio.wait(outliving)
