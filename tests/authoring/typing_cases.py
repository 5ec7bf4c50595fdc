"""Users' code for a type checker. Read by test_typing, never run.

`assert_type` is a correct use; `type: ignore[...]` marks a wrong one, with the code that it must be reported under.
"""

from datetime import timedelta
from typing import Any, assert_type

import perdure
from perdure import (
    Abandoned,
    Ask,
    Call,
    ChildRun,
    Chunk,
    Engine,
    GraphBuilder,
    GraphProgram,
    Handle,
    JoinSet,
    ProgramCall,
    Request,
    Retry,
    Signal,
    Stream,
    SyncEngine,
    SyncHandle,
    Task,
    Transaction,
    Workflow,
    graph,
    load_graph,
    task,
    workflow,
)

approval = Signal("approval", bool)
change = Request("change", str, int)


@task
async def charge(order: int, note: str = "") -> str:
    return f"{order} {note}"


@task
def weigh(parcel: str, /) -> float:
    return float(len(parcel))


@task(name="sending", retry=Retry(attempts=3, on=(OSError, ValueError)), timeout=2)
async def send(*, to: str) -> bytes:
    return to.encode()


@task(timeout=timedelta(seconds=2), heartbeat_timeout=1.5, queue="slow", priority=1, kind="http")
def count(*words: str) -> int:
    return len(words)


@task
def forget(order: int) -> None: ...


@task(transactional=True, retry=Retry(attempts=3), timeout=2)
async def record(tx: Transaction, order: int, note: str = "") -> str:
    await tx.execute("INSERT INTO orders VALUES ($1, $2)", order, note)
    return note


@task(transactional=False, on_doubt="fail")
async def unlink(order: int) -> None: ...


@workflow
async def checkout(order: int) -> str:
    return await charge(order)


@workflow(name="shipping", version="2", lint="warn")
async def ship(order: int) -> list[str]:
    return [await charge(order)]


async def definitions_keep_parameters_and_results() -> None:
    _ = assert_type(charge(1), Call[str])
    _ = assert_type(weigh("a"), Call[float])
    _ = assert_type(send(to="a"), Call[bytes])
    _ = assert_type(count("a", "b"), Call[int])
    _ = assert_type(forget(1), Call[None])
    _ = assert_type(checkout(1), ProgramCall[str])
    _ = assert_type(ship(1), ProgramCall[list[str]])
    assert_type(await charge(1, note="a"), str)
    assert_type(await weigh("a"), float)
    assert_type(await send(to="a"), bytes)
    assert_type(await count(), int)
    assert_type(await ship(order=1), list[str])


def definitions_are_classes_that_can_be_named() -> None:
    by_name: list[Task[[int], None]] = [forget]
    flow: Workflow[[int], str] = checkout
    _ = assert_type(by_name[0](1), Call[None])
    _ = assert_type(flow(1), ProgramCall[str])


async def wrong_calls() -> None:
    charge("1")  # type: ignore[arg-type, unused-awaitable]
    charge()  # type: ignore[call-arg, unused-awaitable]
    charge(1, 2)  # type: ignore[arg-type, unused-awaitable]
    charge(1, nte="a")  # type: ignore[call-arg, unused-awaitable]
    weigh(parcel="a")  # type: ignore[call-arg, unused-awaitable]
    send("a")  # type: ignore[call-arg, unused-awaitable]
    count(1)  # type: ignore[arg-type, unused-awaitable]
    checkout("1")  # type: ignore[arg-type, unused-awaitable]
    ship()  # type: ignore[call-arg, unused-awaitable]


async def transactional_tasks_are_called_without_their_transaction(tx: Transaction) -> None:
    _ = assert_type(record(1), Call[str])
    _ = assert_type(record(order=1, note="a"), Call[str])
    _ = assert_type(unlink(1), Call[None])
    assert_type(await record(1), str)
    await record.fn(tx, 1)
    record(tx, 1)  # type: ignore[arg-type, unused-awaitable]
    record("1")  # type: ignore[arg-type, unused-awaitable]
    record()  # type: ignore[call-arg, unused-awaitable]


async def rows_are_dicts(tx: Transaction) -> None:
    assert_type(await tx.execute("DELETE FROM orders"), int)
    assert_type(await tx.fetch("SELECT 1"), list[dict[str, Any]])
    assert_type(await tx.fetch_one("SELECT 1"), dict[str, Any] | None)


