"""Who a host is, and whether a host on this machine is still there.

A host's id says on which boot of which machine, in which pid namespace, by which process it was made. So a peer
on the same machine can tell a dead host from a living one, and takes its runs at once.
"""

import os
from hashlib import sha256
from itertools import count
from pathlib import Path
from typing import NamedTuple

from perdure.core.ids import HostId

_PROC = Path("/proc")
_numbers = count(1)
_alive: set[HostId] = set()


class _Parts(NamedTuple):
    machine: str
    pid: int
    born: str


def new_host() -> HostId:
    """An id for a host of this process. It is alive until `retire`."""
    pid = os.getpid()
    host = HostId(f"h_{_machine()}_{pid}_{_born(pid)}_{next(_numbers)}")
    _alive.add(host)
    return host


def retire(host: HostId) -> None:
    """The host is gone, though its process may live."""
    _alive.discard(host)


def is_dead(host: HostId) -> bool:
    """Whether the host is certainly gone. Of a host on another machine nothing is known here."""
    parts = _parse(host)
    if parts is None or parts.machine != _machine():
        return False
    if parts.pid == os.getpid() and parts.born == _born(parts.pid):
        return host not in _alive
    return _born(parts.pid) != parts.born


def _parse(host: HostId) -> _Parts | None:
    kind, *rest = host.split("_")
    if kind != "h" or len(rest) != 4 or not rest[1].isdigit():
        return None
    return _Parts(rest[0], int(rest[1]), rest[2])


def _machine() -> str:
    """The boot of this machine and the pid namespace, in a few letters."""
    try:
        boot = (_PROC / "sys/kernel/random/boot_id").read_text().strip()
        namespace = (_PROC / "self/ns/pid").readlink().name
    except OSError:
        boot, namespace = os.uname().nodename, ""
    return sha256(f"{boot} {namespace}".encode()).hexdigest()[:16]


def _born(pid: int) -> str:
    """When the process began, as the kernel counts; empty if there is no such process."""
    try:
        stat = (_PROC / str(pid) / "stat").read_text()
    except OSError:
        return _is_there(pid)
    # The name in parentheses may hold anything, spaces and parentheses too.
    fields = stat.rpartition(")")[2].split()
    return "" if fields[0] in ("Z", "X") else fields[19]


def _is_there(pid: int) -> str:
    """Where there is no /proc, a process is known by its pid alone."""
    if _PROC.joinpath("self").exists():
        return ""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return ""
    except PermissionError:
        pass
    return "0"
