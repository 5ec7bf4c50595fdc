"""Log lines: the tests produce each line that docs/how-to/logging.md lists."""

import asyncio
import ctypes
import logging
import re
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import pytest

import perdure
from perdure import Engine, Retry, Settings, Signal, task, workflow
from perdure.authoring import registry
from perdure.host.runs.memory import MemoryUse
from perdure.store.commit.bundle import Bundle
from perdure.testing.probe import Probe
from tests.client.engines import AT_ONCE, opened, store_of, until, until_status, until_store
from tests.paths import ROOT
from tests.store.builders import raw

DOCUMENT = ROOT / "docs/how-to/logging.md"
LINE = re.compile(r"^\| `(\w+)` \| `(perdure\.\w+)` \| (\w+)(?:; (\w+)[^|]*)? \|", re.MULTILINE)

DOCUMENTED = {
    event: (logger, {level.upper(), other.upper()} - {""})
    for event, logger, level, other in LINE.findall(DOCUMENT.read_text())
}

SECRET = "4711-0815"

word = Signal("word", str)
PLACES: dict[str, Callable[[str], Awaitable[None]]] = {}
"""The scenario that produces each line, by the name of the line."""


def makes(
    *events: str,
) -> Callable[[Callable[[str], Awaitable[None]]], Callable[[str], Awaitable[None]]]:
    def mark(make: Callable[[str], Awaitable[None]]) -> Callable[[str], Awaitable[None]]:
        for event in events:
            PLACES[event] = make
        return make

    return mark


@task(name="logging.pay", retry=Retry(attempts=2, first=0))
async def pay(card: str) -> str:
    raise ValueError("declined")


@task(name="logging.pass_on")
async def pass_on(card: str) -> str:
    return card


@workflow(name="logging.paying")
async def paying(card: str) -> str:
    return await pay(card)


@workflow(name="logging.passing")
async def passing(card: str) -> str:
    return await pass_on(card)


@workflow(name="logging.waiting")
async def waiting(card: str) -> str:
    return card + await word.receive()


@workflow(name="logging.again")
async def again(card: str, more: bool) -> str:
    if more:
        await perdure.continue_as_new(again(card, False))
    return card


@makes(
    "run_started",
    "run_completed",
    "attempt_started",
    "attempt_completed",
    "host_joined",
    "host_left",
)
async def complete(url: str) -> None:
    async with opened(url) as engine:
        await (await engine.start(passing(SECRET))).result(20)


@makes("attempt_failed", "retry_scheduled", "step_failed", "run_failed")
async def fail(url: str) -> None:
    async with opened(url) as engine:
        with pytest.raises(ValueError, match="declined"):
            await (await engine.start(paying(SECRET))).result(20)


@makes("run_cancelled")
async def cancel(url: str) -> None:
    async with opened(url) as engine:
        run = await engine.start(waiting(SECRET))
        await run.cancel()
        with pytest.raises(perdure.RunCancelled):
            await run.result(20)


@makes("run_continued")
async def continue_as_new(url: str) -> None:
    async with opened(url) as engine:
        await (await engine.start(again(SECRET, True))).result(20)


@makes("run_claimed")
async def claim(url: str) -> None:
    async with opened(url) as engine:
        await engine.start(waiting(SECRET))
    async with opened(url):
        pass


@task(name="logging.hold")
async def hold(card: str) -> str:
    await asyncio.sleep(0 if perdure.info().attempt > 1 else 600)
    return card


@workflow(name="logging.holding")
async def holding(card: str) -> str:
    return await hold(card)


@makes("run_taken_over", "host_gone", "step_in_doubt")
async def take_over(url: str) -> None:
    crashed = Engine(url)
    await crashed.open()
    run = await crashed.start(holding(SECRET))
    await until_started(crashed)
    await Probe(crashed).abort()
    async with opened(url) as engine:
        await engine.handle(run.run_id).result(60)
        # The dead host is taken over in the background, and has no row when that is done.
        await until_store(partial(is_alone, engine))


async def is_alone(engine: Engine) -> bool:
    return len(await raw(store_of(engine), "SELECT id FROM {}host")) == 1


async def until_started(engine: Engine) -> None:
    probe = Probe(engine)
    await until(lambda: bool(probe.attempts) and probe.attempts[0].has_begun)


