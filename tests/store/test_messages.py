import msgspec
import pytest

from perdure.core.errors import StaleFence
from perdure.core.journal import events as e
from perdure.core.ledger import ENTRY, SPAWNED, WORK_DONE, message_account
from perdure.core.messages import AT_ONCE, Message
from perdure.store.commit.bundle import Bundle
from perdure.store.store import Store
from tests.store.builders import HOST, NOW, OTHER_HOST, Driven, begun, sending, together

pytestmark = pytest.mark.asyncio


async def due(store: Store, now_ms: int = NOW) -> list[Message]:
    return await store.due_messages(HOST, now_ms, 100)


def delivered(run: Driven, *parts: str, number: int = 1) -> Bundle:
    """The run takes a signal in: the entry and the acknowledgement in one bundle."""
    bundle = run.appending(e.SignalDelivered("approval", number, run.guid(*parts), payload=b"1"))
    bundle.acknowledge(run.fence, run.guid(*parts))
    return bundle


async def test_a_message_reads_back_as_it_was_sent(store: Store) -> None:
    run = await begun(store)
    message = run.message("approve", arrival=7)
    await store.commit(sending(message))
    assert await due(store) == [message]
    assert await store.messages(run.run_id) == [(message, "pending", None)]


async def test_a_message_without_step_and_payload_reads_back(store: Store) -> None:
    run = await begun(store)
    message = msgspec.structs.replace(run.message("cancel"), step=None, payload=None)
    await store.commit(sending(message))
    assert await due(store) == [message]


async def test_a_message_sent_twice_is_one_and_the_first_counts(store: Store) -> None:
    run = await begun(store)
    first = run.message("approve", arrival=1)
    again = msgspec.structs.replace(first, arrival=9, payload=b"other")
    await store.commit(sending(first, first))
    await store.commit(sending(again))
    assert await due(store) == [first]


async def test_a_message_is_not_delivered_before_it_is_due(store: Store) -> None:
    run = await begun(store)
    timer = run.message("timer", due_at_ms=NOW + 1000)
    await store.commit(sending(timer))
    assert await due(store, NOW + 999) == []
    assert await due(store, NOW + 1000) == [timer]


async def test_a_message_stays_until_it_is_acknowledged(store: Store) -> None:
    run = await begun(store)
    await store.commit(sending(run.message("approve")))
    for _ in range(3):
        assert len(await due(store)) == 1
    await store.commit(delivered(run, "approve"))
    assert await due(store) == []
    assert await store.messages(run.run_id) == []
    account = message_account(run.guid("approve"))
    assert await store.balance(run.run_id, account) == WORK_DONE + SPAWNED + ENTRY


async def test_a_late_message_with_an_early_arrival_is_found(store: Store) -> None:
    """Commit order is not arrival order, so a reader can't remember a position."""
    run = await begun(store)
    seen = run.message("b", arrival=20)
    await store.commit(sending(seen))
    assert await due(store) == [seen]
    late = run.message("a", arrival=10)
    await store.commit(sending(late))
    assert await due(store) == [late, seen]
    await store.commit(delivered(run, "b"))
    assert await due(store) == [late]


async def test_messages_come_in_the_order_of_arrival(store: Store) -> None:
    run = await begun(store)
    messages = [run.message(str(n), arrival=n) for n in (5, 3, 9, 1)]
    await store.commit(sending(*messages))
    ordered = sorted(messages, key=lambda message: message.arrival)
    assert await due(store) == ordered
    assert await store.due_messages(HOST, NOW, 2) == ordered[:2]
    assert [message for message, _, _ in await store.messages(run.run_id)] == ordered


async def test_timers_come_after_what_is_due_at_once_and_in_the_order_of_their_times(
    store: Store,
) -> None:
    run = await begun(store)
    late = run.message("late", due_at_ms=NOW - 1, arrival=1)
    early = run.message("early", due_at_ms=NOW - 2, arrival=2)
    signal = run.message("signal", due_at_ms=AT_ONCE, arrival=3)
    await store.commit(sending(late, early, signal))
    assert await due(store) == [signal, early, late]


async def test_a_rejected_bundle_leaves_its_message(store: Store) -> None:
    run = await begun(store)
    await store.commit(sending(run.message("approve")))
    await store.commit((await run.reload(store)).step())
    with pytest.raises(StaleFence):
        await store.commit(delivered(run, "approve"))
    assert len(await due(store)) == 1
    again = await run.reload(store)
    await store.commit(delivered(again, "approve"))
    assert await due(store) == []


