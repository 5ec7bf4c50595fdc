"""The crash explorer: run a scenario under every schedule of faults, and check it after each.

A scenario gets a `World`: a store whose commits can crash their host just before or just after they
become durable, or lose the run to another host meanwhile; and sources whose time stands still until it is moved.
It runs its program to the end, whatever happens, and asserts what must be true then.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from hashlib import sha256
from typing import Any, NamedTuple

from perdure.engine.sources import Sources
from perdure.store.bundle import Bundle
from perdure.store.opening import open_store
from perdure.store.store import Store
from perdure.testing.checkers import assert_sound
from perdure.testing.schedule import Chooser, Schedules

OpenStore = Callable[[], AbstractAsyncContextManager[Store]]


class Killed(BaseException):
    """The host's process is gone. Not an `Exception`: nothing in the program may catch it."""


class ScheduleFailed(AssertionError):
    """A schedule under which something that must hold did not. The text lists its faults."""


class VirtualSources(Sources):
    """Time that moves only when told to, and entropy that is the same in every run."""

    def __init__(self, start_ms: int = 1_700_000_000_000) -> None:
        super().__init__()
        self._now_ms = start_ms
        self._drawn = 0

    def now_ms(self) -> int:
        return self._now_ms

    def advance(self, ms: int) -> None:
        self._now_ms += ms

    def entropy(self, count: int) -> bytes:
        self._drawn += 1
        seed = self._drawn.to_bytes(8, "big")
        blocks = (sha256(seed + bytes([n])).digest() for n in range(count // 32 + 1))
        return b"".join(blocks)[:count]


class FaultyStore:
    """A store seen by one host: at each commit it may die, or be taken for dead."""

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
        fate = world.choose(f"commit {world.commits}", options)
        if fate == "crash before":
            raise Killed
        if fate == "lost owner":
            await world.lose_owner()
        await world.store.commit(bundle)
        if fate == "crash after":
            raise Killed


class World:
    """What a scenario lives in, under one schedule.

    `usurp`, if the scenario sets it, is how another host takes the runs of this one and goes on with
    them while this one still believes in its own.
    """

    def __init__(self, store: Store, chooser: Chooser) -> None:
        self.store = store
        self.sources = VirtualSources()
        self.commits = 0
        self.choose = chooser.choose
        self.usurp: Callable[[], Awaitable[None]] | None = None

    def host_store(self) -> Any:
        """The store as a host sees it, which commits through fate."""
        return FaultyStore(self)

    async def lose_owner(self) -> None:
        """Let the usurper run. It can't be usurped in turn."""
        usurp, self.usurp = self.usurp, None
        if usurp is not None:
            await usurp()


class Exploration(NamedTuple):
    """How much was explored. `faults` are all that were tried, such as "commit 3: crash after"."""

    schedules: int
    commits: int
    faults: frozenset[str]

    def __str__(self) -> str:
        return f"{self.schedules:,} schedules, {self.commits:,} commits"


@asynccontextmanager
async def memory_store() -> AsyncIterator[Store]:
    """A SQLite store in memory: the fast default."""
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
    """Run `scenario` under every schedule of at most `max_faults` faults, on a fresh store each.

    After each, the store must be sound. Raises `ScheduleFailed` at the first that is not.
    """
    count = commits = 0
    faults: set[str] = set()
    for chooser in Schedules(max_faults):
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
