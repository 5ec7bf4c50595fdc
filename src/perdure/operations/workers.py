"""Worker processes whose output is the result of a call."""

import asyncio
import os
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypedDict, TypeVar

from perdure.authoring.durations import Duration, milliseconds
from perdure.core.errors import InputError, WorkerFailed, WorkerTimedOut
from perdure.operations.calls import SpawnedCall, WorkWithCall
from perdure.operations.inputs import require_flag

T = TypeVar("T")

Deserialize = Callable[[str], T]
OnExit = Callable[[int], Awaitable[None] | None]
OnLine = Callable[[str], Awaitable[None] | None]

_POLL_S = 0.1
_STDERR_BYTES = 4096
"""The tail of standard error that the exception of a failed worker quotes."""
_LINE_BYTES = 1 << 20
"""A longer line reaches the callback in pieces."""


class ProcessOptions(TypedDict, total=False):
    """Options of a worker process."""

    cwd: str | os.PathLike[str] | None
    timeout: Duration | None
    on_stdout: OnLine | None
    on_stderr: OnLine | None
    on_exit: OnExit | None


class ResultFileOptions(ProcessOptions, total=False):
    """Options of a worker process that writes a result file."""

    poll_interval: Duration
    delete_result_file: bool


@dataclass(frozen=True, kw_only=True)
class WorkerCommand:
    """A command line and the options to run it with."""

    arguments: list[str]
    cwd: Path | None = None
    timeout_s: float | None = None
    on_stdout: OnLine | None = None
    on_stderr: OnLine | None = None
    on_exit: OnExit | None = None

    @classmethod
    def of(
        cls,
        command: Sequence[str],
        *,
        cwd: str | os.PathLike[str] | None = None,
        timeout: Duration | None = None,
        on_stdout: OnLine | None = None,
        on_stderr: OnLine | None = None,
        on_exit: OnExit | None = None,
    ) -> "WorkerCommand":
        """Checks the input before any process starts."""
        for name, callback in (
            ("on_stdout", on_stdout),
            ("on_stderr", on_stderr),
            ("on_exit", on_exit),
        ):
            if callback is not None and not callable(callback):
                raise InputError(f"{name} is {callback!r:.200}", "pass a function, or None")
        return cls(
            arguments=_checked(command),
            cwd=None if cwd is None else _directory(cwd),
            timeout_s=None if timeout is None else milliseconds(timeout, "timeout") / 1000,
            on_stdout=on_stdout,
            on_stderr=on_stderr,
            on_exit=on_exit,
        )

    @property
    def description(self) -> str:
        return " ".join(self.arguments)[:200]


@dataclass(frozen=True)
class ResultFile:
    """The file to which a worker writes its result."""

    path: Path
    poll_s: float = _POLL_S
    is_deleted: bool = False

    @classmethod
    def split(
        cls,
        command: Sequence[str],
        path: str | os.PathLike[str],
        options: ResultFileOptions,
    ) -> "tuple[WorkerCommand, ResultFile]":
        rest: Any = dict(options)
        poll_s = milliseconds(rest.pop("poll_interval", _POLL_S), "poll_interval") / 1000
        if not poll_s:
            raise InputError("poll_interval is 0", "pass seconds, or a timedelta, above 0")
        is_deleted = require_flag("delete_result_file", rest.pop("delete_result_file", False))
        worker = WorkerCommand.of(command, **rest)
        return worker, cls((worker.cwd or Path()) / path, poll_s, is_deleted)


def file_result_worker(
    worker: WorkerCommand, file: ResultFile, deserialize: Deserialize[T]
) -> WorkWithCall[T]:
    """Work that runs a process until it has written its result to a file.

    Ignores a file from before the start until it changes. While the process runs, the file is the result once it is
    unchanged between two checks and `deserialize` accepts it; after the process ended, at once. The process may
    outlive the call.
    """

    async def work(call: SpawnedCall[T]) -> T:
        old = _stamp(file.path)
        running = await _Running.start(
            call, worker, stdout=DEVNULL if worker.on_stdout is None else PIPE
        )
        if running.process.stdout is not None:
            running.read_in_background(running.process.stdout)
        ended = call._start_background(running.ended())
        async with running.limit():
            result = await _read_result(running, file, old, deserialize, ended)
        if file.is_deleted:
            await asyncio.to_thread(file.path.unlink, missing_ok=True)
        return result

    return work


async def _read_result(
    running: "_Running",
    file: ResultFile,
    old: object,
    deserialize: Deserialize[T],
    ended: "asyncio.Task[None]",
) -> T:
    seen: object = None
    while True:
        is_over = ended.done()
        stamp = _stamp(file.path)
        if is_over and (running.process.returncode != 0 or stamp in (None, old)):
            raise await running.failure()
        if stamp not in (None, old) and (is_over or stamp == seen):
            try:
                return deserialize(await asyncio.to_thread(file.path.read_text, "utf-8"))
            except Exception:  # the file may be incomplete: read it again at the next check
                if is_over:
                    raise
        seen = stamp
        await asyncio.wait({ended}, timeout=file.poll_s)


def stdio_worker(worker: WorkerCommand, deserialize: Deserialize[T]) -> WorkWithCall[T]:
    """Work that runs a process to its end and deserializes its standard output."""

    async def work(call: SpawnedCall[T]) -> T:
        running = await _Running.start(call, worker, stdout=PIPE)
        ended = call._start_background(running.ended())
        async with running.limit():
            printed = await running.read(running.process.stdout, "on_stdout", worker.on_stdout)
            await asyncio.wait({ended})
        if running.process.returncode != 0:
            raise await running.failure()
        return deserialize(printed.decode())

    return work


