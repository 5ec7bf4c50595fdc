"""How a participant leaves one operation, and what its ledger keeps of operations that are over."""

import asyncio
import gc
import logging
import weakref
from pathlib import Path

import pytest

from perdure.operations import (
    CallsOpen,
    CorruptOperation,
    Ledger,
    Operation,
    OperationFailed,
    OperationOver,
    OperationState,
)
from tests.operations.ledgers import BY_HAND, Clock, Open, beats


async def test_a_ledger_forgets_operations_that_are_over(ledger: Ledger, clock: Clock) -> None:
    completed = await ledger.create_operation()
    await completed.complete()
    failed = await ledger.create_operation()
    await failed.abort("test")
    await beats(clock, 60, failed)
    running = await ledger.create_operation()
    assert ledger._operations == {running}
    seen = [weakref.ref(completed), weakref.ref(failed)]
    del completed, failed
    gc.collect()
    assert [ref() for ref in seen] == [None, None]


async def test_a_participant_leaves_one_operation_and_stays_in_the_others(
    ledger: Ledger, opened: Open
) -> None:
    first, second = await ledger.create_operation(), await ledger.create_operation()
    other = opened("worker")
    left = await other.join_operation(first.operation_id)
    kept = await other.join_operation(second.operation_id)
    call = await left.start_call()
    with pytest.raises(CallsOpen, match=call.call_id):
        await left.leave()
    await call.end()
    await left.leave()
    await left.leave()
    for refused in (left.start_call(), left.heartbeat()):
        with pytest.raises(OperationOver, match="has left operation"):
            await refused
    assert other._operations == {kept}
    await kept.heartbeat()
    await first.complete()
    assert (await ledger.read_operation(first.operation_id)).operation_state == "completed"


async def test_leaving_with_pending_calls_fails_them(ledger: Ledger, opened: Open) -> None:
    operation = await ledger.create_operation()
    async with await opened("worker").join_operation(operation.operation_id) as theirs:
        call = await theirs.start_call()
        spawned = theirs.spawn_call(lambda: asyncio.sleep(60))
        assert theirs.pending_calls == [call]
        assert theirs.pending_spawned_calls == [spawned]
    assert spawned.is_failed
    assert not call.is_open
    assert theirs.pending_calls == []
    assert (await ledger.read_operation(operation.operation_id)).stack == ()


async def test_operation_fails_if_its_initiator_leaves_without_completing_it(
    ledger: Ledger,
) -> None:
    operation = await ledger.create_operation()
    await operation.start_call()
    await operation.leave(cancel_pending_calls=True)
    data = await ledger.read_operation(operation.operation_id)
    assert data.operation_state is OperationState.FAILED
    assert data.failure_reason == "aborted by 'cli': its initiator left without completing it"
    assert await ledger.operation_ids() == []


async def test_operation_fails_if_the_ledger_of_its_initiator_is_disposed_of(
    opened: Open,
) -> None:
    ledger = opened("a")
    operation = await ledger.create_operation()
    theirs = await opened("b").join_operation(operation.operation_id)
    call = await theirs.start_call()
    await ledger.dispose()
    with pytest.raises(OperationFailed, match="left without completing it"):
        await call.end()


async def test_initiator_may_leave_an_operation_to_its_successor(
    ledger: Ledger, opened: Open
) -> None:
    operation = await ledger.create_operation()
    await operation.leave(abort=False)
    again = await opened("cli").join_operation(operation.operation_id)
    await again.complete()
    data = await ledger.read_operation(operation.operation_id)
    assert data.operation_state is OperationState.COMPLETED


async def test_damaged_operation_is_left_out_and_the_others_are_listed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with Ledger(tmp_path, participant_id="cli", settings=BY_HAND) as ledger:
        damaged, whole = await ledger.create_operation(), await ledger.create_operation()
        path = tmp_path / f"{damaged.operation_id}.operation.json"
        text = path.read_bytes()
        path.write_bytes(text[:20])
        with caplog.at_level(logging.WARNING, logger="perdure.operations"):
            listed = await ledger.operations()
        assert [data.operation_id for data in listed] == [whole.operation_id]
        assert f"skipping unreadable operation {damaged.operation_id}" in caplog.text
        assert set(await ledger.operation_ids()) == {damaged.operation_id, whole.operation_id}
        with pytest.raises(CorruptOperation):
            await ledger.read_operation(damaged.operation_id)
        path.write_bytes(text)
        await _complete(damaged, whole)


async def _complete(*operations: Operation) -> None:
    for operation in operations:
        await operation.complete()
