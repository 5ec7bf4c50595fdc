"""Processes whose result is the result of a call."""

import asyncio
import os
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from perdure.core.errors import InputError, WorkerFailed
from perdure.operations.calls import SpawnedCall, WorkWithCall

T = TypeVar("T")

Deserialize = Callable[[str], T]
OnExit = Callable[[int], Awaitable[None] | None]

_POLL_S = 0.1
_STDERR_BYTES = 4096
"""How much of the end of a failed worker's complaints an error repeats."""


def file_result_worker(
    command: Sequence[str],
    result_file_path: str | os.PathLike[str],
    deserialize: Deserialize[T],
    on_exit: OnExit | None,
) -> WorkWithCall[T]:
    """Work that runs a process until it has written its result to a file.

    A file that was there before is not the result. While the process runs, a file counts when it has stopped growing
    and can be read; when the process has ended, at once. The process may outlive the call.
    """
    path = Path(result_file_path)
    words = _checked(command)

    async def work(call: SpawnedCall[T]) -> T:
        old = _stamp(path)
        process = await _started(call, words, stdout=DEVNULL)
        complaints = call._beside(_end_of(process.stderr))
        ended = call._beside(_ended(call, process, on_exit))
        seen: object = None
        while True:
            is_over = ended.done()
            stamp = _stamp(path)
            if is_over and (process.returncode != 0 or stamp in (None, old)):
                raise await _failure(words, process, complaints)
            if stamp not in (None, old) and (is_over or stamp == seen):
                try:
                    return deserialize(await asyncio.to_thread(path.read_text, "utf-8"))
                except Exception:  # it may not be written to its end: it is read again
                    if is_over:
                        raise
            seen = stamp
            await asyncio.wait({ended}, timeout=_POLL_S)

    return work


def stdio_worker(
    command: Sequence[str], deserialize: Deserialize[T], on_exit: OnExit | None
) -> WorkWithCall[T]:
    """Work that runs a process to its end, and makes a value of what it printed."""
    words = _checked(command)

    async def work(call: SpawnedCall[T]) -> T:
        process = await _started(call, words, stdout=PIPE)
        complaints = call._beside(_end_of(process.stderr))
        printed = b"" if process.stdout is None else await process.stdout.read()
        await _ended(call, process, on_exit)
        if process.returncode != 0:
            raise await _failure(words, process, complaints)
        return deserialize(printed.decode())

    return work


async def _started(call: SpawnedCall[Any], words: Sequence[str], stdout: int) -> Process:
    """A process that leads a group of its own, so that a signal reaches all that it starts."""
    process = await asyncio.create_subprocess_exec(
        *words, stdin=DEVNULL, stdout=stdout, stderr=PIPE, start_new_session=True
    )
    call.attach(process)

    def ask_to_end() -> None:
        call.kill()

    call.on_cancel(ask_to_end)
    return process


async def _ended(call: SpawnedCall[Any], process: Process, on_exit: OnExit | None) -> None:
    code = await process.wait()
    if on_exit is not None:
        await call._operation._guarded("on_exit", lambda: on_exit(code))


async def _end_of(stream: asyncio.StreamReader | None) -> bytes:
    """The last bytes of a stream, all of which is read so that its writer never waits."""
    kept = b""
    while stream is not None and (part := await stream.read(65536)):
        kept = (kept + part)[-_STDERR_BYTES:]
    return kept


async def _failure(
    words: Sequence[str], process: Process, complaints: "asyncio.Future[bytes]"
) -> WorkerFailed:
    code = process.returncode or 0
    # Something that it started may keep the stream open; what there is is enough.
    await asyncio.wait({complaints}, timeout=1)
    said = complaints.result().decode(errors="replace").strip() if complaints.done() else ""
    how = f"signal {-code}" if code < 0 else f"exit code {code}"
    return WorkerFailed(
        f"{words[0]!r} ended with {how} and no result" + (f" ({said})" if said else ""),
        "see what it wrote to its standard error",
        code,
    )


def _stamp(path: Path) -> object:
    """What changes when a file is written; `None` if there is none."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return (found.st_ino, found.st_mtime_ns, found.st_size)


def _checked(command: Sequence[str]) -> list[str]:
    words = [] if isinstance(command, str) else list(command)
    if not words or not all(isinstance(word, str) for word in words):
        raise InputError(
            f"{command!r} is not a command", "pass the program and its arguments as a list of texts"
        )
    return words
