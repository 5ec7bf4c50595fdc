"""Who a host is, and whether a host on this machine is still there.

A host's id says on which machine, since which boot, in which pid namespace, by which process it was made. So a peer
on the same machine can tell a dead host from a living one, and takes its runs at once.
"""

import os
import platform
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
    boot: str
    namespace: str
    pid: int
    born: str


def new_host() -> HostId:
    """An id for a host of this process. It is alive until `retire`."""
    here = _here()
    place = f"{here.machine}_{here.boot}_{here.namespace}_{here.pid}_{here.born}"
    host = HostId(f"h_{place}_{next(_numbers)}")
    _alive.add(host)
    return host


def retire(host: HostId) -> None:
    """The host is gone, though its process may live."""
    _alive.discard(host)


def is_dead(host: HostId) -> bool:
    """Whether the host is certainly gone. Of a host on another machine nothing is known here."""
    there, here = _parse(host), _here()
    if there is None or there.machine != here.machine:
        return False
    if there.boot != here.boot:
        return True
    if there.namespace != here.namespace:
        return False
    if there == here:
        return host not in _alive
    return _born(there.pid) != there.born


def _parse(host: HostId) -> _Parts | None:
    kind, *rest = host.split("_")
    if kind != "h" or len(rest) != len(_Parts._fields) + 1 or not rest[3].isdigit():
        return None
    machine, boot, namespace, pid, born, _ = rest
    return _Parts(machine, boot, namespace, int(pid), born)


def _here() -> _Parts:
    """This process. Machines are told apart by name and id, because images of machines share ids."""
    pid = os.getpid()
    machine = f"{platform.node()} {_text(Path('/etc/machine-id'))}"
    try:
        namespace = (_PROC / "self/ns/pid").readlink().name
    except OSError:
        namespace = ""
    boot = _text(_PROC / "sys/kernel/random/boot_id")
    return _Parts(_short(machine), _short(boot), _short(namespace), pid, _born(pid))


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def _short(text: str) -> str:
    return sha256(text.encode()).hexdigest()[:8]


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
