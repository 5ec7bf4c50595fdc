import asyncio
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import pytest

from perdure import Engine
from tests.api.servers import serving
from tests.cli import orders
from tests.paths import ROOT


@contextmanager
def served_process(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """`perdure serve` in a process of its own, and its address."""
    command = [
        sys.executable,
        "-c",
        "from perdure.cli import main; raise SystemExit(main())",
        "serve",
        "--port",
        "0",
    ]
    process = subprocess.Popen(
        [*command, *arguments], stdout=subprocess.PIPE, text=True, cwd=ROOT, env=os.environ
    )
    assert process.stdout is not None
    line = process.stdout.readline()
    try:
        yield process, line.rpartition(" ")[2].strip()
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def test_a_store_is_served_without_its_programs(sqlite_url: str) -> None:
    asyncio.run(orders.fill(sqlite_url))
    with served_process("--store", sqlite_url) as (process, address):
        answer = httpx2.get(f"{address}/v1/runs")
        assert len(answer.json()["runs"]) == 3
        waiting = next(run for run in answer.json()["runs"] if run["status"] == "blocked")
        path = f"{address}/v1/runs/{waiting['run_id']}"
        assert httpx2.get(path).json()["is_known"] is False
        assert httpx2.get(f"{path}/source").json()["code"] == "unknown-name"
        signalled = httpx2.post(f"{path}/signals", json={"name": "approval", "value": True})
        assert signalled.status_code == 202
        process.send_signal(signal.SIGINT)
        assert process.wait(60) in (0, 130)


def test_killing_the_server_loses_no_acknowledged_start(sqlite_url: str) -> None:
    """Many clients start runs; the server is killed in the middle. Every start that was answered is in the store."""
    acknowledged: list[str] = []
    with served_process("tests.api.programs:engine", "--executes", "--store", sqlite_url) as (
        process,
        address,
    ):

        def start(number: int) -> None:
            with httpx2.Client(base_url=address, timeout=60) as client:
                for count in range(1000):
                    key = f"{number}-{count}"
                    try:
                        answer = client.post(
                            "/v1/programs/api.big/runs",
                            json={"input": {"number": count}},
                            headers={"Idempotency-Key": key},
                        )
                    except httpx2.HTTPError:
                        return
                    assert answer.status_code == 201, answer.text
                    acknowledged.append(answer.json()["run_id"])

        threads = [threading.Thread(target=start, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        while len(acknowledged) < 100:
            assert process.poll() is None
            threading.Event().wait(0.01)
        process.kill()
        for thread in threads:
            thread.join(60)
    known = asyncio.run(completed(sqlite_url))
    assert len(acknowledged) >= 100
    assert set(acknowledged) <= known


async def completed(url: str) -> set[str]:
    """All runs of the store, each of them completed by another host."""
    async with Engine(url) as engine:
        found: set[str] = set()
        async for run in engine.iterate_runs(program="api.big"):
            await engine.handle(run.run_id).result(60)
            found.add(run.run_id)
        for report in (await engine.audit(), await engine.verify()):
            assert report.is_clean, str(report)
    return found


def test_an_address_that_others_can_reach_needs_a_token(sqlite_url: str, tmp_path: Path) -> None:
    asyncio.run(orders.fill(sqlite_url))
    run = [sys.executable, "-c", "from perdure.cli import main; raise SystemExit(main())"]
    refused = subprocess.run(
        [*run, "serve", "--host", "0.0.0.0", "--port", "0", "--store", sqlite_url],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        timeout=120,
    )
    assert refused.returncode == 2
    assert "perdure token create" in refused.stderr


def test_a_port_in_use_is_refused_with_what_to_do(sqlite_url: str, tmp_path: Path) -> None:
    asyncio.run(orders.fill(sqlite_url))
    run = [sys.executable, "-c", "from perdure.cli import main; raise SystemExit(main())"]
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        refused = subprocess.run(
            [*run, "serve", "--port", port, "--store", sqlite_url],
            capture_output=True,
            text=True,
            check=False,
            cwd=tmp_path,
            timeout=120,
        )
    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr.startswith(f"perdure: the server can't listen on port {port}")
    assert "Traceback" not in refused.stderr


@pytest.mark.parametrize(
    "request_text",
    [
        "GET /v1/runs HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: nonsense\r\n\r\n",
        "POST /v1/sql HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        "Transfer-Encoding: chunked\r\n\r\nZZ\r\nnonsense\r\n",
        "POST /v1/sql HTTP/1.1\r\nHost: localhost\r\nContent-Length: -5\r\n\r\n",
        "POST /v1/sql HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
        "NONSENSE\r\n\r\n",
        "GET /v1/runs HTTP/1.1\r\nHost: localhost\r\nX: " + "y" * 100_000 + "\r\n\r\n",
    ],
)
def test_a_broken_request_gets_400_and_the_server_lives(address: str, request_text: str) -> None:
    port = int(address.rpartition(":")[2])
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        connection.sendall(request_text.encode())
        answer = connection.recv(4096).decode()
    assert answer.startswith(("HTTP/1.1 4", "HTTP/1.1 5")) or not answer
    assert httpx2.get(f"{address}/health").status_code == 200


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    path: Path = tmp_path_factory.mktemp("serving")
    with serving(f"sqlite:///{path}/api.db") as found:
        yield found


async def test_two_hundred_followers_get_the_end_of_their_run(address: str) -> None:
    async with httpx2.AsyncClient(base_url=address, timeout=120) as client:
        item = {"input": {"item": {"name": "hat", "price": 1}}}
        started = await client.post("/v1/programs/api.decide/runs", json=item)
        run = started.headers["location"]
        port = int(address.rpartition(":")[2])
        count = 200
        opened = [await asyncio.open_connection("127.0.0.1", port) for _ in range(count)]
        for _, writer in opened:
            writer.write(
                f"GET {run}/history HTTP/1.1\r\nHost: localhost\r\n"
                "Accept: text/event-stream\r\nConnection: close\r\n\r\n".encode()
            )
        for reader, _ in opened:
            await reader.readuntil(b"event: entry")
        await client.post(f"{run}/signals", json={"name": "decision", "value": True})
        for reader, writer in opened:
            text = (await reader.read()).decode()
            assert '{"status":"completed"}' in text
            writer.close()


async def test_a_slow_reader_does_not_delay_the_others(address: str) -> None:
    port = int(address.rpartition(":")[2])
    async with httpx2.AsyncClient(base_url=address, timeout=120) as client:
        started = await client.post(
            "/v1/programs/api.many/runs",
            json={"input": {"count": 400}},
            headers={"Prefer": "wait=60"},
        )
        run = started.headers["location"]
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1024)
        writer.write(
            f"GET {run}/history HTTP/1.1\r\nHost: localhost\r\n"
            "Accept: text/event-stream\r\n\r\n".encode()
        )
        await reader.readuntil(b"\r\n\r\n")
        accept = {"Accept": "text/event-stream"}
        whole = await client.get(f"{run}/history", headers=accept)
        assert whole.text.rstrip().endswith('{"status":"completed"}')
        writer.close()
