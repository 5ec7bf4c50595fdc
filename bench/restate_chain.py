"""Remote steps on Restate: `python bench/restate_chain.py SERVER RUNS STEPS [PARTITIONS]` prints figures as JSON.

Runs in an environment of its own and imports nothing of ours. SERVER is Restate's program. It gets an empty directory
and ports of its own on loopback; fsync is on, as it is by default. Two processes serve one service each: the deciding
one has the chains, and each of their steps is a call of a handler in the other. All runs are handed over in one
request: a handler of the deciding service calls them all and waits for them, which costs less than a request for each.

The services are served by Hypercorn with the options that Restate's documentation gives for production, with one
process for each service. Without PARTITIONS it takes what was found to be the fastest (docs/performance.md;
`python -m bench rivals` tries others, also Restate's default of 24).
"""

import asyncio
import gc
import json
import os
import random
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import hypercorn
import hypercorn.asyncio
import restate

WARM_UP = 20
"""Runs of one step that are not counted."""

FASTEST = "4"
"""Partitions."""

PORTS = range(20000, 32000)
"""Below the range that the kernel hands out for outgoing connections."""

START_TIMEOUT_S = 60.0
END_TIMEOUT_S = 30.0
ANSWER_TIMEOUT_S = 600.0
MANY = 2**31 - 1

WATCHDOG = """
"$@" &
cat >/dev/null
kill $!
wait $!
"""
"""Ends the server when its owner's end of the pipe closes, which the kernel does even after kill -9."""

SETTINGS = """
disable-telemetry = true
listen-mode = "tcp"
bind-ip = "127.0.0.1"
bind-port = {node}
default-num-partitions = {partitions}
log-filter = "error"
[ingress]
bind-ip = "127.0.0.1"
bind-port = {ingress}
[admin]
bind-ip = "127.0.0.1"
bind-port = {admin}
disable-web-ui = true
"""

decider = restate.Service("Decider")
worker = restate.Service("Worker")
SERVICES = {"decider": decider, "worker": worker}


@worker.handler()
async def charge(_: restate.Context, order: dict[str, Any]) -> dict[str, Any]:
    return {"total": 14 * order["items"], "order": order["order"]}


@decider.handler()
async def checkout(ctx: restate.Context, steps: int) -> int:
    for _ in range(steps):
        await ctx.service_call(charge, {"order": "order-42", "items": 3})
    return steps


@decider.handler()
async def check_all_out(ctx: restate.Context, size: dict[str, int]) -> int:
    calls = [ctx.service_call(checkout, size["steps"]) for _ in range(size["runs"])]
    await restate.gather(*calls)
    return len(calls)


def serve(service: str, port: int) -> None:
    """Until standard input closes."""
    gc.set_threshold(50_000, 2, 2)  # as the other rivals have it
    config = hypercorn.Config()
    config.bind = [f"127.0.0.1:{port}"]
    config.loglevel = "ERROR"
    config.h2_max_concurrent_streams = MANY
    config.keep_alive_max_requests = MANY
    config.keep_alive_timeout = MANY
    app = restate.app([SERVICES[service]], "bidi")

    async def ended() -> None:
        await asyncio.to_thread(sys.stdin.read)

    asyncio.run(hypercorn.asyncio.serve(app, config, shutdown_trigger=ended))


@contextmanager
def process(*command: str, log: Path) -> Iterator[None]:
    """A process that ends when its standard input closes."""
    environment = {name: os.environ[name] for name in ("PATH", "TMPDIR") if name in os.environ}
    with log.open("wb") as output:
        started = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment | {"HOME": str(log.parent)},
        )
    assert started.stdin is not None
    try:
        yield
    finally:
        started.stdin.close()
        try:
            started.wait(END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            started.kill()
            started.wait()


def free_ports(number: int) -> list[int]:
    found: list[int] = []
    for port in random.sample(PORTS, k=100):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            found.append(port)
        if len(found) == number:
            return found
    raise SystemExit(f"no {number} free ports found between {PORTS.start} and {PORTS.stop}")


def answer(url: str, content: dict[str, Any]) -> Any:
    body, headers = json.dumps(content).encode(), {"Content-Type": "application/json"}
    request = urllib.request.Request(url, body, headers)
    with urllib.request.urlopen(request, timeout=ANSWER_TIMEOUT_S) as response:
        return json.loads(response.read())


def register(admin: int, port: int, logs: Path) -> None:
    """Make a service known to the server, when both are up."""
    deadline = time.monotonic() + START_TIMEOUT_S
    while True:
        try:
            answer(f"http://127.0.0.1:{admin}/deployments", {"uri": f"http://127.0.0.1:{port}"})
            return
        except OSError as error:
            if time.monotonic() > deadline:
                said = "\n".join(log.read_text(errors="replace") for log in logs.glob("*.log"))
                raise SystemExit(
                    f"Restate is not up after {START_TIMEOUT_S} s: {error}\n{said}"
                ) from error
            time.sleep(0.1)


def measure(ingress: int, runs: int, steps: int) -> dict[str, float]:
    def run_all(runs: int, steps: int) -> float:
        began = time.perf_counter()
        url = f"http://127.0.0.1:{ingress}/Decider/check_all_out"
        assert answer(url, {"runs": runs, "steps": steps}) == runs
        return time.perf_counter() - began

    run_all(WARM_UP, 1)
    return {"steps_per_s": runs * steps / run_all(runs, steps)}


def main() -> None:
    if sys.argv[1] == "serve":
        serve(sys.argv[2], int(sys.argv[3]))
        return
    server, runs, steps, *mode = sys.argv[1:]
    partitions = mode[0] if mode else FASTEST
    with tempfile.TemporaryDirectory(prefix="restate-") as folder, ExitStack() as stack:
        root = Path(folder)
        node, ingress, admin, *ports = free_ports(3 + len(SERVICES))
        settings = SETTINGS.format(node=node, ingress=ingress, admin=admin, partitions=partitions)
        (root / "restate.toml").write_text(settings)
        command = (server, "--no-logo", "--node-name", "bench", "--base-dir", str(root / "data"))
        watched = (
            "/bin/sh",
            "-c",
            WATCHDOG,
            "watchdog",
            *command,
            "-c",
            str(root / "restate.toml"),
        )
        stack.enter_context(process(*watched, log=root / "server.log"))
        for service, port in zip(SERVICES, ports, strict=True):
            # -I, as this process: nothing of ours is on the path.
            serving = (sys.executable, "-I", __file__, "serve", service, str(port))
            stack.enter_context(process(*serving, log=root / f"{service}.log"))
        for port in ports:
            register(admin, port, root)
        figures = measure(ingress, int(runs), int(steps))
    sys.stdout.write(json.dumps(figures) + "\n")


if __name__ == "__main__":
    main()
