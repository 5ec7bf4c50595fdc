"""The engine that the tests of `perdure worker` serve. The environment names its store and its log.

Every attempt writes a line to the log: run, step, and process.
"""

import asyncio
import os
import signal
from pathlib import Path

import perdure
from perdure import Engine, Settings, SyncEngine, task, workflow

STEPS = 20

engine = Engine(os.environ.get("WORKER_URL", "sqlite:///:memory:"), settings=Settings(grace=20))
a_number = 42
a_sync_engine = SyncEngine("sqlite:///:memory:")


def make_engine() -> Engine:
    return engine


def fail() -> Engine:
    raise RuntimeError("no engine today")


def fail_to_connect() -> Engine:
    class Unconnected(Engine):
        async def open(self) -> None:
            raise OSError("no network")

    return Unconnected("sqlite:///:memory:")


def make_nothing() -> None:
    return None


def crash() -> Engine:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError


def mark(run: int, step: int) -> None:
    with Path(os.environ["WORKER_LOG"]).open("a") as log:
        log.write(f"{run} {step} {os.getpid()}\n")


@task(name="worker_app.step")
async def step(run: int, number: int, seconds: float) -> int:
    mark(run, number)
    await asyncio.sleep(seconds)
    return number


@task(name="worker_app.there", queue="there")
async def there(run: int, number: int, seconds: float) -> int:
    mark(run, number)
    await asyncio.sleep(seconds)
    return number


@workflow(name="worker_app.stepping")
async def stepping(run: int, steps: int, seconds: float) -> int:
    """The first step is for a queue, so that the process that starts the run executes nothing."""
    total = 0
    for number in range(steps):
        total += await (step if number % 4 else there)(run, number, seconds)
    return total


@task(name="worker_app.fail_there", queue="there")
async def fail_there() -> None:
    perdure.log.info("about to fail")
    raise RuntimeError("no luck")


@workflow(name="worker_app.failing")
async def failing() -> None:
    await fail_there()
