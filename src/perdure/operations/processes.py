"""Processes attached to a call, and signals to them."""

import asyncio
import os
import signal
from typing import Protocol


class Process(Protocol):
    """A process of `asyncio.subprocess` or `subprocess`."""

    @property
    def pid(self) -> int: ...

    @property
    def returncode(self) -> int | None: ...


class AttachedProcesses:
    """The processes of one call. A signal to a group leader goes to its whole process group."""

    def __init__(self) -> None:
        self._processes: dict[int, tuple[Process, bool]] = {}

    def add(self, process: Process) -> None:
        self._processes[process.pid] = (process, _leads_group(process.pid))

    def send(self, number: int) -> bool:
        """Signals all processes. False if none is running."""
        reached = [self._send(*entry, number) for entry in self._processes.values()]
        return True in reached

    async def end(self, grace_s: float) -> None:
        """Sends SIGTERM, and SIGKILL to processes that are still running after `grace_s`."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            if not self.send(number) or await self._are_gone(grace_s):
                return

    async def _are_gone(self, within_s: float) -> bool:
        """Waits until no process is left. Polls, because the kernel does not notify about process groups."""
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
