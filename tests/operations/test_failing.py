"""Crashes, aborts and clean-up, on files, SQLite and Postgres alike, by a clock that is turned by hand."""

import asyncio
from pathlib import Path

import pytest

from perdure.operations import (
    CallCallback,
    FrameState,
    Ledger,
    LedgerSettings,
    Operation,
    OperationFailed,
    OperationFailedInfo,
    OperationState,
    ParticipantFenced,
)
from tests.operations.ledgers import Clock, Open, beats

QUICK_BY_HAND = LedgerSettings(
    auto_heartbeat=False,
    heartbeat_shortest=0.5,
    heartbeat_longest=0.5,
    look_every=0.1,
    staleness=1.5,
    lock_timeout=10,
)


async def five() -> int:
    return 5


async def broken_work() -> int:
    return 1 // 0


async def no_error(error: Exception) -> int:
    raise AssertionError from error


async def crew(opened: Open, *names: str) -> list[Operation]:
    """The initiator, and others that have joined."""
    first = await opened(names[0]).create_operation()
    others = [await opened(name).join_operation(first.operation_id) for name in names[1:]]
    return [first, *others]


async def state_of(ledger: Ledger, operation: Operation) -> OperationState:
    return (await ledger.read_operation(operation.operation_id)).operation_state


async def test_a_crash_is_cleaned_up_in_four_phases(
    opened: Open, clock: Clock, tmp_path: Path
) -> None:
    outside = opened("outside")
    a, b, dead = await crew(opened, "a", "b", "dead")
    done: list[str] = []
    infos: list[OperationFailedInfo] = []
    files = {name: tmp_path / name for name in ("a", "b", "dead", "operation")}
    for path in files.values():
        path.write_text("x")
    for one, name in ((a, "a"), (b, "b")):
        await one.start_call(
            callback=CallCallback(
                on_cleanup=lambda name=name: done.append(name),  # type: ignore[misc]
                on_operation_failed=infos.append,
            ),
            resources=[files[name]],
        )
    lost = await dead.start_call(resources=[files["dead"]])
    await a.add_temp_resource(files["operation"])
    await beats(clock, 15, a, b)
    data = await outside.read_operation(a.operation_id)
    assert data.operation_state is OperationState.CLEANUP
    assert data.coordinator is not None
    assert [f.state for f in data.stack] == [
        FrameState.CLEANING_UP,
        FrameState.CLEANED_UP,
        FrameState.CRASHED,
    ]
    assert done == ["a", "b"]
    assert [info.crashed_call_ids for info in infos] == [(lost.call_id,)] * 2
    assert {name for name, path in files.items() if path.exists()} == {"dead", "operation"}
    await beats(clock, 20, a, b)
    data = await outside.read_operation(a.operation_id)
    assert (data.operation_state, data.stack) == (OperationState.FAILED, ())
    assert {name for name, path in files.items() if path.exists()} == set()
    assert len(await outside.operations()) == 1
    await beats(clock, 10, a, b)
    assert await outside.operations() == []
    assert len(await outside.operations(backups=True)) == 1
    assert not (await b.heartbeat()).ledger_exists
    events = [line.split()[2] for line in await outside.read_log(a.operation_id)]
    assert events[-4:] == [
        "CRASH_DETECTED",
        "CLEANUP_STARTED",
        "PARTICIPANT_CLEANED_UP",
        "OPERATION_FAILED",
    ]


async def test_calls_after_a_failure_raise_its_reason(opened: Open, clock: Clock) -> None:
    a, dead = await crew(opened, "a", "dead")
    call = await a.start_call()
    await dead.start_call()
    await beats(clock, 15, a)
    with pytest.raises(OperationFailed, match=r"'dead' \(pid \d+\) crashed") as caught:
        await a.start_call()
    assert caught.value.info.reason.endswith("crashed")
    with pytest.raises(OperationFailed):
        await call.end(1)
    assert await call.fail(ValueError("says nothing more")) is None
    with pytest.raises(OperationFailed):
        _ = a.spawn_call(five)
    with pytest.raises(OperationFailed):
        await a.complete()


