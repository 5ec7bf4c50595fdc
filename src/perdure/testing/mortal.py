"""Hosts that can die: the store as each of them sees it, and their lives, one after the other."""

import asyncio
from collections.abc import Coroutine, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from perdure.core.codec import Codec
from perdure.core.errors import IllegalAppend, LedgerError, ReadinessOverflow
from perdure.core.ids import HostId, RunId
from perdure.core.messages import Message
from perdure.host.hosting import POLL_MS, Hosting
from perdure.host.parking import Told
from perdure.host.residents import Residents
from perdure.host.settings import Settings
from perdure.host.staging import Act
from perdure.store.bundle import Bundle
from perdure.store.committer import Decided
from perdure.store.graphs import MATCHES
from perdure.store.records import Claim
from perdure.testing.fates import FatefulResidents, WatchedBodies
from perdure.testing.peers import fateful_glance, fateful_takeover
from perdure.testing.transactions import Bundles, Commit, end_transactions, fateful_transaction

if TYPE_CHECKING:
    from perdure.testing.workflows import Universe

T = TypeVar("T")

PATIENCE = 40
PAUSE_S = 0.005
"""How often, and for how long, a host with nothing to do looks again before it counts as stuck."""


class MortalStore:
    """The store as one host sees it. At each commit the host may die: then nothing returns to it any more."""

    def __init__(self, universe: "Universe", host_id: HostId) -> None:
        self._universe = universe
        self._host_id = host_id
        self.late: list[Message] = []
        """What comes again, though it was taken in."""
        self.death: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.tasks: set[asyncio.Task[None]] = set()
        """Commits that the host did not wait for, and what ends with it."""
        self.transaction = partial(fateful_transaction, universe, self)
        self.take_over = partial(fateful_takeover, universe, self)
        self.glance = partial(fateful_glance, universe, self)
        self.open_transactions: set[Any] = set()

    def __getattr__(self, name: str) -> Any:
        if self.death.done():
            return self._never
        return getattr(self._universe.store, name)

    async def _never(self, *_: Any, **__: Any) -> Any:
        await asyncio.get_running_loop().create_future()

    async def require_alive(self) -> None:
        """Nothing returns to a host that is dead."""
        if self.death.done():
            await self._never()

    async def die(self) -> None:
        if not self.death.done():
            self.death.set_result(None)
            end_transactions(self)
        await self._never()

    async def commit(self, bundle: Bundle) -> None:
        await self.commit_by(lambda _: self._universe.store.commit(bundle), [bundle])

    async def commit_by(self, commit: Commit, bundles: Bundles, may_lose: bool = True) -> None:
        """Let `commit` write the bundles, unless the host dies before."""
        universe = self._universe
        await self.require_alive()
        universe.commits += 1
        fates = ["commits", "crash before", "crash after"]
        fate = await self.meet_fate(f"commit {universe.commits}", fates, may_lose)
        await asyncio.shield(universe.write(commit, bundles))
        await universe.interlude.play(universe.commits)
        if fate == "crash after":
            await self.die()

    async def meet_fate(self, what: str, fates: Sequence[str], may_lose: bool = True) -> str:
        """What happens to the host now: it may die, or lose its runs."""
        losing = ["lost owner"] if may_lose and self._universe.may_usurp else []
        fate = self._universe.choose(what, [*fates, *losing])
        if fate == "crash before":
            await self.die()
        if fate == "lost owner":
            self._universe.may_usurp = False
            await self._lose_owner()
        return fate

    def submit(self, bundle: Bundle, decided: Decided) -> None:
        task = asyncio.ensure_future(self._submit(bundle, decided))
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def _submit(self, bundle: Bundle, decided: Decided) -> None:
        try:
            await self.commit(bundle)
        except Exception as error:  # whatever a commit raises is its outcome
            decided(error)
        else:
            decided(None)

    async def _lose_owner(self) -> None:
        """Another host takes all runs and brings them to their end, while this one still believes in its own."""
        usurper = self._universe.new_host()
        usurper.victims.add(self._host_id)
        try:
            await usurper.live()
        except Exception as error:  # the host that waits for this commit must not hide it
            self._universe.violations.append(str(error))

    async def due_messages(self, owner: HostId, now_ms: int, limit: int) -> list[Message]:
        await self.require_alive()
        due = await self._universe.store.due_messages(owner, now_ms, limit)
        late, self.late = self.late, []
        if not due:
            return late
        options = ["in order", "again at once", "again later"]
        if len(due) > 1:
            options.append("in reverse")
        fate = self._universe.choose(f"delivery of {len(due)} messages", options)
        if fate == "in reverse":
            due.reverse()
        elif fate == "again at once":
            due = [*due, *due]
        elif fate == "again later":
            self.late = list(due)
        return [*late, *due]

    async def match_hooks(self, now_ms: int, limit: int = MATCHES) -> list[Message]:
        await self.require_alive()
        matched = await self._universe.store.match_hooks(now_ms, limit)
        # To die before is to die after the commit that the look follows.
        if matched:
            fate = self._universe.choose(f"match of {len(matched)}", ["is told", "crash after"])
            if fate == "crash after":
                await self.die()
        return matched

    async def claim_work(
        self,
        host: HostId,
        queues: Sequence[str],
        token: str,
        now_ms: int,
        lease_ms: int,
        limit: int,
    ) -> list[Claim]:
        await self.require_alive()
        store = self._universe.store
        claims = await store.claim_work(host, queues, token, now_ms, lease_ms, limit)
        if claims:
            fate = self._universe.choose(f"claim of {len(claims)}", ["leased", "lease ends early"])
            if fate == "lease ends early":
                self._universe.sources.advance(lease_ms + 1)
        return claims


