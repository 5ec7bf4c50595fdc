"""Host ids, and whether a host on this machine is alive.

A host's id names its machine, boot, pid namespace, and process with its start time. So a peer on the same machine can
tell that a host is dead, and takes over its runs at once.
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
    """A new id for a host of this process. The host counts as alive until `retire`."""
    here = _here()
    process = f"{here.machine}_{here.boot}_{here.namespace}_{here.pid}_{here.born}"
    host = HostId(f"h_{process}_{next(_numbers)}")
    _alive.add(host)
    return host


def retire(host: HostId) -> None:
    """The host has ended, although its process may be alive."""
    _alive.discard(host)


def is_dead(host: HostId) -> bool:
    """Whether the host is certainly dead. False for a host on another machine, whose processes can't be checked."""
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


def is_here(host: HostId) -> bool:
    """Whether the host is on this machine, and this process can see its process."""
    there, here = _parse(host), _here()
    return there is not None and there[:3] == here[:3]


def _parse(host: HostId) -> _Parts | None:
    kind, *rest = host.split("_")
    if kind != "h" or len(rest) != len(_Parts._fields) + 1 or not rest[3].isdigit():
        return None
    machine, boot, namespace, pid, born, _ = rest
    return _Parts(machine, boot, namespace, int(pid), born)


def _here() -> _Parts:
    """The parts for this process. Machines from one image share an id, so the machine's name counts, too."""
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
    """The start time of a process, in kernel ticks; empty if there is no such process."""
    try:
        stat = (_PROC / str(pid) / "stat").read_text()
    except OSError:
        return _alive_without_proc(pid)
    # The command name in parentheses may contain spaces and parentheses.
    fields = stat.rpartition(")")[2].split()
    return "" if fields[0] in ("Z", "X") else fields[19]


def _alive_without_proc(pid: int) -> str:
    """Without /proc a process is identified by its pid alone: '0' if it is alive, else empty."""
    if _PROC.joinpath("self").exists():
        return ""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return ""
    except PermissionError:
        pass
    return "0"
