"""Calls that run in the background, and processes that work for them."""

import asyncio
import json
import os
import signal
import sys
from asyncio.subprocess import Process
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from perdure.core.errors import InputError
from perdure.operations import (
    CallCallback,
    CallFailed,
    CallOver,
    Ledger,
    Operation,
    SpawnedCall,
    WorkerFailed,
)
from tests.operations.ledgers import BY_HAND

PYTHON = sys.executable


@pytest.fixture
async def operation(tmp_path: Path) -> AsyncIterator[Operation]:
    """An operation in files; no call may be open at the end of the test."""
    async with Ledger(tmp_path / "ledger", participant_id="cli", settings=BY_HAND) as ledger:
        made = await ledger.create_operation()
        yield made
        (data,) = await ledger.operations()
        assert data.stack == ()


async def log_of(operation: Operation, tmp_path: Path) -> str:
    return (tmp_path / "ledger" / f"{operation.operation_id}.operation.log").read_text()


async def five() -> int:
    return 5


async def broken() -> int:
    raise OSError("no disk")


async def minus_one() -> int:
    return -1


async def test_a_spawned_call_has_its_id_at_once_and_its_result_later(
    operation: Operation, tmp_path: Path
) -> None:
    received: list[int] = []
    call = operation.spawn_call(five, callback=CallCallback(on_completion=received.append))
    assert call.call_id.startswith("call_cli_1_")
    assert not call.is_completed
    with pytest.raises(CallOver):
        _ = call.result
    assert await call == 5
    assert (call.result, call.is_completed, call.is_success) == (5, True, True)
    assert (call.is_failed, call.is_cancelled, call.error) == (False, False, None)
    assert await call == 5
    await asyncio.sleep(0)
    assert received == [5]
    log = await log_of(operation, tmp_path)
    assert log.index("CALL_SPAWNED") < log.index("CALL_COMPLETED")


async def test_the_exception_of_the_work_is_the_cause_of_the_calls_failure(
    operation: Operation, tmp_path: Path
) -> None:
    cleaned: list[int] = []
    callback: CallCallback[int] = CallCallback(on_cleanup=lambda: cleaned.append(1))
    call = operation.spawn_call(broken, callback=callback)
    await call.wait()
    assert (call.is_success, call.is_failed) == (False, True)
    with pytest.raises(CallFailed, match=call.call_id) as caught:
        await call
    assert isinstance(caught.value.__cause__, OSError)
    assert cleaned == [1]
    assert "CALL_FAILED" in await log_of(operation, tmp_path)
    assert operation.failure is None


async def test_a_fallback_replaces_the_result_of_a_failed_call(operation: Operation) -> None:
    call = operation.spawn_call(broken, callback=CallCallback(on_call_crashed=minus_one))
    assert await call == -1
    assert call.is_success


async def test_work_that_cancels_itself_fails_its_call(operation: Operation) -> None:
    async def cancelled() -> int:
        raise asyncio.CancelledError

    call = operation.spawn_call(cancelled)
    await call.wait()
    assert call.is_failed


async def test_cancelled_work_may_still_return_a_result(operation: Operation) -> None:
    asked: list[int] = []
    has_begun = asyncio.Event()

    async def work(call: SpawnedCall[list[int]]) -> list[int]:
        call.on_cancel(lambda: asked.append(1))
        done: list[int] = []
        while not call.is_cancelled:
            done.append(len(done))
            has_begun.set()
            await asyncio.sleep(0.001)
        return done

    call = operation.spawn_call(work_with_call=work)
    await has_begun.wait()
    await call.cancel()
    await call.cancel()
    assert await call
    assert asked == [1]
    assert (call.is_cancelled, call.is_success) == (True, True)


@pytest.mark.parametrize("both", [True, False])
async def test_spawn_call_needs_exactly_one_kind_of_work(operation: Operation, both: bool) -> None:
    async def work(_: SpawnedCall[int]) -> int:
        return 1

    with pytest.raises(InputError):
        _ = operation.spawn_call(five if both else None, work_with_call=work if both else None)


async def test_sync_returns_successful_and_failed_calls(operation: Operation) -> None:
    good, bad = operation.spawn_call(five), operation.spawn_call(broken)
    result = await operation.sync([good, bad])
    assert (result.successful_calls, result.failed_calls) == ([good], [bad])
    assert (result.all_succeeded, result.has_failed, result.all_resolved) == (False, True, True)
    assert not result.operation_failed
    assert (await operation.sync([good])).all_succeeded
    assert (await operation.sync([])).all_succeeded


