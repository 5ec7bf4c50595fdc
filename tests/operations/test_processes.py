"""Participants that are processes: killed, stopped, blocked. With the real clock and short settings."""

import asyncio
import json
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from perdure.operations import (
    CallCallback,
    FrameState,
    Ledger,
    LedgerData,
    Operation,
    OperationFailed,
    OperationState,
)
from tests.operations.conftest import place_of
from tests.operations.ledgers import QUICK

PATIENCE_S = 60


class Member:
    """A participant in a process of its own."""

    def __init__(self, process: Process) -> None:
        self.process = process

    async def says(self, word: str) -> str:
        """Wait for a line that begins with this."""
        assert self.process.stdout is not None
        async with asyncio.timeout(PATIENCE_S):
            while True:
                line = (await self.process.stdout.readline()).decode().strip()
                assert line, f"the process has ended before it said {word!r}"
                if line.startswith(word):
                    return line

    def send(self, number: int) -> None:
        os.kill(self.process.pid, number)

    async def go(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(b"\n")
        await self.process.stdin.drain()


Joining = Callable[..., Coroutine[Any, Any, Member]]


@pytest.fixture(
    params=[
        "files",
        pytest.param("sqlite", marks=pytest.mark.deep),
        pytest.param("postgres", marks=[pytest.mark.deep, pytest.mark.postgres]),
    ]
)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, str]:
    return place_of(request, tmp_path)


@pytest.fixture
async def ledger(place: dict[str, str]) -> AsyncIterator[Ledger]:
    async with Ledger(**place, participant_id="cli", settings=QUICK) as opened:  # type: ignore[arg-type]
        yield opened


@pytest.fixture
async def operation(ledger: Ledger) -> Operation:
    return await ledger.create_operation()


@pytest.fixture
async def joining(place: dict[str, str], operation: Operation) -> AsyncIterator[Joining]:
    """Starts members, and kills the remaining ones at the end."""
    members: list[Member] = []

    async def join(name: str, kind: str = "required") -> Member:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.operations.member"),
            *(json.dumps(place), operation.operation_id, name, kind),
            stdin=PIPE,
            stdout=PIPE,
        )
        member = Member(process)
        members.append(member)
        await member.says("started")
        return member

    yield join
    for member in members:
        if member.process.returncode is None:
            member.process.kill()
            await member.process.wait()


async def until(ledger: Ledger, operation: Operation, test: Callable[[LedgerData], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not test(await ledger.read_operation(operation.operation_id)):  # noqa: ASYNC110
            await asyncio.sleep(0.02)


async def is_in_the_backups(ledger: Ledger) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while await ledger.operations():  # noqa: ASYNC110 - there is no event to wait for
            await asyncio.sleep(0.05)


async def test_a_killed_participant_fails_the_operation(
    ledger: Ledger, operation: Operation, joining: Joining
) -> None:
    member, other = await joining("member"), await joining("other")
    cleaned: list[int] = []
    callback: CallCallback[None] = CallCallback(on_cleanup=lambda: cleaned.append(1))
    await operation.start_call(callback=callback)
    member.send(signal.SIGKILL)
    async with asyncio.timeout(PATIENCE_S):
        with pytest.raises(OperationFailed, match="'member'"):
            await operation.wait_for_completion(asyncio.Event().wait)
    await other.says("cleaned up")
    await other.says("OperationFailed")
    await is_in_the_backups(ledger)
    (kept,) = await ledger.operations(backups=True)
    assert kept.operation_state is OperationState.FAILED
    assert cleaned == [1]


async def test_a_killed_participant_whose_call_is_contained_fails_nothing_else(
    ledger: Ledger, operation: Operation, joining: Joining
) -> None:
    member, other = await joining("member", "contained"), await joining("other")
    member.send(signal.SIGKILL)
    await until(ledger, operation, lambda data: len(data.stack) == 1)
    await other.go()
    await other.says("ended")
    await operation.complete()
    lines = await ledger.read_log(operation.operation_id)
    assert sum("CRASH_DETECTED" in line for line in lines) == 1


@pytest.mark.parametrize("kind", ["required", "contained"])
async def test_a_stopped_participant_that_comes_back_is_fenced(
    ledger: Ledger, operation: Operation, joining: Joining, kind: str
) -> None:
    member = await joining("member", kind)
    await operation.start_call()
    member.send(signal.SIGSTOP)
    await until(ledger, operation, lambda data: bool(data.crashed_call_ids))
    member.send(signal.SIGCONT)
    await member.says("cleaned up")
    assert "was silent for too long" in await member.says("ParticipantFenced")


async def test_a_blocked_event_loop_is_not_a_dead_participant(
    ledger: Ledger, operation: Operation, joining: Joining
) -> None:
    member = await joining("member", "blocking")
    await operation.start_call()
    await member.says("awake")
    await member.go()
    await member.says("ended")
    (data,) = await ledger.operations()
    assert data.crashed_call_ids == ()


async def test_a_coordinator_that_is_killed_is_replaced(
    ledger: Ledger, operation: Operation, joining: Joining
) -> None:
    members = {name: await joining(name, "staying") for name in ("a", "b", "c")}
    await operation.stop_heartbeat()
    members["a"].send(signal.SIGKILL)
    await until(ledger, operation, lambda data: data.coordinator is not None)
    data = await ledger.read_operation(operation.operation_id)
    assert data.coordinator is not None
    members[data.coordinator.participant_id].send(signal.SIGKILL)
    operation.start_heartbeat()
    await is_in_the_backups(ledger)
    (kept,) = await ledger.operations(backups=True)
    assert kept.operation_state is OperationState.FAILED
    lines = await ledger.read_log(operation.operation_id)
    assert sum("COORDINATOR_REPLACED" in line for line in lines) == 1


async def test_participant_that_left_is_not_considered_crashed(
    ledger: Ledger, operation: Operation, joining: Joining
) -> None:
    member = await joining("member")
    await operation.start_call()
    await member.go()
    await member.says("ended")
    assert await member.process.wait() == 0
    await asyncio.sleep(1.5 * QUICK.staleness)
    (data,) = await ledger.operations()
    assert [frame.state for frame in data.stack] == [FrameState.ACTIVE]
    assert data.operation_state is OperationState.RUNNING
