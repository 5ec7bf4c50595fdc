"""Code that changed under a run: the run is parked with a readable reason, and waits for its own code."""

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any

import pytest

import perdure
from perdure import (
    Engine,
    Handle,
    RunDiverged,
    RunStatus,
    Settings,
    Signal,
    Workflow,
    task,
    workflow,
)
from perdure.authoring import registry
from perdure.core.journal import events as e
from perdure.testing.probe import Probe
from tests.client.engines import journal, opened, until_recorded, until_status

word = Signal("word", str)


@task(name="divergence.note")
async def note(what: str) -> str:
    return what


def old_code() -> Workflow[[], str]:
    @workflow(name="divergence.changing")
    async def old() -> str:
        await note("one")
        said = await word.receive()
        return "old code heard " + said

    return old


def with_another_step() -> Workflow[[], str]:
    @workflow(name="divergence.changing")
    async def changed() -> str:
        await note("another")
        return await word.receive()

    return changed


def with_a_step_more() -> Workflow[[], str]:
    @workflow(name="divergence.changing")
    async def changed() -> str:
        await note("one")
        await note("two")
        return await word.receive()

    return changed


def with_a_step_less() -> Workflow[[], str]:
    @workflow(name="divergence.changing")
    async def changed() -> str:
        return await word.receive()

    return changed


def with_an_early_end() -> Workflow[[], str]:
    @workflow(name="divergence.changing")
    async def changed() -> str:
        return "at once"

    return changed


def with_an_error() -> Workflow[[], str]:
    @workflow(name="divergence.changing")
    async def changed() -> str:
        await note("one")
        raise ValueError("a typing mistake")

    return changed


CHANGES: list[tuple[Callable[[], Workflow[[], str]], str, str]] = [
    (with_another_step, "payload={what: str}", "payload={what: str}"),
    (with_a_step_more, "ExecutionAwaiting(", "payload={what: str}"),
    (with_a_step_less, "InvokeScheduled(", "ExecutionAwaiting("),
    (with_an_early_end, "InvokeScheduled(", "ExecutionCompleted("),
    (with_an_error, "ExecutionAwaiting(", "ExecutionFailed("),
]


async def _waiting_run(url: str) -> str:
    async with opened(url) as engine:
        run = await engine.start(old_code()())
        await until_recorded(engine, run, e.ExecutionAwaiting, 2)
        return run.run_id


@pytest.mark.parametrize(("change", "recorded", "actual"), CHANGES)
async def test_a_run_whose_code_changed_is_parked_with_a_diff(
    shared_url: str, change: Callable[[], Workflow[[], str]], recorded: str, actual: str
) -> None:
    run_id = await _waiting_run(shared_url)
    change()
    async with opened(shared_url) as engine:
        run = engine.handle(run_id)
        assert await run.status() is RunStatus.DIVERGED
        with pytest.raises(RunDiverged) as parked:
            await run.result(60)
    lines = str(parked.value).splitlines()
    (before,) = [line for line in lines if line.startswith("  - journal: ")]
    (after,) = [line for line in lines if line.startswith("  + program: ")]
    assert recorded in before
    assert actual in after


@pytest.mark.parametrize("reveals", [False, True])
async def test_a_diff_shows_values_only_where_that_is_asked_for(
    shared_url: str, reveals: bool, caplog: pytest.LogCaptureFixture
) -> None:
    run_id = await _waiting_run(shared_url)
    with_another_step()
    settings = Settings(reveal_payloads=reveals)
    async with opened(shared_url, settings) as engine:
        found = str(await engine.preflight(["divergence.changing"]))
        with pytest.raises(RunDiverged) as parked:
            await engine.handle(run_id).result(10)
    for text in (found, str(parked.value), caplog.text):
        assert ('payload={"what":"one"}' in text) is reveals
        assert ('payload={"what":"another"}' in text) is reveals
        digests = re.findall(r"payload={what: str} \(sha256 ([0-9a-f]{8})\)", text)
        assert len(set(digests)) == (0 if reveals else 2)


async def test_what_a_changed_program_raises_is_in_the_report_with_its_traceback(
    shared_url: str,
) -> None:
    run_id = await _waiting_run(shared_url)
    with_an_error()
    async with opened(shared_url) as engine:
        with pytest.raises(RunDiverged) as parked:
            await engine.handle(run_id).result(10)
    text = str(parked.value)
    assert "  the program raised:\n" in text
    assert 'raise ValueError("a typing mistake")' in text
    assert "    ValueError: a typing mistake\n" in text


