"""How many tasks run at once, and which queues an engine serves."""

import asyncio
import threading
from collections.abc import Sequence
from unittest.mock import Mock

import pytest

import perdure
from perdure import Settings, task, workflow
from perdure.core.ids import RunId, StepId
from perdure.engine.runs.warm import WarmRun
from perdure.host.runs import outcomes
from perdure.host.tasks import slots
from perdure.host.tasks.slots import want
from perdure.testing.probe import Probe
from tests.client.engines import opened, until

LOCK = threading.Lock()


class Meter:
    """The number of running tasks, now and at most."""

    def __init__(self) -> None:
        self.running = self.most = 0
        self.kinds: list[str] = []

    def begin(self, kind: str) -> None:
        with LOCK:
            self.kinds.append(kind)
            self.running += 1
            self.most = max(self.most, self.running)

    def end(self) -> None:
        with LOCK:
            self.running -= 1


@pytest.mark.parametrize("queue", [None, "limited"])
async def test_concurrency_limits_async_and_sync_tasks_together(
    engine_url: str, queue: str | None
) -> None:
    meter, release = Meter(), threading.Event()

    @task(queue=queue)
    def in_thread() -> None:
        meter.begin("sync")
        release.wait(60)
        meter.end()

    @task(queue=queue)
    async def in_loop() -> None:
        meter.begin("async")
        while not release.is_set():  # noqa: ASYNC110 - a thread sets it
            await asyncio.sleep(0.005)
        meter.end()

    @workflow
    async def many() -> None:
        await perdure.gather(*(each() for _ in range(6) for each in (in_thread, in_loop)))

    queues = () if queue is None else (queue,)
    async with opened(engine_url, Settings(concurrency=3), queues) as engine:
        run = await engine.start(many())
        await until(lambda: meter.running == 3)
        await asyncio.sleep(0.1)
        release.set()
        await run.result(60)
    assert meter.most == 3
    assert sorted(meter.kinds) == ["async"] * 6 + ["sync"] * 6


async def test_steps_of_both_kinds_get_slots_in_the_order_in_which_they_wait(
    engine_url: str,
) -> None:
    order: list[int] = []

    @task
    def in_thread(number: int) -> None:
        order.append(number)

    @task
    async def in_loop(number: int) -> None:
        order.append(number)

    @workflow
    async def many() -> None:
        await perdure.gather(*((in_loop, in_thread)[n // 2 % 2](n) for n in range(12)))

    async with opened(engine_url, Settings(concurrency=1)) as engine:
        await (await engine.start(many())).result(60)
    assert order == list(range(12))


@pytest.mark.parametrize(
    ("slice_ms", "order"),
    [(10**9, "a bbb aa"), (0, "a b a b a b")],
    ids=["within the slice", "after it"],
)
async def test_a_run_that_has_waited_for_a_slot_keeps_it_for_its_next_steps(
    engine_url: str, slice_ms: int, order: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slots, "TIME_SLICE_MS", slice_ms)
    began: list[str] = []

    @task
    async def note(name: str) -> None:
        began.append(name)

    @workflow
    async def three(name: str) -> None:
        for _ in range(3):
            await note(name)

    async with opened(engine_url, Settings(concurrency=1)) as engine:
        runs = await engine.start_many([three("a"), three("b")])
        store = Probe(engine).store
        submitted = Mock(wraps=store.submit)
        monkeypatch.setattr(store, "submit", submitted)
        await asyncio.gather(*(run.result(60) for run in runs))
        assert began == list(order.replace(" ", ""))
        # A step commits its outcome with what follows; one that has waited for its slot began in a commit of its own.
        assert submitted.call_count == len(began) + order.count(" ")
        await until(lambda: Probe(engine).free_slots == 1)
        assert (await engine.audit()).is_clean


async def test_a_slot_that_a_run_keeps_and_does_not_need_goes_to_a_step_that_waits(
    engine_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slots, "TIME_SLICE_MS", 10**9)

    @task
    async def fails() -> None:
        raise ValueError("as asked")

    @task
    async def works() -> None: ...

    @workflow
    async def waits_then_fails() -> None:
        await works()
        await fails()

    @workflow
    async def waits_then_sleeps() -> None:
        await works()
        await perdure.sleep(0.001)
        await works()

    async with opened(engine_url, Settings(concurrency=1)) as engine:
        calls = (waits_then_fails, waits_then_sleeps) * 5
        runs = await engine.start_many([call() for call in calls])
        ended = await asyncio.gather(*(run.result(60) for run in runs), return_exceptions=True)
        assert [type(result) for result in ended] == [ValueError, type(None)] * 5
        await until(lambda: Probe(engine).free_slots == 1)
        assert (await engine.audit()).is_clean


async def test_a_slot_that_a_step_does_not_use_goes_to_the_next_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    started, release = asyncio.Event(), asyncio.Event()
    unwanted: list[RunId] = []

    def want_all_but_the_first(steps: Sequence[StepId], run: WarmRun) -> None:
        """As if the first step that gets a slot had been cancelled just then."""
        if unwanted:
            want(steps, run)
        else:
            unwanted.append(run.run_id)

    @task
    async def held() -> None:
        started.set()
        await release.wait()

    @workflow
    async def one_step() -> None:
        await held()

    monkeypatch.setattr(outcomes, "want", want_all_but_the_first)
    async with opened("sqlite:///:memory:", Settings(concurrency=1)) as engine:
        first = await engine.start(one_step())
        await started.wait()
        second, third = await engine.start(one_step()), await engine.start(one_step())
        release.set()
        await first.result(60)
        await third.result(60)
        assert unwanted == [second.run_id]
        assert (await engine.audit()).is_clean


async def test_a_queue_that_no_task_names_is_warned_about(caplog: pytest.LogCaptureFixture) -> None:
    @task(queue="invoices")
    async def invoice() -> None: ...

    async with opened("sqlite:///:memory:", queues=("invoices", "invioces")):
        pass
    (warning,) = [r.getMessage() for r in caplog.records if "names queue" in r.getMessage()]
    assert "'invioces'" in warning
    assert "did you mean 'invoices'?" in warning