def wrong_transactional_tasks() -> None:
    @task(transactional=True)  # type: ignore[arg-type]
    def not_async(tx: Transaction, order: int) -> None: ...

    @task(transactional=True)  # type: ignore[arg-type]
    async def without_transaction(order: int) -> None: ...

    task(transactional=True, queue="slow")  # type: ignore[call-overload]
    task(transactional=1)  # type: ignore[call-overload]


async def forgotten_awaits() -> None:
    charge(1)  # type: ignore[unused-awaitable]
    checkout(1)  # type: ignore[unused-awaitable]
    perdure.sleep(1)  # type: ignore[unused-awaitable]
    perdure.gather(charge(1))  # type: ignore[unused-coroutine]
    approval.receive()  # type: ignore[unused-awaitable]


async def results_of_another_type() -> int:
    number: int = await charge(1)  # type: ignore[assignment]
    weight: str = await weigh("a")  # type: ignore[assignment]
    del number, weight
    return await checkout(1)  # type: ignore[return-value]


def wrong_options() -> None:
    task(retries=3)  # type: ignore[call-overload]
    task(retry=3)  # type: ignore[call-overload]
    task(timeout="1")  # type: ignore[call-overload]
    task(kind="grpc")  # type: ignore[call-overload]
    workflow(lint="loud")  # type: ignore[call-overload]
    workflow(retry=Retry())  # type: ignore[call-overload]
    Retry(on=KeyboardInterrupt)  # type: ignore[arg-type]
    Retry(tries=3)  # type: ignore[call-arg]


def find_text(key: str) -> str:
    return key


async def find_charge(key: str, order: int, note: str = "") -> str:
    return f"{key} {order} {note}"


def find_by_number(key: int) -> str:
    return str(key)


@task(on_doubt="fail", timeout=2)
async def charge_once(order: int) -> str:
    return str(order)


@task(on_doubt=find_charge, retry=Retry(attempts=2))
async def charge_surely(order: int, note: str = "") -> str:
    return f"{order} {note}"


@task(on_doubt=find_charge)
def charge_in_a_thread(order: int, note: str = "") -> str:
    return f"{order} {note}"


@task(name="found", on_doubt=find_text)
async def charge_by_text(order: int) -> str:
    return str(order)


async def doubts_have_the_type_of_the_task() -> None:
    assert_type(await charge_once(1), str)
    assert_type(await charge_surely(1, note="a"), str)
    assert_type(await charge_in_a_thread(1), str)
    assert_type(await charge_by_text(1), str)
    charge_surely("1")  # type: ignore[arg-type, unused-awaitable]


async def count_later(order: int) -> int:
    return order


def count_now(order: int) -> int:
    return order


def wrong_doubts() -> None:
    task(on_doubt="give up")  # type: ignore[call-overload]
    task(on_doubt=find_by_number)  # type: ignore[arg-type]
    task(on_doubt=find_text, retries=3)  # type: ignore[call-overload]
    task(on_doubt=find_text)(count_later)  # type: ignore[arg-type]
    task(on_doubt=find_text)(count_now)  # type: ignore[arg-type]
    task(on_doubt=find_charge)(count_later)  # type: ignore[arg-type]


def workflows_are_async() -> None:
    workflow(len)  # type: ignore[arg-type]


async def gathered() -> None:
    assert_type(await perdure.gather(charge(1)), tuple[str])
    assert_type(await perdure.gather(charge(1), weigh("a")), tuple[str, float])
    assert_type(await perdure.gather(charge(1), weigh("a"), send(to="a")), tuple[str, float, bytes])
    assert_type(
        await perdure.gather(charge(1), weigh("a"), send(to="a"), count()),
        tuple[str, float, bytes, int],
    )
    assert_type(
        await perdure.gather(charge(1), weigh("a"), send(to="a"), count(), ship(1)),
        tuple[str, float, bytes, int, list[str]],
    )
    assert_type(await perdure.gather(*[weigh("a"), weigh("b")]), tuple[float, ...])
    assert_type(await perdure.gather(*(checkout(n) for n in range(9))), tuple[str, ...])
    assert_type(await perdure.gather(perdure.sleep(1), approval.receive()), tuple[None, bool])
    one, two = await perdure.gather(charge(1), weigh("a"))
    assert_type(one, str)
    assert_type(two, float)


