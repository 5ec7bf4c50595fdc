"""Processes and requests as calls of an operation."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Sequence
from os import PathLike
from typing import TypeVar, Unpack

from perdure.authoring.durations import Duration, milliseconds
from perdure.operations.callbacks import CallCallback
from perdure.operations.calls import CallWork, SpawnedCall, WorkWithCall
from perdure.operations.workers import (
    Deserialize,
    ProcessOptions,
    ResultFile,
    ResultFileOptions,
    WorkerCommand,
    file_result_worker,
    stdio_worker,
)

T = TypeVar("T")


class ExecCalls(ABC):
    """The helpers of an operation that spawn calls for processes and requests."""

    @abstractmethod
    def spawn_call(
        self,
        work: CallWork[T] | None = None,
        *,
        work_with_call: WorkWithCall[T] | None = None,
        callback: CallCallback[T] | None = None,
        description: str | None = None,
        fail_on_crash: bool = True,
        resources: Sequence[str | PathLike[str]] = (),
    ) -> SpawnedCall[T]: ...

    def exec_file_result_worker(
        self,
        command: Sequence[str],
        *,
        result_file_path: str | PathLike[str],
        deserializer: Deserialize[T],
        callback: CallCallback[T] | None = None,
        description: str | None = None,
        fail_on_crash: bool = True,
        **options: Unpack[ResultFileOptions],
    ) -> SpawnedCall[T]:
        """Run a process that writes its result to a file; `deserializer` turns the file's text into the result.

        Options: those of `exec_stdio_worker`; `poll_interval` between checks for the file (0.1 s); and
        `delete_result_file`, to delete the file after reading. A relative `result_file_path` is relative to `cwd`.
        """
        worker, file = ResultFile.split(command, result_file_path, options)
        return self.spawn_call(
            work_with_call=file_result_worker(worker, file, deserializer),
            callback=callback,
            description=description or worker.description,
            fail_on_crash=fail_on_crash,
        )

    def exec_stdio_worker(
        self,
        command: Sequence[str],
        *,
        deserializer: Deserialize[T],
        callback: CallCallback[T] | None = None,
        description: str | None = None,
        fail_on_crash: bool = True,
        **options: Unpack[ProcessOptions],
    ) -> SpawnedCall[T]:
        """Run a process that prints its result; `deserializer` turns its standard output into the result.

        Options: `cwd`, its working directory; `timeout`, after which the process is terminated and the call fails with
        `WorkerTimedOut`; `on_stdout(line)` and `on_stderr(line)`, called for each line of output; and `on_exit(code)`.
        """
        worker = WorkerCommand.of(command, **options)
        return self.spawn_call(
            work_with_call=stdio_worker(worker, deserializer),
            callback=callback,
            description=description or worker.description,
            fail_on_crash=fail_on_crash,
        )

    def exec_server_request(
        self,
        work: CallWork[T],
        *,
        timeout: Duration | None = None,
        callback: CallCallback[T] | None = None,
        description: str | None = None,
        fail_on_crash: bool = True,
    ) -> SpawnedCall[T]:
        """Run a request to a server as a call; `work` sends the request with any client library.

        After `timeout` the request is cancelled, and the call fails with `TimeoutError`.
        """
        return self.spawn_call(
            work if timeout is None else _limited(work, milliseconds(timeout, "timeout") / 1000),
            callback=callback,
            description=description or "server request",
            fail_on_crash=fail_on_crash,
        )


def _limited(work: CallWork[T], limit_s: float) -> CallWork[T]:
    async def limited() -> T:
        async with asyncio.timeout(limit_s):
            return await work()

    return limited
