"""Requests to the HTTP API beside a bare route of Starlette, on one server, by a client in a process of its own.

`python -m bench.http_load URL [REQUESTS [CONNECTIONS]]` prints requests a second, and the 99th percentile
of their times. Perdure executes the runs in the same process.
"""

import asyncio
import json
import sys
import time
from collections.abc import Callable
from statistics import quantiles

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Mount, Route

import perdure.asgi
from perdure import Engine, workflow

ROUNDS = 3


@workflow(name="bench.http_nothing")
async def nothing(number: int) -> int:
    return number


async def bare(request: Request) -> JSONResponse:
    body = await request.json()
    return JSONResponse({"number": body["input"]["number"]}, 201)


async def serve(url: str) -> None:
    """Serve both until the client is done; the port goes to standard output."""
    async with Engine(url) as engine:
        routes = [
            Route("/bare", bare, methods=["POST"]),
            Mount("/", perdure.asgi.app(engine)),
        ]
        config = uvicorn.Config(
            Starlette(routes=routes), port=0, log_level="error", access_log=False
        )
        server = uvicorn.Server(config)
        serving = asyncio.create_task(server.serve())
        while not server.started:  # noqa: ASYNC110 - uvicorn has no event for it
            await asyncio.sleep(0.01)
        print(server.servers[0].sockets[0].getsockname()[1], flush=True)
        await asyncio.to_thread(sys.stdin.read)
        server.should_exit = True
        await serving


def request_of(method: str, path: str, body: object = None) -> bytes:
    content = b"" if body is None else json.dumps(body).encode()
    head = (
        f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(content)}\r\n\r\n"
    )
    return head.encode() + content


async def answer_of(reader: asyncio.StreamReader) -> bytes:
    """The body of one answer. Raises if it is a refusal."""
    head = await reader.readuntil(b"\r\n\r\n")
    if not head.startswith(b"HTTP/1.1 2"):
        raise RuntimeError(head.decode())
    size = int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0])
    return await reader.readexactly(size)


async def load(
    port: int, count: int, connections: int, make: Callable[[int], bytes]
) -> tuple[float, float]:
    """Send so many requests over so many connections. Returns requests a second, and the 99th percentile in ms."""
    times: list[float] = []
    numbers = iter(range(count))

    async def send() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for number in numbers:
            began = time.perf_counter()
            writer.write(make(number))
            await answer_of(reader)
            times.append(time.perf_counter() - began)
        writer.close()

    began = time.perf_counter()
    await asyncio.gather(*(send() for _ in range(connections)))
    took = time.perf_counter() - began
    return count / took, quantiles(times, n=100)[98] * 1000


async def measure(url: str, count: int, connections: int) -> dict[str, float]:
    server = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "bench.http_load", "serve", url),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert server.stdout is not None
    assert server.stdin is not None
    port = int(await server.stdout.readline())
    best: dict[str, tuple[float, float]] = {}
    kinds: dict[str, Callable[[int], bytes]] = {
        "bare": lambda n: request_of("POST", "/bare", {"input": {"number": n}}),
        "start": lambda n: request_of(
            "POST", "/v1/programs/bench.http_nothing/runs", {"input": {"number": n}}
        ),
        "list": lambda n: request_of("GET", f"/v1/runs?limit={1 + n % 2}"),
    }
    for _ in range(ROUNDS):
        for kind, make in kinds.items():
            found = await load(port, count, connections, make)
            best[kind] = max(best.get(kind, (0.0, 0.0)), found)
    server.stdin.close()
    await server.wait()
    figures = {f"{kind}_per_s": rate for kind, (rate, _) in best.items()}
    return figures | {f"{kind}_p99_ms": p99 for kind, (_, p99) in best.items()}


def main() -> None:
    first, *rest = sys.argv[1:]
    if first == "serve":
        asyncio.run(serve(rest[0]))
        return
    count, connections = (*map(int, rest), *(2000, 32)[len(rest) :])
    print(json.dumps(asyncio.run(measure(first, count, connections))))


if __name__ == "__main__":
    main()
