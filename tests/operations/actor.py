"""A participant that executes commands from a socket: `python -m tests.operations.actor SOCKET`.

Each connection to the socket gets a process of its own, forked from one that has imported everything already. It
reads a request per line, `[verb, argument, ...]`, and answers each with `{"pid": ..., "result": ...}` or
`{"error": ..., "text": ...}`. It records the calls of its callbacks in a file, which outlives the process.
"""

import asyncio
import json
import os
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Any

from perdure.core.errors import PerdureError
from perdure.core.operations.data import LedgerData
from perdure.core.operations.transitions import LedgerChange
from perdure.operations import (
    Call,
    CallCallback,
    Ledger,
    LedgerSettings,
    Operation,
    OperationFailed,
    SpawnedCall,
)

SHORT = LedgerSettings(
    heartbeat_shortest=0.1,
    heartbeat_longest=0.15,
    look_every=0.05,
    staleness=1.1,
    notice=0.3,
    self_cleanup=0.3,
    backup_delay=0.2,
    lock_timeout=10,
    kill_grace=0.5,
)


class Actor:
    """Each public method is a verb."""

    def __init__(self, name: str, place: dict[str, str], folder: str) -> None:
        self._name = name
        self._folder = Path(folder)
        self._ledger = Ledger(**place, participant_id=name, settings=SHORT)  # type: ignore[arg-type]
        self._operation: Operation | None = None
        self._calls: dict[str, Call[Any] | SpawnedCall[Any]] = {}

    async def create(self) -> str:
        self._operation = await self._ledger.create_operation(description="a situation")
        shared = self._scratch("shared")
        await self._operation.add_temp_resource(shared)
        return self._operation.operation_id

    async def join(self, operation_id: str) -> None:
        self._operation = await self._ledger.join_operation(operation_id)

    async def start(self, label: str, kind: str = "plain") -> str:
        """A call with a temporary file. Of the kind `gated`, its clean-up waits until the file `open-NAME` exists."""
        call = await self._here.start_call(
            callback=self._callback(label, kind),
            description=label,
            resources=[self._scratch(label)],
        )
        self._calls[label] = call
        return call.call_id

    async def spawn(self, label: str) -> str:
        """A call in the background that has no end of its own."""
        call = self._here.spawn_call(
            asyncio.Event().wait,
            callback=self._callback(label),
            description=label,
            resources=[self._scratch(label)],
        )
        self._calls[label] = call
        async with asyncio.timeout(60):
            while call.call_id not in self._here._part.held:  # noqa: ASYNC110 - there is no event to wait for
                await asyncio.sleep(0.01)
        return call.call_id

    async def run_outside(self, label: str, program: str, timeout_s: float) -> str:
        """A call to a program that is not a participant; it is cancelled if that takes too long."""
        call: SpawnedCall[str] = self._here.exec_stdio_worker(
            [sys.executable, "-c", program],
            deserializer=str.strip,
            callback=self._callback(label),
            description=label,
        )
        try:
            async with asyncio.timeout(timeout_s):
                await call.wait()
        except TimeoutError:
            await call.cancel()
        return await call

    async def end(self, label: str) -> None:
        call = self._calls.pop(label)
        assert isinstance(call, Call)
        await call.end()

    async def complete(self) -> None:
        await self._here.complete()

    async def abort(self, reason: str) -> None:
        await self._here.abort(reason)

    async def fail(self) -> None:
        """Wait for the failure of the operation, which it raises."""
        await self._here.wait_for_completion(asyncio.Event().wait)

    async def leave(self) -> None:
        await self._ledger.dispose()

    async def hold(self) -> None:
        """Take the operation's lock, and never come back."""

        def decide(data: LedgerData) -> LedgerChange:
            self._write("holds the lock")
            time.sleep(3600)
            return LedgerChange(data)

        ledger = self._ledger
        await (await ledger._open()).run(
            ledger._context.backend.change(self._here.operation_id, decide)
        )

    @property
    def _here(self) -> Operation:
        assert self._operation is not None
        return self._operation

    def _scratch(self, label: str) -> Path:
        path = self._folder / "scratch" / f"{self._name}-{label}"
        path.write_text("temporary")
        return path

    def _callback(self, label: str, kind: str = "plain") -> CallCallback[Any]:
        async def clean_up() -> None:
            self._write(f"begins {label}")
            gate = self._folder / f"open-{self._name}"
            while kind == "gated" and not gate.exists():  # noqa: ASYNC110 - there is no event to wait for
                await asyncio.sleep(0.02)
            self._write(f"cleaned {label}")

        return CallCallback(
            on_cleanup=clean_up, on_operation_failed=lambda _: self._write(f"told {label}")
        )

    def _write(self, what: str) -> None:
        with (self._folder / "evidence").open("a") as file:
            file.write(f"{self._name} {what}\n")


async def act(connection: socket.socket) -> None:
    reader, writer = await asyncio.open_connection(sock=connection)
    actor = Actor(*json.loads(await reader.readline()))
    writer.write(json.dumps({"result": os.getpid()}).encode() + b"\n")
    while line := await reader.readline():
        verb, *arguments = json.loads(line)
        try:
            answer = {"result": await getattr(actor, verb)(*arguments)}
        except (PerdureError, OSError) as error:
            answer = {"error": type(error).__name__, "text": str(error)}
            if isinstance(error, OperationFailed):
                answer["text"] = error.info.reason
        writer.write(json.dumps(answer).encode() + b"\n")
        await writer.drain()


def main(path: str) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(f"{path}.new")
        server.listen()
        os.rename(f"{path}.new", path)
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        while True:
            connection, _ = server.accept()
            if os.fork() == 0:
                server.close()
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                asyncio.run(act(connection))
                os._exit(0)
            connection.close()


if __name__ == "__main__":
    main(sys.argv[1])
