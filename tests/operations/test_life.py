"""The life of an operation, on files, SQLite and Postgres alike."""

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from perdure.core.errors import InputError, InvalidId, PerdureError, StoreClosed
from perdure.operations import (
    CallCallback,
    CallOver,
    CallsOpen,
    FrameState,
    Ledger,
    LogLevel,
    OperationOver,
    OperationState,
    ParticipantFenced,
    UnknownOperation,
)
from tests.operations.ledgers import Clock, Open, beats


async def test_an_operation_is_created_worked_on_and_completed(ledger: Ledger) -> None:
    operation = await ledger.create_operation(description="build")
    assert operation.operation_id.startswith("20260122T12:00:00.000-cli-")
    assert operation.is_initiator
    received: list[int] = []
    call = await operation.start_call(
        callback=CallCallback(on_completion=received.append), description="compile"
    )
    (data,) = await ledger.operations()
    assert (data.initiator_id, data.description, data.operation_state) == (
        "cli",
        "build",
        OperationState.RUNNING,
    )
    (frame,) = data.stack
    assert (frame.call_id, frame.participant_id, frame.pid) == (call.call_id, "cli", os.getpid())
    assert (frame.state, frame.fail_on_crash, frame.description) == (
        FrameState.ACTIVE,
        True,
        "compile",
    )
    await call.end(42)
    assert received == [42]
    await operation.complete()
    assert await ledger.operations() == []
    (kept,) = await ledger.operations(backups=True)
    assert (kept.operation_state, kept.stack) == (OperationState.COMPLETED, ())
    assert await ledger.read_operation(operation.operation_id) == kept


async def test_a_second_process_joins_and_logs_its_calls(ledger: Ledger, opened: Open) -> None:
    operation = await ledger.create_operation()
    theirs = await opened("worker", participant_pid=77).join_operation(operation.operation_id)
    assert not theirs.is_initiator
    async with theirs.call("compress"):
        await theirs.log("half\nway", LogLevel.WARNING)
        await theirs.log("details", LogLevel.DEBUG)
        await theirs.log_message(2, "deep")
    await operation.complete()
    lines = await ledger.read_log(operation.operation_id)
    assert [line.split()[2] for line in lines] == [
        "OPERATION_CREATED",
        "PARTICIPANT_JOINED",
        "CALL_STARTED",
        "[worker]",
        "[worker]",
        "CALL_ENDED",
        "OPERATION_COMPLETED",
    ]
    assert lines[3] == r"2026-01-22T12:00:00.000Z WARNING [worker] half\nway"
    assert lines[4] == "2026-01-22T12:00:00.000Z INFO        [worker] deep"
    assert "participant=worker pid=77" in lines[1]
    debug = await ledger.read_log(operation.operation_id, debug=True)
    assert [line for line in debug if line not in lines] == [
        "2026-01-22T12:00:00.000Z DEBUG   [worker] details"
    ]


async def test_a_block_ends_its_call_or_fails_it(ledger: Ledger) -> None:
    operation = await ledger.create_operation()
    cleaned = []
    callback: CallCallback[None] = CallCallback(on_cleanup=lambda: cleaned.append(1))
    async with operation.call("well", callback=callback) as call:
        await call.end()
    assert not call.is_open
    with pytest.raises(ZeroDivisionError):
        async with operation.call("badly", callback=callback) as call:
            raise ZeroDivisionError
    assert cleaned == [1]
    assert (await ledger.operations())[0].stack == ()
    lines = await ledger.read_log(operation.operation_id)
    assert "CALL_FAILED" in lines[-1]
    assert "ZeroDivisionError()" in lines[-1]


async def test_a_failed_call_may_have_a_fallback(ledger: Ledger) -> None:
    operation = await ledger.create_operation()

    async def fallback() -> int:
        return -1

    call = await operation.start_call(callback=CallCallback(on_call_crashed=fallback))
    assert await call.fail(OSError("no disk")) == -1
    other = await operation.start_call()
    assert await other.fail(OSError("no disk")) is None


