"""The three steps under every small schedule of crashes, lost owners and repeated messages."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import asyncpg
import pytest

from perdure.core.errors import AttemptsExhausted
from perdure.core.ids import HostId
from perdure.core.journal.events import Posted, Posting
from perdure.core.ledger import ATTEMPT, AccountId, step_account
from perdure.engine.runs.commit_mode import CommitMode
from perdure.store.commit.bundle import Bundle
from perdure.store.opening import open_store
from perdure.store.sqlite import writing
from perdure.store.store import Store
from perdure.testing.explorer import Exploration, ScheduleFailed, World, explore
from tests.engine.exploring import TreeScenario
from tests.engine.seeded_bugs import BUGS, SeededBug
from tests.engine.tree import TRIGGER, Tree, TreeHost, step_id

LONE = Tree({})
LEAF = Tree({TRIGGER: ("a",)})
CHAIN = Tree({TRIGGER: ("a",), "a": ("b",)})
PAIR = Tree({TRIGGER: ("a", "b")})
MIXED = Tree({TRIGGER: ("a", "p"), "p": ("b",)}, frozenset("p"))
WIDE = Tree({TRIGGER: ("a", "p"), "a": ("b", "c"), "p": ("d",)}, frozenset("p"))

TREES = {"lone": LONE, "leaf": LEAF, "chain": CHAIN, "pair": PAIR, "mixed": MIXED, "wide": WIDE}
Print = Callable[[str], None]


@pytest.fixture
def show(record_property: Callable[[str, object], None]) -> Print:
    """Puts a line under "explored" at the end of the test run, from whichever worker."""
    return lambda text: record_property("explored", text)


async def explore_all(scenario: TreeScenario, max_faults: int) -> Exploration:
    """Explore, and see that every commit was crashed before, after, and under a lost owner."""
    plain = await explore(scenario, max_faults=0)
    explored = await explore(scenario, max_faults=max_faults)
    commits = range(1, plain.commits + 1)
    fates = ("crash before", "crash after", "lost owner")
    assert explored.faults >= {f"commit {n}: {fate}" for n in commits for fate in fates}
    repeats = {f"{fault}" for fault in explored.faults if "is sent: again" in fault}
    assert len(repeats) >= 2 * len(scenario.tree.steps)
    assert explored.schedules > (3 * plain.commits) ** max_faults / max_faults
    return explored


@pytest.mark.parametrize("mode", list(CommitMode))
@pytest.mark.parametrize("name", TREES)
async def test_a_tree_is_driven_exactly_once_through_any_single_fault(
    name: str, mode: CommitMode, show: Print
) -> None:
    explored = await explore_all(TreeScenario(TREES[name], mode), 1)
    show(f"{name}, {mode.value}, 1 fault: {explored}")


@pytest.mark.parametrize("mode", list(CommitMode))
@pytest.mark.parametrize("name", ["lone", "leaf"])
async def test_a_small_tree_is_driven_exactly_once_through_any_two_faults(
    name: str, mode: CommitMode, show: Print
) -> None:
    explored = await explore_all(TreeScenario(TREES[name], mode), 2)
    show(f"{name}, {mode.value}, 2 faults: {explored}")


@pytest.mark.deep
@pytest.mark.parametrize("mode", list(CommitMode))
@pytest.mark.parametrize("name", ["chain", "pair", "mixed"])
async def test_a_tree_is_driven_exactly_once_through_any_two_faults(
    name: str, mode: CommitMode, show: Print
) -> None:
    explored = await explore_all(TreeScenario(TREES[name], mode), 2)
    show(f"{name}, {mode.value}, 2 faults: {explored}")


async def test_a_tree_is_driven_exactly_once_by_a_host_that_loads_for_every_message(
    show: Print,
) -> None:
    explored = await explore(TreeScenario(MIXED, CommitMode.STEPWISE, warm=False), max_faults=1)
    show(f"mixed, stepwise, cold: {explored}")
    assert explored.schedules > 60


@pytest.mark.parametrize("mode", list(CommitMode))
async def test_a_tree_is_driven_exactly_once_on_postgres(
    worker_database: str, mode: CommitMode, show: Print
) -> None:
    explored = await explore(
        TreeScenario(LEAF, mode), max_faults=1, open_store=_postgres(worker_database)
    )
    show(f"leaf, {mode.value}, Postgres: {explored}")
    assert explored.schedules >= 14


def _postgres(url: str) -> Callable[[], AbstractAsyncContextManager[Store]]:
    @asynccontextmanager
    async def fresh() -> AsyncIterator[Store]:
        connection = await asyncpg.connect(url)
        await connection.execute("DROP SCHEMA IF EXISTS perdure CASCADE")
        await connection.close()
        store = await open_store(url)
        try:
            yield store
        finally:
            await store.close()

    return fresh


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
async def test_the_explorer_catches(
    bug: SeededBug, monkeypatch: pytest.MonkeyPatch, show: Print
) -> None:
    for name, (old, new) in bug.patches.items():
        sql = writing._SQL[name]
        assert old in sql, f"the patch of {name} does not fit its statement any more"
        monkeypatch.setitem(writing._SQL, name, sql.replace(old, new))
    with pytest.raises(ScheduleFailed) as caught:
        await _explore_in_both_modes(bug)
    show(f"caught {bug.name}: {caught.value}".replace("\n", "\n    "))
    assert "under the schedule" in str(caught.value)
    assert ("(no fault)" in str(caught.value)) is bug.shows_without_a_fault


async def _explore_in_both_modes(bug: SeededBug) -> None:
    for mode in CommitMode:
        await explore(TreeScenario(CHAIN, mode, protocol=bug.protocol()), max_faults=1)


class WornStep:
    """A step that was entered 99 times: the next entry must fail fast, and change nothing."""

    async def __call__(self, world: World) -> None:
        host = TreeHost(world.store, HostId("host"), LEAF, world.sources)
        run_id = await host.start("worn")
        loaded = await host.load(run_id)
        account = step_account(step_id("a"))
        for _ in range(99):
            bundle = Bundle()
            entered = Posted("attempt", (Posting(account, ATTEMPT),))
            bundle.append(loaded.fence, loaded.append([entered], world.sources))
            await world.store.commit(bundle)
        with pytest.raises(AttemptsExhausted) as refused:
            await host.turn()
        assert run_id in str(refused.value)
        assert "step 'a,0'" in str(refused.value)
        assert await world.store.balance(run_id, account) == 99 * ATTEMPT


async def test_the_hundredth_entry_fails_fast() -> None:
    await explore(WornStep(), max_faults=0)


async def test_the_explorer_catches_a_skipped_overflow_check(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def unchecked(_: AccountId, balance: int, increment: int) -> int:
        return balance + increment

    monkeypatch.setattr("perdure.core.journal.journal.post_to", unchecked)
    with pytest.raises(BaseException, match="DID NOT RAISE"):
        await explore(WornStep(), max_faults=0)
