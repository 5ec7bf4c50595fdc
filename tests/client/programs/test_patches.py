"""Gradual change: `perdure.patched`, from its introduction to its removal."""

from collections.abc import Callable
from typing import Any

import pytest

import perdure
from perdure import (
    Engine,
    Handle,
    InputError,
    RunDiverged,
    RunStatus,
    Settings,
    Signal,
    Workflow,
    task,
    workflow,
)
from perdure.core.journal import events as e
from perdure.core.replay.patching import marker_of
from perdure.store.commit.bundle import Bundle
from perdure.testing.probe import Probe
from tests.client.engines import (
    ALWAYS_REPLAY,
    journal,
    opened,
    recorded,
    store_of,
    until_recorded,
)

NAME = "patches.checkout"
word = Signal("word", str)
Code = Callable[[], Workflow[[], list[str]]]
TAX = marker_of("tax")


@task(name="patches.note")
async def note(what: str) -> str:
    return what


def before() -> Workflow[[], list[str]]:
    @workflow(name=NAME)
    async def checkout() -> list[str]:
        seen = []
        for _ in range(3):
            seen.append(await note("net"))
            await word.receive()
        return seen

    return checkout


def with_patch() -> Workflow[[], list[str]]:
    @workflow(name=NAME)
    async def checkout() -> list[str]:
        seen = []
        for _ in range(3):
            if perdure.patched("tax"):
                seen.append(await note("taxed"))
                perdure.publish("taxed", len(seen))
            else:
                seen.append(await note("net"))
            await word.receive()
        return seen

    return checkout


def retired() -> Workflow[[], list[str]]:
    @workflow(name=NAME)
    async def checkout() -> list[str]:
        seen = []
        for _ in range(3):
            seen.append(await note("taxed"))
            perdure.publish("taxed", len(seen))
            await word.receive()
        return seen

    return checkout


async def waiting(engine: Engine, code: Code, words: int = 0) -> str:
    """A run that has received that many words and waits for the next."""
    run = await engine.start(code()())
    await hear(engine, run, words)
    return run.run_id


async def hear(engine: Engine, run: Handle[Any], words: int) -> None:
    for number in range(words):
        await run.signal(word, "go", id=str(number))
    # Each round waits twice: for its note and for its word.
    await until_recorded(engine, run, e.ExecutionAwaiting, 2 * words + 2)


async def ending(engine: Engine, run_id: str) -> Any:
    run = engine.handle(run_id)
    for number in range(3):
        await run.signal(word, "go", id=str(number))
    return await run.result(60)


async def test_new_run_follows_the_patch_and_journals_it_once(engine: Engine) -> None:
    run = await engine.start(with_patch()())
    assert await ending(engine, run.run_id) == ["taxed"] * 3
    assert [event for event in await journal(engine, run) if event == TAX] == [TAX]
    assert (await journal(engine, run))[1] == TAX
    assert await run.published() == {"taxed": 3}


@pytest.mark.parametrize("settings", [None, ALWAYS_REPLAY, Settings(warm_memory=0, stepwise=True)])
async def test_a_run_that_was_past_the_place_keeps_to_the_old_code(
    shared_url: str, settings: Settings | None
) -> None:
    async with opened(shared_url, settings) as engine:
        old = await waiting(engine, before)
    with_patch()
    async with opened(shared_url, settings) as engine:
        assert await ending(engine, old) == ["net"] * 3
        assert await recorded(engine, engine.handle(old), e.Posted) == []


async def test_a_run_that_missed_the_patch_does_not_follow_it_in_its_next_round(
    shared_url: str,
) -> None:
    """A second `patched` call journals nothing: the first one was recorded."""
    async with opened(shared_url) as engine:
        old = await waiting(engine, before)
    with_patch()
    async with opened(shared_url) as engine:
        await hear(engine, engine.handle(old), 1)
    async with opened(shared_url, ALWAYS_REPLAY) as engine:
        assert await ending(engine, old) == ["net"] * 3


