"""Options of processes that work for a call, with real processes."""

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from perdure.core.errors import InputError
from perdure.operations import CallFailed, Ledger, Operation, SpawnedCall, WorkerTimedOut
from tests.operations.ledgers import BY_HAND

PYTHON = sys.executable


@pytest.fixture
async def operation(tmp_path: Path) -> AsyncIterator[Operation]:
    async with Ledger(tmp_path / "ledger", participant_id="cli", settings=BY_HAND) as ledger:
        made = await ledger.create_operation()
        yield made
        await made.complete()


def printing(operation: Operation, program: str, **options: Any) -> SpawnedCall[str]:
    return operation.exec_stdio_worker([PYTHON, "-c", program], deserializer=str, **options)


async def test_process_runs_in_its_working_directory(operation: Operation, tmp_path: Path) -> None:
    call = printing(operation, "import os; print(os.getcwd(), end='')", cwd=tmp_path)
    assert await call == str(tmp_path)


async def test_relative_result_file_is_in_the_working_directory(
    operation: Operation, tmp_path: Path
) -> None:
    program = "open('answer', 'w').write('42')"
    call = operation.exec_file_result_worker(
        [PYTHON, "-c", program],
        result_file_path="answer",
        deserializer=int,
        cwd=tmp_path,
        poll_interval=0.01,
        delete_result_file=True,
    )
    assert await call == 42
    assert not (tmp_path / "answer").exists()


async def test_result_file_stays_unless_it_is_to_be_deleted(
    operation: Operation, tmp_path: Path
) -> None:
    program = "open('answer', 'w').write('42')"
    call = operation.exec_file_result_worker(
        [PYTHON, "-c", program], result_file_path="answer", deserializer=int, cwd=tmp_path
    )
    assert await call == 42
    assert (tmp_path / "answer").read_text() == "42"


async def test_lines_of_both_streams_are_passed_on_as_they_come(operation: Operation) -> None:
    seen: list[tuple[str, str]] = []
    waiting = asyncio.Event()

    async def on_stdout(line: str) -> None:
        seen.append(("out", line))
        waiting.set()

    program = (
        "import sys; print('first', flush=True); sys.stderr.write('wrong\\n'); "
        "sys.stdout.write('no end')"
    )
    call = printing(
        operation,
        program,
        on_stdout=on_stdout,
        on_stderr=lambda line: seen.append(("err", line)),
    )
    await waiting.wait()
    assert await call == "first\nno end"
    while ("err", "wrong") not in seen:  # noqa: ASYNC110 - the stream is read beside the call
        await asyncio.sleep(0.01)
    assert [line for stream, line in seen if stream == "out"] == ["first", "no end"]


async def test_lines_are_passed_on_while_a_result_file_is_awaited(
    operation: Operation, tmp_path: Path
) -> None:
    lines: list[str] = []
    answer = tmp_path / "answer"
    program = f"print('working', flush=True); open({str(answer)!r}, 'w').write('1')"
    call = operation.exec_file_result_worker(
        [PYTHON, "-c", program],
        result_file_path=answer,
        deserializer=int,
        on_stdout=lines.append,
    )
    assert await call == 1
    while lines != ["working"]:  # noqa: ASYNC110 - the stream is read beside the call
        await asyncio.sleep(0.01)


async def test_process_that_takes_too_long_is_ended_and_fails_its_call(
    operation: Operation, tmp_path: Path
) -> None:
    program = "import time; time.sleep(600)"
    codes: list[int] = []
    stdio = printing(operation, program, timeout=0.2, on_exit=codes.append)
    filed = operation.exec_file_result_worker(
        [PYTHON, "-c", program],
        result_file_path=tmp_path / "never",
        deserializer=int,
        timeout=0.2,
        on_exit=codes.append,
    )
    for call in (stdio, filed):
        with pytest.raises(CallFailed) as caught:
            await call
        assert isinstance(caught.value.__cause__, WorkerTimedOut)
        assert "gave no result within 0.2 s" in str(caught.value.__cause__)
        assert not call._processes.send(0)
    while codes != [-15, -15]:  # noqa: ASYNC110 - the process is waited for beside the call
        await asyncio.sleep(0.01)


async def test_request_that_takes_too_long_is_cancelled_and_fails_its_call(
    operation: Operation,
) -> None:
    call = operation.exec_server_request(lambda: asyncio.sleep(60, 1), timeout=0.05)
    with pytest.raises(CallFailed) as caught:
        await call
    assert isinstance(caught.value.__cause__, TimeoutError)


@pytest.mark.parametrize(
    "options",
    [
        {"cwd": "/no/such/directory"},
        {"cwd": 7},
        {"timeout": -1},
        {"on_stdout": "print"},
        {"on_exit": 1},
    ],
)
async def test_bad_options_start_no_process(
    operation: Operation, options: dict[str, object]
) -> None:
    with pytest.raises(InputError):
        await printing(operation, "print()", **options)
    assert not operation.has_pending_calls


async def test_unknown_options_are_refused(operation: Operation) -> None:
    with pytest.raises(TypeError, match="shell"):
        await printing(operation, "print()", shell=True)


async def test_sync_calls_on_completion_when_all_calls_have_ended(operation: Operation) -> None:
    received: list[str] = []

    async def broken() -> int:
        raise OSError("no disk")

    calls = [operation.spawn_call(lambda: asyncio.sleep(0, 1)), operation.spawn_call(broken)]
    result = await operation.sync(
        calls,
        on_completion=lambda: received.append("over"),
        on_operation_failed=lambda _: received.append("failed"),
    )
    assert (len(result.successful_calls), len(result.failed_calls)) == (1, 1)
    assert received == ["over"]


async def test_sync_does_not_complete_if_the_operation_fails(tmp_path: Path) -> None:
    received: list[str] = []
    async with Ledger(tmp_path / "other", participant_id="cli", settings=BY_HAND) as ledger:
        operation = await ledger.create_operation()
        call = operation.spawn_call(lambda: asyncio.sleep(60))
        await operation.abort("test")
        syncing = asyncio.ensure_future(
            operation.sync(
                [call],
                on_completion=lambda: received.append("over"),
                on_operation_failed=lambda _: received.append("failed"),
            )
        )
        await operation.heartbeat()
        assert (await syncing).operation_failed
    assert received == ["failed"]
