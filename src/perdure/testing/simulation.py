"""The simulation of one schedule: the store, the virtual time, and a record of what became durable and what began."""

import asyncio
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from perdure.authoring.values.upcaster import reading_old_shapes
from perdure.core.codec import Codec, JsonCodec
from perdure.core.ids import HostId, RunId, StepId
from perdure.core.journal import events as e
from perdure.host.settings import Settings
from perdure.host.tasks.attempt import Attempt
from perdure.store.commit.bundle import Bundle
from perdure.store.store import Store
from perdure.testing.acts import ActChecks
from perdure.testing.artifacts import ArtifactChecker
from perdure.testing.children import ChildChecker
from perdure.testing.explored_host import ExploredHost
from perdure.testing.explorer import VirtualSources
from perdure.testing.graphs import GraphChecker, ReplayCache
from perdure.testing.schedule import Chooser
from perdure.testing.script import Script, awaits_signal
from perdure.testing.simulated_hints import HintExchange
from perdure.testing.streams import StreamFollowers
from perdure.testing.transactions import Bundles, Commit


class Variant(NamedTuple):
    """What differs from the usual simulation."""

    clocks_differ: bool = False
    explored_program: str | None = None
    """With this program, a front end starts the run, and a host may lack the program."""
    has_hints: bool = False


USUAL = Variant()


