"""Runs that continue each other: how the last one is found, and how messages are forwarded to it."""

import msgspec
import pytest

from perdure.core.errors import InputError, InvalidId
from perdure.core.ids import Guid, RunId
from perdure.core.journal import events as e
from perdure.core.replay.identity import next_run_id
from perdure.store.commit.bundle import Bundle
from perdure.store.rows.records import SentMessage
from perdure.store.store import Store
from tests.store.builders import HOST, NOW, Driven, begun, contents, sending, together

pytestmark = pytest.mark.asyncio


async def chained(store: Store, length: int) -> list[Driven]:
    """Runs of which each but the last was continued by the next."""
    runs = [Driven()]
    await store.commit(runs[0].start())
    while len(runs) < length:
        runs.append(await continued(store, runs[0], runs[-1]))
    return runs


async def continued(store: Store, first: Driven, last: Driven) -> Driven:
    run = Driven(run_id=next_run_id(last.run_id))
    ending = last.appending(e.RunContinued(run.run_id, released=1))
    await store.commit(together(ending, run.start(chain=first.run_id)))
    return run


def forwarding(run: Driven, guid: Guid, to: Driven) -> Bundle:
    bundle = Bundle()
    bundle.forward(run.run_id, guid, to.run_id)
    return bundle


def publishing(run: Driven, name: str, payload: bytes, at_ms: int) -> Bundle:
    bundle = Bundle()
    bundle.publish(run.run_id, name, payload, at_ms)
    return bundle


async def test_the_end_of_a_chain_is_found(store: Store) -> None:
    runs = await chained(store, 4)
    alone = await begun(store)
    first = runs[0].run_id
    end = await store.chain_end(first)
    assert end is not None
    assert (end.run_id, end.chain, end.origin) == (runs[-1].run_id, first, first)
    assert [run.run_id for run in await store.chain(first)] == [run.run_id for run in runs]
    own = await store.chain_end(alone.run_id)
    assert own is not None
    assert (own.run_id, own.chain, own.origin) == (alone.run_id, None, alone.run_id)
    assert [run.run_id for run in await store.chain(alone.run_id)] == [alone.run_id]
    assert await store.chain_end(RunId("r_" + "0" * 32)) is None
    assert await store.chain(RunId("r_" + "0" * 32)) == []


async def test_every_read_of_a_run_returns_its_chain(store: Store) -> None:
    first, last = await chained(store, 2)
    assert [run.chain for run in await store.open_runs(HOST)] == [first.run_id]
    loaded = await store.load([first.run_id, last.run_id])
    assert [run.chain for run, _ in loaded] == [None, first.run_id]
    await store.release_runs(HOST)
    assert [run.chain for run in await store.open_runs(None)] == [first.run_id]
    assert [run.chain for run in await store.claim_runs(HOST, 9)] == [first.run_id]
    assert [run.chain for run in await store.take_over(HOST, HOST, 9)] == [first.run_id]


async def test_a_message_is_forwarded_as_it_is_under_its_guid(store: Store) -> None:
    first, last = await chained(store, 2)
    message = first.message("approve", arrival=7)
    await store.commit(sending(message))
    await store.commit(forwarding(first, message.guid, last))
    moved = msgspec.structs.replace(message, run_id=last.run_id)
    assert await store.messages(first.run_id) == []
    assert await store.messages(last.run_id) == [(moved, "pending", None)]


async def test_a_message_may_be_sent_and_forwarded_at_once(store: Store) -> None:
    first, last = await chained(store, 2)
    message = first.message("approve")
    await store.commit(together(sending(message), forwarding(first, message.guid, last)))
    assert await store.messages(first.run_id) == []
    assert [each.guid for each, _, _ in await store.messages(last.run_id)] == [message.guid]


async def test_forwarding_a_message_that_is_not_pending_changes_nothing(store: Store) -> None:
    first, last = await chained(store, 2)
    marked = first.message("marked")
    await store.commit(sending(marked))
    marking = Bundle()
    marking.mark(first.fence, marked.guid, "stale", "late")
    await store.commit(marking)
    before = await contents(store)
    await store.commit(forwarding(first, first.guid("never sent"), last))
    await store.commit(forwarding(first, marked.guid, last))
    assert await contents(store) == before


