"""Ledgers in files: layout, locks, and damage to files."""

import asyncio
import errno
import fcntl
import json
import os
import shutil
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from perdure.core.errors import StoreUnavailable
from perdure.operations import (
    CorruptOperation,
    Ledger,
    LedgerSettings,
    OperationFailed,
    OperationState,
)
from perdure.operations import file_backend as implementation
from tests.operations.ledgers import BY_HAND, Clock

IMPATIENT = LedgerSettings(auto_heartbeat=False, lock_timeout=0.2)


@pytest.fixture
def base(tmp_path: Path) -> Path:
    return tmp_path / "deep" / "ledger"


@pytest.fixture
async def ledger(base: Path, clock: Clock) -> AsyncIterator[Ledger]:
    async with Ledger(base, participant_id="cli", settings=IMPATIENT, clock=clock) as opened:
        yield opened


def names(path: Path) -> set[str]:
    return {str(found.relative_to(path)) for found in path.rglob("*") if found.is_file()}


async def test_the_files_are_those_of_the_specification(ledger: Ledger, base: Path) -> None:
    operation = await ledger.create_operation()
    one = operation.operation_id
    assert names(base) == {f"{one}.operation.{end}" for end in ("json", "log", "debug.log", "lock")}
    await operation.complete()
    assert names(base) == {f"backup/{one}/operation.{end}" for end in ("json", "log", "debug.log")}


async def test_the_ledger_is_json_with_the_names_of_the_specification(
    ledger: Ledger, base: Path
) -> None:
    operation = await ledger.create_operation()
    await operation.start_call(description="Main task")
    data = json.loads((base / f"{operation.operation_id}.operation.json").read_text())
    wanted = {
        "operationId",
        "initiatorId",
        "startTime",
        "operationState",
        "lastHeartbeat",
        "detectionTimestamp",
        "removalTimestamp",
        "aborted",
        "stack",
        "tempResources",
    }
    assert wanted <= set(data)
    frame = {
        "callId",
        "participantId",
        "pid",
        "startTime",
        "lastHeartbeat",
        "state",
        "failOnCrash",
        "description",
        "resources",
    }
    assert frame <= set(data["stack"][0])
    assert (data["operationState"], data["stack"][0]["state"]) == ("running", "active")
    assert data["startTime"] == "2026-01-22T12:00:00Z"


async def test_a_ledger_that_another_program_wrote_is_understood(
    ledger: Ledger, base: Path
) -> None:
    """Only the fields of the specification, and its spelling of times."""
    await ledger.operations()
    (base / "known-operation-id.operation.json").write_text(
        json.dumps(
            {
                "operationId": "known-operation-id",
                "initiatorId": "tool",
                "startTime": "2026-01-22T12:00:00Z",
                "operationState": "running",
                "lastHeartbeat": "2026-01-22T12:00:00Z",
                "detectionTimestamp": None,
                "removalTimestamp": None,
                "aborted": False,
                "stack": [
                    {
                        "callId": "call_tool_1_a1b2",
                        "participantId": "tool",
                        "pid": 12345,
                        "startTime": "2026-01-22T12:00:00Z",
                        "lastHeartbeat": "2026-01-22T12:00:00Z",
                        "state": "active",
                        "failOnCrash": True,
                        "description": "Main task",
                        "resources": [],
                    }
                ],
                "tempResources": [],
            }
        )
    )
    operation = await ledger.join_operation("known-operation-id")
    async with operation.call("mine"):
        assert (await operation.heartbeat()).stack_participants == ("tool", "cli")


async def test_a_damaged_ledger_is_named_and_left_as_it_is(ledger: Ledger, base: Path) -> None:
    operation = await ledger.create_operation()
    path = base / f"{operation.operation_id}.operation.json"
    path.write_text('{"operationId": ')
    with pytest.raises(CorruptOperation, match=r"operation\.json is not the ledger"):
        await operation.start_call()
    assert path.read_text() == '{"operationId": '
    path.unlink()


