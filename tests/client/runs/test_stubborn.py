"""Programs that behave badly: they raise anything, swallow anything, hang, or reach for the host."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import pytest

import perdure
from perdure import (
    Engine,
    InputError,
    KeyReused,
    RunFailed,
    Settings,
    Signal,
    SyncEngine,
    TaskFailed,
    task,
    workflow,
)
from perdure.core.errors import ForeignAwait
from tests.client.engines import opened, until

MEMORY = "sqlite:///:memory:"
number = Signal("number", int)


class Unusual(BaseException):
    """Not an Exception."""


@task
async def raise_unusually() -> None:
    raise Unusual("async")


@task
def raise_unusually_in_a_thread() -> None:
    raise Unusual("thread")


@task
def exit_in_a_thread() -> None:
    sys.exit(3)


@task
async def exit_in_the_loop() -> None:
    sys.exit(4)


@task
def interrupt_a_thread() -> None:
    raise KeyboardInterrupt


@task
async def one() -> int:
    return 1


@workflow
async def asks_for_the_unusual(which: int) -> str:
    call = (
        raise_unusually,
        raise_unusually_in_a_thread,
        exit_in_a_thread,
        exit_in_the_loop,
        interrupt_a_thread,
    )[which]
    try:
        await call()
    except TaskFailed as error:
        return f"{error.type_name.rpartition(':')[2]} {error.message}"
    except RuntimeError as error:
        return str(error)
    return "nothing"


@pytest.mark.parametrize(
    ("which", "said"),
    [
        (0, "Unusual async"),
        (1, "Unusual thread"),
        (2, "SystemExit 3"),
        (3, "SystemExit 4"),
        (4, "the task raised KeyboardInterrupt()"),
    ],
)
async def test_whatever_a_task_raises_is_its_failure(which: int, said: str) -> None:
    async with opened(MEMORY) as engine:
        run = await engine.start(asks_for_the_unusual(which))
        assert await run.result(timeout=60) == said


@workflow
async def is_unusual() -> None:
    await one()
    raise Unusual("workflow")


async def test_whatever_a_workflow_raises_is_its_failure() -> None:
    async with opened(MEMORY) as engine:
        run = await engine.start(is_unusual())
        with pytest.raises(RunFailed, match="Unusual"):
            await run.result(timeout=60)


@workflow
async def exits(at_once: bool) -> None:
    await one()
    if not at_once:
        await number.receive()
    sys.exit(7)


@pytest.mark.parametrize("at_once", [True, False])
async def test_workflow_that_exits_fails_and_its_host_continues(at_once: bool) -> None:
    async with opened(MEMORY) as engine:
        run, other = await engine.start(exits(at_once)), await engine.start(exits(False))
        if not at_once:
            await run.signal(number, 1)
        with pytest.raises(RunFailed, match="failed with builtins:SystemExit: 7"):
            await run.result(timeout=60)
        assert await other.status() == "blocked"


async def test_preflight_survives_a_workflow_that_exits() -> None:
    @workflow(name="stubborn.exiting")
    async def before() -> None:
        await number.receive()

    async with opened(MEMORY) as engine:
        await engine.start(before())

        @workflow(name="stubborn.exiting")
        async def after() -> None:
            sys.exit(7)

        found = await engine.preflight()
        assert [each.program for each in found.divergences] == ["stubborn.exiting"]
        assert "SystemExit" in str(found)
        assert after.name == before.name


ENGINES: list[Engine] = []


async def start_one() -> object:
    return await ENGINES[0].start(starts_others("nothing"), key="sneaky")


async def start_many() -> object:
    return await ENGINES[0].start_many([starts_others("nothing")], keys=["sneaky"])


async def open_a_transaction() -> object:
    async with ENGINES[0].transaction() as tx:
        return await tx.execute("SELECT 1")


async def signal_a_run() -> object:
    run = ENGINES[0].handle(perdure.info().run_id)
    await run.signal(number, 1)
    return run


@workflow(lint="off")
async def starts_others(how: str) -> str:
    await one()
    ways = (start_one, start_many, open_a_transaction, signal_a_run)
    for way in (each for each in ways if each.__name__ == how):
        try:
            await way()
        except ForeignAwait as error:
            return str(error)
    return "nothing"


@pytest.mark.parametrize("how", ["start_one", "start_many", "open_a_transaction", "signal_a_run"])
async def test_a_workflow_that_uses_an_engine_is_refused_before_anything_happens(how: str) -> None:
    async with opened(MEMORY) as engine:
        ENGINES[:] = [engine]
        run = await engine.start(starts_others(how))
        assert await run.result(timeout=60) == (
            "workflow 'starts_others' uses an engine: "
            "start child runs with perdure.start(...), and use engines in tasks"
        )
        await asyncio.sleep(0.05)
        sneaky = await engine.start(starts_others("of another call"), key="sneaky")
        assert await sneaky.result(timeout=60) == "nothing"


@workflow
async def swallows_everything() -> None:
    while True:
        with suppress(BaseException):
            await perdure.sleep(3600)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
async def test_a_program_that_swallows_everything_can_leave_memory() -> None:
    async with asyncio.timeout(60):
        async with opened(MEMORY, Settings(warm_memory=0)) as engine:
            run = await engine.start(swallows_everything())
            assert await run.status() == "blocked"


async def limited() -> None:
    async with asyncio.timeout(0.05):
        await perdure.sleep(5)


@workflow
async def attaches_a_timeout() -> None:
    await limited()


async def test_a_timeout_of_asyncios_does_not_reach_the_host() -> None:
    async with opened(MEMORY) as engine:
        run = await engine.start(attaches_a_timeout())
        with pytest.raises(TimeoutError):
            await run.result(timeout=60)
        assert await run.status() == "failed"
        await asyncio.sleep(0.1)


async def pages(*, refund: bool) -> AsyncIterator[int]:
    try:
        yield 1
        yield 2
    finally:
        if refund:
            await one()


@workflow
async def leaves_early(refund: bool) -> int:
    async for page in pages(refund=refund):
        return page
    return 0


async def test_a_generator_that_can_not_clean_up_fails_the_run() -> None:
    async with opened(MEMORY) as engine:
        run = await engine.start(leaves_early(True))
        with pytest.raises(InputError, match="use `async with contextlib"):
            await run.result(timeout=60)


async def test_a_generator_with_nothing_durable_to_do_may_be_left() -> None:
    async with opened(MEMORY) as engine:
        run = await engine.start(leaves_early(False))
        assert await run.result(timeout=60) == 1


HANGS = """
import time, perdure
from perdure import task, workflow

