"""Programs in ordinary asyncio. Each gives the same result on asyncio's own loop and as a workflow.

`nap(n)` takes n seconds and returns n: a sleep on asyncio's loop, a durable timer and a step in a workflow.
"""

import asyncio
import contextvars
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing, suppress
from typing import Any

Nap = Callable[[int], Awaitable[int]]
Corpus = Callable[[Nap], Awaitable[Any]]

CORPUS: dict[str, Corpus] = {}


def corpus(program: Corpus) -> Corpus:
    CORPUS[getattr(program, "__name__", "")] = program
    return program


async def napping(nap: Nap, n: int, log: list[Any]) -> int:
    """Naps, and notes how it ends."""
    try:
        await nap(n)
    except asyncio.CancelledError:
        log.append(f"{n} cancelled")
        raise
    log.append(n)
    return n


async def failing(nap: Nap, n: int) -> int:
    await nap(n)
    raise LookupError(f"no {n}")


@corpus
async def gather_keeps_the_order_given(nap: Nap) -> Any:
    log: list[Any] = []
    got = await asyncio.gather(napping(nap, 3, log), napping(nap, 1, log), napping(nap, 2, log))
    return [got, log]


@corpus
async def gather_of_nothing(nap: Nap) -> Any:
    return [await asyncio.gather(), await nap(1)]


@corpus
async def gather_raises_the_first_failure_and_the_others_continue(nap: Nap) -> Any:
    log: list[Any] = []
    try:
        await asyncio.gather(napping(nap, 3, log), failing(nap, 1))
    except LookupError as error:
        log.append(str(error))
    await nap(5)
    return log


@corpus
async def gather_returns_exceptions(nap: Nap) -> Any:
    got = await asyncio.gather(failing(nap, 2), nap(1), return_exceptions=True)
    return [repr(each) for each in got]


@corpus
async def gather_of_gathers(nap: Nap) -> Any:
    return await asyncio.gather(asyncio.gather(nap(2), nap(1)), asyncio.gather(nap(3)))


@corpus
async def gather_of_the_same_task_twice(nap: Nap) -> Any:
    log: list[Any] = []
    once = asyncio.create_task(napping(nap, 1, log))
    return [await asyncio.gather(once, once), log]


@corpus
async def cancelled_gather_cancels_its_children(nap: Nap) -> Any:
    log: list[Any] = []
    both = asyncio.gather(napping(nap, 4, log), napping(nap, 5, log))
    await nap(1)
    both.cancel()
    with suppress(asyncio.CancelledError):
        await both
    return log


@corpus
async def wait_for_the_first_completed(nap: Nap) -> Any:
    tasks = [asyncio.create_task(napping(nap, n, []), name=f"nap {n}") for n in (3, 1, 2)]
    done, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in pending:
        task.cancel()
    ended = await asyncio.gather(*pending, return_exceptions=True)
    return [[t.get_name() for t in done], sorted(t.get_name() for t in pending), len(ended)]


@corpus
async def wait_for_the_first_exception(nap: Nap) -> Any:
    tasks = [asyncio.create_task(failing(nap, 2)), asyncio.create_task(napping(nap, 9, []))]
    done, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
    for task in pending:
        task.cancel()
    return [repr(t.exception()) for t in done] + [len(pending)]


@corpus
async def wait_with_a_timeout(nap: Nap) -> Any:
    tasks = [asyncio.create_task(napping(nap, n, [])) for n in (1, 7)]
    done, pending = await asyncio.wait(tasks, timeout=3)
    return [len(done), len(pending), await tasks[1]]


@corpus
async def wait_for_in_time(nap: Nap) -> Any:
    return await asyncio.wait_for(napping(nap, 1, []), timeout=5)


@corpus
async def wait_for_too_late(nap: Nap) -> Any:
    log: list[Any] = []
    try:
        await asyncio.wait_for(napping(nap, 5, log), timeout=2)
    except TimeoutError:
        log.append("late")
    return log


@corpus
async def wait_for_a_shielded_task(nap: Nap) -> Any:
    log: list[Any] = []
    task = asyncio.create_task(napping(nap, 4, log))
    try:
        await asyncio.wait_for(asyncio.shield(task), timeout=1)
    except TimeoutError:
        log.append("late")
    return [await task, log]


@corpus
async def as_completed_in_the_order_of_ends(nap: Nap) -> Any:
    log: list[Any] = []
    coroutines = [napping(nap, n, log) for n in (3, 1, 2)]
    return [[await each for each in asyncio.as_completed(coroutines)], log]