async def test_a_call_is_ended_once(ledger: Ledger) -> None:
    operation = await ledger.create_operation()
    call = await operation.start_call()
    await call.end()
    with pytest.raises(CallOver, match=call.call_id):
        await call.end()
    with pytest.raises(CallOver):
        await call.fail(ValueError())


async def test_a_callback_that_raises_is_logged_and_the_operation_continues(ledger: Ledger) -> None:
    operation = await ledger.create_operation()

    def bad(_: object) -> None:
        raise ValueError("ouch")

    call = await operation.start_call(callback=CallCallback(on_completion=bad))
    await call.end()
    await operation.complete()
    lines = await ledger.read_log(operation.operation_id)
    assert any("on_completion raised ValueError('ouch')" in line for line in lines)


async def test_only_the_initiator_completes_and_only_without_open_calls(
    ledger: Ledger, opened: Open
) -> None:
    operation = await ledger.create_operation()
    theirs = await opened("worker").join_operation(operation.operation_id)
    with pytest.raises(InputError, match="did not create"):
        await theirs.complete()
    call = await theirs.start_call()
    with pytest.raises(CallsOpen, match=call.call_id):
        await operation.complete()
    await call.end()
    await operation.complete()


async def test_ended_operation_accepts_no_changes(ledger: Ledger, opened: Open) -> None:
    operation = await ledger.create_operation()
    theirs = await opened("worker").join_operation(operation.operation_id)
    await operation.complete()
    for late in (
        theirs.start_call(),
        theirs.log("late"),
        theirs.abort(),
        operation.complete(),
        ledger.join_operation(operation.operation_id),
    ):
        with pytest.raises(OperationOver):
            await late
    result = await theirs.heartbeat()
    assert not result.ledger_exists
    assert theirs.failure is None


async def test_the_newest_backups_are_kept(opened: Open, clock: Clock) -> None:
    ledger = opened(max_backups=2)
    ids = []
    for _ in range(4):
        clock.passed_ms += 1000
        operation = await ledger.create_operation()
        await operation.log("hello")
        await operation.complete()
        ids.append(operation.operation_id)
    assert [data.operation_id for data in await ledger.operations(backups=True)] == ids[2:]
    with pytest.raises(UnknownOperation):
        await ledger.read_log(ids[0])
    assert len(await ledger.read_log(ids[3])) == 3


async def test_no_backup_is_kept_with_max_backups_0(opened: Open) -> None:
    ledger = opened(max_backups=0)
    operation = await ledger.create_operation()
    await operation.complete()
    assert await ledger.operations(backups=True) == []
    assert await ledger.operations() == []


async def test_temporary_resources_are_removed_with_their_call_or_operation(
    ledger: Ledger, tmp_path: Path
) -> None:
    operation = await ledger.create_operation()
    names = ("of_call", "of_failed", "of_operation", "kept", "later")
    file = {name: tmp_path / name for name in names}
    for name in ("of_call", "of_failed", "of_operation", "kept"):
        file[name].write_text("x")
    file["later"].mkdir()
    (file["later"] / "inside").write_text("x")
    await operation.add_temp_resource(file["of_operation"])
    call = await operation.start_call(resources=[file["of_call"], file["kept"]])
    await call.add_resource(file["later"])
    await call.release_resource(file["kept"])
    ((frame,),) = [data.stack for data in await ledger.operations()]
    assert frame.resources == (str(file["of_call"]), str(file["later"]))
    assert (await operation.heartbeat()).temp_resource_count == 1
    await call.end()
    failed = await operation.start_call(resources=[file["of_failed"]])
    await failed.fail(ValueError())
    assert {name for name in names if file[name].exists()} == {"of_operation", "kept"}
    await operation.complete()
    assert {name for name in names if file[name].exists()} == {"kept"}


async def test_a_released_temporary_resource_of_the_operation_stays(
    ledger: Ledger, tmp_path: Path
) -> None:
    operation = await ledger.create_operation()
    result = tmp_path / "result"
    result.write_text("x")
    await operation.add_temp_resource(result)
    await operation.release_temp_resource(result)
    await operation.complete()
    assert result.exists()