async def test_waiting_returns_the_result_or_the_fallback_or_raises(operation: Operation) -> None:
    seen: list[Exception] = []

    async def fallback(error: Exception) -> int:
        seen.append(error)
        return -1

    assert await operation.wait_for_completion(five) == 5
    with pytest.raises(OSError, match="no disk"):
        await operation.wait_for_completion(broken)
    assert await operation.wait_for_completion(broken, on_error=fallback) == -1
    assert [str(error) for error in seen] == ["no disk"]


async def test_a_wait_that_is_cancelled_cancels_its_work(operation: Operation) -> None:
    ended: list[bool] = []

    async def endless() -> int:
        try:
            await asyncio.sleep(60)
        finally:
            ended.append(True)
        return 1

    waiting = asyncio.ensure_future(operation.wait_for_completion(endless))
    await asyncio.sleep(0.01)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert ended == [True]


async def test_a_server_request_is_a_spawned_call(operation: Operation, tmp_path: Path) -> None:
    assert await operation.exec_server_request(five) == 5
    assert "description=server request" in await log_of(operation, tmp_path)


def python(program: str) -> list[str]:
    return [PYTHON, "-c", program]


async def test_a_worker_prints_its_result(operation: Operation) -> None:
    codes: list[int] = []
    worker = operation.exec_stdio_worker(
        python("print('{\"pages\": 3}')"), deserializer=json.loads, on_exit=codes.append
    )
    assert await worker == {"pages": 3}
    assert codes == [0]


async def test_the_failure_of_a_worker_has_its_exit_code(operation: Operation) -> None:
    program = "import sys; print('part'); sys.exit('no paper')"
    worker = operation.exec_stdio_worker(python(program), deserializer=str)
    await worker.wait()
    assert isinstance(worker.error, WorkerFailed)
    assert worker.error.exit_code == 1
    assert "no paper" in str(worker.error)


async def test_a_result_that_can_not_be_read_fails_the_call(operation: Operation) -> None:
    worker = operation.exec_stdio_worker(python("print('x')"), deserializer=json.loads)
    await worker.wait()
    assert isinstance(worker.error, json.JSONDecodeError)


async def test_a_missing_worker_program_fails_the_call(operation: Operation) -> None:
    worker = operation.exec_stdio_worker(["/no/such/program"], deserializer=str)
    await worker.wait()
    assert isinstance(worker.error, FileNotFoundError)


@pytest.mark.parametrize("command", [[], "ls -l", [1]])
async def test_a_command_is_a_list_of_words(operation: Operation, command: list[str]) -> None:
    with pytest.raises(InputError, match="command"):
        _ = operation.exec_stdio_worker(command, deserializer=str)


async def test_a_worker_writes_its_result_to_a_file(operation: Operation, tmp_path: Path) -> None:
    result = tmp_path / "result.json"
    result.write_text("1")  # of another time
    codes: list[int] = []
    worker = operation.exec_file_result_worker(
        python(f"import time; time.sleep(0.3); open({str(result)!r}, 'w').write('22')"),
        result_file_path=result,
        deserializer=int,
        on_exit=codes.append,
    )
    assert await worker == 22
    assert codes == [0]


async def test_a_result_counts_while_the_worker_still_runs(
    operation: Operation, tmp_path: Path
) -> None:
    result = tmp_path / "result.json"
    program = f"""
import time
file = open({str(result)!r}, 'w')
file.write('[1, '); file.flush(); time.sleep(0.5)
file.write('2]'); file.close(); time.sleep(60)
"""
    processes: list[int] = []
    worker = operation.exec_file_result_worker(
        python(program), result_file_path=result, deserializer=json.loads
    )
    assert await worker == [1, 2]
    processes += worker._processes._processes
    os.killpg(processes[0], signal.SIGKILL)
    await asyncio.gather(*worker._tasks)


async def test_a_worker_that_writes_no_file_has_failed(
    operation: Operation, tmp_path: Path
) -> None:
    worker = operation.exec_file_result_worker(
        python("pass"), result_file_path=tmp_path / "none", deserializer=str
    )
    await worker.wait()
    assert isinstance(worker.error, WorkerFailed)
    assert worker.error.exit_code == 0


async def started(path: Path) -> int:
    """The pid that a worker has written to a file."""
    async with asyncio.timeout(60):
        while not (text := written(path)):  # noqa: ASYNC110 - there is no event to wait for
            await asyncio.sleep(0.01)
    return int(text)