class ExploredHost(Hosting):
    """A host that lives in a universe, one thing after another: it acts, and when nothing is left time passes."""

    def __init__(self, universe: "Universe", host_id: HostId) -> None:
        self._universe = universe
        self.host_id = host_id
        self._patience = PATIENCE
        self.victims: set[HostId] = set()
        """Hosts that this one takes for dead, though they are not: what they still commit is taken, too."""
        self.mortal = MortalStore(universe, host_id)
        store: Any = self.mortal
        super().__init__(
            store, host_id, universe.codec, universe.sources, universe.settings, universe.queues
        )
        self.host.on_failure = self._failed
        self._try_to_advance = self.host.try_to_advance
        self.host.try_to_advance = self._watch  # type: ignore[method-assign]
        self._set_aside = self.host.parking.set_aside
        self.host.parking.set_aside = self._refused  # type: ignore[method-assign]

    bodies: WatchedBodies

    def _make_bodies(self, codec: Codec, settings: Settings) -> WatchedBodies:
        limits = settings.concurrency, settings.threads
        return WatchedBodies(self._universe, codec, *limits, self._publish)

    def _make_residents(self, settings: Settings) -> Residents:
        return FatefulResidents(self._universe, settings.warm_runs)

    def _failed(self, error: BaseException) -> None:
        self._universe.violations.append(f"the host failed: {error!r}")

    async def _watch(self, run_id: RunId, act: Act) -> bool:
        """Whoever takes in too much at once may try with less: the explorer does not forgive it."""
        try:
            return await self._try_to_advance(run_id, act)
        except Exception as problem:
            self._judge(run_id, problem)
            raise

    async def _refused(self, run_id: RunId, problem: Exception, told: Told | None = None) -> None:
        self._judge(run_id, problem)
        await self._set_aside(run_id, problem, told)

    def _judge(self, run_id: RunId, problem: Exception) -> None:
        """What a run decided can't be written. If that is against the rules of the books, it is the engine's fault."""
        what = f"run {run_id} can't be written: {problem}"
        is_fault = isinstance(problem, IllegalAppend | LedgerError | ReadinessOverflow)
        if is_fault and what not in self._universe.violations:
            self._universe.violations.append(what)

    @property
    def is_dead(self) -> bool:
        return self.mortal.death.done()

    @property
    def tasks(self) -> set[asyncio.Task[Any]]:
        """Everything that goes on by itself."""
        return self.host.tasks | self.mortal.tasks

    async def survive(self, work: Coroutine[Any, Any, T]) -> T | None:
        """What `work` gives, or `None` if the host dies over it."""
        task = asyncio.ensure_future(work)
        either: list[asyncio.Future[Any]] = [task, self.mortal.death]
        try:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                return task.result()
        finally:
            if not task.done():
                task.cancel()
                await asyncio.wait([task])
        return None

    async def live(self) -> None:
        """Advance every run to its end, or die before."""
        try:
            while self._universe.open and not self.is_dead:
                await self.survive(self._go_on())
            if not self.is_dead:
                # What still arrives for runs that are over is dealt with, too.
                await self.survive(self.poller.poll())
        except asyncio.CancelledError:
            # The schedule takes too long, or the host goes down with another one.
            self._universe.lasting.update(self.bodies.lasting)
            raise
        finally:
            await self._bury()

    async def _go_on(self) -> None:
        for dead in [*self._universe.dead, *self.victims]:
            runs = await self.host.store.take_over(dead, self.host_id, 1000)
            self._universe.dead.discard(dead)
            await self.host.resume(runs)
        if tasks := self.tasks:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            return
        await self.poller.poll()
        if self._universe.open and not self.tasks:
            await self._pass_time()

    async def _pass_time(self) -> None:
        """Nothing is to do now: go to the moment when something is."""
        store, sources = self.host.store, self._universe.sources
        times = [await store.next_due(self.host_id), await store.next_work(self._universe.queues)]
        due = min((time for time in times if time is not None), default=None)
        if due is None and await self._universe.interlude.play():
            return
        if due is None and self._patience:
            # Another host may be in the middle of something; and hosts look at their store now and then.
            self._patience -= 1
            sources.advance(POLL_MS)
            await asyncio.sleep(PAUSE_S)
            return
        if due is None:
            raise AssertionError(f"nothing is due and nothing runs, but {await self._left()}")
        self._patience = PATIENCE
        sources.advance(max(0, due - sources.now_ms()))

    async def _left(self) -> str:
        """What is not over, for people."""
        stuck = []
        for run_id in sorted(self._universe.open):
            run = await self._universe.store.run(run_id)
            entries = await self._universe.store.entries(run_id)
            events = "".join(f"\n    {entry.seq} {entry.body}" for entry in entries[-8:])
            mail = "".join(
                f"\n    {message.kind} for {message.step}: {state}, {reason}"
                for message, state, reason in await self._universe.store.messages(run_id)
            )
            state = "gone" if run is None else f"of {run.owner}, {run.parked or 'not parked'}"
            stuck.append(f"{run_id} is open ({state}):{events}{mail}")
        return "\n".join(stuck)

    async def _bury(self) -> None:
        loads = self.host.loader.tasks
        tasks = self.tasks | loads
        self.kill()
        for task in self.mortal.tasks | loads:
            task.cancel()
        if self._universe.open:
            # It died, or went down with the host whose runs it was taking.
            self._universe.dead.add(self.host_id)
        if tasks:
            await asyncio.wait(tasks)
        if going_on := self._universe.writing | self._universe.interlude.playing:
            await asyncio.wait(going_on)