async def gathered_with_exceptions() -> None:
    assert_type(
        await perdure.gather(charge(1), weigh("a"), return_exceptions=True),
        tuple[str | Exception, float | Exception],
    )
    assert_type(
        await perdure.gather(charge(1), weigh("a"), send(to="a"), return_exceptions=True),
        tuple[str | Exception, float | Exception, bytes | Exception],
    )
    assert_type(
        await perdure.gather(*[weigh("a")], return_exceptions=True), tuple[float | Exception, ...]
    )


async def gathered_branches() -> None:
    async def branch(number: int) -> list[int]:
        await perdure.sleep(number)
        return [number]

    assert_type(await perdure.gather(branch(1), charge(1)), tuple[list[int], str])
    assert_type(await perdure.gather(perdure.first(branch(1)), charge(1)), tuple[list[int], str])


async def gathered_things_that_are_not_awaitable() -> None:
    await perdure.gather(1, charge(1))  # type: ignore[call-overload]
    await perdure.gather(charge, weigh)  # type: ignore[call-overload]


async def raced() -> None:
    assert_type(await perdure.first(charge(1), charge(2)), str)
    assert_type(await perdure.first(charge(1), weigh("a")), str | float)
    assert_type(await perdure.first(charge(1), weigh("a"), send(to="a")), str | float | bytes)
    assert_type(await perdure.first(charge(1), perdure.sleep(1)), str | None)
    assert_type(await perdure.first(*[weigh("a"), weigh("b")]), float)


async def joined() -> None:
    weights = JoinSet[float]()
    weights.submit(weigh("a"))
    weights.submit(charge(1))  # type: ignore[arg-type]
    assert_type(await weights.next(), float)
    async for weight in weights:
        assert_type(weight, float)


async def signalled(handle: Handle[str]) -> None:
    assert_type(approval, Signal[bool])
    assert_type(await approval.receive(), bool)
    assert_type(await approval.receive(timeout=timedelta(days=1)), bool)
    assert_type(await Signal("lines", list[int]).receive(), list[int])
    await handle.signal(approval, True)
    await handle.signal(approval, "yes")  # type: ignore[misc]
    await handle.signal("approval", True)  # type: ignore[arg-type]


async def started_by_an_engine(engine: Engine) -> None:
    handle = await engine.start(checkout(7), key="o-7")
    assert_type(handle, Handle[str])
    assert_type(await handle.result(timeout=1), str)
    assert_type(await (await engine.start(ship(7))).result(), list[str])
    assert_type(await engine.start_many([ship(1), ship(2)]), list[Handle[list[str]]])
    number: int = await handle.result()  # type: ignore[assignment]
    del number
    await engine.start(checkout)  # type: ignore[arg-type]
    await engine.start(checkout(7), kee="o-7")  # type: ignore[call-arg]


def started_without_async(engine: SyncEngine) -> None:
    handle = engine.start(checkout(7))
    assert_type(handle, SyncHandle[str])
    assert_type(handle.result(), str)
    assert_type(engine.start_many([ship(1)])[0].result(), list[str])
    handle.signal(approval, False)
    handle.signal(approval, 1.5)  # type: ignore[misc]
    assert_type(perdure.run(checkout(7), store="sqlite:///orders.db"), str)
    perdure.run(checkout(7), stor="sqlite:///orders.db")  # type: ignore[call-arg]


async def started_by_a_workflow() -> None:
    child = await perdure.start(ship(7))
    assert_type(child, ChildRun[list[str]])
    assert_type(await child.result(), list[str])
    child.signal(approval, True)
    child.signal(approval, "yes")  # type: ignore[misc]


async def tasks_cant_be_started(engine: Engine, sync: SyncEngine) -> None:
    await engine.start(charge(1))  # type: ignore[arg-type]
    await engine.start_many([charge(1)])  # type: ignore[arg-type]
    sync.start(charge(1))  # type: ignore[arg-type]
    sync.start_many(charge(n) for n in range(9))  # type: ignore[arg-type]
    perdure.run(charge(1))  # type: ignore[arg-type]
    await perdure.start(charge(1))  # type: ignore[arg-type]
    await perdure.continue_as_new(charge(1))  # type: ignore[arg-type]