@task(timeout=0.1)
def hang() -> None:
    time.sleep(60)

@workflow
async def gives_up() -> str:
    try:
        await hang()
    except TimeoutError:
        return "timed out"
    return "?"

print(perdure.run(gives_up(), store="sqlite:///:memory:"))
"""


def test_a_thread_that_hangs_does_not_keep_the_process() -> None:
    done = subprocess.run(
        [sys.executable, "-c", HANGS], capture_output=True, text=True, timeout=20, check=True
    )
    assert done.stdout == "timed out\n"


class Stubborn:
    """What a stubborn task did, and when it may end."""

    def __init__(self) -> None:
        self.may_end = asyncio.Event()
        self.cancels = 0
        self.ended = 0

    async def refuse(self) -> None:
        """Swallow every cancellation until it may end."""
        while not self.may_end.is_set():
            try:
                await self.may_end.wait()
            except asyncio.CancelledError:
                self.cancels += 1
        self.ended += 1


STUBBORN: list[Stubborn] = []


@task(name="stubborn.limited", timeout=0.1)
async def refuse_within_a_time() -> str:
    await STUBBORN[-1].refuse()
    return "late"


@task(name="stubborn.silent", heartbeat_timeout=0.1)
async def refuse_in_silence() -> str:
    await STUBBORN[-1].refuse()
    return "late"


@task(name="stubborn.unlimited")
async def refuse_for_ever() -> str:
    await STUBBORN[-1].refuse()
    return "late"


@task(name="stubborn.returning", timeout=0.1)
async def return_when_cancelled() -> str:
    with suppress(asyncio.CancelledError):
        await asyncio.sleep(60)
    return "late"


@task(name="stubborn.raising", timeout=0.1)
async def raise_when_cancelled() -> str:
    try:
        await asyncio.sleep(60)
    finally:
        raise ValueError("late")


@task(name="stubborn.exiting", timeout=5)
async def exit_within_a_time() -> None:
    sys.exit(5)


REFUSALS = {
    each.name: each
    for each in (
        refuse_within_a_time,
        refuse_in_silence,
        refuse_for_ever,
        return_when_cancelled,
        raise_when_cancelled,
    )
}


@workflow
async def awaits_the_stubborn(name: str) -> str:
    try:
        return await REFUSALS[name]()
    except TimeoutError as error:
        return str(error)


@pytest.fixture
async def stubborn() -> AsyncIterator[Stubborn]:
    STUBBORN[:] = [Stubborn()]
    yield STUBBORN[0]
    STUBBORN[0].may_end.set()


LATE = "attempt 1 of task '{}' took longer than 0.1 s"


@pytest.mark.parametrize("name", ["stubborn.limited", "stubborn.silent"])
async def test_a_timeout_holds_though_the_task_swallows_its_cancellation(
    stubborn: Stubborn, name: str
) -> None:
    async with opened(MEMORY, Settings(concurrency=1)) as engine:
        run = await engine.start(awaits_the_stubborn(name))
        said = await run.result(timeout=60)
        is_silent = name == "stubborn.silent"
        silent = f"attempt 1 of task {name!r} gave no heartbeat for 0.1 s"
        assert said == (silent if is_silent else LATE.format(name))
        assert (stubborn.cancels, stubborn.ended) == (1, 0)
        # The task holds its slot as long as it runs.
        other = await engine.start(awaits_one())
        with pytest.raises(TimeoutError):
            await other.result(timeout=0.2)
        stubborn.may_end.set()
        assert await other.result(timeout=60) == 1
        assert stubborn.ended == 1
        assert await run.result() == said


@workflow
async def awaits_one() -> int:
    return await one()


@pytest.mark.parametrize("name", ["stubborn.returning", "stubborn.raising"])
async def test_what_a_task_makes_of_its_timeout_is_not_wanted(name: str) -> None:
    async with opened(MEMORY) as engine:
        run = await engine.start(awaits_the_stubborn(name))
        assert await run.result(timeout=60) == LATE.format(name)


@pytest.mark.parametrize("name", ["stubborn.limited", "stubborn.unlimited"])
async def test_a_stop_does_not_wait_for_a_task_that_will_not_end(
    stubborn: Stubborn,
    name: str,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("perdure.host.runs.dispatcher.LONGEST_CLEAN_UP_S", 0.2)
    async with asyncio.timeout(60):
        async with opened(MEMORY, Settings(grace=0)) as engine:
            run = await engine.start(awaits_the_stubborn(name))
            if name == "stubborn.limited":
                await run.result(timeout=60)
    assert stubborn.cancels
    stubborn.may_end.set()
    await until(lambda: stubborn.ended == 1)
    await asyncio.sleep(0.05)
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []


@workflow
async def exits_within_a_time() -> None:
    await exit_within_a_time()


async def test_an_exit_of_a_task_with_a_timeout_is_its_failure() -> None:
    async with opened(MEMORY) as engine:
        run = await engine.start(exits_within_a_time())
        with pytest.raises(TaskFailed, match="SystemExit: 5"):
            await run.result(timeout=60)


@workflow
async def listens() -> int:
    return await number.receive()


async def test_a_value_that_a_signal_can_not_carry_is_refused_to_its_sender() -> None:
    async with opened(MEMORY) as engine:
        run = await engine.start(listens())
        anything: Signal[Any] = number
        with pytest.raises(InputError, match="signal 'number' can't carry a value of type 'str'"):
            await run.signal(anything, "seven")
        await run.signal(number, 7)
        assert await run.result(timeout=60) == 7


@workflow
async def has_a_default(n: int = 1) -> int:
    return n


async def test_an_argument_is_the_same_given_or_left_to_its_default() -> None:
    async with opened(MEMORY) as engine:
        first = await engine.start(has_a_default(), key="k")
        second = await engine.start(has_a_default(1), key="k")
        assert first.run_id == second.run_id
        with pytest.raises(KeyReused):
            await engine.start(has_a_default(2), key="k")


def test_opening_twice_leaves_the_engine_open() -> None:
    with SyncEngine(MEMORY) as engine:
        with pytest.raises(InputError, match="open already"):
            engine.open()
        assert engine.start(has_a_default()).result(timeout=60) == 1
        assert engine.audit().is_clean


@pytest.mark.parametrize(
    ("options", "what"),
    [({"settings": {"threads": 1}}, "settings is"), ({"queues": [1]}, "the name of a queue")],
)
def test_options_of_the_wrong_kind_are_refused(options: dict[str, object], what: str) -> None:
    with pytest.raises(InputError, match=what):
        Engine(MEMORY, **options)  # type: ignore[arg-type]