async def test_the_diff_names_the_line_of_the_program(shared_url: str) -> None:
    run_id = await _waiting_run(shared_url)
    code = with_another_step().fn.__code__
    async with opened(shared_url) as engine:
        with pytest.raises(RunDiverged) as parked:
            await engine.handle(run_id).result(60)
    assert f"{code.co_filename}:{code.co_firstlineno + 2} in changed" in str(parked.value)


async def test_a_program_that_takes_other_arguments_is_named_by_its_own_line(
    shared_url: str,
) -> None:
    run_id = await _waiting_run(shared_url)

    @workflow(name=old_code().name)
    async def takes_more(count: int) -> str:
        return str(count)

    code = takes_more.fn.__code__
    async with opened(shared_url) as engine:
        with pytest.raises(RunDiverged) as parked:
            await engine.handle(run_id).result(60)
        (found,) = (await engine.preflight([takes_more.name])).divergences
    assert found.line == f"{code.co_filename}:{code.co_firstlineno} in takes_more"
    assert found.line in str(parked.value)


async def test_an_operation_in_a_join_set_is_named_by_the_line_of_the_program(
    shared_url: str,
) -> None:
    await _waiting_run(shared_url)

    @workflow(name=old_code().name)
    async def waits_in_a_set() -> None:
        waiting = perdure.join_set()
        waiting.submit(perdure.sleep(1))
        await waiting.next()

    async with opened(shared_url) as engine:
        (found,) = (await engine.preflight([waits_in_a_set.name])).divergences
    assert found.line.startswith(waits_in_a_set.fn.__code__.co_filename)


@asynccontextmanager
async def lent() -> AsyncIterator[None]:
    try:
        yield
    finally:
        await note("given back")


def cleans_up() -> Workflow[[], str]:
    @workflow(name="divergence.changing")
    async def changed() -> str:
        try:
            await note("another")
        finally:
            await note("one")
        return await word.receive()

    return changed


def cleans_up_around() -> Workflow[[], str]:
    @workflow(name="divergence.changing")
    async def changed() -> str:
        async with lent():
            await note("another")
        return await word.receive()

    return changed


def continues() -> Workflow[[], str]:
    @workflow(name="divergence.changing")
    async def changed() -> str:
        with suppress(BaseException):
            await note("another")
        return await word.receive()

    return changed


def returns_at_last() -> Workflow[[], str]:
    @workflow(name="divergence.changing")
    async def changed() -> str:
        try:
            await note("another")
        finally:
            return "swallowed"  # noqa: B012 - what it is about

    return changed


def never_gives_up() -> Workflow[[], str]:
    @workflow(name="divergence.changing")
    async def changed() -> str:
        while True:
            with suppress(BaseException):
                await note("another")

    return changed


# One that will not be closed is dropped, and Python complains of it.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(
    ("change", "line"),
    [
        (cleans_up, 3),
        (cleans_up_around, 3),
        (continues, 3),
        (returns_at_last, 3),
        (never_gives_up, 4),
    ],
)
async def test_what_a_program_does_while_it_is_unwound_is_not_in_the_diff(
    shared_url: str, change: Callable[[], Workflow[[], str]], line: int
) -> None:
    await _waiting_run(shared_url)
    code = change().fn.__code__
    async with opened(shared_url, Settings(reveal_payloads=True)) as engine:
        (found,) = (await engine.preflight(["divergence.changing"])).divergences
    assert 'payload={"what":"one"}' in found.expected
    assert 'payload={"what":"another"}' in found.actual
    assert found.line == f"{code.co_filename}:{code.co_firstlineno + line} in changed"


async def test_nothing_is_appended_to_a_run_that_diverged(shared_url: str) -> None:
    run_id = await _waiting_run(shared_url)
    with_another_step()
    async with opened(shared_url) as engine:
        before = await journal(engine, engine.handle(run_id))
        await engine.handle(run_id).signal(word, "anybody there")
        await asyncio.sleep(0.1)
        assert await journal(engine, engine.handle(run_id)) == before