@corpus
async def as_completed_of_tasks(nap: Nap) -> Any:
    tasks = [asyncio.create_task(napping(nap, n, [])) for n in (2, 3, 1)]
    return [await each for each in asyncio.as_completed(tasks)]


@corpus
async def as_completed_too_late(nap: Nap) -> Any:
    log: list[Any] = []
    try:
        for each in asyncio.as_completed([napping(nap, n, log) for n in (1, 9)], timeout=4):
            await each
    except TimeoutError:
        log.append("late")
    return log


@corpus
async def tasks_run_when_the_body_waits(nap: Nap) -> Any:
    log: list[Any] = []

    async def speaks(name: str) -> None:
        for n in range(3):
            log.append(f"{name} {n}")
            await asyncio.sleep(0)

    tasks = [asyncio.create_task(speaks("a")), asyncio.create_task(speaks("b"))]
    log.append("body")
    await nap(1)
    await asyncio.gather(*tasks)
    return log


@corpus
async def callbacks_in_the_order_of_call_soon(nap: Nap) -> Any:
    log: list[Any] = []
    loop = asyncio.get_running_loop()
    loop.call_soon(log.append, 1)
    cancelled = loop.call_soon(log.append, 2)
    loop.call_later(0, log.append, 3)
    loop.call_soon(log.append, 4)
    cancelled.cancel()
    await asyncio.sleep(0)
    log.append("slept")
    await nap(1)
    return log


@corpus
async def call_later_and_call_at(nap: Nap) -> Any:
    log: list[Any] = []
    loop = asyncio.get_running_loop()
    loop.call_later(3, log.append, "third")
    loop.call_at(loop.time() + 1, log.append, "first")
    forgotten = loop.call_later(2, log.append, "second")
    forgotten.cancel()
    await nap(5)
    return [log, forgotten.cancelled()]


@corpus
async def done_callbacks_get_the_task(nap: Nap) -> Any:
    log: list[Any] = []
    task = asyncio.create_task(napping(nap, 1, log))
    task.add_done_callback(lambda done: log.append(f"done {done.result()}"))
    await task
    await asyncio.sleep(0)
    return log


@corpus
async def task_group_waits_for_all(nap: Nap) -> Any:
    log: list[Any] = []
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(napping(nap, n, log)) for n in (2, 1)]
    return [[task.result() for task in tasks], log]


@corpus
async def task_group_cancels_the_others_after_a_failure(nap: Nap) -> Any:
    log: list[Any] = []
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(failing(nap, 2))
            group.create_task(napping(nap, 5, log))
            group.create_task(napping(nap, 1, log))
    except* LookupError as errors:
        log.append([str(each) for each in errors.exceptions])
    return log


@corpus
async def task_group_whose_body_fails(nap: Nap) -> Any:
    log: list[Any] = []
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(napping(nap, 5, log))
            await nap(1)
            raise KeyError("body")
    except ExceptionGroup as errors:
        log.append([repr(each) for each in errors.exceptions])
    return log


@corpus
async def task_group_in_a_task_group(nap: Nap) -> Any:
    log: list[Any] = []

    async def inner() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(napping(nap, 2, log))
            group.create_task(failing(nap, 1))

    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(inner())
            group.create_task(napping(nap, 3, log))
    except ExceptionGroup as errors:
        log.append([type(each).__name__ for each in errors.exceptions])
    return log


@corpus
async def timeout_in_time(nap: Nap) -> Any:
    async with asyncio.timeout(5) as limit:
        got = await nap(1)
    return [got, limit.expired()]


@corpus
async def timeout_too_late(nap: Nap) -> Any:
    log: list[Any] = []
    try:
        async with asyncio.timeout(2):
            await napping(nap, 5, log)
    except TimeoutError:
        log.append("late")
    return [log, await nap(1)]


@corpus
async def the_inner_timeout_counts_alone(nap: Nap) -> Any:
    log: list[Any] = []
    async with asyncio.timeout(9):
        try:
            async with asyncio.timeout(1):
                await napping(nap, 3, log)
        except TimeoutError:
            log.append("inner")
        log.append(await nap(2))
    return log


@corpus
async def the_outer_timeout_ends_the_inner(nap: Nap) -> Any:
    log: list[Any] = []
    try:
        async with asyncio.timeout(1):
            try:
                async with asyncio.timeout(5):
                    await nap(9)
            except TimeoutError:
                log.append("inner")
    except TimeoutError:
        log.append("outer")
    return log


@corpus
async def timeout_is_rescheduled(nap: Nap) -> Any:
    log: list[Any] = []
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(2) as limit:
            log.append(await nap(1))
            limit.reschedule(loop.time() + 3)
            log.append(await nap(2))
            await nap(9)
    except TimeoutError:
        log.append("late")
    return log


