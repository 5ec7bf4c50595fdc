"""Real brokers for tests: redis-server and nats-server on loopback, gone with their contexts.

A program that is not installed is taken from Debian's package, which is downloaded and unpacked into `build/`, not
installed: so nothing starts as a service of the system, and no root is needed.
"""

import fcntl
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import pytest

from tests.paths import ROOT
from tests.postgres_server import _free_port

PACKAGES = {
    "redis-server": ("redis-tools", "redis-server", "libjemalloc2", "liblzf1", "libatomic1"),
    "nats-server": ("nats-server",),
}
UNPACKED = ROOT / "build" / "brokers"
START_TIMEOUT_S = 30.0
DOWNLOAD_TIMEOUT_S = 60.0


@cache
def find_broker(name: str) -> Path | None:
    """The program: installed, unpacked before, or unpacked now. `None` if it can't be had."""
    installed = shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    if installed is not None:
        return Path(installed)
    UNPACKED.mkdir(parents=True, exist_ok=True)
    with (UNPACKED / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        found = _unpacked(name)
        if found is None and not (UNPACKED / f"no-{name}").exists():
            _unpack(name)
            found = _unpacked(name)
            if found is None:
                (UNPACKED / f"no-{name}").touch()
    return found


def _unpacked(name: str) -> Path | None:
    places = (UNPACKED / "usr" / folder / name for folder in ("bin", "sbin"))
    return next((place for place in places if place.exists()), None)


def _unpack(name: str) -> None:
    apt, dpkg = shutil.which("apt-get"), shutil.which("dpkg-deb")
    if apt is None or dpkg is None:
        return
    with tempfile.TemporaryDirectory() as folder:
        try:
            subprocess.run(
                [apt, "-qq", "download", *PACKAGES[name]],
                cwd=folder,
                check=True,
                capture_output=True,
                timeout=DOWNLOAD_TIMEOUT_S,
            )
            for package in sorted(Path(folder).glob("*.deb")):
                subprocess.run([dpkg, "-x", package, UNPACKED], check=True, capture_output=True)
        except (OSError, subprocess.SubprocessError):
            return


def _libraries() -> str:
    folders = {str(path.parent) for path in (UNPACKED / "usr" / "lib").rglob("*.so.*")}
    return ":".join(sorted(folders))


class Broker:
    """A server that a test may kill and start again, with its data kept."""

    def __init__(self, name: str, root: Path) -> None:
        program = find_broker(name)
        if program is None:
            pytest.skip(f"{name} is not installed, and its package can't be downloaded")
        self._program, self._root, self.port = program, root, _free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self._is_redis = name == "redis-server"

    @property
    def url(self) -> str:
        return f"{'redis' if self._is_redis else 'nats'}://127.0.0.1:{self.port}"

    def start(self) -> None:
        options = ["--port", str(self.port)]
        if self._is_redis:
            options += ["--bind", "127.0.0.1", "--dir", str(self._root)]
            options += ["--appendonly", "yes", "--appendfsync", "always", "--save", ""]
        else:
            options += ["--addr", "127.0.0.1", "--jetstream", "--store_dir", str(self._root)]
        log = self._root / "log"
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                [self._program, *options],
                cwd=self._root,
                env={**os.environ, "LD_LIBRARY_PATH": _libraries()},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline and self._process.poll() is None:
            with socket.socket() as peer:
                if peer.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            time.sleep(0.02)
        raise RuntimeError(f"{self._program} does not listen on {self.port}: {log.read_text()}")

    def kill(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait(30)


@contextmanager
def running(name: str) -> Iterator[Broker]:
    """A broker of that name. Skips the test if there is none."""
    with tempfile.TemporaryDirectory(prefix="perdure-broker-") as root:
        broker = Broker(name, Path(root))
        broker.start()
        try:
            yield broker
        finally:
            broker.kill()