async def test_a_coordinator_that_crashes_is_replaced(opened: Open, clock: Clock) -> None:
    a, b, dead = await crew(opened, "a", "b", "dead")
    for one in (a, b, dead):
        await one.start_call()
    await beats(clock, 15, a, b)
    await beats(clock, 60, b)
    (kept,) = await opened("outside").operations(backups=True)
    assert kept.operation_state is OperationState.FAILED
    assert len(kept.crashed_call_ids) == 2


async def test_a_contained_crash_fails_its_call_alone(
    opened: Open, clock: Clock, tmp_path: Path
) -> None:
    a, dead = await crew(opened, "a", "dead")
    mine = await a.start_call()
    left = tmp_path / "left"
    left.write_text("x")
    await dead.start_call(fail_on_crash=False, resources=[left])
    await beats(clock, 20, a)
    assert not left.exists()
    await mine.end()
    await a.complete()
    with pytest.raises(ParticipantFenced, match="'dead'"):
        await dead.start_call()


@pytest.mark.parametrize("fail_on_crash", [True, False])
@pytest.mark.parametrize("away_s", [20, 120])
async def test_silent_participant_is_fenced_and_notified(
    opened: Open, clock: Clock, fail_on_crash: bool, away_s: int
) -> None:
    a, paused = await crew(opened, "a", "paused")
    cleaned: list[int] = []
    await a.start_call()
    callback: CallCallback[int] = CallCallback(on_cleanup=lambda: cleaned.append(1))
    call = await paused.start_call(callback=callback, fail_on_crash=fail_on_crash)
    await beats(clock, away_s, a)
    with pytest.raises(ParticipantFenced, match=r"'paused' \(pid \d+\) was silent") as caught:
        await call.end(1)
    assert call.call_id in caught.value.info.crashed_call_ids
    with pytest.raises(ParticipantFenced):
        await paused.heartbeat()
    assert isinstance(paused.failure, ParticipantFenced)
    assert paused._cleaning is not None
    await paused._cleaning
    assert cleaned == [1]
    with pytest.raises(ParticipantFenced):
        await paused.start_call()


async def test_an_abort_from_inside_cleans_up(opened: Open, clock: Clock) -> None:
    a, b = await crew(opened, "a", "b")
    cleaned: list[str] = []
    await a.start_call(callback=CallCallback(on_cleanup=lambda: cleaned.append("a")))
    await b.start_call(callback=CallCallback(on_cleanup=lambda: cleaned.append("b")))
    await b.abort("wrong input")
    result = await a.heartbeat()
    assert result.abort_flag
    await beats(clock, 5, a, b)
    assert sorted(cleaned) == ["a", "b"]
    assert a.failure is not None
    assert a.failure.info.aborted
    assert a.failure.info.reason == "aborted by 'b': wrong input"


async def test_abort_from_outside_completes_without_participants(
    opened: Open, clock: Clock
) -> None:
    outside = opened(None)
    (a,) = await crew(opened, "a")
    await outside.abort_operation(a.operation_id)
    assert (await outside.read_operation(a.operation_id)).aborted

    async def time() -> None:
        while True:
            clock.passed_ms += 4000
            await asyncio.sleep(0.002)

    ticking = asyncio.ensure_future(time())
    outside._context.settings = type(outside._context.settings)(
        auto_heartbeat=False, heartbeat_shortest=0.004, lock_timeout=10
    )
    final = await outside.recover_operation(a.operation_id)
    ticking.cancel()
    assert final.operation_state is OperationState.FAILED
    assert final.failure_reason == "aborted by 'perdure'"
    assert await outside.operations() == []


async def test_recovery_leaves_a_live_operation_running(opened: Open, clock: Clock) -> None:
    (a,) = await crew(opened, "a")
    await a.start_call()
    outside = opened("outside")
    outside._context.settings = type(outside._context.settings)(
        auto_heartbeat=False, heartbeat_shortest=0.004, lock_timeout=10
    )

    async def time() -> None:
        while True:
            clock.passed_ms += 1000
            await a.heartbeat()

    ticking = asyncio.ensure_future(time())
    final = await outside.recover_operation(a.operation_id)
    ticking.cancel()
    assert final.operation_state is OperationState.RUNNING
    assert final.coordinator is None


