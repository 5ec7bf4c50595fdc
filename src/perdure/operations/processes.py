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
        for number in (signal.SIGTERM, signal.SIGKILL):
            if not self.send(number) or await self._are_gone(grace_s):
                return

    async def _are_gone(self, within_s: float) -> bool:
        """Wait until nobody is there to be signalled. Groups tell nobody, so they are asked."""
        end = asyncio.get_running_loop().time() + within_s
        while self.send(0):
            if asyncio.get_running_loop().time() >= end:
                return False
            await asyncio.sleep(0.02)
        return True

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