class Simulation:
    """Everything that outlives a host under one schedule.

    It sees each commit and each task attempt, and collects `violations` of what must hold.
    """

    def __init__(
        self,
        store: Store,
        chooser: Chooser,
        settings: Settings,
        queues: Sequence[str],
        script: Script,
        replays: ReplayCache,
        variant: Variant = USUAL,
    ) -> None:
        self.store = store
        self.script = script
        self.settings = settings
        self.queues = queues
        self.sources = VirtualSources()
        self.clocks_differ, self.explored_program, has_hints = variant
        self.hints = HintExchange(chooser.choose) if has_hints else None
        """Where hosts and the sender outside give each other hints, if they do."""
        self.to_send_again: list[Bundle] = []
        """Messages that their senders will send again."""
        self.started_hosts: list[ExploredHost] = []
        """All hosts in the order of their start; some of them are dead."""
        self.codec: Codec = reading_old_shapes(JsonCodec())
        self._chooser = chooser
        self.choose = chooser.choose
        self.commits = self.calls = self.attempts = self.waits = 0
        """Commits, other calls of hosts to the store, attempts that hosts have begun, and waits of runs."""
        self.may_lose_runs = False
        """Whether a host can lose its runs to another now: at most once, and only after the run has started."""
        self.intents: Counter[tuple[RunId, StepId]] = Counter()
        """Durable starts of attempts, by step."""
        self.begun: Counter[tuple[RunId, StepId]] = Counter()
        """Attempts that hosts have begun, by step."""
        self.completed: set[tuple[RunId, StepId]] = set()
        self.retries: Counter[tuple[RunId, StepId]] = Counter()
        """Retries that the policy of each step still allows."""
        self._budgets: dict[tuple[RunId, StepId], int] = {}
        self.open: set[RunId] = set()
        self.has_runs = False
        self.dead: set[HostId] = set()
        """Dead hosts whose runs no host has taken over yet."""
        self.violations: list[str] = []
        self.unfinished: set[str] = set()
        """The task attempts that were executing when the schedule exceeded its time limit."""
        self.followers = StreamFollowers(store)
        self.graphs = GraphChecker(store, self.codec, replays, is_fused=not settings.stepwise)
        self.children = ChildChecker()
        self.artifacts = ArtifactChecker(store, self.sources)
        self.acts = ActChecks()
        self.writing: set[asyncio.Task[None]] = set()

    def moment(self) -> tuple[int, ...] | None:
        """Equal at two times if only the memory of hosts has changed in between.

        `None` while anything else may change: while a write is under way or an attempt executes.
        """
        if self.writing or any(host.executor.is_executing for host in self.started_hosts):
            return None
        return self.commits, self.calls, self.attempts, self.sources.now_ms()

    async def awaits_signal(self) -> bool:
        """Whether a run waits for a signal that the script, not played yet, may send."""
        if not self.script.is_pending:
            return False
        for run_id in self.open:
            if await self.store.hooks_waiting(run_id) or awaits_signal(
                entry.event for entry in await self.store.entries(run_id)
            ):
                return True
        return False

    def write(self, commit: Commit, bundles: Bundles) -> asyncio.Task[None]:
        """Commit bundles in a task of their own, so that the write completes even if its host dies meanwhile."""
        writing = asyncio.ensure_future(self._write(commit, bundles))
        self.writing.add(writing)
        writing.add_done_callback(self.writing.discard)
        return writing

    async def _write(self, commit: Commit, bundles: Bundles) -> None:
        await self.artifacts.before_commit()
        await commit(bundles)
        for bundle in bundles:
            await self._record(bundle)

    async def _record(self, bundle: Bundle) -> None:
        """Record what the bundle made durable, and check it."""
        self.open.update(run.run_id for run, _ in bundle.created)
        self.has_runs = self.has_runs or bool(bundle.created)
        for appended in [
            *(first for _, first in bundle.created),
            *(more for _, more in bundle.appends),
        ]:
            for entry in appended.entries:
                self._record_event(appended.run_id, entry.event)
        await self.followers.read_new(bundle)
        self.violations += await self.artifacts.check(bundle)
        self.violations += self.children.check(bundle)
        self.violations += self.acts.take(bundle)
        self.violations += self.graphs.take(bundle)
        if not self._chooser.is_repeating:
            self.violations += await self.graphs.check_rows(bundle)

    def note_made(self, run_ids: Iterable[RunId]) -> None:
        """Record runs that admission has made: they are open, with or without entries."""
        self.open.update(run_ids)
        self.has_runs = self.has_runs or bool(self.open)

    def _record_event(self, run_id: RunId, event: e.Event) -> None:
        match event:
            case e.InvokeStarted(step, _):
                self.intents[run_id, step] += 1
            case e.InvokeScheduled(promise_id=step, retry_policy=policy):
                self._budgets[run_id, step] = 0 if policy is None else policy.attempts - 1
                self._set_budget(run_id, step)
            case e.InvokeRetrying(promise_id=step) if not event.parks:
                self._count_retry(run_id, step)
            case e.InvokeCompleted(promise_id=step) | e.StepSkipped(promise_id=step):
                self.completed.add((run_id, step))
            case e.SignalAccepted(signal_type=e.ActType.RETRY_STEP, step=str() as step):
                self._set_budget(run_id, step)
            case e.Terminal():
                self.open.discard(run_id)
            case _:
                pass

    def _set_budget(self, run_id: RunId, step: StepId) -> None:
        """A logical attempt of the step begins."""
        self.retries[run_id, step] = self._budgets[run_id, step]

    def _count_retry(self, run_id: RunId, step: StepId) -> None:
        self.retries[run_id, step] -= 1
        if self.retries[run_id, step] < 0:
            self.violations.append(
                f"step {step} of run {run_id} is retried more often than its policy allows"
            )

    def attempt_began(self, attempt: Attempt, *, has_lost_runs: bool) -> None:
        """Check that the step is not complete, and that the intent of this attempt is durable.

        If its host has lost its runs, that may learn late that the intent is durable, when the next owner has completed
        the step: the attempt is one in doubt. Claims of queued work are not lost with runs.
        """
        run_and_step = attempt.info.run_id, attempt.info.step
        self.violations += self.acts.attempt_began(attempt)
        name = f"{attempt.task.name} ({attempt.info.step})"
        self.attempts += 1
        self.begun[run_and_step] += 1
        if run_and_step in self.completed and (attempt.is_claimed or not has_lost_runs):
            self.violations.append(f"{name} began again after its completion was durable")
        if not attempt.is_claimed and self.begun[run_and_step] > self.intents[run_and_step]:
            self.violations.append(f"{name} began before its intent was durable")

    def new_host(self) -> ExploredHost:
        host = ExploredHost(self, HostId(f"host-{len(self.started_hosts) + 1}"))
        self.started_hosts.append(host)
        return host
