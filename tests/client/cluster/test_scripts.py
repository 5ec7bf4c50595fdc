"""A module that one process runs as its script and others import: exceptions are the same types everywhere."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from perdure.store.inspection import audit_store, verify_store
from perdure.store.opening import open_store
from tests.cli.test_demo import COMMAND

TIMEOUT_S = 60

APP = '''
import asyncio, os, sys
import perdure
from perdure import Engine, Settings, task, workflow

engine = Engine(os.environ["APP_URL"], settings=Settings(grace=1))


class CarrierDown(Exception):
    pass


class NoRefund(Exception):
    pass


@task(queue="carriers")
async def ship(order: int) -> str:
    raise CarrierDown("van", order)


@task
async def refund(order: int, why: str) -> str:
    return f"refunded {order}: {why}"


@workflow
async def buy(order: int) -> str:
    try:
        return await ship(order)
    except CarrierDown as down:
        return await refund(order, str(down.args))


@workflow
async def insist(order: int) -> str:
    await ship(order)


@workflow
async def buy_for(order: int) -> str:
    """Catches what a child run raised."""
    try:
        return await insist(order)
    except CarrierDown as down:
        return await refund(order, str(down.args))


@perdure.graph
async def buy_by_graph(order: int) -> str:
    try:
        sent = await ship(order)
    except CarrierDown:
        sent = await refund(order, "graph")
    return sent


async def shop() -> None:
    async with engine.replace(queues=[]) as shop:
        for program in (buy, buy_for, buy_by_graph):
            run = await shop.start(program(7), key="shop")
            print(await run.result(timeout=50))
        for _ in range(2):  # the second handle is of a run that was found by its key
            try:
                await (await shop.start(insist(7), key="shop")).result(timeout=50)
            except CarrierDown as down:
                print("raised", down.args)


async def serve() -> None:
    async with engine.replace(queues=["carriers"]):
        print("serving", flush=True)
        await asyncio.to_thread(sys.stdin.read)


def main() -> None:
    asyncio.run({"shop": shop, "serve": serve}[sys.argv[1]]())


if __name__ == "__main__":
    import helper
    main()
'''

EXPECTED = [
    "refunded 7: ('van', 7)",
    "refunded 7: ('van', 7)",
    "refunded 7: graph",
    "raised ('van', 7)",
    "raised ('van', 7)",
]

IMPORTED = ["-c", "import app; app.main()"]
BY_PACKAGE = ["-c", "import shop.app; shop.app.main()"]
SCRIPT = ["app.py"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("APP_URL", f"sqlite:///{tmp_path / 'shop.db'}")
    monkeypatch.setenv("PYTHONSAFEPATH", "")
    folder = tmp_path / "code" / "shop"
    folder.mkdir(parents=True)
    (folder / "app.py").write_text(APP)
    (folder / "helper.py").write_text("")
    return folder


@contextmanager
def serving(arguments: list[str], folder: Path) -> Iterator[None]:
    """A process that serves the queue, until it is left."""
    process = subprocess.Popen(
        [sys.executable, *arguments, "serve"],
        cwd=folder,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "serving\n"
        yield
        process.communicate(timeout=TIMEOUT_S)
        assert process.returncode == 0
    finally:
        process.kill()
        process.wait()


def shop(arguments: list[str], folder: Path) -> list[str]:
    done = subprocess.run(
        [sys.executable, *arguments, "shop"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


async def assert_sound() -> None:
    store = await open_store(os.environ["APP_URL"])
    try:
        for report in (await audit_store(store), await verify_store(store)):
            assert report.is_clean, str(report)
    finally:
        await store.close()


@pytest.mark.parametrize(
    ("shop_as", "serve_as"),
    [(SCRIPT, IMPORTED), (IMPORTED, SCRIPT)],
    ids=["script asks module", "module asks script"],
)
def test_exception_of_script_and_module_is_the_same_type(
    shop_as: list[str], serve_as: list[str], folder: Path
) -> None:
    with serving(serve_as, folder):
        assert shop(shop_as, folder) == EXPECTED
    asyncio.run(assert_sound())


@pytest.mark.parametrize("shop_as_script", [True, False])
def test_exception_crosses_between_a_package_and_a_script_inside_of_it(
    shop_as_script: bool, folder: Path
) -> None:
    """`python shop/app.py` knows the module as `app`, and the other process as `shop.app`."""
    (folder / "__init__.py").write_text("")
    ways = [(["shop/app.py"], folder.parent), (BY_PACKAGE, folder.parent)]
    (shop_as, here), (serve_as, there) = ways if shop_as_script else reversed(ways)
    with serving(serve_as, there):
        assert shop(shop_as, here) == EXPECTED
    asyncio.run(assert_sound())


def test_script_that_is_also_imported_catches_its_own_exceptions(folder: Path) -> None:
    """The script imports a helper, and that imports the script's module: each class exists twice."""
    (folder / "helper.py").write_text("import app\n")
    with serving(SCRIPT, folder):
        assert shop(SCRIPT, folder) == EXPECTED
    asyncio.run(assert_sound())


def test_script_catches_what_a_worker_of_its_module_raised(
    folder: Path, shared_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The layout that the docs show: `python app.py` beside `perdure worker app:engine`."""
    monkeypatch.setenv("APP_URL", shared_url)
    worker = subprocess.Popen(
        [*COMMAND, "worker", "app:engine", "--queues", "carriers"],
        cwd=folder,
        env=dict(os.environ, PYTHONPATH=str(folder)),
        stderr=subprocess.DEVNULL,
    )
    try:
        assert shop(SCRIPT, folder) == EXPECTED
    finally:
        worker.terminate()
        worker.wait(timeout=TIMEOUT_S)
    asyncio.run(assert_sound())
