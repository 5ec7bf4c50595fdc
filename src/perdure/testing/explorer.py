"""The crash explorer for scenarios: runs a scenario under every schedule of faults, and checks the store after each.

A scenario gets a `World`. At each commit through its store the host may crash just before or just after the commit
becomes durable, or may lose its runs to another host. Time moves only when the scenario moves it. The scenario runs its
program to the end under all faults, and asserts what must hold then. Workflows and graphs on real hosts are explored by
`perdure.testing.workflows`.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from hashlib import sha256
from typing import Any, NamedTuple

from perdure.engine.sources import Sources
from perdure.store.commit.bundle import Bundle
from perdure.store.opening import open_store
from perdure.store.store import Store
from perdure.testing.checkers import assert_sound
from perdure.testing.schedule import Chooser, FaultSchedules

OpenStore = Callable[[], AbstractAsyncContextManager[Store]]


class Killed(BaseException):
    """The host's process was killed. A `BaseException`, so that the program can't catch it."""


class ScheduleFailed(AssertionError):
    """A check failed under a schedule. The text lists the faults of the schedule."""


class VirtualSources(Sources):
    """Time that only `advance` moves, and entropy that is the same in every schedule."""

    def __init__(self, start_ms: int = 1_700_000_000_000) -> None:
        super().__init__()
        self._now_ms = start_ms
        self._drawn = 0

    def now_ms(self) -> int:
        return self._now_ms

    def advance(self, ms: int) -> None:
        self._now_ms += ms

    def restart_entropy(self) -> None:
        """Repeat the entropy from its beginning. Safe only if nothing that was drawn has become durable."""
        self._drawn = 0

    def entropy(self, count: int) -> bytes:
        self._drawn += 1
        seed = self._drawn.to_bytes(8, "big")
        blocks = (sha256(seed + bytes([n])).digest() for n in range(count // 32 + 1))
        return b"".join(blocks)[:count]


class FaultyStore:
    """The store as one host sees it: at each commit the host may crash, or lose its runs to another host."""

    def __init__(self, world: "World") -> None:
        self._world = world

    def __getattr__(self, name: str) -> Any:
        return getattr(self._world.store, name)

    async def commit(self, bundle: Bundle) -> None:
        world = self._world
        world.commits += 1
        options = ["commits", "crash before", "crash after"]
        if world.usurp is not None:
            options.append("lost owner")
        fault = world.choose(f"commit {world.commits}", options)
        if fault == "crash before":
            raise Killed
        if fault == "lost owner":
            await world.lose_owner()
        await world.store.commit(bundle)
        if fault == "crash after":
            raise Killed


class World:
    """The store, the time and the choices of one schedule.

    A scenario may set `usurp`: it lets another host take over and finish the runs, while the first host still
    believes that it owns them.
    """

    def __init__(self, store: Store, chooser: Chooser) -> None:
        self.store = store
        self.sources = VirtualSources()
        self.commits = 0
        self.choose = chooser.choose
        self.usurp: Callable[[], Awaitable[None]] | None = None

    def host_store(self) -> Any:
        """The store for a host of the scenario: its commits may fail."""
        return FaultyStore(self)

    async def lose_owner(self) -> None:
        """Let the other host take the runs. No third host takes them from that one."""
        usurp, self.usurp = self.usurp, None
        if usurp is not None:
            await usurp()


class Exploration(NamedTuple):
    """What an exploration covered.

    `faults` are all faults that it tried, such as "commit 3: crash after". `endings` are all endings of the run, such
    as "completed 42".
    """

    schedules: int
    commits: int
    faults: frozenset[str]
    endings: frozenset[str] = frozenset()

    def __str__(self) -> str:
        ended = f"; the run ended {' or '.join(sorted(self.endings))}" if self.endings else ""
        return f"{self.schedules:,} schedules, {self.commits:,} commits{ended}"


@asynccontextmanager
async def memory_store() -> AsyncIterator[Store]:
    """An in-memory SQLite store, the default: it is the fastest."""
    store = await open_store("sqlite:///:memory:")
    try:
        yield store
    finally:
        await store.close()


async def explore(
    scenario: Callable[[World], Awaitable[None]],
    *,
    max_faults: int = 1,
    open_store: OpenStore = memory_store,
) -> Exploration:
    """Run `scenario` under every schedule of at most `max_faults` faults, each on a new store.

    After each schedule `assert_sound` checks the store. Raises `ScheduleFailed` at the first schedule that fails.
    """
    count = commits = 0
    faults: set[str] = set()
    for chooser in FaultSchedules(max_faults):
        async with open_store() as store:
            world = World(store, chooser)
            try:
                await scenario(world)
                await assert_sound(store)
            except (Exception, Killed) as error:
                schedule = "\n".join(f"  {choice}" for choice in chooser.faults) or "  (no fault)"
                what = str(error) or repr(error)
                raise ScheduleFailed(f"{what}\nunder the schedule\n{schedule}") from error
        count += 1
        commits += world.commits
        faults.update(map(str, chooser.faults))
    return Exploration(count, commits, frozenset(faults))
