"""A pooler before a Postgres of ours: pgbouncer from the system, on loopback, gone with its context."""

import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from tests.postgres_server import Account, _free_port

PGBOUNCER = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
"""The program, if it is installed."""

START_TIMEOUT_S = 30.0


@contextmanager
def pooled(url: str, mode: str, sessions: int = 50) -> Iterator[str]:
    """The address of the same database behind a pooler of its own, with at most so many sessions at the server."""
    assert PGBOUNCER is not None
    server, port, account = urlsplit(url), _free_port(), Account.for_servers()
    root = Path(tempfile.mkdtemp(prefix="perdure-pooler-"))
    (root / "users.txt").write_text('"perdure" ""\n')
    (root / "pgbouncer.ini").write_text(
        f"[databases]\n* = host=127.0.0.1 port={server.port}\n[pgbouncer]\n"
        f"listen_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\n"
        f"auth_type = trust\nauth_file = {root}/users.txt\npool_mode = {mode}\n"
        f"max_client_conn = 200\ndefault_pool_size = {sessions}\n"
    )
    account.own(root)
    process = account.spawn(PGBOUNCER, root / "pgbouncer.ini", cwd=root, log=root / "log")
    try:
        _wait_for(process, port, root / "log")
        yield f"postgresql://perdure@127.0.0.1:{port}{server.path}"
    finally:
        process.terminate()
        process.wait(30)
        shutil.rmtree(root, ignore_errors=True)


def _wait_for(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline and process.poll() is None:
        with socket.socket() as peer:
            if peer.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.02)
    raise RuntimeError(f"pgbouncer does not listen on port {port}: {log.read_text()}")