async def test_leaving_coordinator_hands_over_to_a_participant_that_has_not_cleaned_up(
    opened: Open, clock: Clock
) -> None:
    first = opened("a")
    a = await first.create_operation()
    b = await opened("b").join_operation(a.operation_id)
    dead = await opened("dead").join_operation(a.operation_id)
    for one in (a, b, dead):
        await one.start_call()
    await beats(clock, 10, a, b)
    await beats(clock, 5, a)
    assert await state_of(first, a) is OperationState.CLEANUP
    leaving = asyncio.ensure_future(first.dispose())
    outside = opened("outside")
    data = await outside.read_operation(a.operation_id)
    while not data.is_handed_over:
        await asyncio.sleep(0.01)
        data = await outside.read_operation(a.operation_id)
    await b.heartbeat()
    await leaving
    data = await outside.read_operation(a.operation_id)
    assert data.coordinator is not None
    assert data.coordinator.participant_id == "b"


async def test_a_coordinator_that_leaves_last_finishes_the_clean_up(
    opened: Open, clock: Clock, tmp_path: Path
) -> None:
    ledger = opened("a")
    a = await ledger.create_operation()
    dead = await opened("dead").join_operation(a.operation_id)
    left = tmp_path / "left"
    left.write_text("x")
    await dead.start_call(resources=[left])
    await beats(clock, 15, a)
    await ledger.dispose()
    outside = opened("outside")
    assert await outside.operations() == []
    (kept,) = await outside.operations(backups=True)
    assert kept.operation_state is OperationState.FAILED
    assert not left.exists()


async def test_leaving_coordinator_does_not_hand_over_to_dead_participants(
    opened: Open, clock: Clock, tmp_path: Path
) -> None:
    """Another one died so shortly before that it does not count as dead yet."""
    ledger = opened("a", settings=QUICK_BY_HAND)
    a = await ledger.create_operation()
    left = tmp_path / "left"
    left.write_text("x")
    dead = await opened("dead").join_operation(a.operation_id)
    dying = await opened("dying").join_operation(a.operation_id)
    await dead.start_call()
    await dying.start_call(resources=[left])
    await a.start_call()
    await beats(clock, 1, a)
    await dying.heartbeat()
    await beats(clock, 1, a, every=0.5)
    data = await ledger.read_operation(a.operation_id)
    assert data.operation_state is OperationState.CLEANUP
    assert data.is_awaited
    await ledger.dispose()
    outside = opened("outside")
    assert await outside.operations() == []
    (kept,) = await outside.operations(backups=True)
    assert kept.operation_state is OperationState.FAILED
    assert not left.exists()


async def test_waits_end_when_the_operation_fails(opened: Open, clock: Clock) -> None:
    a, dead = await crew(opened, "a", "dead")
    await dead.start_call()
    seen: list[OperationFailedInfo] = []
    stopped: list[bool] = []

    async def endless() -> int:
        try:
            await asyncio.sleep(3600)
        finally:
            stopped.append(True)
        return 1

    waiting = asyncio.ensure_future(
        a.wait_for_completion(endless, on_operation_failed=seen.append, on_error=no_error)
    )
    finished = a.spawn_call(five)
    await finished
    unknown = a.spawn_call(endless)
    broken = a.spawn_call(broken_work)
    await broken.wait()
    syncing = asyncio.ensure_future(
        a.sync([finished, unknown, broken], on_operation_failed=seen.append)
    )
    await asyncio.sleep(0)
    await beats(clock, 15, a)
    with pytest.raises(OperationFailed) as caught:
        await waiting
    result = await syncing
    assert (result.successful_calls, result.failed_calls, result.unknown_calls) == (
        [finished],
        [broken],
        [unknown],
    )
    assert result.operation_failed
    assert (result.all_succeeded, result.has_failed, result.all_resolved) == (False, True, False)
    assert seen == [caught.value.info] * 2
    assert stopped == [True, True]
    assert unknown.is_failed