@corpus
async def timeout_around_a_gather(nap: Nap) -> Any:
    log: list[Any] = []
    try:
        async with asyncio.timeout(2):
            await asyncio.gather(napping(nap, 1, log), napping(nap, 5, log), napping(nap, 6, log))
    except TimeoutError:
        log.append("late")
    return log


@corpus
async def shield_outlives_its_cancellation(nap: Nap) -> Any:
    log: list[Any] = []
    inner = asyncio.create_task(napping(nap, 3, log))

    async def waits() -> None:
        await asyncio.shield(inner)

    outer = asyncio.create_task(waits())
    await nap(1)
    outer.cancel()
    got = await asyncio.gather(outer, return_exceptions=True)
    return [type(got[0]).__name__, await inner, log]


@corpus
async def event_wakes_all(nap: Nap) -> Any:
    log: list[Any] = []
    event = asyncio.Event()

    async def waits(name: str) -> None:
        await event.wait()
        log.append(name)

    tasks = [asyncio.create_task(waits(name)) for name in "abc"]
    await nap(1)
    log.append("set")
    event.set()
    await asyncio.gather(*tasks)
    return log


@corpus
async def lock_is_fair(nap: Nap) -> Any:
    log: list[Any] = []
    lock = asyncio.Lock()

    async def works(n: int) -> None:
        async with lock:
            log.append(f"{n} in")
            await nap(n)
            log.append(f"{n} out")

    await asyncio.gather(works(3), works(1), works(2))
    return [log, lock.locked()]


@corpus
async def cancelled_waiter_leaves_the_lock_alone(nap: Nap) -> Any:
    log: list[Any] = []
    lock = asyncio.Lock()

    async def works(n: int) -> None:
        async with lock:
            await nap(n)
            log.append(n)

    tasks = [asyncio.create_task(works(n)) for n in (2, 3, 4)]
    await nap(1)
    tasks[1].cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return [log, [task.cancelled() for task in tasks]]


@corpus
async def semaphore_bounds_what_runs(nap: Nap) -> Any:
    semaphore = asyncio.Semaphore(2)
    running, most = 0, 0

    async def works(n: int) -> int:
        nonlocal running, most
        async with semaphore:
            running += 1
            most = max(most, running)
            await nap(n)
            running -= 1
        return n

    return [await asyncio.gather(*[works(n) for n in (2, 1, 4, 3)]), most]


@corpus
async def condition_notifies_in_order(nap: Nap) -> Any:
    log: list[Any] = []
    condition = asyncio.Condition()

    async def waits(name: str) -> None:
        async with condition:
            await condition.wait()
            log.append(name)

    tasks = [asyncio.create_task(waits(name)) for name in "abc"]
    await nap(1)
    async with condition:
        condition.notify(2)
    await nap(1)
    log.append("rest")
    async with condition:
        condition.notify_all()
    await asyncio.gather(*tasks)
    return log


@corpus
async def queue_of_two_workers(nap: Nap) -> Any:
    log: list[Any] = []
    queue: asyncio.Queue[int] = asyncio.Queue(maxsize=2)

    async def works(name: str, share: int) -> None:
        while True:
            n = await queue.get()
            await nap(n * 10 + share)
            log.append(f"{name} {n}")
            queue.task_done()

    workers = [asyncio.create_task(works("a", 0)), asyncio.create_task(works("b", 1))]
    for n in (1, 2, 3, 4, 5):
        await queue.put(n)
    await queue.join()
    for worker in workers:
        worker.cancel()
    ended = await asyncio.gather(*workers, return_exceptions=True)
    return [log, [type(each).__name__ for each in ended]]


@corpus
async def priority_queue_and_its_limits(nap: Nap) -> Any:
    queue: asyncio.PriorityQueue[int] = asyncio.PriorityQueue(maxsize=2)
    queue.put_nowait(2)
    queue.put_nowait(1)
    log: list[Any] = []
    try:
        queue.put_nowait(3)
    except asyncio.QueueFull:
        log.append("full")
    await nap(1)
    log += [await queue.get(), await queue.get()]
    try:
        queue.get_nowait()
    except asyncio.QueueEmpty:
        log.append("empty")
    return log


@corpus
async def future_is_set_by_a_task(nap: Nap) -> Any:
    future: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def sets() -> None:
        future.set_result(await nap(2))

    task = asyncio.create_task(sets())
    got = await future
    await task
    return [got, future.done()]


@corpus
async def future_fails(nap: Nap) -> Any:
    future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_later(2, future.set_exception, LookupError("no"))
    try:
        await future
    except LookupError as error:
        return [str(error), await nap(1)]
    return "no error"


