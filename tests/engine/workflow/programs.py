"""Small workflows that together use every verb, for explorers and differential runs."""

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import perdure
from perdure import Cancelled, Handle, ProgramCall, Retry, Signal, Workflow, task, workflow
from perdure.testing.workflows import Ended

approval = Signal("approval", int)


@task
async def doubled(n: int) -> int:
    return 2 * n


@task
def halve(n: int) -> int:
    return n // 2


@task(retry=Retry(attempts=3, first=5))
async def third_time_lucky(n: int) -> int:
    attempt = perdure.info().attempt
    if attempt < 3:
        raise ConnectionError(f"attempt {attempt}")
    return n


@task(retry=Retry(attempts=2, first=1))
async def never(n: int) -> int:
    raise LookupError(f"no {n}")


@task(queue="elsewhere")
async def elsewhere(n: int) -> int:
    return n + 100


@task(queue="elsewhere", retry=Retry(attempts=2, first=3))
async def elsewhere_at_last(n: int) -> int:
    if perdure.info().attempt == 1:
        raise ConnectionError("not yet")
    return n + 200


@workflow
async def chained(n: int) -> int:
    for _ in range(3):
        n = await doubled(n)
    return n


@workflow
async def retries(n: int) -> str:
    try:
        await never(n)
    except LookupError as error:
        return f"{await third_time_lucky(n)} {error}"
    return "never"


@task
async def echoed(text: str) -> str:
    return text


@workflow
async def values() -> bool:
    said = f"{perdure.random().random()} {perdure.uuid4()} {perdure.now()}"
    heard = await echoed(said)
    later = f"{perdure.random().random()} {perdure.now()}"
    return (said, later) == (heard, await echoed(later))


@workflow
async def sleeper(n: int) -> int:
    await perdure.sleep(60)
    n = await doubled(n)
    await perdure.sleep(3600)
    return n


@workflow
async def asks_twice() -> int:
    total = await approval.receive()
    total += await doubled(1)
    return total + await approval.receive()


@workflow
async def impatient() -> str:
    got = await approval.receive(timeout=60)
    try:
        await approval.receive(timeout=60)
    except TimeoutError:
        return f"{got} and no more"
    return "more"


@workflow
async def gathers(n: int) -> list[int]:
    async def branch(k: int) -> int:
        await perdure.sleep(k)
        return await doubled(k)

    a, b = await perdure.gather(doubled(n), halve(n))
    c, d, e = await perdure.gather(branch(2), doubled(b), branch(1))
    return [a, b, c, d, e]


@workflow
async def races(n: int) -> list[int]:
    cleaned = []

    async def loser() -> int:
        try:
            await perdure.sleep(1000)
        finally:
            cleaned.append(await doubled(7))
        return 0

    async def winner() -> int:
        await perdure.sleep(1)
        return await doubled(n)

    return [await perdure.first(loser(), winner()), *cleaned]


@workflow
async def joins(n: int) -> list[int]:
    members: perdure.JoinSet[int] = perdure.join_set()
    for k in range(n):
        members.submit(doubled(k))
    return sorted([result async for result in members])


@workflow
async def parent(n: int) -> list[int]:
    handle = await perdure.start(chained(n))
    awaited = await chained(n + 1)
    try:
        await failing_child(n)
    except LookupError:
        awaited += 1000
    return [awaited, await handle.result()]


@workflow
async def failing_child(n: int) -> None:
    await never(n)


@workflow
async def tidies_up() -> list[int]:
    done = []
    try:
        await perdure.gather(perdure.sleep(3600), approval.receive(), chain_that_waits())
    except Cancelled:
        done.append(await doubled(21))
        raise
    finally:
        done.append(await doubled(4))
        perdure.publish("done", done)
    return done


@workflow
async def chain_that_waits() -> None:
    await approval.receive()


@workflow
async def queued(n: int) -> list[int]:
    return [*await perdure.gather(elsewhere(n), elsewhere(n + 1)), await elsewhere_at_last(n)]


@workflow
async def patched_throughout() -> list[int]:
    async def branch(k: int) -> int:
        await perdure.sleep(k)
        return await doubled(k) if perdure.patched("branches") else -1

    seen = []
    for k in range(2):
        perdure.publish("k", k)
        seen.append(await doubled(k) if perdure.patched("loop") else -1)
    return [*seen, *await perdure.gather(branch(2), branch(1)), perdure.patched("end")]


@task
async def doubled_anew(n: int) -> int:
    return n + n