async def test_a_ledger_that_is_removed_by_hand_ends_the_operation(
    ledger: Ledger, base: Path
) -> None:
    operation = await ledger.create_operation()
    call = await operation.start_call()
    (base / f"{operation.operation_id}.operation.json").unlink()
    result = await operation.heartbeat()
    assert (result.ledger_exists, result.heartbeat_updated, result.data_after) == (
        False,
        False,
        None,
    )
    with pytest.raises(OperationFailed, match="its ledger is gone"):
        await call.end()
    # A log and a lock remain; they are not listed as an operation.
    assert await ledger.operations() == []


async def test_a_full_disk_changes_nothing(
    ledger: Ledger, clock: Clock, base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    operation = await ledger.create_operation()
    before = (base / f"{operation.operation_id}.operation.json").read_bytes()

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StoreUnavailable, match="No space left"):
        await operation.start_call()
    clock.passed_ms += 1
    with pytest.raises(StoreUnavailable, match="No space left"):
        await operation.heartbeat()
    monkeypatch.undo()
    assert (base / f"{operation.operation_id}.operation.json").read_bytes() == before
    assert not [name for name in names(base) if name.endswith(".tmp")]
    await (await operation.start_call()).end()
    await operation.complete()


async def test_unwritable_log_does_not_undo_a_commit(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    operation = await ledger.create_operation()

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(implementation, "_append_to", full)
    await (await operation.start_call()).end()
    await operation.complete()


async def test_a_lock_that_is_held_for_too_long_is_reported_with_its_holder(
    ledger: Ledger, base: Path
) -> None:
    operation = await ledger.create_operation()
    held = implementation.FileBackend(base, 5)._try_lock(
        base / f"{operation.operation_id}.operation.lock"
    )
    assert held is not None
    with pytest.raises(StoreUnavailable, match=f"by process {os.getpid()}"):
        await operation.heartbeat()
    os.close(held)
    await operation.heartbeat()


HOLDER = """
import fcntl, sys, time
lock = open(sys.argv[1])
fcntl.flock(lock, fcntl.LOCK_EX)
print("held", flush=True)
time.sleep(60)
"""


async def test_a_process_that_dies_with_the_lock_leaves_it_free(ledger: Ledger, base: Path) -> None:
    operation = await ledger.create_operation()
    path = base / f"{operation.operation_id}.operation.lock"
    holder = await asyncio.create_subprocess_exec(
        sys.executable, "-c", HOLDER, str(path), stdout=asyncio.subprocess.PIPE
    )
    assert holder.stdout is not None
    await holder.stdout.readline()
    with pytest.raises(StoreUnavailable):
        await operation.heartbeat()
    holder.kill()
    await holder.wait()
    assert (await operation.heartbeat()).ledger_exists


async def test_lock_on_a_removed_file_does_not_count(base: Path, ledger: Ledger) -> None:
    """A process waits for the lock; its holder moves the operation to the backups, and removes the lock file."""
    operation = await ledger.create_operation()
    path = base / f"{operation.operation_id}.operation.lock"
    backend = implementation.FileBackend(base, 5)
    first = backend._try_lock(path)
    assert first is not None
    waiting = os.open(path, os.O_RDWR)
    path.unlink()
    os.close(first)
    fcntl.flock(waiting, fcntl.LOCK_EX | fcntl.LOCK_NB)
    assert not implementation._is_same_file(path, waiting)
    second = backend._try_lock(path)
    assert second is not None
    assert backend._try_lock(path) is None
    os.close(second)
    os.close(waiting)


async def test_interrupted_move_to_the_backups_is_repeated(
    ledger: Ledger, base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process dies at each step of the move; a recovery then finishes it."""
    for survived in range(3):
        operation = await ledger.create_operation()
        moves = 0
        real = os.replace

        def cut_off(source: Any, target: Any, survived: int = survived) -> None:
            nonlocal moves
            if "/backup/" in str(target):
                moves += 1
                if moves > survived:
                    raise OSError(errno.EIO, "killed")
            real(source, target)  # noqa: B023 - called within this turn

        monkeypatch.setattr(os, "replace", cut_off)
        with pytest.raises(StoreUnavailable):
            await operation.complete()
        monkeypatch.undo()
        (data,) = await ledger.operations()
        assert data.operation_state is OperationState.COMPLETED
        await implementation.FileBackend(base, 5).back_up(operation.operation_id, 20)
        assert await ledger.operations() == []
        assert len(await ledger.read_log(operation.operation_id)) == 2
        shutil.rmtree(base / "backup")


async def test_two_programs_write_to_one_operation_and_lose_nothing(base: Path) -> None:
    """Several processes of their own, each with its own calls."""
    async with Ledger(base, participant_id="cli", settings=BY_HAND) as ledger:
        operation = await ledger.create_operation()
        program = f"""
import asyncio, sys
from perdure.operations import Ledger
async def main(name):
    async with Ledger({str(base)!r}, participant_id=name) as ledger:
        operation = await ledger.join_operation({operation.operation_id!r})
        for _ in range(20):
            async with operation.call():
                pass
asyncio.run(main(sys.argv[1]))
"""
        workers = [
            await asyncio.create_subprocess_exec(sys.executable, "-c", program, f"p{n}")
            for n in range(3)
        ]
        assert [await worker.wait() for worker in workers] == [0, 0, 0]
        await operation.complete()
        log = await ledger.read_log(operation.operation_id)
        assert sum("CALL_ENDED" in line for line in log) == 60


async def test_unsafe_resource_path_in_a_ledger_file_is_not_removed(
    ledger: Ledger, base: Path, tmp_path: Path
) -> None:
    operation = await ledger.create_operation()
    path = base / f"{operation.operation_id}.operation.json"
    link = tmp_path / "link"
    kept = tmp_path / "kept"
    kept.mkdir()
    link.symlink_to(kept)
    data = json.loads(path.read_text())
    data["tempResources"] = ["/", "relative", f"{tmp_path}/kept/..", str(link)]
    path.write_text(json.dumps(data))
    await operation.complete()
    assert kept.exists()
    assert not link.is_symlink()


async def test_foreign_files_are_neither_listed_nor_removed(base: Path) -> None:
    """The directory of a user that has a `backup` of its own, with names that could be ids."""
    foreign = [
        base / "backup" / "2025-01-photos" / "one.jpg",
        base / "backup" / "alpha" / "kept",
        base / "backup" / "my photos" / "operation.json",
        base / "my notes.operation.json",
    ]
    for path in foreign:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("mine")
    async with Ledger(base, participant_id="cli", settings=BY_HAND, max_backups=1) as ledger:
        first = await ledger.create_operation()
        await first.complete()
        (base / "backup" / first.operation_id / "notes").write_text("mine, too")
        second = await ledger.create_operation()
        assert [data.operation_id for data in await ledger.operations()] == [second.operation_id]
        await second.complete()
        (kept,) = await ledger.operations(backups=True)
    assert kept.operation_id == max(first.operation_id, second.operation_id)
    gone = min(first.operation_id, second.operation_id)
    assert {path.read_text() for path in foreign} == {"mine"}
    assert not names(base / "backup" / gone) - {"notes"}


async def test_draft_of_a_killed_process_is_removed_by_the_move(ledger: Ledger, base: Path) -> None:
    operation = await ledger.create_operation()
    (base / f"{operation.operation_id}.operation.json.tmp").write_text('{"operationId": ')
    await operation.complete()
    assert not [name for name in names(base) if name.endswith(".tmp")]


async def test_error_in_one_operation_does_not_prevent_leaving_the_others(base: Path) -> None:
    ledger = Ledger(base, participant_id="cli", settings=BY_HAND)
    broken, sound = await ledger.create_operation(), await ledger.create_operation()
    await sound.start_call()
    (base / f"{broken.operation_id}.operation.json").write_text("garbage")
    with pytest.raises(CorruptOperation, match=broken.operation_id):
        await ledger.dispose()
    async with Ledger(base) as outside:
        assert (await outside.read_operation(sound.operation_id)).stack == ()