async def test_a_run_that_had_not_come_to_the_place_follows(shared_url: str) -> None:
    def begun() -> Workflow[[], str]:
        @workflow(name=NAME)
        async def checkout() -> str:
            await word.receive()
            return await note("net")

        return checkout

    def begun_patched() -> None:
        @workflow(name=NAME)
        async def checkout() -> str:
            await word.receive()
            return await note("taxed" if perdure.patched("tax") else "net")

    async with opened(shared_url) as engine:
        run = await engine.start(begun()())
        await until_recorded(engine, run, e.ExecutionAwaiting)
    begun_patched()
    async with opened(shared_url) as engine:
        await engine.handle(run.run_id).signal(word, "go")
        assert await engine.handle(run.run_id).result(60) == "taxed"
        assert await recorded(engine, engine.handle(run.run_id), e.Posted) == [TAX]


async def test_branches_agree_on_a_patch_in_any_order(place: tuple[str, Settings | None]) -> None:
    @workflow(name="patches.branches")
    async def branches() -> list[bool]:
        async def branch(delay: float) -> bool:
            await perdure.sleep(delay)
            await note("asks")
            return perdure.patched("tax")

        return [*await perdure.gather(branch(0.02), branch(0), branch(0.01)), perdure.patched("b")]

    async with opened(*place) as engine:
        run = await engine.start(branches())
        assert await run.result(60) == [True] * 4
        assert await recorded(engine, run, e.Posted) == [TAX, marker_of("b")]


async def test_later_branch_follows_the_branch_without_the_patch(shared_url: str) -> None:
    def code(is_patched: bool) -> Workflow[[], list[str]]:
        def text() -> str:
            return "taxed" if is_patched and perdure.patched("tax") else "net"

        @workflow(name="patches.branches")
        async def branches() -> list[str]:
            async def early() -> str:
                return await note(text())

            async def late() -> str:
                await word.receive()
                return await note(text())

            return list(await perdure.gather(early(), late()))

        return branches

    async with opened(shared_url) as engine:
        run = await engine.start(code(False)())
        await until_recorded(engine, run, e.ExecutionAwaiting, 2)
    code(True)
    async with opened(shared_url) as engine:
        await engine.handle(run.run_id).signal(word, "go")
        assert await engine.handle(run.run_id).result(60) == ["net", "net"]


async def test_a_patch_is_asked_while_a_run_cleans_up(shared_url: str) -> None:
    @workflow(name="patches.cleaning")
    async def cleaning() -> None:
        try:
            await word.receive()
        finally:
            if perdure.patched("tax"):
                await note("refund")

    for settings in (None, ALWAYS_REPLAY):
        async with opened(shared_url, settings) as engine:
            run = await engine.start(cleaning())
            await until_recorded(engine, run, e.ExecutionAwaiting)
            await run.cancel()
            with pytest.raises(perdure.RunCancelled):
                await run.result(60)
            assert await recorded(engine, run, e.Posted) == [TAX]


# Retirement


@pytest.mark.parametrize("words", [0, 1, 2])
async def test_run_with_a_patch_marker_resumes_on_code_without_the_patch(
    shared_url: str, words: int
) -> None:
    async with opened(shared_url) as engine:
        run_id = await waiting(engine, with_patch, words)
    retired()
    async with opened(shared_url) as engine:
        assert await ending(engine, run_id) == ["taxed"] * 3
        assert await engine.handle(run_id).published() == {"taxed": 3}


async def test_a_run_goes_from_code_to_code_without_the_patch_and_back(shared_url: str) -> None:
    """A deployment that is rolled back."""
    async with opened(shared_url) as engine:
        run_id = await waiting(engine, with_patch)
    retired()
    async with opened(shared_url) as engine:
        await hear(engine, engine.handle(run_id), 1)
    with_patch()
    async with opened(shared_url) as engine:
        assert await ending(engine, run_id) == ["taxed"] * 3
        assert await recorded(engine, engine.handle(run_id), e.Posted) == [TAX]