def before_the_patch() -> Workflow[[], list[int]]:
    @workflow(name="patch_arrives")
    async def program() -> list[int]:
        first = await doubled(1)
        return [first, await approval.receive(), await doubled(2), await doubled(3)]

    return program


def with_the_patch() -> Workflow[[], list[int]]:
    """Ends as it did before, and must have one opinion throughout."""

    @workflow(name="patch_arrives")
    async def program() -> list[int]:
        opinions = set()

        async def step(n: int) -> int:
            is_anew = perdure.patched("anew")
            opinions.add(is_anew)
            return await (doubled_anew(n) if is_anew else doubled(n))

        seen = [await step(1), await approval.receive(), await step(2), await step(3)]
        return seen if len(opinions) == 1 else []

    return program


@task(retry=Retry(attempts=2, first=1))
async def recites(n: int) -> None:
    tokens = perdure.stream("tokens")
    tokens.append(f"{n} begins")
    await tokens.flush()
    if perdure.info().attempt == 1:
        raise ConnectionError("not yet")
    tokens.append(f"{n} goes on")
    tokens.append(f"{n} ends")


@task
def recites_in_a_thread(n: int) -> None:
    perdure.stream("tokens").append(n)
    perdure.stream("numbers").append(n)


@task(queue="elsewhere")
async def recites_elsewhere(n: int) -> None:
    perdure.stream("tokens").append(f"{n} elsewhere")
    await perdure.stream("tokens").flush()
    perdure.stream("numbers").append(n)


@workflow
async def streaming(n: int) -> int:
    tokens = perdure.stream("tokens")
    tokens.append("begin")
    await recites(n)
    tokens.append("between")
    await perdure.gather(recites_in_a_thread(1), recites_elsewhere(2))
    tokens.append("end")
    return n


STREAMED = {
    "tokens": {
        "root": [b'"begin"', b'"between"', b'"end"'],
        "root.0": [b'"5 begins"', b'"5 goes on"', b'"5 ends"'],
        "root.1": [b"1"],
        "root.2": [b'"2 elsewhere"'],
    },
    "numbers": {"root.1": [b"1"], "root.2": [b"2"]},
}


async def no_script(_: Handle[Any]) -> None:
    """No client sends anything."""


async def approve_twice(run: Handle[Any]) -> None:
    await run.signal(approval, 10)
    await run.signal(approval, 1)


async def approve_once(run: Handle[Any]) -> None:
    await run.signal(approval, 10)


async def cancel(run: Handle[Any]) -> None:
    await run.cancel("enough")


async def patch_and_approve(run: Handle[Any]) -> None:
    with_the_patch()
    await run.signal(approval, 10)


class Program(NamedTuple):
    """A call to make, what happens to the run, and how it ends: its status, its result as JSON, its streams."""

    call: Callable[[], ProgramCall[Any]]
    status: str
    result: str | None
    script: Callable[[Handle[Any]], Awaitable[None]] = no_script
    streams: dict[str, dict[str, list[bytes]]] = {}  # noqa: RUF012 - never changed

    def check(self, ended: Ended) -> None:
        """It must end like this, with or without faults."""
        assert ended.status.value == self.status
        if self.result is not None:
            assert (ended.payload or b"").decode() == self.result
        assert ended.streams == self.streams


PROGRAMS: dict[str, Program] = {
    "chain": Program(lambda: chained(5), "completed", "40"),
    "retries": Program(lambda: retries(5), "completed", '"5 no 5"'),
    "values": Program(values, "completed", "true"),
    "sleeper": Program(lambda: sleeper(5), "completed", "10"),
    "asks_twice": Program(asks_twice, "completed", "13", approve_twice),
    "impatient": Program(impatient, "completed", '"10 and no more"', approve_once),
    "gathers": Program(lambda: gathers(8), "completed", "[16,4,4,8,2]"),
    "races": Program(lambda: races(8), "completed", "[16,14]"),
    "joins": Program(lambda: joins(3), "completed", "[0,2,4]"),
    "parent": Program(lambda: parent(1), "completed", "[1016,8]"),
    "tidies_up": Program(tidies_up, "cancelled", None, cancel),
    "patched": Program(patched_throughout, "completed", "[0,2,4,2,true]"),
    "patch_arrives": Program(before_the_patch(), "completed", "[2,10,4,6]", patch_and_approve),
    "queued": Program(lambda: queued(1), "completed", "[101,102,201]"),
    "streaming": Program(lambda: streaming(5), "completed", "5", streams=STREAMED),
}
