"""`perdure move`: all runs, open ones included, from one store to another, whatever kills it."""

import asyncio
import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure import Engine, Settings, Signal, task, workflow
from perdure.cli.exit_codes import REFUSED
from perdure.core.errors import StoreMoved
from perdure.core.graph import model as m
from perdure.core.ids import RunId
from perdure.store.opening import open_store
from tests.cli.conftest import Command
from tests.client.engines import killed, opened, until, until_store
from tests.client.programs.deployable import graph, until_waiting
from tests.store.builders import contents

go = Signal("go", str)
held: list[str] = []
holds = asyncio.Event()
"""Whether the task takes long: only while the store is filled."""


@task(name="moving.note")
async def note(what: str) -> str:
    return f"noted {what}"


@task(name="moving.carry", queue="moving")
async def carry(what: str) -> str:
    return f"carried {what}"


@task(name="moving.hold", queue="moving_slow")
async def hold(what: str) -> str:
    held.append(what)
    await asyncio.sleep(600 if holds.is_set() else 0)
    return f"held {what}"


@workflow(name="moving.waiting")
async def waiting() -> str:
    return await note(await go.receive())


@workflow(name="moving.sleeping")
async def sleeping() -> str:
    await perdure.sleep(0.5)
    return await note("slept")


@workflow(name="moving.queued")
async def queued() -> str:
    return await carry("it")


@workflow(name="moving.claimed")
async def claimed() -> str:
    return await hold("it")


@workflow(name="moving.parent")
async def parent() -> str:
    return f"child: {await waiting()}"


HALF_DONE = graph(
    "moving-graph",
    m.WorkerNode(name="first", task="deployable.add", input={"a": "x", "b": "1"}),
    m.HookNode(name="gate", topic="gate", key="k", output={}),
    m.WorkerNode(name="total", task="deployable.add", input={"a": "first", "b": "10"}),
    m.OutputNode(name="out", value="total"),
    edges="start first gate total out",
    x="int",
    k="str",
)
NO_GRACE = Settings(grace=0)


async def fill(url: str) -> dict[str, RunId]:
    """Leave runs of every kind: done, waiting, sleeping, queued, claimed by a dead worker, half-done."""
    held.clear()
    holds.set()
    async with opened(url, NO_GRACE) as engine:
        await engine.deploy(HALF_DONE)
        await engine.activate(HALF_DONE.name, "1")
        runs = {
            "done": await engine.start(waiting()),
            "waiting": await engine.start(waiting(), key="key-1"),
            "early": await engine.start(waiting()),
            "parent": await engine.start(parent()),
            "queued": await engine.start(queued()),
            "sleeping": await engine.start(sleeping()),
            "graph": await engine.start_graph(HALF_DONE.name, {"x": 1, "k": "here"}),
        }
        await runs["done"].signal(go, "done")
        assert await runs["done"].result(60) == "noted done"
        await until_waiting(runs["graph"], 1)

        async def parent_waits() -> bool:
            return bool((await runs["parent"].waits()).children)

        await until_store(parent_waits)
    async with killed(url, NO_GRACE, ("moving_slow",)) as engine:
        runs["claimed"] = await engine.start(claimed())
        await until(lambda: held == ["it"])
    async with Engine(url, hosts=False) as front_end:
        await front_end.handle(runs["early"].run_id).signal(go, "early")
    return {name: run.run_id for name, run in runs.items()}


async def finish(url: str, runs: dict[str, RunId]) -> None:
    """All runs end as if they had not moved."""
    holds.clear()
    async with opened(url, NO_GRACE, ("moving", "moving_slow")) as engine:
        handles = {name: engine.handle(run_id) for name, run_id in runs.items()}
        await handles["waiting"].signal(go, "waiting")
        again = await engine.find(waiting, "key-1")
        assert again is not None
        assert again.run_id == runs["waiting"]
        child = next(iter((await handles["parent"].waits()).children)).run_id
        await engine.handle(child).signal(go, "child")
        await engine.send("gate", "here")
        results = {name: await handle.result(60) for name, handle in handles.items()}
    assert results == {
        "done": "noted done",
        "waiting": "noted waiting",
        "early": "noted early",
        "parent": "child: noted child",
        "queued": "carried it",
        "sleeping": "noted slept",
        "graph": 12,
        "claimed": "held it",
    }


async def rows(url: str) -> dict[str, Any]:
    store = await open_store(url)
    try:
        return await contents(store)
    finally:
        await store.close()


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/old.db"


@pytest.mark.postgres
def test_runs_of_every_kind_continue_on_postgres_and_back_on_sqlite(
    perdure_command: Command, sqlite_url: str, fresh_postgres: str, tmp_path: Path
) -> None:
    runs = asyncio.run(fill(sqlite_url))
    said = perdure_command("move", sqlite_url, fresh_postgres)
    assert said.code == 0, said.err
    assert "moved and verified: runs 9, entries " in said.out
    there = asyncio.run(rows(fresh_postgres))
    back = f"sqlite:///{tmp_path}/back.db"
    said = perdure_command("move", fresh_postgres, back)
    assert said.code == 0, said.err
    same = asyncio.run(rows(back))
    assert {name: len(found) for name, found in same.items()} == {
        name: len(found) for name, found in there.items()
    }
    asyncio.run(finish(back, runs))


@pytest.mark.postgres
def test_runs_of_every_kind_continue_on_postgres(
    perdure_command: Command, sqlite_url: str, fresh_postgres: str
) -> None:
    runs = asyncio.run(fill(sqlite_url))
    assert perdure_command("move", sqlite_url, fresh_postgres).code == 0
    asyncio.run(finish(fresh_postgres, runs))