async def test_a_run_without_the_marker_diverges_when_the_patch_is_gone(shared_url: str) -> None:
    async with opened(shared_url) as engine:
        run_id = await waiting(engine, before)
    retired()
    async with opened(shared_url) as engine:
        with pytest.raises(
            RunDiverged, match=r"program: InvokeScheduled\(promise_id=root\.0, .*patches\.note"
        ):
            await engine.handle(run_id).result(60)
    with_patch()
    async with opened(shared_url) as engine:
        assert await ending(engine, run_id) == ["net"] * 3


async def test_one_question_of_two_can_go_first(shared_url: str) -> None:
    def code(asks_first: bool) -> Workflow[[], list[str]]:
        @workflow(name=NAME)
        async def checkout() -> list[str]:
            is_first = perdure.patched("tax") if asks_first else True
            seen = [await note("taxed" if is_first else "net")]
            await word.receive()
            seen.append(await note("taxed" if perdure.patched("tax") else "net"))
            await word.receive()
            return seen

        return checkout

    async with opened(shared_url) as engine:
        run = await engine.start(code(True)())
        await run.signal(word, "go", id="0")
        await until_recorded(engine, run, e.ExecutionAwaiting, 4)
    code(False)
    async with opened(shared_url) as engine:
        await engine.handle(run.run_id).signal(word, "go", id="1")
        assert await engine.handle(run.run_id).result(60) == ["taxed", "taxed"]


async def test_random_value_is_drawn_after_a_marker_of_a_removed_patch(
    shared_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A crash just after the marker, where entries commit separately: what follows is executed, not replayed."""

    def code(is_retired: bool) -> Workflow[[], float]:
        @workflow(name=NAME)
        async def drawing() -> float:
            await note("one")
            if is_retired or perdure.patched("tax"):
                return perdure.random().random()
            return 0.0

        return drawing

    crashed = Engine(shared_url, settings=Settings(stepwise=True))
    await crashed.open()
    store, host = store_of(crashed), Probe(crashed).host
    commit = store.commit

    def crash_behind_the_marker(bundle: Bundle) -> Any:
        events = [entry.event for _, appended in bundle.appends for entry in appended.entries]
        if e.RandomGenerated in map(type, events):
            raise ConnectionError
        return commit(bundle)

    monkeypatch.setattr(store, "commit", crash_behind_the_marker)
    monkeypatch.setattr(host, "failed", lambda _: None)
    run = await crashed.start(code(False)())
    assert await until_recorded(crashed, run, e.Posted) == TAX
    assert (await journal(crashed, run))[-1] == TAX
    await Probe(crashed).abort()
    code(True)
    async with opened(shared_url) as engine:
        again = engine.handle(run.run_id)
        assert await again.result(60) > 0
        (drawn,) = await recorded(engine, again, e.RandomGenerated)
        assert drawn.value > 0


# Wrong use


@pytest.mark.parametrize("wrong", ["", "x" * 256, 7, None, "a\0b", "\ud800", "two\nlines"])
async def test_invalid_patch_id_is_refused(engine: Engine, wrong: Any) -> None:
    @workflow(name="patches.wrong")
    async def asking() -> str:
        try:
            perdure.patched(wrong)
        except InputError as error:
            return str(error)
        return "it was taken"

    run = await engine.start(asking())
    said = await run.result(60)
    assert "the id of a patch" in said
    assert any(remedy in said for remedy in (": pass", ": use at most 255", ": remove it"))
    assert await recorded(engine, run, e.Posted) == []


async def test_a_patch_is_asked_in_a_workflow_only(engine: Engine) -> None:
    @task(name="patches.asking")
    async def asking() -> bool:
        return perdure.patched("tax")

    @workflow(name="patches.indirect")
    async def indirect() -> bool:
        return await asking()

    run = await engine.start(indirect())
    with pytest.raises(InputError, match=r"perdure\.patched is called in a task"):
        await run.result(60)
    with pytest.raises(InputError, match=r"perdure\.patched is called outside a run"):
        perdure.patched("tax")
    assert await run.status() is RunStatus.FAILED