@pytest.mark.parametrize("state", ["stale", "dead"])
async def test_a_marked_message_stays_out_of_delivery_with_its_reason(
    store: Store, state: str
) -> None:
    run = await begun(store)
    late, other = run.message("late", arrival=1), run.message("other", arrival=2)
    await store.commit(sending(late, other))
    bundle = Bundle()
    bundle.mark(run.fence, late.guid, state, "the step is settled")
    await store.commit(bundle)
    assert await due(store) == [other]
    assert await store.messages(run.run_id) == [
        (late, state, "the step is settled"),
        (other, "pending", None),
    ]
    await store.commit(sending(late))
    assert await due(store) == [other]


async def test_messages_are_due_for_a_hosts_own_runs_and_for_closed_runs(
    store: Store,
) -> None:
    mine, over = await begun(store), await begun(store, owner=None)
    theirs, unowned = await begun(store, owner=OTHER_HOST), await begun(store, owner=None)
    for number, run in enumerate((mine, over, theirs, unowned)):
        await store.commit(sending(run.message("hello", arrival=number)))
    await store.commit(over.finish())
    assert [message.run_id for message in await due(store)] == [mine.run_id, over.run_id]
    await store.take_run(unowned.run_id, None, HOST)
    assert [message.run_id for message in await due(store)][2:] == [unowned.run_id]


async def test_a_message_follows_its_run_to_a_new_owner(store: Store) -> None:
    run = await begun(store)
    await store.commit(sending(run.message("approve")))
    await store.take_over(HOST, OTHER_HOST, 10)
    assert await due(store) == []
    assert len(await store.due_messages(OTHER_HOST, NOW, 10)) == 1


async def test_a_message_may_be_sent_before_its_run_exists(store: Store) -> None:
    run = Driven()
    message = run.message("early")
    await store.commit(sending(message))
    assert await due(store) == []
    await store.commit(run.start())
    assert await due(store) == [message]


async def test_a_message_does_not_touch_the_row_of_its_run(store: Store) -> None:
    run = await begun(store)
    before = await store.run(run.run_id)
    await store.commit(sending(run.message("approve")))
    assert await store.run(run.run_id) == before
    await store.commit(run.step())


async def test_the_same_parts_sent_to_two_runs_are_two_messages(store: Store) -> None:
    first, second = await begun(store), await begun(store)
    await store.commit(sending(first.message("approve"), second.message("approve")))
    await store.commit(delivered(first, "approve"))
    assert [message.run_id for message in await due(store)] == [second.run_id]


async def test_a_message_can_be_sent_and_taken_in_by_one_bundle(store: Store) -> None:
    run = await begun(store)
    await store.commit(together(sending(run.message("approve")), delivered(run, "approve")))
    assert await store.messages(run.run_id) == []


async def test_the_next_due_time_is_the_earliest_of_a_hosts_own_runs(store: Store) -> None:
    """A message to an open run without an owner waits until a host takes the run."""
    mine, nobodys = await begun(store), await begun(store, owner=None)
    theirs = await begun(store, owner=OTHER_HOST)
    assert await store.next_due(HOST) is None
    await store.commit(sending(theirs.message("a", due_at_ms=NOW + 1)))
    assert await store.next_due(HOST) is None
    await store.commit(sending(mine.message("b", due_at_ms=NOW + 9)))
    assert await store.next_due(HOST) == NOW + 9
    await store.commit(sending(nobodys.message("c", due_at_ms=NOW - 5)))
    assert await store.next_due(HOST) == NOW + 9
    assert await store.next_due(OTHER_HOST) == NOW + 1


async def test_a_message_that_is_no_longer_delivered_is_not_due_next(store: Store) -> None:
    run, absent = await begun(store), Driven()
    await store.commit(sending(run.message("a"), run.message("b", due_at_ms=NOW + 5)))
    await store.commit(sending(absent.message("no such run", due_at_ms=NOW - 5)))
    marking = Bundle()
    marking.mark(run.fence, run.guid("a"), "dead", "nobody wants it")
    await store.commit(marking)
    assert await store.next_due(HOST) == NOW + 5
    await store.commit(delivered(run, "b"))
    assert await store.next_due(HOST) is None
