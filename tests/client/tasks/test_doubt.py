"""Steps that had begun when their host died: the policy, the journal, and the one key of all attempts."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

import perdure
from perdure import (
    Engine,
    Handle,
    InputError,
    NotDone,
    Retry,
    Settings,
    StepInDoubt,
    Task,
    task,
    workflow,
)
from perdure.authoring import registry
from perdure.core.journal import events as e
from perdure.core.replay.doubt import MOST_DOUBTS, doubt_entry
from perdure.engine.runs import doubts
from perdure.testing.probe import Probe
from tests.client.engines import (
    assert_sound,
    journal,
    killed,
    opened,
    recorded,
    store_of,
    until,
    until_recorded,
)

SHORT_LEASE = Settings(lease=0.2)


class World:
    """The outside world: effects by key, and a log of calls."""

    def __init__(self) -> None:
        self.effects: dict[str, int] = {}
        self.begun: list[int] = []
        self.asked: list[str] = []

    async def hang(self) -> None:
        """Note the attempt. It never ends."""
        self.begun.append(perdure.info().attempt)
        await asyncio.sleep(3600)

    async def hang_first(self) -> None:
        """Note the attempt. The first never ends."""
        self.begun.append(perdure.info().attempt)
        if len(self.begun) == 1:
            await asyncio.sleep(3600)

    def has_begun(self) -> bool:
        """Whether the first attempt has begun, and no other."""
        return self.begun == [1]

    def act(self) -> int:
        self.effects[perdure.key()] = self.effects.get(perdure.key(), 0) + 1
        return len(self.effects)

    def find(self, key: str) -> int:
        self.asked.append(key)
        if key not in self.effects:
            raise NotDone
        return 100


@pytest.fixture
def world() -> World:
    return World()


@workflow(name="doubt.calling")
async def calling(name: str) -> Any:
    made: Task[[], Any] | None = registry.find("task", name)
    assert made is not None
    return await made()


@workflow(name="doubt.catching")
async def catching(name: str) -> Any:
    made: Task[[], Any] | None = registry.find("task", name)
    assert made is not None
    try:
        return await made()
    except StepInDoubt as doubt:
        return doubt.what


async def crash_over(url: str, made: Task[[], Any], begun: Callable[[], bool]) -> Handle[Any]:
    """Start a run, let its task begin, and leave it in doubt."""
    async with killed(url) as engine:
        run = await engine.start(catching(made.name))
        await until(begun)
    return run


async def attempts_of(engine: Engine, run: Handle[Any]) -> list[str]:
    """The attempts and doubts of the step, from the journal."""
    lines = []
    for event in await journal(engine, run):
        match event:
            case e.Posted(label=label):
                lines.append(label)
            case e.InvokeStarted(attempt=attempt):
                lines.append(f"started {attempt}")
            case e.InvokeRetrying(failed_attempt=attempt):
                lines.append(f"retrying after {attempt}")
            case e.InvokeCompleted(attempt=attempt, ok=ok):
                lines.append(f"{'completed' if ok else 'failed'} {attempt}")
            case _:
                pass
    return lines


async def resumed(url: str, run: Handle[Any]) -> tuple[Any, list[str]]:
    """The run's result on another host, and the attempts of its step. The host's one slot is free afterwards."""
    async with opened(url, Settings(threads=1, concurrency=1)) as engine:
        again = engine.handle(run.run_id)
        result = await again.result(60)
        attempts = await attempts_of(engine, again)
        assert_slots_are_free(engine)
    return result, attempts


# Retry


async def test_by_default_the_step_is_begun_again(shared_url: str, world: World) -> None:
    @task
    async def first_hangs() -> int:
        await world.hang_first()
        return 7

    run = await crash_over(shared_url, first_hangs, world.has_begun)
    result, attempts = await resumed(shared_url, run)
    assert result == 7
    assert attempts == [
        "started 1",
        "in doubt: retry",
        "started 2",
        "completed 2",
    ]


async def test_journal_without_doubt_policies_still_replays(
    shared_url: str, monkeypatch: pytest.MonkeyPatch, world: World
) -> None:
    @task
    async def twice_hangs() -> int:
        world.begun.append(perdure.info().attempt)
        if len(world.begun) < 3:
            await asyncio.sleep(3600)
        return 7

    run = await crash_over(shared_url, twice_hangs, world.has_begun)
    with monkeypatch.context() as before:
        before.setattr(
            doubts, "doubt_entry", lambda *said: e.Posted("in doubt", doubt_entry(*said).postings)
        )
        async with killed(shared_url):
            await until(lambda: world.begun == [1, 2])
    async with opened(shared_url) as engine:
        again = engine.handle(run.run_id)
        assert await again.result(60) == 7
        labels = [posted.label for posted in await recorded(engine, again, e.Posted)]
        assert labels == ["in doubt", "in doubt: retry"]


# Fail


async def test_a_step_that_fails_in_doubt_is_not_begun_again(shared_url: str, world: World) -> None:
    @task(on_doubt="fail", retry=Retry(attempts=5, first=0))
    async def hanging() -> None:
        await world.hang()

    run = await crash_over(shared_url, hanging, world.has_begun)
    result, attempts = await resumed(shared_url, run)
    assert "root.0 (hanging) was under way when its host died" in result
    assert attempts == ["started 1", "in doubt: fail", "failed 1"]
    assert world.begun == [1]


async def test_uncaught_doubt_fails_the_run(shared_url: str, world: World) -> None:
    @task(on_doubt="fail")
    async def hanging_alone() -> None:
        await world.hang()

    async with killed(shared_url) as engine:
        run = await engine.start(calling(hanging_alone.name))
        await until(world.has_begun)
    async with opened(shared_url) as engine:
        with pytest.raises(StepInDoubt):
            await engine.handle(run.run_id).result(60)


# Reconcile


def kinds_of_bodies(world: World) -> dict[str, tuple[Callable[[str], Any], Task[[], Any]]]:
    """Each kind of reconcile function with each kind of task. All act, and hang the first time."""
    release = threading.Event()

    async def find_async(key: str) -> int:
        await asyncio.sleep(0)
        return world.find(key)

    def find_sync(key: str) -> int:
        assert threading.current_thread() is not threading.main_thread()
        return world.find(key)

    async def act_async() -> int:
        world.begun.append(perdure.info().attempt)
        acted = world.act()
        if len(world.begun) == 1:
            await asyncio.sleep(3600)
        return acted

    def act_sync() -> int:
        world.begun.append(perdure.info().attempt)
        acted = world.act()
        if len(world.begun) == 1:
            release.wait(1)
        return acted

    return {
        f"{find.__name__} {act.__name__}": (find, task(on_doubt=find)(act))
        for find in (find_async, find_sync)
        for act in (act_async, act_sync)
    }


KINDS = [
    f"{find} {act}" for find in ("find_async", "find_sync") for act in ("act_async", "act_sync")
]


@pytest.mark.parametrize("kind", KINDS)
async def test_an_effect_that_is_found_is_the_result(
    shared_url: str, kind: str, world: World
) -> None:
    _, made = kinds_of_bodies(world)[kind]
    registry.register(made)
    run = await crash_over(shared_url, made, world.has_begun)
    result, attempts = await resumed(shared_url, run)
    assert result == 100
    assert attempts == [
        "started 1",
        "in doubt: reconcile",
        "started 2",
        "reconciled:root.0",
        "completed 2",
    ]
    assert world.begun == [1]
    assert list(world.effects.values()) == [1]
    assert world.asked == list(world.effects)


@pytest.mark.parametrize("kind", KINDS)
async def test_an_effect_that_is_not_found_is_brought_about_in_the_same_attempt(
    shared_url: str, kind: str, world: World
) -> None:
    _, made = kinds_of_bodies(world)[kind]
    registry.register(made)
    run = await crash_over(shared_url, made, world.has_begun)
    world.effects.clear()
    result, attempts = await resumed(shared_url, run)
    assert result == 1
    assert attempts == [
        "started 1",
        "in doubt: reconcile",
        "started 2",
        "completed 2",
    ]
    assert world.begun == [1, 2]
    assert world.asked == list(world.effects)


def assert_slots_are_free(engine: Engine) -> None:
    assert Probe(engine).free_slots == 1


async def test_a_thread_keeps_its_slot_from_the_question_to_the_end_of_the_task(
    shared_url: str,
    world: World,
) -> None:
    at_once: list[int] = []
    inside: list[int] = []
    may_end = threading.Event()

    def count() -> None:
        inside.append(1)
        at_once.append(len(inside))
        may_end.wait(60)
        threading.Event().wait(0.05)
        inside.pop()

    def find(key: str) -> int:
        count()
        raise NotDone

    @task(on_doubt=find)
    def counted() -> int:
        world.begun.append(1)
        count()
        return 1

    @workflow
    async def several() -> int:
        return sum(await perdure.gather(*(counted() for _ in range(3))))

    async with killed(shared_url) as engine:
        run = await engine.start(several())
        await until(lambda: len(at_once) == 3)
    may_end.set()
    await until(lambda: not inside)
    at_once.clear()
    async with opened(shared_url, Settings(threads=1)) as engine:
        assert await engine.handle(run.run_id).result(60) == 3
    assert set(at_once) == {1}


async def test_the_question_gets_the_arguments_of_the_step(shared_url: str, world: World) -> None:
    asked: list[tuple[Any, ...]] = []

    def find(key: str, order: int, note: str, *, by: str) -> str:
        asked.append((key, order, note, by))
        return f"found {order}"

    @task(on_doubt=find)
    async def hanging_order(order: int, note: str = "none", *, by: str = "me") -> str:
        world.begun.append(order)
        world.act()
        await asyncio.sleep(3600)
        return ""

    @workflow
    async def ordering() -> str:
        return await hanging_order(7, by="you")

    async with killed(shared_url) as engine:
        run = await engine.start(ordering())
        await until(lambda: world.begun == [7])
    async with opened(shared_url) as engine:
        assert await engine.handle(run.run_id).result(60) == "found 7"
    (key,) = world.effects
    assert asked == [(key, 7, "none", "you")]


async def test_a_question_that_fails_is_a_failed_attempt_and_is_asked_again_in_the_next(
    shared_url: str,
    world: World,
) -> None:
    async def find(key: str) -> int:
        found = world.find(key)
        if len(world.asked) == 1:
            raise ConnectionError("nobody answers")
        return found

    @task(on_doubt=find, retry=Retry(attempts=2, first=0))
    async def hanging_once_more() -> int:
        world.act()
        await world.hang()
        return 0

    run = await crash_over(shared_url, hanging_once_more, world.has_begun)
    result, attempts = await resumed(shared_url, run)
    assert result == 100
    assert attempts == [
        "started 1",
        "in doubt: reconcile",
        "started 2",
        "retrying after 2",
        "started 3",
        "reconciled:root.0",
        "completed 3",
    ]
    assert world.begun == [1]
    assert len(set(world.asked)) == 1


async def test_a_question_that_fails_too_often_fails_the_step_with_what_it_raised(
    shared_url: str,
    world: World,
) -> None:
    def find(key: str) -> int:
        raise LookupError(f"no word of {len(key)}")

    @task(on_doubt=find)
    async def hanging_unasked() -> int:
        await world.hang()
        return 0

    run = await crash_over(shared_url, hanging_unasked, world.has_begun)
    async with opened(shared_url) as engine:
        with pytest.raises(LookupError, match="no word of 64"):
            await engine.handle(run.run_id).result(60)


async def test_the_timeout_is_for_the_question_and_the_task_together(
    shared_url: str, world: World
) -> None:
    async def find(key: str) -> int:
        await asyncio.sleep(1.6)
        return world.find(key)

    # Long enough that a busy machine kills the first attempt, and ends the question, before it is over.
    @task(on_doubt=find, timeout=3)
    async def slow_after_the_question() -> int:
        world.begun.append(perdure.info().attempt)
        await asyncio.sleep(1.6 if len(world.begun) > 1 else 3600)
        return 0

    run = await crash_over(shared_url, slow_after_the_question, world.has_begun)
    async with opened(shared_url) as engine:
        with pytest.raises(TimeoutError, match="attempt 2 of task 'slow_after_the_question'"):
            await engine.handle(run.run_id).result(60)
    assert world.begun == [1, 2]


async def test_a_step_that_was_never_in_doubt_is_not_asked_about(
    engine: Engine, world: World
) -> None:
    @task(on_doubt=world.find, retry=Retry(attempts=2, first=0))
    async def second_time_lucky() -> int:
        if perdure.info().attempt == 1:
            raise ConnectionError
        return 7

    run = await engine.start(calling(second_time_lucky.name))
    assert await run.result(60) == 7
    assert world.asked == []


# Queues


async def die_over(
    url: str, owner: Engine, made: Task[[], Any], begun: Callable[[], bool]
) -> Handle[Any]:
    """Start a run whose queued task is begun by an engine that dies."""
    dying = Engine(url, queues=("doubtful",), settings=SHORT_LEASE)
    await dying.open()
    run = await owner.start(catching(made.name))
    await until(begun)
    await Probe(dying).abort()
    return run


async def test_queued_work_that_a_dead_host_had_is_in_doubt(shared_url: str, world: World) -> None:
    @task(queue="doubtful")
    async def first_hangs_there() -> int:
        await world.hang_first()
        return 7

    async with opened(shared_url) as owner:
        run = await die_over(shared_url, owner, first_hangs_there, world.has_begun)
        async with opened(shared_url, SHORT_LEASE, ("doubtful",)):
            assert await run.result(60) == 7
        assert await attempts_of(owner, run) == ["in doubt: retry", "started 1", "completed 1"]
    assert world.begun == [1, 1]


async def test_queued_work_in_doubt_that_is_to_fail_is_not_executed_again(
    shared_url: str,
    world: World,
) -> None:
    @task(queue="doubtful", on_doubt="fail", retry=Retry(attempts=5, first=0))
    async def hangs_there() -> None:
        await world.hang()

    async with opened(shared_url) as owner:
        run = await die_over(shared_url, owner, hangs_there, world.has_begun)
        async with opened(shared_url, SHORT_LEASE, ("doubtful",)):
            assert "root.0 (hangs_there) was under way" in await run.result(60)
        assert await attempts_of(owner, run) == ["in doubt: fail", "started 1", "failed 1"]
    assert world.begun == [1]


async def test_queued_work_in_doubt_is_asked_about_in_every_later_attempt(
    shared_url: str,
    world: World,
) -> None:
    def find(key: str) -> int:
        found = world.find(key)
        if len(world.asked) == 1:
            raise ConnectionError("nobody answers")
        return found

    @task(queue="doubtful", on_doubt=find, retry=Retry(attempts=2, first=0))
    async def acts_there() -> int:
        world.act()
        await world.hang()
        return 0

    async with opened(shared_url) as owner:
        run = await die_over(shared_url, owner, acts_there, world.has_begun)
        async with opened(shared_url, SHORT_LEASE, ("doubtful",)):
            assert await run.result(60) == 100
        assert await attempts_of(owner, run) == [
            "in doubt: reconcile",
            "started 1",
            "retrying after 1",
            "started 2",
            "reconciled:root.0",
            "completed 2",
        ]
    assert world.begun == [1]
    assert world.asked == [*world.effects, *world.effects]


async def test_a_doubt_in_a_queue_neither_gives_nor_takes_a_retry(
    shared_url: str, world: World
) -> None:
    @task(queue="doubtful", retry=Retry(attempts=2, first=0))
    async def unlucky_there() -> None:
        await world.hang_first()
        raise ValueError("bad luck")

    async with opened(shared_url) as owner:
        run = await die_over(shared_url, owner, unlucky_there, world.has_begun)
        async with opened(shared_url, SHORT_LEASE, ("doubtful",)):
            with pytest.raises(ValueError, match="bad luck"):
                await run.result(60)
    assert world.begun == [1, 1, 2]


async def test_a_claim_that_was_given_back_unbegun_is_no_doubt(
    shared_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    @task(queue="doubtful", on_doubt="fail")
    async def not_known_at_first() -> int:
        return 7

    async with opened(shared_url, queues=("doubtful",)) as engine:
        with monkeypatch.context() as patched:
            patched.setattr("perdure.host.tasks.queues.find", lambda *_: None)
            patched.setattr("perdure.host.tasks.queues.UNKNOWN_DELAY_MS", 50)
            run = await engine.start(catching("not_known_at_first"))
            await asyncio.sleep(0.2)
        assert await run.result(60) == 7
        assert await attempts_of(engine, run) == ["started 1", "completed 1"]


async def test_queued_work_that_a_stop_cut_short_is_in_doubt(shared_url: str, world: World) -> None:
    @task(queue="doubtful", on_doubt="fail")
    async def outlasts_the_grace() -> None:
        await world.hang()

    async with opened(shared_url) as owner:
        async with opened(shared_url, Settings(grace=0.05, lease=3600), ("doubtful",)):
            run = await owner.start(catching("outlasts_the_grace"))
            await until(world.has_begun)
        async with opened(shared_url, queues=("doubtful",)):
            assert "was under way" in await run.result(60)


async def test_host_that_claims_its_own_work_again_continues_it(
    shared_url: str, world: World
) -> None:
    release = asyncio.Event()

    @task(queue="doubtful", on_doubt="fail")
    async def waits_there() -> int:
        world.begun.append(1)
        await release.wait()
        return 7

    async with opened(shared_url, SHORT_LEASE, ("doubtful",)) as engine:
        run = await engine.start(catching("waits_there"))
        await until(world.has_begun)
        probe = Probe(engine)
        probe.stop_renewing_leases()
        (first,) = probe.host.worker.held()
        await until(lambda: probe.host.worker.held() != (first,))
        release.set()
        assert await run.result(60) == 7
        assert await attempts_of(engine, run) == ["started 1", "completed 1"]
    assert world.begun == [1]


async def test_queued_work_that_was_in_doubt_too_often_fails(shared_url: str, world: World) -> None:
    @task(queue="doubtful")
    async def always_hangs_there() -> None:
        await world.hang()

    limited = Settings(grace=0, lease=3600, max_doubts=1)
    async with opened(shared_url) as owner:
        run = await owner.start(catching("always_hangs_there"))
        for lives in (1, 2):
            async with killed(shared_url, limited, ("doubtful",)):
                await until(lambda lives=lives: len(world.begun) == lives)  # type: ignore[misc]
        async with opened(shared_url, limited, ("doubtful",)):
            assert "was under way 2 times" in await run.result(60)
        (posted,) = await recorded(owner, run, e.Posted)
        assert posted.label == "in doubt: fail"
        assert await attempts_of(owner, run) == ["in doubt: fail", "started 1", "failed 1"]
        balances = await store_of(owner).balances(run.run_id)
        assert str(balances["step:root.0"]).startswith("31")  # three entries, leg 1 done
    assert world.begun == [1, 1]


# Keys


async def test_the_key_is_the_same_in_retries_doubts_and_claims_and_in_no_other_step(
    shared_url: str,
) -> None:
    keys: list[str] = []

    def find(key: str) -> int:
        keys.append(key)
        raise NotDone

    async def attempt() -> int:
        keys.append(perdure.key())
        if len(keys) == 1:
            await asyncio.sleep(3600)
        if len(keys) == 3:
            raise ConnectionError
        return len(keys)

    twice = Retry(attempts=2, first=0)
    local = task(name="doubt.keyed", on_doubt=find, retry=twice)(attempt)
    queued = task(name="doubt.keyed_there", on_doubt=find, retry=twice, queue="doubtful")(attempt)

    run = await crash_over(shared_url, local, lambda: len(keys) == 1)
    async with opened(shared_url) as engine:
        assert await engine.handle(run.run_id).result(60) == 5
    assert len(keys) == 5
    assert len(set(keys)) == 1
    (here,) = set(keys)

    keys.clear()
    async with opened(shared_url) as owner:
        run = await die_over(shared_url, owner, queued, lambda: len(keys) == 1)
        async with opened(shared_url, SHORT_LEASE, ("doubtful",)):
            assert await run.result(60) == 5
    assert len(keys) == 5
    assert len(set(keys)) == 1
    assert {here} != set(keys)


# The limit


async def test_a_limit_of_no_doubts_fails_the_first(shared_url: str, world: World) -> None:
    @task
    async def hanging_for_ever() -> None:
        await world.hang()

    run = await crash_over(shared_url, hanging_for_ever, world.has_begun)
    async with opened(shared_url, Settings(max_doubts=0)) as engine:
        again = engine.handle(run.run_id)
        assert "was under way once" in await again.result(60)
        await until_recorded(engine, again, e.ExecutionCompleted)
        await assert_sound(engine)


def test_a_limit_that_the_digits_of_a_step_can_not_count_is_refused() -> None:
    assert Settings(max_doubts=MOST_DOUBTS - 1).max_doubts == MOST_DOUBTS - 1
    with pytest.raises(InputError, match=f"max_doubts is {MOST_DOUBTS}"):
        Settings(max_doubts=MOST_DOUBTS)