class _Running:
    """The process of a call. It leads its own process group, so that a signal also reaches its children."""

    def __init__(self, call: SpawnedCall[Any], worker: WorkerCommand, process: Process) -> None:
        self.process = process
        self._call = call
        self._worker = worker
        self._stderr = call._start_background(
            self.read(process.stderr, "on_stderr", worker.on_stderr, keep=_STDERR_BYTES)
        )

    @classmethod
    async def start(cls, call: SpawnedCall[Any], worker: WorkerCommand, stdout: int) -> "_Running":
        starting = call._start_background(
            asyncio.create_subprocess_exec(
                *worker.arguments,
                stdin=DEVNULL,
                stdout=stdout,
                stderr=PIPE,
                cwd=worker.cwd,
                start_new_session=True,
                limit=_LINE_BYTES,
            )
        )
        try:
            process = await asyncio.shield(starting)
        except asyncio.CancelledError:
            # A start that is cancelled half way may never return (Python 3.11), or leave its process behind.
            with suppress(OSError):
                call.attach(await starting)
                await call._end_processes()
            raise
        call.attach(process)

        def terminate() -> None:
            call.kill()

        call.on_cancel(terminate)
        if call.is_cancelled:
            # It was cancelled while the process started, when there was nothing to signal.
            terminate()
        return cls(call, worker, process)

    async def ended(self) -> None:
        code, on_exit = await self.process.wait(), self._worker.on_exit
        if on_exit is not None:
            await self._call._operation._guarded("on_exit", lambda: on_exit(code))

    def read_in_background(self, stdout: asyncio.StreamReader) -> None:
        """Passes lines to `on_stdout` in the background, until the stream ends."""
        reading = self.read(stdout, "on_stdout", self._worker.on_stdout, keep=0)
        self._reading = self._call._start_background(reading)

    def limit(self) -> "_Limit":
        return _Limit(self._call, self._worker)

    async def read(
        self,
        stream: asyncio.StreamReader | None,
        name: str,
        on_line: OnLine | None,
        keep: int | None = None,
    ) -> bytes:
        """Reads a stream to its end, so that its writer never blocks; returns the last `keep` bytes, or all."""
        kept = b""
        while stream is not None and (
            chunk := await _next_chunk(stream, by_line=on_line is not None)
        ):
            kept += chunk
            kept = kept if keep is None else kept[len(kept) - keep :] if len(kept) > keep else kept
            if on_line is not None:
                text = chunk.decode(errors="replace").rstrip("\r\n")
                await self._call._operation._guarded(name, partial(on_line, text))
        return kept

    async def failure(self) -> WorkerFailed:
        code = self.process.returncode or 0
        # A child of the process may keep the stream open: do not wait for its end longer than this.
        await asyncio.wait({self._stderr}, timeout=1)
        is_read = self._stderr.done()
        output = self._stderr.result().decode(errors="replace").strip() if is_read else ""
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        return WorkerFailed(
            f"{self._worker.arguments[0]!r} ended with {how} and no result"
            + (f" ({output})" if output else ""),
            "check its standard error",
            code,
        )


class _Limit:
    """Terminates the process and its children if the block takes longer than the timeout."""

    def __init__(self, call: SpawnedCall[Any], worker: WorkerCommand) -> None:
        self._call = call
        self._worker = worker
        self._timeout = asyncio.timeout(worker.timeout_s)

    async def __aenter__(self) -> None:
        await self._timeout.__aenter__()

    async def __aexit__(self, *raised: Any) -> None:
        try:
            await self._timeout.__aexit__(*raised)
        except TimeoutError as error:
            if not self._timeout.expired():
                raise
            await self._call._end_processes()
            raise WorkerTimedOut(
                f"{self._worker.arguments[0]!r} gave no result within {self._worker.timeout_s:g} s, and was terminated",
                "pass a longer timeout, or find out why it takes so long",
                -1,
            ) from error


async def _next_chunk(stream: asyncio.StreamReader, *, by_line: bool) -> bytes:
    """The next line, or the next available bytes; empty at the end. A line over the limit comes in pieces."""
    if not by_line:
        return await stream.read(65536)
    try:
        return await stream.readuntil()
    except asyncio.IncompleteReadError as end:
        return end.partial
    except asyncio.LimitOverrunError as over:
        return await stream.read(over.consumed)


def _stamp(path: Path) -> object:
    """Inode, modification time and size; `None` if the file does not exist."""
    with suppress(FileNotFoundError):
        found = path.stat()
        return (found.st_ino, found.st_mtime_ns, found.st_size)
    return None


def _directory(cwd: object) -> Path:
    text = os.fspath(cwd) if isinstance(cwd, os.PathLike) else cwd
    if not isinstance(text, str) or not Path(text).is_dir():
        raise InputError(f"cwd is {cwd!r:.200}", "pass a directory that exists")
    return Path(text)


def _checked(command: Sequence[str]) -> list[str]:
    arguments = [] if isinstance(command, str) else list(command)
    if not arguments or not all(isinstance(argument, str) for argument in arguments):
        raise InputError(
            f"{command!r} is not a command", "pass the program and its arguments as a list of texts"
        )
    return arguments