def test_runs_of_every_kind_continue_in_another_file(
    perdure_command: Command, sqlite_url: str, tmp_path: Path
) -> None:
    runs = asyncio.run(fill(sqlite_url))
    new = f"sqlite:///{tmp_path}/new.db"
    said = perdure_command("move", sqlite_url, new)
    assert said.code == 0, said.err
    asyncio.run(finish(new, runs))


def test_old_store_refuses_engines_and_open_front_ends(
    perdure_command: Command, sqlite_url: str, tmp_path: Path
) -> None:
    new = f"sqlite:///{tmp_path}/new.db"

    async def move_under_a_front_end() -> None:
        runs = await fill(sqlite_url)
        async with Engine(sqlite_url, hosts=False) as front_end:
            said = await asyncio.to_thread(perdure_command, "move", sqlite_url, new)
            assert said.code == 0, said.err
            with pytest.raises(Exception, match="perdure_"):
                await front_end.handle(runs["waiting"]).signal(go, "lost")
        with pytest.raises(StoreMoved, match="was moved to another store"):
            await Engine(sqlite_url).open()

    asyncio.run(move_under_a_front_end())
    said = perdure_command("audit", "--store", sqlite_url)
    assert (said.code, "was moved to another store" in said.err) == (REFUSED, True)
    said = perdure_command("move", sqlite_url, new)
    assert (said.code, "was moved to" in said.err) == (REFUSED, True)


def test_store_with_a_live_host_is_refused_and_unchanged(
    perdure_command: Command, sqlite_url: str, tmp_path: Path
) -> None:
    async def try_to_move() -> None:
        async with opened(sqlite_url) as engine:
            run = await engine.start(waiting())
            said = await asyncio.to_thread(
                perdure_command, "move", sqlite_url, f"sqlite:///{tmp_path}/new.db"
            )
            assert (said.code, "has 1 live hosts, which own 1 open runs" in said.err) == (
                REFUSED,
                True,
            )
            await run.signal(go, "still here")
            assert await run.result(60) == "noted still here"

    asyncio.run(try_to_move())
    assert not (tmp_path / "new.db").exists()


def test_store_that_is_not_empty_is_no_target(
    perdure_command: Command, sqlite_url: str, tmp_path: Path
) -> None:
    other = f"sqlite:///{tmp_path}/other.db"
    asyncio.run(fill(sqlite_url))
    asyncio.run(fill(other))
    before = asyncio.run(rows(other))
    said = perdure_command("move", sqlite_url, other)
    assert (said.code, "is not empty" in said.err) == (REFUSED, True)
    assert asyncio.run(rows(other)) == before
    said = perdure_command("move", sqlite_url, sqlite_url)
    assert (said.code, "is both stores" in said.err) == (REFUSED, True)


def filled_by_a_dead_process(url: str) -> dict[str, RunId]:
    """As `fill`; the process is gone, so that every process can tell that its host is dead."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.cli.killed_move", "fill", url],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    return {name: RunId(run_id) for name, run_id in json.loads(done.stdout).items()}


def killed_at(commit: int, when: str, *urls: str) -> int:
    done = subprocess.run(
        [sys.executable, "-m", "tests.cli.killed_move", str(commit), when, *urls],
        capture_output=True,
        text=True,
        check=False,
    )
    is_over = "was moved to" in done.stderr
    assert is_over or done.returncode in (0, -signal.SIGKILL), done.stderr
    return 0 if is_over else done.returncode


@pytest.mark.postgres
def test_move_to_postgres_that_is_killed_resumes(
    perdure_command: Command, sqlite_url: str, fresh_postgres: str
) -> None:
    runs = filled_by_a_dead_process(sqlite_url)
    for commit, when in ((2, "after"), (9, "before")):
        assert killed_at(commit, when, sqlite_url, fresh_postgres) == -signal.SIGKILL
        for url in (sqlite_url, fresh_postgres):
            said = perdure_command("runs", "export", runs["done"], "--store", url)
            assert (said.code, "a move to or from it has not ended" in said.err) == (REFUSED, True)
    said = perdure_command("move", sqlite_url, fresh_postgres)
    assert said.code == 0, said.err
    asyncio.run(finish(fresh_postgres, runs))


@pytest.mark.deep
def test_move_resumes_after_a_kill_at_any_commit(sqlite_url: str, tmp_path: Path) -> None:
    runs = filled_by_a_dead_process(sqlite_url)
    new = f"sqlite:///{tmp_path}/new.db"
    commit = 0
    while killed_at(commit % 3 + 1, ("before", "after")[commit % 2], sqlite_url, new):
        commit += 1
    asyncio.run(finish(new, runs))


@pytest.mark.deep
def test_move_that_is_killed_between_opening_and_closing_the_stores_resumes(
    perdure_command: Command, sqlite_url: str, tmp_path: Path
) -> None:
    """The last two commits: the new store is opened to engines, and the old one is marked as moved."""
    runs = filled_by_a_dead_process(sqlite_url)
    new = f"sqlite:///{tmp_path}/new.db"
    commits = 0
    while killed_at(commits + 20, "before", sqlite_url, new):
        commits += 20
    asyncio.run(finish(new, runs))


def test_abandoned_move_gives_the_old_store_back(
    perdure_command: Command, sqlite_url: str, tmp_path: Path
) -> None:
    runs = filled_by_a_dead_process(sqlite_url)
    new = f"sqlite:///{tmp_path}/new.db"
    assert killed_at(5, "after", sqlite_url, new)
    said = perdure_command("move", sqlite_url, new, "--abandon")
    assert said.code == 0, said.err
    asyncio.run(finish(sqlite_url, runs))
    said = perdure_command("move", sqlite_url, new, "--abandon")
    assert (said.code, "is not being moved" in said.err) == (REFUSED, True)
