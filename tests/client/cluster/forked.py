"""A process that forks while it has an engine open: `python -m tests.client.cluster.forked CASE URL`.

Parent and children write a line for each thing that they did. A child ends through the interpreter's normal exit, which
frees what it can, as a worker of a prefork server does.
"""

import asyncio
import multiprocessing
import os
import sys
from collections.abc import Callable
from typing import NoReturn

import perdure
from perdure import Engine, Handle, PerdureError, SyncEngine, SyncHandle, task, workflow


@task(name="forked.add")
async def add(number: int) -> int:
    return number + 1


@workflow(name="forked.adding")
async def adding(number: int) -> int:
    return await add(await add(number))


@task(name="forked.fork")
def fork() -> str:
    """Forks a process in which the task says something."""
    in_child(
        lambda: say("publish", refused(lambda: perdure.publish("place", "child"))), end=os._exit
    )
    return "done"


@workflow(name="forked.forking")
async def forking() -> str:
    return await fork()


def say(*words: object) -> None:
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


def refused(act: Callable[[], object]) -> str:
    try:
        return f"not refused: {act()}"
    except PerdureError as error:
        return error.code


def in_child(act: Callable[[], object], end: Callable[[int], NoReturn] = sys.exit) -> None:
    """Call `act` in a forked process that then ends as scripts do, and wait for it. In a thread `sys.exit` would end
    only that."""
    pid = os.fork()
    if pid == 0:
        act()
        end(0)
    _, status = os.waitpid(pid, 0)
    say("child", os.waitstatus_to_exitcode(status))


def sync_case(url: str) -> None:
    with SyncEngine(url) as engine:
        handle = engine.start(adding(1))
        say("parent", handle.result())
        in_child(lambda: use(engine, handle))
        in_child(lambda: reopen(engine))
        say("parent", engine.start(adding(2)).result())
        say("parent", engine.start(forking()).result())
        say("clean", engine.audit().is_clean and engine.verify().is_clean)


def use(engine: SyncEngine, handle: SyncHandle[int]) -> None:
    for act in (
        lambda: engine.start(adding(1)),
        lambda: engine.start_many([adding(1)]),
        lambda: engine.send("topic", "key"),
        lambda: engine.transaction().__enter__(),
        engine.audit,
        engine.preflight,
        handle.result,
        handle.status,
        handle.cancel,
        lambda: next(handle.events()),
    ):
        say("use", refused(act))
    engine.close()
    say("use", refused(handle.result))


def reopen(engine: SyncEngine) -> None:
    def begin() -> int:
        engine.open()
        try:
            return engine.start(adding(10)).result()
        finally:
            engine.close()

    say("reopen", refused(begin))


async def async_case(url: str) -> None:
    context = multiprocessing.get_context("fork")
    engine = Engine(url)
    async with engine:
        handle = await engine.start(adding(1))
        say("parent", await handle.result())
        process = context.Process(target=use_async, args=(engine, handle))
        process.start()
        await asyncio.to_thread(process.join)
        say("parent", await (await engine.start(adding(2))).result())
        reports = await engine.audit(), await engine.verify()
        say("clean", all(report.is_clean for report in reports))


def use_async(engine: Engine, handle: Handle[int]) -> None:
    async def use() -> None:
        for work in (engine.start(adding(1)), engine.audit(), handle.result(), handle.status()):
            try:
                say("use", "not refused", await work)
            except PerdureError as error:
                say("use", error.code)
        say("use", refused(lambda: engine.handle(handle.run_id)))
        await engine.close()

    # Without the loop that the parent runs, which this process has a copy of.
    asyncio._set_running_loop(None)
    asyncio.run(use())


def late_case(url: str) -> None:
    """The engine is made before the fork, and opened after it."""
    engine = SyncEngine(url)

    def work() -> None:
        with engine:
            say("worker", engine.start(adding(1)).result())

    in_child(work)
    in_child(work)


if __name__ == "__main__":
    if sys.argv[1] == "async":
        asyncio.run(async_case(sys.argv[2]))
    else:
        {"sync": sync_case, "late": late_case}[sys.argv[1]](sys.argv[2])