@pytest.mark.parametrize("path", ["/", ".", "/tmp/.."])
async def test_root_directory_as_temporary_resource_is_refused(ledger: Ledger, path: str) -> None:
    operation = await ledger.create_operation()
    with pytest.raises(InputError):
        await operation.add_temp_resource(path)


async def test_heartbeat_returns_its_observations(
    ledger: Ledger, opened: Open, clock: Clock
) -> None:
    operation = await ledger.create_operation()
    theirs = await opened("worker").join_operation(operation.operation_id)
    async with operation.call("a"):
        lost = await theirs.start_call(fail_on_crash=False)
        await beats(clock, 9, operation, every=3)
        clock.passed_ms += 3000
        result = await operation.heartbeat()
        assert result.ledger_exists
        assert result.heartbeat_updated
        assert result.stack_participants == ("cli", "worker")
        assert result.participant_heartbeat_ages == {"cli": 3000, "worker": 12_000}
        assert result.stale_participants == ("worker",)
        assert (result.heartbeat_age_ms, result.is_stale) == (3000, False)
        assert result.data_before is not None
        assert result.data_after is not None
        assert [f.state for f in result.data_before.stack] == [FrameState.ACTIVE] * 2
        assert [f.state for f in result.data_after.stack] == [
            FrameState.ACTIVE,
            FrameState.CRASHED,
        ]
        with pytest.raises(ParticipantFenced):
            await lost.end()


@pytest.mark.parametrize(
    "bad", ["../escape", "a/b", "", ".hidden", "a\0b", "x" * 300, "a\nb", "..", "\ud800"]
)
async def test_an_id_that_could_leave_the_directory_is_refused(ledger: Ledger, bad: str) -> None:
    for use in (
        ledger.join_operation(bad),
        ledger.read_operation(bad),
        ledger.read_log(bad),
        ledger.abort_operation(bad),
        ledger.recover_operation(bad),
    ):
        with pytest.raises(InvalidId):
            await use
    with pytest.raises(InvalidId):
        await ledger.create_operation(participant_id=bad)


async def test_an_unknown_operation_is_refused(ledger: Ledger) -> None:
    with pytest.raises(UnknownOperation, match="known-operation-id"):
        await ledger.join_operation("known-operation-id")


async def test_descriptions_are_text_that_every_program_can_read(ledger: Ledger) -> None:
    operation = await ledger.create_operation(description="naïve \0 \n ☃")
    await (await operation.start_call(description="\0")).end()
    assert (await ledger.operations())[0].description == "naïve \0 \n ☃"
    for wrong in ("\ud800", 7):
        with pytest.raises(InputError):
            await operation.start_call(description=wrong)  # type: ignore[arg-type]
        with pytest.raises(InputError):
            await ledger.create_operation(description=wrong)  # type: ignore[arg-type]


async def test_open_calls_fail_when_their_ledger_is_disposed_of(
    ledger: Ledger, opened: Open
) -> None:
    operation = await ledger.create_operation()
    other = opened("worker")
    theirs = await other.join_operation(operation.operation_id)
    cleaned: list[str] = []
    await theirs.start_call(callback=CallCallback(on_cleanup=lambda: cleaned.append("call")))
    spawned = theirs.spawn_call(
        lambda: asyncio.sleep(60),
        callback=CallCallback(on_cleanup=lambda: cleaned.append("spawned")),
    )
    while len((await ledger.operations())[0].stack) < 2:  # noqa: ASYNC110 - there is no event to wait for
        await asyncio.sleep(0.01)
    await other.dispose()
    await other.dispose()
    assert cleaned == ["call", "spawned"]
    assert spawned.is_failed
    await operation.complete()
    with pytest.raises(StoreClosed):
        await theirs.heartbeat()


async def test_cancelled_start_leaves_no_call(ledger: Ledger) -> None:
    operation = await ledger.create_operation()
    for _ in range(5):
        start = asyncio.ensure_future(operation.start_call())
        await asyncio.sleep(0)
        start.cancel()
        with pytest.raises(asyncio.CancelledError):
            await start
    await operation.heartbeat()
    await operation.complete()