@makes("run_parked", "run_unparked")
async def park(url: str) -> None:
    async with opened(url) as engine:
        run = await engine.start(waiting(SECRET))
        await until_status(run, perdure.RunStatus.BLOCKED)

    @workflow(name=waiting.name)
    async def another(card: str) -> str:
        return await pass_on(card)

    async with opened(url) as engine:
        await until_status(engine.handle(run.run_id), perdure.RunStatus.DIVERGED)
    registry.register(waiting)
    async with opened(url) as engine:
        await until_status(engine.handle(run.run_id), perdure.RunStatus.BLOCKED)


@workflow(name="logging.unwritable")
async def unwritable(card: str) -> str:
    await word.receive()
    perdure.publish("poison", 1)
    return card


@makes("run_unwritable")
async def decide_what_can_not_be_written(url: str) -> None:
    def refuse(*_: object) -> None:
        raise ValueError("a defect \ud800")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Bundle, "publish", refuse)
        await park_for_a_defect(url)


async def park_for_a_defect(url: str) -> None:
    async with opened(url) as engine:
        run = await engine.start(unwritable(SECRET))
        await run.signal(word, "go")
        await until_status(run, perdure.RunStatus.PARKED)
        await run.cancel()


@makes("host_stopping", "tasks_interrupted")
async def stop_in_a_task(url: str) -> None:
    async with opened(url, AT_ONCE) as engine:
        await engine.start(holding(SECRET))
        await until_started(engine)


@makes("loop_blocked", "loop_free")
async def block_the_loop(url: str) -> None:
    async with opened(url):
        time.sleep(2)  # noqa: ASYNC251 - what it is about
        await asyncio.sleep(0.5)


@makes("process_stopped")
async def hold_the_interpreter(url: str) -> None:
    async with opened(url):
        ctypes.PyDLL(None).sleep(2)  # native code that does not let other threads run
        await asyncio.sleep(0.5)


@task(name="logging.there", queue="logging")
async def there(card: str) -> str:
    await asyncio.sleep(600)
    return card


@workflow(name="logging.going")
async def going(card: str) -> str:
    return await there(card)


@makes("lease_lost")
async def lose_a_lease(url: str) -> None:
    async with opened(url, Settings(lease=0.3, grace=0), ("logging",)) as engine:

        async def regain_nothing(*_: object) -> list[Any]:
            return []

        store = store_of(engine)
        store.regain_work = regain_nothing
        await engine.start(going(SECRET))
        await until_started(engine)
        probe = Probe(engine)
        first = probe.attempts[0]
        await store.return_work(probe.host_id, probe.now_ms)
        await until(lambda: first not in probe.attempts)


@makes("host_replaced")
async def be_considered_dead(url: str) -> None:
    quick = Settings(heartbeat=0.1, stale_after=1, transaction_timeout=0.5)
    async with opened(url, quick) as engine:
        former = Probe(engine).host_id
        await store_of(engine).remove_host(former)
        await until(lambda: Probe(engine).host_id != former)


@pytest.fixture
def logged(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.DEBUG, "perdure")
    return caplog


def events_of(caplog: pytest.LogCaptureFixture) -> dict[str, list[logging.LogRecord]]:
    found: dict[str, list[logging.LogRecord]] = {}
    for record in caplog.records:
        if (event := getattr(record, "event", None)) is not None:
            found.setdefault(event, []).append(record)
    return found


@makes("memory_thrashing")
async def runs_that_do_not_fit(url: str) -> None:
    """The events take the place of an hour of load: `MemoryUse` counts and logs, whatever evicts."""
    now_ms = 0
    use = MemoryUse(20_000, lambda: now_ms)
    for _ in range(100):
        use.evicted(3, is_early=True)
        now_ms += 50


def test_every_line_is_documented_and_every_documented_line_has_a_test() -> None:
    assert set(PLACES) == set(DOCUMENTED)


@pytest.mark.parametrize(
    "make", sorted(set(PLACES.values()), key=str), ids=lambda make: make.__name__
)
async def test_documented_lines_are_logged_with_their_fields_and_without_payloads(
    shared_url: str, make: Callable[[str], Awaitable[None]], logged: pytest.LogCaptureFixture
) -> None:
    await make(shared_url)
    found = events_of(logged)
    wanted = {event for event, maker in PLACES.items() if maker is make}
    assert wanted <= set(found), sorted(found)
    assert set(found) <= set(DOCUMENTED)
    for event, records in found.items():
        logger, levels = DOCUMENTED[event]
        for record in records:
            assert (record.name, record.levelname in levels) == (logger, True), event
            require_fields(vars(record), logger)
    assert SECRET not in logged.text