async def test_diverged_run_resumes_when_its_own_code_is_back(shared_url: str) -> None:
    run_id = await _waiting_run(shared_url)
    with_another_step()
    async with opened(shared_url) as engine:
        assert await engine.handle(run_id).status() is RunStatus.DIVERGED
        await engine.handle(run_id).signal(word, "kept")
    old_code()
    async with opened(shared_url) as engine:
        run = engine.handle(run_id)
        assert await run.result(60) == "old code heard kept"
        assert await run.status() is RunStatus.COMPLETED


async def test_a_change_behind_what_a_run_has_done_does_not_matter(shared_url: str) -> None:
    run_id = await _waiting_run(shared_url)

    @workflow(name="divergence.changing")
    async def extended() -> str:
        await note("one")
        said = await word.receive()
        return await note("new code heard " + said)

    async with opened(shared_url) as engine:
        run = engine.handle(run_id)
        await run.signal(word, "hello")
        assert await run.result(60) == "new code heard hello"


async def test_a_diverged_run_leaves_the_others_alone(shared_url: str) -> None:
    run_id = await _waiting_run(shared_url)
    changed = with_another_step()
    async with opened(shared_url) as engine:
        assert await engine.handle(run_id).status() is RunStatus.DIVERGED
        fresh = await engine.start(changed())
        await fresh.signal(word, "fresh")
        assert await fresh.result(60) == "fresh"


async def test_a_run_that_diverges_while_its_engine_runs_is_parked(engine_url: str) -> None:
    async with opened(engine_url, perdure.Settings(warm_memory=0)) as engine:
        run = await engine.start(old_code()())
        await until_status(run, RunStatus.BLOCKED)
        with_another_step()
        await run.signal(word, "wake up")
        with pytest.raises(RunDiverged):
            await run.result(60)


async def _crash(url: str, call: Any) -> str:
    """A run whose engine died, and so still owns it."""
    crashed = Engine(url)
    await crashed.open()
    run = await crashed.start(call)
    await until_status(run, RunStatus.BLOCKED)
    await Probe(crashed).abort()
    return run.run_id


async def test_a_run_whose_workflow_is_not_registered_is_parked(
    shared_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = await _crash(shared_url, old_code()())
    with monkeypatch.context() as patched:
        patched.delitem(registry._known, ("program", "divergence.changing"))
        async with opened(shared_url) as engine:
            run = engine.handle(run_id)
            assert await run.status() is RunStatus.PARKED
            why = r"not over after 0\.2 s: it is parked: unknown-name: no workflow or graph 'divergence\.ch"
            with pytest.raises(TimeoutError, match=why):
                await run.result(0.2)
    async with opened(shared_url) as engine:
        again = engine.handle(run_id)
        await again.signal(word, "found")
        assert await again.result(60) == "old code heard found"


async def test_a_parked_run_does_not_keep_its_engine_busy(
    shared_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = await _waiting_run(shared_url)
    with_another_step()
    async with opened(shared_url) as engine:
        await engine.handle(run_id).signal(word, "nobody takes this")
        worker, polls = Probe(engine).host.worker, 0
        poll = worker.poll

        async def counted() -> None:
            nonlocal polls
            polls += 1
            await poll()

        # Each poll that finds something due ends with the queues.
        monkeypatch.setattr(worker, "poll", counted)
        await asyncio.sleep(0.5)
    assert polls <= 2


async def test_result_waits_for_a_process_that_has_the_workflow(
    shared_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = await _crash(shared_url, old_code()())
    async with AsyncExitStack() as stack:
        with monkeypatch.context() as patched:
            patched.delitem(registry._known, ("program", "divergence.changing"))
            reader = await stack.enter_async_context(opened(shared_url))
            await until_status(reader.handle(run_id), RunStatus.PARKED)
            result = asyncio.create_task(reader.handle(run_id).result(60))
            chunks = asyncio.create_task(_chunks(reader.handle(run_id)))
            await asyncio.sleep(1.5)
            assert not result.done()
            assert not chunks.done()
        worker = await stack.enter_async_context(opened(shared_url))
        await worker.handle(run_id).signal(word, "found")
        assert await result == "old code heard found"
        assert await chunks == []


async def _chunks(run: Handle[Any]) -> list[Any]:
    return [chunk async for chunk in run.stream("words", of=str)]