def written(path: Path) -> str:
    return path.read_text() if path.exists() else ""


def is_there(pid: int) -> bool:
    """Whether a process runs; a zombie does not count."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state not in "ZX"


GRANDCHILD = """
import os, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
with open({path!r}, "w") as file:
    file.write(str(child.pid))
time.sleep(60)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
async def test_a_kill_reaches_all_that_the_worker_has_started(
    operation: Operation, tmp_path: Path, number: signal.Signals
) -> None:
    pid_file = tmp_path / "pid"
    callback = CallCallback(on_call_crashed=fallback_text)
    worker = operation.exec_stdio_worker(
        python(GRANDCHILD.format(path=str(pid_file))), deserializer=str, callback=callback
    )
    grandchild = await started(pid_file)
    assert worker.kill(number)
    assert await worker == "fallback"
    assert not is_there(grandchild)
    assert not worker.kill()


async def fallback_text() -> str:
    return "fallback"


async def test_cancelling_a_worker_sends_its_process_a_signal(
    operation: Operation, tmp_path: Path
) -> None:
    program = f"""
import signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: (print("partial"), sys.exit(0)))
open({str(tmp_path / "pid")!r}, "w").write("1")
time.sleep(60)
"""
    worker = operation.exec_stdio_worker(python(program), deserializer=str.strip)
    await started(tmp_path / "pid")
    await worker.cancel()
    assert await worker == "partial"


async def test_cancelling_a_worker_while_its_process_starts_sends_the_signal_then(
    operation: Operation, monkeypatch: pytest.MonkeyPatch
) -> None:
    start, is_started, may_return = (
        asyncio.create_subprocess_exec,
        asyncio.Event(),
        asyncio.Event(),
    )

    async def slow(*arguments: Any, **options: Any) -> Process:
        process = await start(*arguments, **options)
        is_started.set()
        await may_return.wait()
        return process

    monkeypatch.setattr(asyncio, "create_subprocess_exec", slow)
    worker = operation.exec_stdio_worker(python("import time; time.sleep(60)"), deserializer=str)
    await is_started.wait()
    await worker.cancel()
    may_return.set()
    with pytest.raises(CallFailed, match="signal 15"):
        await worker


async def test_unknown_signal_is_refused(operation: Operation) -> None:
    call = operation.spawn_call(five)
    with pytest.raises(InputError):
        call.kill(4711)
    assert not call.kill()
    await call


async def test_processes_of_calls_end_with_the_operation(tmp_path: Path) -> None:
    async with Ledger(tmp_path / "ledger", participant_id="cli", settings=BY_HAND) as ledger:
        operation = await ledger.create_operation()
        stubborn = f"""
import signal, time, os
signal.signal(signal.SIGTERM, signal.SIG_IGN)
open({str(tmp_path / "pid")!r}, "w").write(str(os.getpid()))
time.sleep(60)
"""
        worker = operation.exec_stdio_worker(python(stubborn), deserializer=str)
        pid = await started(tmp_path / "pid")
        await operation.abort()
        await operation.heartbeat()
        await worker.wait()
        assert worker.is_failed
        assert not is_there(pid)


async def test_a_process_that_is_just_starting_ends_with_the_operation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    create, may_return = asyncio.create_subprocess_exec, asyncio.Event()

    async def create_slowly(*arguments: Any, **options: Any) -> Process:
        process = await create(*arguments, **options)
        await may_return.wait()
        return process

    monkeypatch.setattr(asyncio, "create_subprocess_exec", create_slowly)
    async with Ledger(tmp_path / "ledger", participant_id="cli", settings=BY_HAND) as ledger:
        operation = await ledger.create_operation()
        code = f"import os, time; open({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid())); time.sleep(600)"
        worker = operation.exec_stdio_worker(python(code), deserializer=str)
        pid = await started(tmp_path / "pid")
        await operation.abort()
        await operation.heartbeat()
        may_return.set()
        await worker.wait()
        assert worker.is_failed
        assert not is_there(pid)


async def test_process_started_by_the_program_can_be_attached(
    operation: Operation, tmp_path: Path
) -> None:
    async def work(call: SpawnedCall[int]) -> int:
        process = await asyncio.create_subprocess_exec(*python("import time; time.sleep(60)"))
        call.attach(process)
        (tmp_path / "pid").write_text(str(process.pid))
        return await process.wait()

    call = operation.spawn_call(work_with_call=work)
    await started(tmp_path / "pid")
    assert call.kill(signal.SIGKILL)
    assert await call == -signal.SIGKILL