def require_fields(fields: dict[str, Any], logger: str) -> None:
    if logger in ("perdure.run", "perdure.task"):
        assert fields["run_id"].startswith("r_")
        assert fields["program"].startswith("logging.")
    if logger == "perdure.task":
        assert fields["step"] == "root.0"
        assert fields["task"].startswith("logging.")
        assert fields["attempt"] >= 1


async def test_a_failed_attempt_is_logged_with_its_traceback_and_the_exception(
    engine: Engine, logged: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(ValueError, match="declined"):
        await (await engine.start(paying(SECRET))).result(20)
    first, second = events_of(logged)["attempt_failed"]
    assert [getattr(each, "attempt", 0) for each in (first, second)] == [1, 2]
    assert first.exc_info is not None
    assert isinstance(first.exc_info[1], ValueError)
    assert 'raise ValueError("declined")' in (first.exc_text or "")
    assert "perdure/host" not in (first.exc_text or "")


async def test_nothing_of_a_run_is_logged_again_when_it_is_replayed(
    engine_url: str, logged: pytest.LogCaptureFixture
) -> None:
    @workflow(name="logging.twice")
    async def twice() -> str:
        try:
            await pay(SECRET)
        except ValueError:
            perdure.log.info("declined")
        return await word.receive()

    async with opened(engine_url, Settings(warm_memory=0)) as engine:
        run = await engine.start(twice())
        # Logged when the commit is durable in which the program asks for the signal.
        await until(lambda: "step_failed" in events_of(logged))
        before = len(logged.records)
        await run.signal(word, "go")
        await run.result(20)
    after = [record for record in logged.records[before:] if record.name != "perdure.host"]
    assert [getattr(each, "event", each.getMessage()) for each in after] == ["run_completed"]


async def test_the_warning_names_the_line_that_blocks_the_loop(
    logged: pytest.LogCaptureFixture,
) -> None:
    async with opened("sqlite:///:memory:"):
        time.sleep(2)  # noqa: ASYNC251 - the line that is named
        await asyncio.sleep(0.5)
    (blocked,) = events_of(logged)["loop_blocked"]
    assert "the line that is named" in blocked.getMessage()


@task(name="logging.at_last", queue="logging", retry=Retry(attempts=2, first=0))
async def at_last(card: str) -> str:
    DEEDS.append(perdure.info().attempt)
    if len(DEEDS) == 1:
        raise ConnectionError("no answer")
    await asyncio.sleep(600 if len(DEEDS) == 2 else 0)
    return card


@workflow(name="logging.reaching")
async def reaching(card: str) -> str:
    return await at_last(card)


DEEDS: list[int] = []
"""The attempt number of each execution of `at_last`."""


async def test_doubt_about_a_queued_task_is_logged_with_its_attempt_and_as_past(
    shared_url: str, logged: pytest.LogCaptureFixture
) -> None:
    DEEDS.clear()
    crashed = Engine(shared_url, queues=("logging",))
    await crashed.open()
    run = await crashed.start(reaching(SECRET))
    await until(lambda: len(DEEDS) == 2)
    await Probe(crashed).abort()
    async with opened(shared_url, queues=("logging",)) as engine:
        await engine.handle(run.run_id).result(60)
    assert DEEDS == [1, 2, 2]
    (doubt,) = events_of(logged)["step_in_doubt"]
    require_fields(vars(doubt), "perdure.task")
    assert doubt.getMessage() == (
        f"attempt 2 of task 'logging.at_last' (step root.0 of run {run.run_id}) had started when its host ended:"
        " it was started again"
    )


async def test_a_stop_names_the_tasks_that_it_waits_for(
    engine_url: str, logged: pytest.LogCaptureFixture
) -> None:
    async with opened(engine_url, AT_ONCE) as engine:
        runs = [await engine.start(holding(str(number))) for number in range(5)]
        await until(lambda: len(Probe(engine).attempts) == 5)
    (stopping,) = events_of(logged)["host_stopping"]
    assert f"5 tasks (logging.hold of run {runs[0].run_id}" in stopping.getMessage()
    assert "and 2 more)" in stopping.getMessage()
