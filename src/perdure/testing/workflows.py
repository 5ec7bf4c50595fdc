"""The crash explorer for programs: your workflow or graph, under every schedule of faults.

A real host runs the program on a store in memory and on a clock that stands still until nothing else is to do.
At every commit the host may die just before it or just after it, or lose the run to another host; at every wait the
run may leave memory; messages may come twice or in another order; a lease on queued work may end too early. After
each schedule the run must have ended as it does without faults, the books must balance, and no step may have begun
that was finished, or whose intent was not durable.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

from perdure.authoring.program import Program, ProgramCall
from perdure.authoring.registry import register
from perdure.authoring.upcaster import reading_old_shapes
from perdure.client.handle import Handle
from perdure.core.codec import Codec, JsonCodec
from perdure.core.errors import RunExists
from perdure.core.ids import HostId, RunId, StepId
from perdure.core.journal import events as e
from perdure.core.journal.state import TERMINAL, Status
from perdure.host.batch import Start
from perdure.host.body import Body
from perdure.host.settings import Settings
from perdure.store.bundle import Bundle
from perdure.store.store import Store
from perdure.testing.checkers import assert_sound
from perdure.testing.explorer import (
    Exploration,
    OpenStore,
    ScheduleFailed,
    VirtualSources,
    memory_store,
)
from perdure.testing.fates import Outside
from perdure.testing.graphs import GraphWatch, Journals, differences
from perdure.testing.interlude import After, Interlude, Script
from perdure.testing.mortal import ExploredHost
from perdure.testing.schedule import Chooser, Schedules
from perdure.testing.streams import Audience, Streamed, streamed
from perdure.testing.transactions import Bundles, Commit

MODES: dict[str, Settings] = {
    "warm": Settings(probation=0),
    "always replayed": Settings(warm_runs=0, probation=0),
    "stepwise": Settings(stepwise=True, probation=0),
}

LONGEST_S = 20.0
"""Real time after which a schedule counts as stuck."""


class Ended(NamedTuple):
    """How a run ended, what it streamed that counts, and what graphs journaled."""

    status: Status
    payload: bytes | None
    streams: Streamed = {}  # noqa: RUF012 - never changed
    journals: Journals = {}  # noqa: RUF012 - never changed

    def __str__(self) -> str:
        text = (self.payload or b"").decode(errors="replace")
        streams = f", having streamed {self.streams}" if self.streams else ""
        return f"{self.status} {text[:300]}{streams}"


Check = Callable[[Ended], None]
"""Asserts how a run must end."""


class Race(NamedTuple):
    """A check of a run that may end otherwise than without faults: this alone says how."""

    check: Check


class Universe:
    """What outlives a host: the store, the time, and the memory of what was durable and what was begun."""

    def __init__(
        self,
        store: Store,
        chooser: Chooser,
        settings: Settings,
        queues: Sequence[str],
        interlude: Interlude,
    ) -> None:
        self.store = store
        self.interlude = interlude
        self.settings = settings
        self.queues = queues
        self.sources = VirtualSources()
        self.codec: Codec = reading_old_shapes(JsonCodec())
        self.choose = chooser.choose
        self.commits = 0
        self.waits = 0
        self.hosts = 0
        self.may_usurp = False
        """Whether a host can lose its runs now: once, and not before the script was played."""
        self.intents: Counter[tuple[RunId, StepId]] = Counter()
        self.begun: Counter[tuple[RunId, StepId]] = Counter()
        self.completed: set[tuple[RunId, StepId]] = set()
        self.retries: Counter[tuple[RunId, StepId]] = Counter()
        """How many are left to each step."""
        self.open: set[RunId] = set()
        self.dead: set[HostId] = set()
        """Hosts that died, and whose runs nobody has taken over yet."""
        self.violations: list[str] = []
        self.lasting: set[str] = set()
        """The tasks that were executed when the time was up."""
        self.audience = Audience(store)
        is_fused = not settings.stepwise
        self.graphs = GraphWatch(store, self.codec, is_fused=is_fused)
        self.writing: set[asyncio.Task[None]] = set()

    def write(self, commit: Commit, bundles: Bundles) -> asyncio.Task[None]:
        """Commit bundles, though their host may die over others meanwhile."""
        writing = asyncio.ensure_future(self._write(commit, bundles))
        self.writing.add(writing)
        writing.add_done_callback(self.writing.discard)
        return writing

    async def _write(self, commit: Commit, bundles: Bundles) -> None:
        await commit(bundles)
        for bundle in bundles:
            await self._remember(bundle)

    async def _remember(self, bundle: Bundle) -> None:
        """What a bundle says, now that it is durable."""
        self.open.update(run.run_id for run, _ in bundle.created)
        for appended in [
            *(first for _, first in bundle.created),
            *(more for _, more in bundle.appends),
        ]:
            for entry in appended.entries:
                match entry.event:
                    case e.InvokeStarted(step, _):
                        self.intents[appended.run_id, step] += 1
                    case e.InvokeScheduled(promise_id=step, retry_policy=policy):
                        attempts = 1 if policy is None else policy.attempts
                        self.retries[appended.run_id, step] = attempts - 1
                    case e.InvokeRetrying(promise_id=step):
                        self._count_retry(appended.run_id, step)
                    case e.InvokeCompleted(promise_id=step):
                        self.completed.add((appended.run_id, step))
                    case e.Terminal():
                        self.open.discard(appended.run_id)
                    case _:
                        pass
        await self.audience.look(bundle)
        self.violations += await self.graphs.look(bundle)

    def _count_retry(self, run_id: RunId, step: StepId) -> None:
        self.retries[run_id, step] -= 1
        if self.retries[run_id, step] < 0:
            self.violations.append(
                f"{step} of run {run_id} is tried more often than its policy says"
            )

    def began(self, body: Body) -> None:
        """A body begins: was it to?"""
        place = body.info.run_id, body.info.step
        name = f"{body.task.name} ({body.info.step})"
        self.begun[place] += 1
        if place in self.completed:
            self.violations.append(f"{name} began again after its completion was durable")
        if not body.is_claimed and self.begun[place] > self.intents[place]:
            self.violations.append(f"{name} began before its intent was durable")

    def judge(self, ended: Ended, expected: Ended | None) -> None:
        """Whether the run ended as it does without faults, if it must, and nothing began that was not to."""
        if self.violations:
            raise AssertionError("\n".join(self.violations))
        if expected is None or ended == expected:
            return
        journaled = "\n".join(differences(ended.journals, expected.journals))
        raise AssertionError(
            f"the run ended {ended}, but without faults it ends {expected}\n{journaled}".rstrip()
        )

    def new_host(self) -> ExploredHost:
        self.hosts += 1
        return ExploredHost(self, HostId(f"host-{self.hosts}"))


async def run_once(universe: Universe, call: ProgramCall[Any]) -> Ended:
    """Start the program and bring it to its end, by as many hosts as it takes."""
    program = call.definition
    assert isinstance(program, Program)  # noqa: S101 - refused before
    register(program)
    call.use()
    start = Start(program, universe.codec.encode(call.arguments), key="explored")
    outside = Outside(universe)
    run_id: RunId | None = None
    while run_id is None:
        host = universe.new_host()
        try:
            run_id = await host.survive(host.host.start(start))
        except RunExists as taken:
            run_id = RunId(taken.run_id)
        if run_id is None:
            await host.live()
            continue
        universe.interlude.open(Handle(outside, run_id, program))
        await universe.interlude.play(universe.commits)
        universe.may_usurp = True
        await host.live()
    while universe.open:
        await universe.new_host().live()
    outside.kill()
    run = await universe.store.chain_end(run_id)
    assert run is not None and run.status in TERMINAL  # noqa: S101, PT018 - it is not open
    (last,) = await universe.store.entries(run.run_id, run.seq - 1, run.seq)
    await universe.audience.agree()
    universe.violations += await universe.graphs.left_over()
    streams = await streamed(universe.store, run_id)
    return Ended(run.status, last.payload, streams, universe.graphs.journals())


@asynccontextmanager
async def _in_time(universe: Universe) -> AsyncIterator[None]:
    """Say what takes so long, if anything does."""
    limit = asyncio.timeout(LONGEST_S)
    try:
        async with limit:
            yield
    except TimeoutError:
        if not limit.expired():
            raise
        what = f"the run is not over after {LONGEST_S:g} s"
        if universe.lasting:
            what += (
                f", and these tasks still run: {', '.join(sorted(universe.lasting))}\n"
                "tasks, and their timeouts, take real time in an exploration, and timers wait for them: "
                "let them end soon, or give them a short timeout there, such as 0.01"
            )
        raise AssertionError(what) from None


async def explore_workflow(
    make_call: Callable[[], ProgramCall[Any]],
    *,
    script: Script | After | None = None,
    queues: Sequence[str] = (),
    max_faults: int = 1,
    modes: Sequence[str] = tuple(MODES),
    open_store: OpenStore = memory_store,
    check: Check | Race | None = None,
) -> Exploration:
    """Run the workflow or graph that `make_call` calls under every schedule of at most `max_faults` faults.

    `script` is what somebody outside does to the run once it has started, or `After` so many commits; `queues` are
    those that its tasks go to. `modes` are ways to run it: "warm", "always replayed", "stepwise". `check` asserts how
    it must end; as a `Race`, it need not end as it does without faults. Raises `ScheduleFailed`, with the schedule,
    at the first one under which something that must hold does not.
    """
    expected: Ended | None = None
    is_race = isinstance(check, Race)
    must_end = check.check if isinstance(check, Race) else check
    total = Exploration(0, 0, frozenset())
    for mode in modes:
        for chooser in Schedules(max_faults, is_strict=open_store is memory_store):
            async with open_store() as store:
                interlude = Interlude(script)
                universe = Universe(store, chooser, MODES[mode], tuple(queues), interlude)
                try:
                    async with _in_time(universe):
                        ended = await run_once(universe, make_call())
                    expected = None if is_race else expected or ended
                    universe.judge(ended, expected)
                    if must_end is not None:
                        must_end(ended)
                    await assert_sound(store)
                except Exception as error:
                    faults = "\n".join(f"  {choice}" for choice in chooser.faults)
                    said = str(error) or repr(error)
                    what = "\n".join(
                        [each for each in universe.violations if each not in said] + [said]
                    )
                    raise ScheduleFailed(
                        f"{what}\n{mode}, under the schedule\n{faults or '  (no fault)'}"
                    ) from error
            total = Exploration(
                total.schedules + 1,
                total.commits + universe.commits,
                total.faults | set(map(str, chooser.faults)),
            )
    return total
