"""Operator acts from the command line, each decided by a host that runs meanwhile."""

import asyncio
import json
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from perdure import CauseKind, Engine, Handle, RunStatus, Settings, task, workflow
from perdure.cli.exit_codes import FAILED, REFUSED
from tests.cli import orders
from tests.cli.conftest import Command, Said
from tests.client.engines import until_status, until_store

attempts: list[str] = []


@task(name="acting.hopeless", on_failure="park")
async def hopeless(what: str) -> str:
    attempts.append(what)
    if len(attempts) == 1:
        raise ValueError("no carrier")
    return f"done {what}"


@workflow(name="acting.hoping")
async def hoping() -> str:
    return await hopeless("it")


@pytest.fixture(autouse=True)
def _fresh() -> None:
    attempts.clear()


async def typed(command: Command, *arguments: object) -> Said:
    """Runs a command in another thread, beside the host."""
    return await asyncio.to_thread(command, *arguments)


def beside_a_host(
    url: str,
    session: Callable[[Engine], Coroutine[Any, Any, None]],
    settings: Settings | None = None,
) -> None:
    async def run() -> None:
        async with Engine(url, settings=settings) as engine:
            await session(engine)
            assert (await engine.audit()).is_clean

    asyncio.run(run())


def test_paused_run_is_explained_with_who_and_why_and_resumed(
    perdure_command: Command, orders_url: str
) -> None:
    at = ("--store", orders_url)

    async def session(engine: Engine) -> None:
        run = await engine.find(orders.checkout, orders.WAITING)
        assert run is not None
        who = ("--as", "ada:operator", "--reason", "stocktaking")
        said = await typed(perdure_command, "runs", "pause", run.run_id, *who, *at)
        assert (said.code, "accepted" in said.out) == (0, True)
        await until_status(run, RunStatus.PAUSED)
        said = await typed(perdure_command, "explain", run.run_id, *at)
        assert "is paused by ada (stocktaking)" in said.out
        assert f"to move it: perdure runs resume {run.run_id}" in said.out
        said = await typed(perdure_command, "runs", "resume", run.run_id, *at)
        assert said.code == 0
        await run.signal(orders.approval, True)
        assert await run.result(60) == "receipt for C"

    beside_a_host(orders_url, session)


async def parked_step(run: Handle[Any]) -> str:
    async def is_parked() -> bool:
        return CauseKind.STEP_PARKED in {cause.kind for cause in (await run.explain()).causes}

    await until_store(is_parked)
    step = (await run.explain()).causes[0].step
    assert step is not None
    return step


def test_parked_step_names_the_retry_which_completes_the_run(
    perdure_command: Command, orders_url: str
) -> None:
    async def session(engine: Engine) -> None:
        run = await engine.start(hoping())
        step = await parked_step(run)
        explained = await run.explain()
        assert "task 'acting.hopeless' failed with ValueError: no carrier" in explained.summary
        assert explained.command == f"perdure runs retry-step {run.run_id} {step}"
        arguments = explained.command.split()[1:]
        said = await typed(perdure_command, *arguments, "--store", orders_url)
        assert (said.code, "accepted" in said.out) == (0, True)
        assert await run.result(60) == "done it"

    beside_a_host(orders_url, session)


def test_parked_step_is_skipped_with_a_value_of_its_type(
    perdure_command: Command, orders_url: str
) -> None:
    at = ("--store", orders_url)

    async def session(engine: Engine) -> None:
        run = await engine.start(hoping())
        step = await parked_step(run)
        skip = ("runs", "skip-step", run.run_id, step)
        said = await typed(perdure_command, *skip, "--value", "7", *at)
        assert (said.code, "VALUE_MISFIT" in said.out) == (FAILED, True)
        said = await typed(perdure_command, *skip, "--value", '"by hand"', *at)
        assert said.code == 0
        assert await run.result(60) == "by hand"

    beside_a_host(orders_url, session)


def test_act_on_many_runs_says_what_became_of_each(
    perdure_command: Command, orders_url: str
) -> None:
    async def session(engine: Engine) -> None:
        handles = [
            await engine.find(program, key)
            for program, key in (
                (orders.checkout, orders.WAITING),
                (orders.checkout, orders.COMPLETED),
            )
        ]
        ids = [handle.run_id for handle in handles if handle is not None]
        at = ("--store", orders_url)
        said = await typed(perdure_command, "runs", "pause", *ids, "nonsense", *at)
        assert (said.code, said.out) == (REFUSED, "")
        missing = f"r_{'0' * 32}"
        said = await typed(perdure_command, "runs", "pause", *ids, missing, *at, "-o", "json")
        assert said.code == FAILED
        found = {each["run_id"]: (each["outcome"], each["code"]) for each in json.loads(said.out)}
        assert found == {
            ids[0]: ("accepted", ""),
            ids[1]: ("rejected", "RUN_TERMINAL"),
            missing: ("rejected", "unknown-run"),
        }
        await typed(perdure_command, "runs", "stop", ids[0], "--store", orders_url)
        await until_status(engine.handle(ids[0]), RunStatus.CANCELLED)

    beside_a_host(orders_url, session)


def test_act_that_no_host_decides_is_sent(perdure_command: Command, sqlite_orders: str) -> None:
    run = asyncio.run(orders.run_ids(sqlite_orders))[orders.WAITING]
    said = perdure_command("runs", "pause", run, "--wait", 0.1, "--store", sqlite_orders)
    assert (said.code, "no host has decided yet" in said.out) == (0, True)

    async def session(engine: Engine) -> None:
        await until_status(engine.handle(run), RunStatus.PAUSED)

    beside_a_host(sqlite_orders, session)