async def test_a_message_that_the_target_has_already_is_not_replaced(store: Store) -> None:
    first, last = await chained(store, 2)
    message = first.message("approve", arrival=1)
    await store.commit(together(sending(message), forwarding(first, message.guid, last)))
    again = msgspec.structs.replace(message, arrival=9)
    await store.commit(sending(again))
    await store.commit(forwarding(first, message.guid, last))
    assert await store.messages(first.run_id) == []
    ((kept, state, _),) = await store.messages(last.run_id)
    assert (kept.arrival, state) == (1, "pending")


async def test_a_message_that_two_hosts_forward_moves_once(store: Store) -> None:
    first, second, third = await chained(store, 3)
    message = first.message("approve")
    await store.commit(sending(message))
    await store.commit(forwarding(first, message.guid, second))
    await store.commit(forwarding(first, message.guid, third))
    assert [len(await store.messages(run.run_id)) for run in (first, second, third)] == [0, 1, 0]


async def test_messages_that_any_run_of_a_chain_took_in_are_found(store: Store) -> None:
    first, last = await chained(store, 2)
    other = await begun(store)
    mine, theirs = first.guid("mine"), first.guid("theirs")
    await store.commit(last.appending(e.SignalDelivered("approval", 1, mine, payload=b"1")))
    await store.commit(other.appending(e.SignalDelivered("approval", 1, theirs, payload=b"1")))
    assert await store.taken_in_chain(first.run_id, [mine, theirs]) == {mine}
    assert await store.taken_in_chain(other.run_id, [mine, theirs]) == {theirs}
    assert await store.taken_in_chain(first.run_id, []) == set()


async def test_the_newest_published_value_of_a_chain_counts(store: Store) -> None:
    first, second, third = await chained(store, 3)
    for bundle in (
        publishing(second, "turn", b"2", NOW),
        publishing(first, "turn", b"1", NOW),
        publishing(first, "once", b"0", NOW),
        publishing(third, "late", b"3", NOW),
        publishing(second, "late", b"4", NOW + 1),  # the third run's clock was set back
    ):
        await store.commit(bundle)
    expected = {"turn": b"2", "once": b"0", "late": b"3"}
    assert await store.published_in_chain(first.run_id) == expected


async def test_bad_input_is_refused_before_it_reaches_the_store(store: Store) -> None:
    run = await begun(store)
    with pytest.raises(InputError, match="to the same run"):
        forwarding(run, run.guid("approve"), run)
    with pytest.raises(InvalidId, match="is not a message GUID"):
        forwarding(run, Guid("approve"), Driven())
    with pytest.raises(InvalidId, match="is not a run id"):
        Bundle().forward(run.run_id, run.guid("approve"), RunId("somewhere"))
    with pytest.raises(InvalidId, match="is not a run id"):
        Driven().start(chain=RunId("somewhere"))


async def test_a_message_is_found_where_it_waits_and_where_it_was_taken_in(store: Store) -> None:
    first, last = await chained(store, 2)
    other = await begun(store)
    message = first.message("approve")
    await store.commit(sending(message))
    waiting = SentMessage(first.run_id, message.payload, is_taken=False)
    assert await store.sent_before(first.run_id, message.guid) == [waiting]
    await store.commit(forwarding(first, message.guid, last))
    waiting = SentMessage(last.run_id, message.payload, is_taken=False)
    assert await store.sent_before(first.run_id, message.guid) == [waiting]
    taken = first.guid("taken")
    await store.commit(last.appending(e.SignalDelivered("approval", 1, taken, payload=b"1")))
    assert await store.sent_before(first.run_id, taken) == [
        SentMessage(last.run_id, None, is_taken=True)
    ]
    for unknown in (first.guid("unknown"), other.guid("unknown")):
        assert await store.sent_before(first.run_id, unknown) == []
    assert await store.sent_before(other.run_id, message.guid) == []
