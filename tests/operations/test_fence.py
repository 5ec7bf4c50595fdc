"""A participant that was declared dead and returns, on files, SQLite and Postgres: all its requests are refused."""

import asyncio
import functools
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from perdure.operations import (
    Call,
    CallCallback,
    Ledger,
    Operation,
    OperationFailedInfo,
    ParticipantFenced,
)
from tests.operations.ledgers import Clock, Open, beats


async def fenced(
    opened: Open, clock: Clock, callback: CallCallback[int] | None = None, *files: Path
) -> tuple[Operation, Operation, Call[int]]:
    """A live participant, and a fenced one that has not noticed the loss of its contained call."""
    a = await opened("a").create_operation()
    paused = await opened("paused").join_operation(a.operation_id)
    call = await paused.start_call(
        callback=callback or CallCallback(), fail_on_crash=False, resources=files
    )
    await beats(clock, 20, a)
    return a, paused, call


@pytest.mark.parametrize("is_end", [True, False])
async def test_fenced_participant_keeps_resources_created_by_others(
    opened: Open, clock: Clock, tmp_path: Path, is_end: bool
) -> None:
    """The others removed the lock file of the dead, and one of them made its own."""
    lock = tmp_path / "lock"
    lock.write_text("paused")
    cleaned: list[int] = []
    callback: CallCallback[int] = CallCallback(on_cleanup=lambda: cleaned.append(1))
    a, paused, call = await fenced(opened, clock, callback, lock)
    assert not lock.exists()
    async with a.call(resources=[lock]):
        lock.write_text("a")
        if is_end:
            with pytest.raises(ParticipantFenced):
                await call.end(1)
        else:
            assert await call.fail(ValueError()) is None
        assert paused._cleaning is not None
        await paused._cleaning
        assert lock.read_text() == "a"
    assert cleaned == [1]


async def test_fenced_spawned_call_keeps_resources_created_by_others(
    opened: Open, clock: Clock, tmp_path: Path
) -> None:
    lock = tmp_path / "lock"
    a = await opened("a").create_operation()
    paused = await opened("paused").join_operation(a.operation_id)
    begun, go = asyncio.Event(), asyncio.Event()

    async def work() -> bool:
        begun.set()
        return await go.wait()

    call = paused.spawn_call(work, fail_on_crash=False, resources=[lock])
    await begun.wait()
    await beats(clock, 20, a)
    async with a.call(resources=[lock]):
        lock.write_text("a")
        go.set()
        await call.wait()
        assert isinstance(call.error, ParticipantFenced)
        assert paused._cleaning is not None
        await paused._cleaning
        assert lock.read_text() == "a"


async def test_fenced_participant_is_refused_everything(opened: Open, clock: Clock) -> None:
    outside: Ledger = opened("outside")
    for first in ("heartbeat", "log", "abort", "end"):
        a, paused, call = await fenced(opened, clock)
        before = await outside.read_operation(a.operation_id)
        lines = await outside.read_log(a.operation_id, debug=True)
        asked: dict[str, Callable[[], Awaitable[object]]] = {
            "heartbeat": paused.heartbeat,
            "log": functools.partial(paused.log, "still here"),
            "abort": paused.abort,
            "end": call.end,
            "start": paused.start_call,
            "resource": functools.partial(paused.add_temp_resource, "x"),
        }
        for name in (first, *asked):
            with pytest.raises(ParticipantFenced):
                await asked[name]()
            if paused._cleaning is not None:
                await paused._cleaning
        assert await outside.read_operation(a.operation_id) == before
        assert await outside.read_log(a.operation_id, debug=True) == lines
        await outside.abort_operation(a.operation_id)
        assert (await outside.read_operation(a.operation_id)).aborted


async def test_fenced_participant_stops_its_heartbeats(opened: Open, clock: Clock) -> None:
    _, paused, call = await fenced(opened, clock)
    with pytest.raises(ParticipantFenced):
        await call.end()
    assert paused._cleaning is not None
    await paused._cleaning
    paused.start_heartbeat()
    await asyncio.sleep(0.05)
    assert paused._part._heartbeats is not None
    assert paused._part._heartbeats.done()


async def test_fenced_initiator_joins_again_to_complete(opened: Open, clock: Clock) -> None:
    ledger = opened("a")
    a = await ledger.create_operation()
    b = await opened("b").join_operation(a.operation_id)
    await a.start_call(fail_on_crash=False)
    await beats(clock, 20, b)
    for _ in range(2):
        with pytest.raises(ParticipantFenced):
            await a.complete()
    again = await ledger.join_operation(a.operation_id)
    assert (again.is_initiator, b.is_initiator) == (True, False)
    await again.complete()


async def test_calls_of_a_fenced_participant_receive_the_reason(opened: Open, clock: Clock) -> None:
    infos: list[OperationFailedInfo] = []
    callback: CallCallback[int] = CallCallback(on_operation_failed=infos.append)
    a, paused, call = await fenced(opened, clock, callback)
    with pytest.raises(ParticipantFenced):
        await paused.heartbeat()
    assert paused._cleaning is not None
    await paused._cleaning
    (info,) = infos
    assert info.reason == f"participant 'paused' (pid {paused.participant_pid}) was declared dead"
    assert info.crashed_call_ids == (call.call_id,)
    await a.complete()
