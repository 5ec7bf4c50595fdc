"""Which messages reach a run that is paused or parked: cancels and acts. All others wait in the store."""

import pytest

from perdure.core.journal import events as e
from perdure.core.journal.state import Status
from perdure.core.messages import AT_ONCE, Message
from perdure.store.commit.bundle import Bundle
from perdure.store.store import Store
from tests.store.builders import HOST, NOW, Driven, begun

pytestmark = pytest.mark.asyncio

FOR_ANY_RUN = ["cancel", "cancel:410:1", "act:RESUME"]
HELD = ["signal:word", "timer", "retry", "completed", "gave-up"]


async def _stopped(store: Store, how: str) -> Driven:
    run = await begun(store)
    if how == "paused":
        await store.commit(run.appending(e.RunPaused("lunch")))
    else:
        bundle = Bundle()
        bundle.park(run.fence, "unknown program")
        await store.commit(bundle)
    return run


async def _send(store: Store, run: Driven, kinds: list[str], due_at_ms: int = AT_ONCE) -> None:
    bundle = Bundle()
    for place, kind in enumerate(kinds):
        message = Message(run.run_id, run.guid(kind, str(due_at_ms)), kind, due_at_ms, place)
        bundle.enqueue(message)
    await store.commit(bundle)


async def test_row_of_a_paused_run_says_so(store: Store) -> None:
    run = await _stopped(store, "paused")
    row = await store.run(run.run_id)
    assert row is not None
    assert row.status is Status.PAUSED
    await store.commit(run.appending(e.RunResumed()))
    row = await store.run(run.run_id)
    assert row is not None
    assert row.status in (Status.RUNNING, Status.BLOCKED)


@pytest.mark.parametrize("how", ["paused", "parked"])
async def test_only_cancels_and_acts_are_due_for_a_stopped_run(store: Store, how: str) -> None:
    run = await _stopped(store, how)
    await _send(store, run, [*HELD, *FOR_ANY_RUN])
    due = await store.due_messages(HOST, NOW, 100)
    assert [message.kind for message in due] == FOR_ANY_RUN
    pending = await store.pending(HOST, [run.run_id], 100)
    assert [message.kind for message in pending] == FOR_ANY_RUN


@pytest.mark.parametrize("how", ["paused", "parked"])
async def test_messages_of_a_stopped_run_wake_no_host(store: Store, how: str) -> None:
    run = await _stopped(store, how)
    await _send(store, run, HELD)
    assert await store.next_due(HOST) is None
    await _send(store, run, ["cancel:410:1"], NOW + 1)
    assert await store.next_due(HOST) == NOW + 1


async def test_messages_of_a_stopped_run_take_no_places_in_a_read(store: Store) -> None:
    stopped, other = await _stopped(store, "paused"), await begun(store)
    await _send(store, stopped, HELD)
    await _send(store, other, ["signal:word"], NOW)
    due = await store.due_messages(HOST, NOW, 1)
    assert [message.run_id for message in due] == [other.run_id]


async def test_messages_of_a_paused_run_are_due_in_order_once_it_resumes(store: Store) -> None:
    run = await _stopped(store, "paused")
    await _send(store, run, HELD)
    await store.commit(run.appending(e.RunResumed()))
    due = await store.due_messages(HOST, NOW, 100)
    assert [message.kind for message in due] == HELD
