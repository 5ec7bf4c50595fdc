"""Concurrent ends of calls, and ends of operations without backups, on all backends."""

import asyncio
from typing import Any

import pytest

from perdure.core.errors import StoreUnavailable
from perdure.operations import CallCallback, CallOver, Ledger, OperationFailed, OperationOver
from tests.operations.ledgers import Clock, Open, beats


@pytest.mark.parametrize("second", ["end", "fail"])
async def test_second_concurrent_end_of_a_call_is_refused(ledger: Ledger, second: str) -> None:
    operation = await ledger.create_operation()
    results: list[int] = []
    call = await operation.start_call(callback=CallCallback(on_completion=results.append))
    other: Any = call.end(2) if second == "end" else call.fail(ValueError())
    ends: list[object] = await asyncio.gather(call.end(1), other, return_exceptions=True)
    assert [type(end) for end in ends] == [type(None), CallOver]
    assert results == [1]
    lines = await ledger.read_log(operation.operation_id)
    assert sum(call.call_id in line for line in lines) == 2
    await operation.complete()


@pytest.mark.parametrize("how", ["end", "fail"])
async def test_end_that_failed_to_commit_can_be_repeated(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    operation = await ledger.create_operation()
    cleaned: list[int] = []
    call: Any = await operation.start_call(
        callback=CallCallback(on_cleanup=lambda: cleaned.append(1))
    )

    async def cut_off(*_: object) -> None:
        raise StoreUnavailable("the disk is full", "make room")

    argument = 1 if how == "end" else ValueError()
    with monkeypatch.context() as patch:
        patch.setattr(ledger._context.backend, "change", cut_off)
        with pytest.raises(StoreUnavailable):
            await getattr(call, how)(argument)
    assert call.is_open
    await getattr(call, how)(argument)
    assert not call.is_open
    assert cleaned == ([1] if how == "fail" else [])
    await operation.complete()


async def test_without_backups_participant_without_calls_sees_the_end(opened: Open) -> None:
    a = await opened("a", max_backups=0).create_operation()
    b = await opened("b", max_backups=0).join_operation(a.operation_id)
    await a.complete()
    assert not (await b.heartbeat()).ledger_exists
    for late in (b.start_call(), b.log("late"), b.abort(), a.complete()):
        with pytest.raises(OperationOver, match="is over; how it ended is not known"):
            await late
    assert b.failure is None


async def test_without_backups_an_observed_failure_is_reported(opened: Open, clock: Clock) -> None:
    a = await opened("a", max_backups=0).create_operation()
    b = await opened("b", max_backups=0).join_operation(a.operation_id)
    await a.abort()
    await beats(clock, 35, a, b)
    assert not (await b.heartbeat()).ledger_exists
    with pytest.raises(OperationFailed):
        await b.start_call()