@corpus
async def cancelled_task_may_clean_up(nap: Nap) -> Any:
    log: list[Any] = []

    async def cleans() -> None:
        try:
            await nap(9)
        finally:
            log.append(await nap(2))

    task = asyncio.create_task(cleans())
    await nap(1)
    log.append([task.cancel("enough"), task.cancelling()])
    try:
        await task
    except asyncio.CancelledError as error:
        log.append(list(error.args))
    return [log, task.cancelled()]


@corpus
async def cancelled_task_may_refuse(nap: Nap) -> Any:
    async def stays() -> str:
        try:
            await nap(9)
        except asyncio.CancelledError:
            current = asyncio.current_task()
            assert current is not None
            return f"stays {current.uncancel()} {await nap(1)}"
        return "slept"

    task = asyncio.create_task(stays())
    await nap(1)
    task.cancel()
    return [await task, task.cancelled()]


@corpus
async def task_cancelled_before_it_begins(nap: Nap) -> Any:
    log: list[Any] = []
    task = asyncio.create_task(napping(nap, 1, log))
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    return [log, task.cancelled(), await nap(1)]


@corpus
async def body_cancels_itself(nap: Nap) -> Any:
    current = asyncio.current_task()
    assert current is not None
    log: list[Any] = [current.cancel(), current.cancelling()]
    try:
        await nap(3)
    except asyncio.CancelledError:
        log.append([current.uncancel(), await nap(1)])
    return log


@corpus
async def body_is_cancelled_by_a_task(nap: Nap) -> Any:
    current = asyncio.current_task()
    assert current is not None
    log: list[Any] = []

    async def cancels(body: "asyncio.Task[Any]") -> None:
        await nap(1)
        body.cancel("from a task")

    task = asyncio.create_task(cancels(current))
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError as error:
        log.append([list(error.args), current.uncancel()])
    await task
    return log


@corpus
async def tasks_that_remain_are_cancelled_at_the_end(nap: Nap) -> Any:
    log: list[Any] = []
    remaining.clear()
    remaining.append(asyncio.create_task(napping(nap, 9, log)))
    await nap(1)
    return log


remaining: list[Any] = []
"""Keeps the task from being collected."""


@corpus
async def exception_of_a_task_is_kept(nap: Nap) -> Any:
    task = asyncio.create_task(failing(nap, 1))
    await nap(3)
    return [task.done(), repr(task.exception())]


@corpus
async def async_generator_over_naps(nap: Nap) -> Any:
    log: list[Any] = []

    async def naps() -> AsyncGenerator[int, None]:
        try:
            for n in (1, 2, 3):
                yield await nap(n)
        finally:
            log.append(await nap(1))

    async with aclosing(naps()) as each:
        async for n in each:
            log.append(n)
            if n == 2:
                break
    return log


@corpus
async def context_variables_of_tasks(nap: Nap) -> Any:
    log: list[Any] = []
    colour.set("red")

    async def paints(new: str) -> None:
        log.append(colour.get())
        colour.set(new)
        await nap(len(new))
        log.append(colour.get())

    await asyncio.gather(paints("blue"), paints("green"))
    return [log, colour.get()]


colour: contextvars.ContextVar[str] = contextvars.ContextVar("colour")


@corpus
async def current_task_and_names(nap: Nap) -> Any:
    async def names() -> str:
        await nap(1)
        current = asyncio.current_task()
        assert current is not None
        return current.get_name()

    others = {task.get_name() for task in asyncio.all_tasks() if task is not asyncio.current_task()}
    task = asyncio.create_task(names(), name="mine")
    return [sorted(others), await task]


@corpus
async def pipeline_of_queues(nap: Nap) -> Any:
    first: asyncio.Queue[int | None] = asyncio.Queue()
    second: asyncio.Queue[int | None] = asyncio.Queue()

    async def doubles() -> None:
        while (n := await first.get()) is not None:
            await second.put(2 * await nap(n))
        await second.put(None)

    async def collects() -> list[int]:
        found = []
        while (n := await second.get()) is not None:
            found.append(n)
        return found

    async with asyncio.TaskGroup() as group:
        group.create_task(doubles())
        collected = group.create_task(collects())
        for n in (1, 2, 3):
            first.put_nowait(n)
        first.put_nowait(None)
    return collected.result()


@corpus
async def retry_under_a_timeout(nap: Nap) -> Any:
    log: list[Any] = []
    for limit in (1, 2, 4):
        try:
            async with asyncio.timeout(limit):
                log.append(await napping(nap, 3, log))
                break
        except TimeoutError:
            log.append(f"after {limit}")
    return log