async def test_many_participants_lose_no_change(opened: Open) -> None:
    operation = await opened().create_operation()
    theirs = [await opened(f"p{n}").join_operation(operation.operation_id) for n in range(6)]

    async def work(n: int) -> None:
        for _ in range(5):
            async with theirs[n].call(f"of {n}"):
                await theirs[n].heartbeat()

    await asyncio.gather(*map(work, range(6)))
    await operation.complete()
    lines = await opened("reader").read_log(operation.operation_id)
    assert sum("CALL_STARTED" in line for line in lines) == 30
    assert sum("CALL_ENDED" in line for line in lines) == 30


@pytest.mark.parametrize(
    "wrong",
    [
        {"base_path": None, "store": None},
        {"base_path": "x", "store": "sqlite:///x.db"},
        {"max_backups": -1},
        {"max_backups": True},
        {"participant_id": "../x"},
        {"base_path": 3},
        {"base_path": b"x"},
        {"base_path": "x\0y"},
        {"base_path": None, "store": 3},
        {"settings": {"staleness": 3}},
        {"settings": 0},
        {"participant_pid": "12x"},
        {"participant_pid": 1.5},
        {"participant_pid": True},
        {"participant_pid": 0},
        {"participant_pid": 2**63},
    ],
)
def test_invalid_arguments_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(InputError):
        Ledger(**({"base_path": "x"} | wrong))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "wrong",
    [
        {"fail_on_crash": "no"},
        {"fail_on_crash": None},
        {"fail_on_crash": 1},
        {"resources": "ab"},
        {"resources": Path("ab")},
        {"resources": None},
        {"resources": [3]},
        {"resources": [b"ab"]},
        {"resources": ["a\0b"]},
        {"callback": print},
        {"description": 3},
    ],
)
async def test_call_with_invalid_arguments_changes_nothing(
    ledger: Ledger, wrong: dict[str, Any]
) -> None:
    operation = await ledger.create_operation()
    before = await ledger.read_operation(operation.operation_id)
    with pytest.raises(InputError, match=r"is |a temporary resource"):
        await operation.start_call(**wrong)
    with pytest.raises(InputError):
        _ = operation.spawn_call(asyncio.Event().wait, **wrong)
    with pytest.raises(InputError):
        async with operation.call(**wrong):
            raise AssertionError
    assert await ledger.read_operation(operation.operation_id) == before
    await operation.complete()


async def test_log_line_with_invalid_arguments_is_not_written(ledger: Ledger) -> None:
    operation = await ledger.create_operation()
    before = await ledger.read_log(operation.operation_id, debug=True)
    wrong: Any
    for wrong in ("loud", None, 3):
        with pytest.raises(InputError, match="level is"):
            await operation.log("x", wrong)
    for wrong in (-1, 101, 1.5, "1", True, None):
        with pytest.raises(InputError, match="depth is"):
            await operation.log_message(wrong, "x")
    for wrong in (None, b"x"):
        with pytest.raises(InputError, match="message is"):
            await operation.log(wrong)
    for wrong in (3, b"x"):
        with pytest.raises(InputError, match="reason is"):
            await operation.abort(wrong)
        with pytest.raises(InputError, match="description is"):
            await ledger.create_operation(description=wrong)
    assert await ledger.read_log(operation.operation_id, debug=True) == before
    assert len(await ledger.operations()) == 1


def test_callbacks_must_be_callable() -> None:
    wrong: Any = "print"
    with pytest.raises(InputError, match="on_cleanup is 'print'"):
        CallCallback(on_cleanup=wrong)


async def test_a_participant_needs_a_name(place: dict[str, str]) -> None:
    async with Ledger(**place) as ledger:  # type: ignore[arg-type]
        with pytest.raises(InputError, match="no participant id"):
            await ledger.create_operation()


async def test_invalid_directory_or_store_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for place in ({"base_path": tmp_path / "file"}, {"store": "nonsense://x"}):
        with pytest.raises(PerdureError):
            await Ledger(**place).operations()