async def continuing_ends_a_function_of_any_result(left: int) -> int:  # noqa: RET503 - it never ends
    if left > 3:
        return await perdure.continue_as_new(checkout(left))
    if left > 2:
        await perdure.continue_as_new(checkout(left))
        left += 1  # type: ignore[unreachable]
    await perdure.continue_as_new(checkout(left - 1))


async def continuing_ends_a_function_without_result(left: int) -> None:
    return await perdure.continue_as_new(checkout(left))


async def calls_of_both_kinds_go_together(is_late: bool) -> None:
    calls = [charge(1), checkout(1)]
    _ = assert_type(calls[0], Call[str])
    assert_type(await perdure.gather(*calls), tuple[str, ...])
    assert_type(await perdure.gather(charge(1), ship(1)), tuple[str, list[str]])
    assert_type(await perdure.first(charge(1), checkout(1)), str)
    assert_type(await (checkout(1) if is_late else charge(1)), str)


async def wrong_only_when_it_runs() -> None:
    twice = charge(1)
    await twice
    await twice


async def streams(handle: Handle[str], is_patient: bool) -> None:
    tokens = assert_type(perdure.stream("tokens"), Stream)
    tokens.append("any value")
    assert_type(await tokens.flush(), None)
    async for item in handle.stream("tokens", of=str):
        assert_type(item, Chunk[str] | Abandoned)
        if isinstance(item, Chunk):
            assert_type(item.value, str)
        else:
            assert_type(list(item.offsets), list[int])
    async for chunk in handle.stream("tokens", of=list[int], start=3, completed_only=True):
        assert_type(chunk, Chunk[list[int]])
        assert_type(chunk.value, list[int])
    async for plain in handle.stream("tokens", completed_only=True):
        assert_type(plain, Chunk[Any])
    async for union in handle.stream("tokens", of=str | None, completed_only=True):
        assert_type(union, Chunk[Any])
    async for either in handle.stream("tokens", of=str, completed_only=is_patient):
        assert_type(either, Chunk[str] | Abandoned)
    perdure.stream(1)  # type: ignore[arg-type]
    tokens.flush()  # type: ignore[unused-coroutine]
    handle.stream("tokens", str)  # type: ignore[call-overload]
    handle.stream("tokens", start="3")  # type: ignore[call-overload]


def sync_streams(handle: SyncHandle[str], is_patient: bool) -> None:
    for item in handle.stream("tokens", of=str):
        assert_type(item, Chunk[str] | Abandoned)
    for chunk in handle.stream("tokens", of=int, completed_only=True):
        assert_type(chunk.value, int)
    for union in handle.stream("tokens", of=str | None, completed_only=is_patient):
        assert_type(union, Chunk[Any] | Abandoned)
    for plain in handle.stream("tokens"):
        assert_type(plain, Chunk[Any] | Abandoned)


async def graphs(engine: Engine) -> None:
    order = assert_type(GraphProgram(load_graph("order.yaml")), GraphProgram[..., Any])
    counted = GraphProgram[..., int](GraphBuilder("counted").build())
    assert_type(await (await engine.start(counted(number=7))).result(), int)
    assert_type(await (await engine.start(order(number=7))).result(), Any)

    @graph
    async def doubled(number: int) -> int:
        return number * 2

    assert_type(await (await engine.start(doubled(7))).result(), int)
    await engine.start(doubled("7"))  # type: ignore[arg-type]
    GraphProgram("order.yaml")  # type: ignore[arg-type]


@workflow
async def answers() -> None:
    ask = await change.receive(timeout=5, ask="How many?", who="stock")
    assert_type(ask, Ask[str, int])
    assert_type(ask.value, str)
    await ask.reply(5)
    await ask.reply("five")  # type: ignore[arg-type]
    await ask.reject("none left")
    assert_type(
        await perdure.gather(change.receive(), approval.receive()), tuple[Ask[str, int], bool]
    )


async def asks(run: Handle[None], blocking: SyncHandle[None]) -> None:
    assert_type(await run.ask(change, "how many", id="1", timeout=5), int)
    await run.ask(change, 5)  # type: ignore[misc]
    await run.ask(approval, True)  # type: ignore[arg-type]
    assert_type(blocking.ask(change, "how many", timeout=timedelta(seconds=5)), int)
