"""Processes that work for a call, and signals to them."""

import asyncio
import os
import signal
from typing import Protocol


class Process(Protocol):
    """Of `asyncio.subprocess` or of `subprocess`."""

    @property
    def pid(self) -> int: ...

    @property
    def returncode(self) -> int | None: ...


class Attached:
    """The processes of one call. A process that leads a group is signalled with all that it has started."""

    def __init__(self) -> None:
        self._processes: dict[int, tuple[Process, bool]] = {}

    def add(self, process: Process) -> None:
        self._processes[process.pid] = (process, _leads_group(process.pid))

    def send(self, number: int) -> bool:
        """Whether there was anybody to signal."""
        reached = [self._send(*one, number) for one in self._processes.values()]
        return True in reached

    async def end(self, grace_s: float) -> None:
        """Ask all of them to end, and end those that do not."""
        if not self.send(signal.SIGTERM):
            return
        end = asyncio.get_running_loop().time() + grace_s
        while self._are_there() and asyncio.get_running_loop().time() < end:  # noqa: ASYNC110 - groups tell nobody
            await asyncio.sleep(0.02)
        self.send(signal.SIGKILL)

    def _are_there(self) -> bool:
        return self.send(0)

    @staticmethod
    def _send(process: Process, leads_group: bool, number: int) -> bool:
        try:
            if leads_group:
                os.killpg(process.pid, number)
            elif process.returncode is None:
                os.kill(process.pid, number)
            else:
                return False
        except ProcessLookupError:
            return False
        return True


def _leads_group(pid: int) -> bool:
    try:
        return os.getpgid(pid) == pid
    except ProcessLookupError:
        return False
