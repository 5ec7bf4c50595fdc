"""Signals whose hooks are gone return to their mailboxes, for the next hook."""

import pytest

from perdure.core.errors import InputError, StaleFence
from perdure.core.ids import StepId
from perdure.core.messages import Message
from perdure.store.commit.bundle import Bundle
from perdure.store.store import Store
from tests.store.builders import HOST, NOW, OTHER_HOST, Driven, begun, sending, together
from tests.store.test_hooks import MAILBOX, STEP, hooking, signal

pytestmark = pytest.mark.asyncio


def giving_back(run: Driven, message: Message, step: StepId = STEP) -> Bundle:
    bundle = Bundle()
    bundle.give_back(run.fence, message.guid, step)
    return bundle


async def test_a_returned_signal_reaches_the_next_hook_before_later_signals(
    store: Store,
) -> None:
    run, other = await begun(store), await begun(store)
    first, second = signal("first", arrival=1), signal("second", arrival=2)
    await store.commit(together(hooking(run), sending(first)))
    await store.match_hooks(NOW)
    await store.commit(sending(second))
    await store.commit(giving_back(run, first))
    assert await store.messages(run.run_id) == []
    assert [message for message, *_ in await store.messages(MAILBOX)] == [first, second]
    await store.commit(hooking(other))
    (moved,) = await store.match_hooks(NOW)
    assert (moved.run_id, moved.guid, moved.step) == (other.run_id, first.guid, STEP)
    await store.commit(giving_back(run, first))
    assert [message for message, *_ in await store.messages(other.run_id)] == [moved]


async def test_only_the_step_that_was_matched_returns_a_signal(store: Store) -> None:
    """It may be matched to the next step of the same run by now."""
    run = await begun(store)
    sent = signal("yes")
    await store.commit(together(hooking(run), sending(sent)))
    (moved,) = await store.match_hooks(NOW)
    await store.commit(giving_back(run, sent, StepId("approval,1")))
    assert [message for message, *_ in await store.messages(run.run_id)] == [moved]
    assert await store.messages(MAILBOX) == []


async def test_a_signal_that_was_sent_again_is_stored_once_when_it_is_returned(
    store: Store,
) -> None:
    run = await begun(store)
    sent = signal("yes")
    await store.commit(together(hooking(run), sending(sent)))
    await store.match_hooks(NOW)
    await store.commit(sending(sent))
    await store.commit(giving_back(run, sent))
    assert [message for message, *_ in await store.messages(MAILBOX)] == [sent]
    assert await store.messages(run.run_id) == []


async def test_only_the_owner_returns_a_signal_and_only_a_matched_one(store: Store) -> None:
    run = await begun(store)
    sent = signal("yes")
    await store.commit(together(hooking(run), sending(sent)))
    (moved,) = await store.match_hooks(NOW)
    bundle = giving_back(run, sent)
    await store.take_over(HOST, OTHER_HOST, 10)
    with pytest.raises(StaleFence):
        await store.commit(bundle)
    assert [message for message, *_ in await store.messages(run.run_id)] == [moved]
    with pytest.raises(InputError, match="not to a mailbox"):
        Bundle().give_back(run.fence, run.guid("m"), STEP)
