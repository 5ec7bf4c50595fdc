import pytest

from perdure.core.errors import StaleFence
from perdure.core.journal import events as e
from perdure.core.ledger import (
    CLOSED,
    COMPLETED,
    SPAWNED,
    WORK_DONE,
    MessageLedger,
    message_account,
)
from perdure.store.store import Store
from tests.store.builders import NOW, Driven, begun, contents, raw

pytestmark = pytest.mark.asyncio


async def test_a_spawn_settles_the_semaphore_and_sends_the_children(store: Store) -> None:
    run = await begun(store)
    children = [run.message("child", str(n), arrival=n) for n in range(3)]
    bundle, guid = run.spawn(*children)
    await store.commit(bundle)
    found = await store.run(run.run_id)
    assert found is not None
    assert found.semaphore == 4
    assert [message for message, _, _ in await store.messages(run.run_id)] == children
    digits = await store.balance(run.run_id, message_account(guid))
    assert digits // SPAWNED % 10 == 1
    assert digits // CLOSED % 10 == 0


async def test_the_closed_bit_is_set_only_when_the_threshold_is_reached(store: Store) -> None:
    run = await begun(store)
    open_still, first = run.spawn()
    await store.commit(open_still)
    closing, last = run.spawn()
    await store.commit(closing)
    balances = await store.balances(run.run_id)
    assert balances[message_account(first)] == WORK_DONE + SPAWNED + 1
    assert balances[message_account(last)] == WORK_DONE + SPAWNED + CLOSED + 1
    found = await store.run(run.run_id)
    assert found is not None
    assert found.semaphore == 0


async def test_the_message_that_closed_a_run_completes_it(store: Store) -> None:
    run = Driven()
    await store.commit(run.start())
    closing, guid = run.spawn()
    await store.commit(closing)
    await store.commit(run.appending(e.ExecutionCompleted(released=0, guid=guid)))
    digits = await store.balance(run.run_id, message_account(guid))
    assert digits == WORK_DONE + SPAWNED + CLOSED + COMPLETED + 1
    assert MessageLedger(digits).closed
    found = await store.run(run.run_id)
    assert found is not None
    assert found.closed_at_ms == NOW


async def test_any_threshold_closes_not_only_zero(store: Store) -> None:
    run = await begun(store)
    bundle, guid = run.spawn(run.message("child"), threshold=2)
    await store.commit(bundle)
    digits = await store.balance(run.run_id, message_account(guid))
    assert digits // CLOSED % 10 == 1


async def test_the_closed_bit_is_decided_on_the_stored_row_not_on_memory(
    store: Store, tampering: None
) -> None:
    run = await begun(store)
    closing, _ = run.spawn(run.message("child"))
    await raw(store, "UPDATE {}run SET semaphore = 9")
    before = await contents(store)
    with pytest.raises(StaleFence) as stale:
        await store.commit(closing)
    assert stale.value.code == "stale-fence"
    assert await contents(store) == before
    assert run.fence.broken


async def test_children_of_a_rejected_spawn_are_not_sent(store: Store) -> None:
    run, child = await begun(store), await begun(store)
    spawning, _ = run.spawn(child.message("from its parent"))
    await store.commit((await run.reload(store)).step())
    with pytest.raises(StaleFence):
        await store.commit(spawning)
    assert await store.messages(child.run_id) == []
