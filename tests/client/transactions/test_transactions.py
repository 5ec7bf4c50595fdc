"""Rows of the user's own, and the books of a run: together or not at all."""

import asyncio
from contextlib import suppress
from typing import Any

import pytest

import perdure
from perdure import (
    Engine,
    KeyReused,
    NotCommitted,
    Retry,
    RunStatus,
    Settings,
    Signal,
    StatementFailed,
    Transaction,
    TransactionOver,
    UnknownRun,
    task,
    workflow,
)
from perdure.core.errors import RunExists
from perdure.core.ids import new_run_id
from perdure.core.journal import events as e
from perdure.host.runs.batch import RunStart
from perdure.testing.probe import Probe
from tests.client.engines import (
    assert_sound,
    journal,
    opened,
    recorded,
    store_of,
    until,
    until_recorded,
    until_status,
    until_store,
)

pytestmark = pytest.mark.asyncio

LIMIT_S = 0.3
QUICK = Settings(transaction_timeout=LIMIT_S)

UNKNOWN_RUN = new_run_id(1_700_000_000_000, bytes(10))

go = Signal("go", str)


async def make_table(engine: Engine) -> None:
    async with engine.transaction() as tx:
        await tx.execute("DROP TABLE IF EXISTS bookings")
        await tx.execute("CREATE TABLE bookings (id integer PRIMARY KEY, note text)")


async def bookings(engine: Engine) -> dict[int, str]:
    async with engine.transaction() as tx:
        rows = await tx.fetch("SELECT id, note FROM bookings ORDER BY id")
    return {row["id"]: row["note"] for row in rows}


async def insert(tx: Transaction, number: int, note: str = "") -> None:
    await tx.execute("INSERT INTO bookings (id, note) VALUES ($1, $2)", number, note)


# A transactional task


@task(transactional=True)
async def tx_book(tx: Transaction, number: int, note: str = "") -> int:
    await insert(tx, number, note)
    return number


@workflow
async def tx_chain(first: int, count: int) -> list[int]:
    return [await tx_book(number) for number in range(first, first + count)]


@workflow
async def tx_side_by_side(count: int) -> list[int]:
    return list(await perdure.gather(*(tx_book(number) for number in range(count))))


async def test_each_step_leaves_its_row_with_its_completion(engine: Engine) -> None:
    await make_table(engine)
    run = await engine.start(tx_chain(0, 5))
    assert await run.result() == [0, 1, 2, 3, 4]
    assert list(await bookings(engine)) == [0, 1, 2, 3, 4]
    completed = await recorded(engine, run, e.InvokeCompleted)
    assert [event.ok for event in completed] == [True] * 5
    assert not await recorded(engine, run, e.Posted)


async def test_steps_side_by_side_take_turns(engine: Engine) -> None:
    await make_table(engine)
    runs = await engine.start_many([tx_chain(100 * n, 3) for n in range(1, 9)])
    wide = await engine.start(tx_side_by_side(20))
    assert await wide.result() == list(range(20))
    assert [await run.result() for run in runs] == [
        [100 * n, 100 * n + 1, 100 * n + 2] for n in range(1, 9)
    ]
    assert len(await bookings(engine)) == 20 + 24


async def test_a_completion_costs_one_commit(engine_url: str) -> None:
    """The bundle of the transaction: the completion's consequences are in the same bundle."""
    async with opened(engine_url) as engine:
        await make_table(engine)
        run = await engine.start(tx_chain(0, 3))
        await run.result()
        times = [entry.at_ms for entry in await store_of(engine).entries(run.run_id)]
        kinds = [type(event).__name__ for event in await journal(engine, run)]
        assert times == sorted(times)
        assert kinds[4:9] == [
            "InvokeCompleted",
            "ExecutionResumed",
            "InvokeScheduled",
            "ExecutionAwaiting",
            "InvokeStarted",
        ]


@task(transactional=True)
async def tx_book_and_raise(tx: Transaction, number: int) -> None:
    await insert(tx, number)
    raise ValueError(f"no {number}")


@workflow
async def tx_failing(number: int) -> str:
    try:
        await tx_book_and_raise(number)
    except ValueError as error:
        await tx_book(number + 1)
        return str(error)
    return "not reached"


async def test_a_body_that_raises_leaves_nothing(engine: Engine) -> None:
    await make_table(engine)
    run = await engine.start(tx_failing(1))
    assert await run.result() == "no 1"
    assert list(await bookings(engine)) == [2]
    first, second = await recorded(engine, run, e.InvokeCompleted)
    assert (first.ok, second.ok) == (False, True)


tries: list[int] = []


@task(transactional=True, retry=Retry(attempts=3, first=0.01))
async def tx_book_at_last(tx: Transaction, number: int) -> int:
    await insert(tx, number, f"attempt {perdure.info().attempt}")
    tries.append(perdure.info().attempt)
    if perdure.info().attempt < 3:
        raise ConnectionError("again")
    return number


@workflow
async def tx_retrying() -> int:
    return await tx_book_at_last(7)


async def test_a_retry_leaves_one_row(engine: Engine) -> None:
    await make_table(engine)
    tries.clear()
    run = await engine.start(tx_retrying())
    assert await run.result() == 7
    assert tries == [1, 2, 3]
    assert await bookings(engine) == {7: "attempt 3"}


@task(transactional=True)
async def tx_hang(tx: Transaction, number: int) -> None:
    await insert(tx, number)
    await asyncio.sleep(60)


@task(transactional=True)
async def tx_hang_stubbornly(tx: Transaction, number: int) -> str:
    await insert(tx, number)
    with suppress(asyncio.CancelledError):
        await asyncio.sleep(60)
    return "never mind"


@task(transactional=True, timeout=0.1)
async def tx_hang_within_a_timeout(tx: Transaction, number: int) -> None:
    await insert(tx, number)
    await asyncio.sleep(60)


@workflow
async def tx_hanging(kind: str) -> str:
    try:
        if kind == "stubborn":
            await tx_hang_stubbornly(1)
        elif kind == "short":
            await tx_hang_within_a_timeout(1)
        else:
            await tx_hang(1)
    except TimeoutError as error:
        await tx_book(2)
        return str(error)
    return "not reached"


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("", f"open for more than {LIMIT_S:g} s and was rolled back"),
        ("stubborn", f"open for more than {LIMIT_S:g} s and was rolled back"),
        ("short", "attempt 1 of task 'tx_hang_within_a_timeout' took longer than 0.1 s"),
    ],
)
async def test_a_body_that_hangs_is_stopped_and_leaves_nothing(
    engine_url: str, kind: str, words: str
) -> None:
    async with opened(engine_url, QUICK) as engine:
        await make_table(engine)
        run = await engine.start(tx_hanging(kind))
        assert words in await run.result(60)
        assert list(await bookings(engine)) == [2]


@task(transactional=True)
async def tx_break_a_rule(tx: Transaction, is_hushed: bool) -> str:
    await insert(tx, 1)
    if not is_hushed:
        await insert(tx, 1)
    with suppress(StatementFailed):
        await insert(tx, 1)
    return "hushed"


@workflow
async def tx_breaking_a_rule(is_hushed: bool) -> str:
    return await tx_break_a_rule(is_hushed)


@pytest.mark.parametrize(("is_hushed", "kind"), [(False, StatementFailed), (True, TransactionOver)])
async def test_a_statement_that_fails_fails_the_step_even_if_that_is_hushed_up(
    engine: Engine, is_hushed: bool, kind: type[Exception]
) -> None:
    await make_table(engine)
    run = await engine.start(tx_breaking_a_rule(is_hushed))
    with pytest.raises(kind):
        await run.result()
    assert await bookings(engine) == {}


@task(transactional=True)
async def tx_return_what_has_no_json(tx: Transaction) -> Any:
    await insert(tx, 1)
    return object()


@workflow
async def tx_returning_what_has_no_json() -> Any:
    return await tx_return_what_has_no_json()


async def test_a_result_that_can_not_be_stored_leaves_nothing(engine: Engine) -> None:
    await make_table(engine)
    run = await engine.start(tx_returning_what_has_no_json())
    with pytest.raises(perdure.InputError):
        await run.result()
    assert await bookings(engine) == {}


@task(transactional=True)
async def tx_write_nothing(tx: Transaction) -> str:
    return "nothing"


@workflow
async def tx_child(number: int) -> int:
    return await tx_book(number)


@workflow
async def tx_parent() -> list[int]:
    """What follows from a transactional completion: a child, a publication, a timer, the end."""
    await tx_write_nothing()
    perdure.publish("stage", "booked")
    child = await perdure.start(tx_child(10))
    first = await tx_child(20)
    await perdure.sleep(0.01)
    return [first, await child.result()]


async def test_what_follows_from_a_completion_is_as_usual(engine: Engine) -> None:
    await make_table(engine)
    run = await engine.start(tx_parent())
    assert await run.result() == [20, 10]
    assert await run.published() == {"stage": "booked"}
    assert list(await bookings(engine)) == [10, 20]


@task(transactional=True)
async def tx_publish(tx: Transaction, is_failing: bool) -> None:
    perdure.publish("progress", "half")
    await insert(tx, 1)
    perdure.publish("progress", "whole")
    if is_failing:
        raise ValueError("not published")


@workflow
async def tx_publishing(is_failing: bool) -> None:
    await tx_publish(is_failing)


async def test_what_a_body_publishes_is_as_durable_as_its_rows(engine: Engine) -> None:
    await make_table(engine)
    run = await engine.start(tx_publishing(True))
    with pytest.raises(ValueError, match="not published"):
        await run.result()
    assert await run.published() == {}
    run = await engine.start(tx_publishing(False))
    await run.result()
    assert await run.published() == {"progress": "whole"}


@task(transactional=True)
async def tx_stream(tx: Transaction) -> None:
    await insert(tx, 1)
    perdure.stream("lines").append("a line")


@workflow
async def tx_streaming() -> None:
    await tx_stream()


async def test_a_stream_in_a_body_is_refused(engine: Engine) -> None:
    """Its chunks would be durable before the rows, and without them if the transaction fails."""
    await make_table(engine)
    run = await engine.start(tx_streaming())
    with pytest.raises(perdure.InputError, match="'tx_stream' appends to a stream"):
        await run.result()
    assert await bookings(engine) == {}


entered = 0
gate: asyncio.Event


@task(transactional=True)
async def tx_wait_at_the_gate(tx: Transaction, number: int) -> int:
    global entered  # noqa: PLW0603 - a body can only reach what is global
    await insert(tx, number)
    entered += 1
    await gate.wait()
    return number


@workflow
async def tx_gated(number: int) -> tuple[int, str]:
    booked = await tx_wait_at_the_gate(number)
    return booked, await go.receive()


@workflow
async def tx_plain() -> str:
    return await go.receive()


@pytest.fixture
def closed_gate() -> asyncio.Event:
    global gate, entered
    gate, entered = asyncio.Event(), 0
    return gate


async def test_facts_of_the_run_wait_for_its_transaction(
    engine: Engine, closed_gate: asyncio.Event
) -> None:
    await make_table(engine)
    run = await engine.start(tx_gated(1))
    await until(lambda: entered == 1)
    signalling = asyncio.ensure_future(run.signal(go, "now"))
    await asyncio.sleep(0.05)
    closed_gate.set()
    await signalling
    assert await run.result() == (1, "now")
    assert list(await bookings(engine)) == [1]


@pytest.mark.postgres
async def test_on_postgres_other_runs_do_not_wait(
    emptied_postgres: str, closed_gate: asyncio.Event
) -> None:
    async with opened(emptied_postgres) as engine:
        await make_table(engine)
        gated = await engine.start(tx_gated(0))
        await until(lambda: entered == 1)
        others = await engine.start_many([tx_chain(10 * n, 5) for n in range(1, 5)])
        for other in others:
            await other.result()
        # A hundred and more commits of others, while the one is open.
        assert len(await recorded(engine, gated, e.InvokeCompleted)) == 0
        assert len(await bookings(engine)) == 20
        closed_gate.set()
        await gated.signal(go, "now")
        await gated.result()
        assert len(await bookings(engine)) == 21


async def test_on_sqlite_others_wait_no_longer_than_the_limit(engine_url: str) -> None:
    async with opened(engine_url, QUICK) as engine:
        await make_table(engine)
        hanging = await engine.start(tx_hanging(""))
        await until_recorded(engine, hanging, e.InvokeStarted)
        loop = asyncio.get_running_loop()
        began = loop.time()
        other = await engine.start(tx_plain())
        await other.signal(go, "x")
        assert await other.result() == "x"
        assert loop.time() - began < LIMIT_S + 2
        await hanging.result()


async def test_a_cancel_comes_before_the_transaction_or_after_it(
    engine_url: str, closed_gate: asyncio.Event
) -> None:
    """On Postgres it stops the body; on SQLite nothing is committed before the transaction is over."""
    async with opened(engine_url) as engine:
        await make_table(engine)
        run = await engine.start(tx_gated(1))
        await until(lambda: entered == 1)
        cancelling = asyncio.ensure_future(run.cancel("no longer"))
        if engine_url.startswith("postgres"):
            await cancelling
            await until_status(run, RunStatus.CANCELLED)
        closed_gate.set()
        await cancelling
        await until_status(run, RunStatus.CANCELLED)
        (completed,) = await recorded(engine, run, e.InvokeCompleted)
        assert completed.ok is not engine_url.startswith("postgres")
        assert len(await bookings(engine)) == completed.ok


async def test_an_engine_that_stops_leaves_nothing_half_done(
    shared_url: str, closed_gate: asyncio.Event
) -> None:
    async with opened(shared_url, Settings(grace=0)) as engine:
        await make_table(engine)
        run = await engine.start(tx_gated(1), key="gated")
        await until(lambda: entered == 1)
    closed_gate.set()
    async with opened(shared_url) as engine:
        run = await engine.start(tx_gated(1), key="gated")
        await run.signal(go, "now")
        assert await run.result() == (1, "now")
        assert list(await bookings(engine)) == [1]


async def test_a_run_that_was_lost_leaves_nothing_of_its_transaction(
    shared_url: str, closed_gate: asyncio.Event
) -> None:
    """Another owner takes the run while the task runs: row and completion commit together, or neither does."""
    async with Engine(shared_url) as loser:
        await make_table(loser)
        run = await loser.start(tx_gated(1))
        await until(lambda: entered == 1)
        taking = asyncio.ensure_future(
            store_of(loser).take_over(Probe(loser).host_id, "elsewhere", 10)
        )
        await asyncio.sleep(0.05)
        closed_gate.set()
        await taking
        found = await store_of(loser).run(run.run_id)
        assert found.owner == "elsewhere"
        await asyncio.sleep(0.1)
        completed = await recorded(loser, run, e.InvokeCompleted)
        # On SQLite the takeover waited for the transaction; on Postgres it came first.
        assert len(await bookings(loser)) == len(completed)
        await assert_sound(loser)


# The engine inside a body


@task(transactional=True)
async def tx_book_and_start(tx: Transaction, number: int, is_failing: bool = False) -> str:
    await insert(tx, number)
    started = await inner.start(tx_plain(), key=f"plain-{number}")
    again = await inner.start(tx_plain(), key=f"plain-{number}")
    assert again.run_id == started.run_id
    await started.signal(go, "from inside")
    with pytest.raises(NotCommitted):
        await started.result()
    with pytest.raises(NotCommitted):
        await started.status()
    if is_failing:
        raise ValueError("after all")
    return started.run_id


@workflow
async def tx_starting(number: int, is_failing: bool = False) -> str:
    return await tx_book_and_start(number, is_failing)


inner: Engine


async def test_engine_calls_of_a_task_join_its_transaction(engine: Engine) -> None:
    global inner  # noqa: PLW0603
    inner = engine
    await make_table(engine)
    run = await engine.start(tx_starting(1))
    started = engine.handle(await run.result())
    assert await started.result() == "from inside"
    assert list(await bookings(engine)) == [1]


async def test_what_a_body_asked_of_the_engine_goes_with_its_failure(engine: Engine) -> None:
    global inner  # noqa: PLW0603
    inner = engine
    await make_table(engine)
    run = await engine.start(tx_starting(2, True))
    with pytest.raises(ValueError, match="after all"):
        await run.result()
    assert await bookings(engine) == {}
    assert await store_of(engine).run_by_key("", "tx_plain", "plain-2") is None
    # The key is free, and nothing of that run is in memory.
    fresh = await engine.start(tx_plain(), key="plain-2")
    await fresh.signal(go, "outside")
    assert await fresh.result() == "outside"


# A transaction of the engine's


async def test_a_row_a_run_and_a_signal_appear_together(engine: Engine) -> None:
    await make_table(engine)
    waiting = await engine.start(tx_plain())
    async with engine.transaction() as tx:
        await insert(tx, 1, "beside")
        run = await engine.start(tx_plain(), key="order-1")
        await waiting.signal(go, "beside")
        await run.signal(go, "inside")
        with pytest.raises(NotCommitted):
            await run.result()
        with pytest.raises(NotCommitted):
            await run.status()
        with pytest.raises(NotCommitted):
            _ = [entry async for entry in run.events()]
        with pytest.raises(NotCommitted):
            await waiting.result()
        assert await store_of(engine).run(run.run_id) is None
    assert await run.result() == "inside"
    assert await waiting.result() == "beside"
    assert await bookings(engine) == {1: "beside"}


async def test_nothing_appears_if_the_block_raises(engine: Engine) -> None:
    await make_table(engine)
    waiting = await engine.start(tx_plain())
    handles = []

    async def fail() -> None:
        async with engine.transaction() as tx:
            await insert(tx, 1)
            handles.append(await engine.start(tx_plain(), key="order-1"))
            await waiting.signal(go, "never")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail()
    (handle,) = handles
    for ask in (handle.result, handle.status, handle.published):
        with pytest.raises(NotCommitted, match="rolled back"):
            await ask()
    assert await bookings(engine) == {}
    assert await store_of(engine).messages(waiting.run_id) == []
    run = await engine.start(tx_plain(), key="order-1")
    assert run.run_id != handle.run_id
    for each in (run, waiting):
        await each.signal(go, "x")
        assert await each.result() == "x"


async def test_a_key_that_exists_gives_the_same_run(engine: Engine) -> None:
    before = await engine.start(tx_chain(1, 0), key="k")
    async with engine.transaction():
        inside = await engine.start(tx_chain(1, 0), key="k")
        assert inside.run_id == before.run_id
        new = await engine.start(tx_chain(2, 0), key="new")
        with pytest.raises(KeyReused):
            await engine.start(tx_chain(2, 0), key="k")
        with pytest.raises(KeyReused):
            await engine.start(tx_chain(3, 0), key="new")
    assert await inside.result() == []
    assert await new.result() == []
    after = await engine.start(tx_chain(2, 0), key="new")
    assert after.run_id == new.run_id


async def test_a_key_that_is_wanted_twice_at_once_in_a_transaction_is_one_run(
    engine: Engine,
) -> None:
    before = await engine.start(tx_chain(1, 0), key="there")
    async with engine.transaction():
        many = await engine.start_many([tx_chain(1, 0), tx_chain(1, 0)], keys=["k", "k"])
        both = await asyncio.gather(*(engine.start(tx_chain(1, 0), key="k") for _ in "abc"))
        others = await engine.start_many([tx_chain(1, 0), tx_chain(1, 0)], keys=["k2", "there"])
        mixed = await asyncio.gather(
            *(engine.start(tx_chain(number, 0), key="mixed") for number in (1, 2)),
            return_exceptions=True,
        )
    assert len({run.run_id for run in [*many, *both]}) == 1
    assert others[0].run_id != many[0].run_id
    assert others[1].run_id == before.run_id
    assert [type(each).__name__ for each in mixed] == ["Handle", "KeyReused"]
    for run in [*many, *both, *others]:
        await run.result(timeout=60)
    assert (await engine.audit()).runs == 4


@pytest.mark.postgres
async def test_a_key_that_is_taken_meanwhile_rolls_everything_back(emptied_postgres: str) -> None:
    async with opened(emptied_postgres) as engine:
        await make_table(engine)

        async def collide() -> None:
            async with engine.transaction() as tx:
                await insert(tx, 1)
                await engine.start(tx_plain(), key="k")
                await asyncio.create_task(start_apart(engine))

        with pytest.raises(RunExists):
            await collide()
        assert await bookings(engine) == {}
        run = await engine.start(tx_plain(), key="k")
        await run.signal(go, "x")
        assert await run.result() == "x"


async def start_apart(engine: Engine) -> None:
    """As another host does: outside any transaction."""
    await Probe(engine).host.dispatcher.start(RunStart(tx_plain, b"{}", "k"))


async def test_a_block_that_takes_too_long_is_interrupted(engine_url: str) -> None:
    async with opened(engine_url, QUICK) as engine:
        await make_table(engine)

        async def hang() -> None:
            async with engine.transaction() as tx:
                await insert(tx, 1)
                await engine.start(tx_plain(), key="k")
                await asyncio.sleep(60)

        with pytest.raises(TimeoutError, match="open for more than"):
            await hang()
        assert await bookings(engine) == {}
        assert await store_of(engine).run_by_key("", "tx_plain", "k") is None


async def test_a_run_or_a_signal_that_is_wrong_is_refused_inside_too(engine: Engine) -> None:
    over = await engine.start(tx_chain(1, 0))
    await over.result()
    async with engine.transaction():
        with pytest.raises(perdure.RunClosed):
            await over.signal(go, "late")
        with pytest.raises(UnknownRun):
            await engine.handle(UNKNOWN_RUN).signal(go, "lost")
        with pytest.raises(perdure.InputError):
            await engine.start(tx_plain(), key="")


@workflow
async def tx_chained(number: int) -> str:
    if number:
        await perdure.continue_as_new(tx_chained(number - 1))
    return await go.receive()


async def test_a_signal_to_a_chain_finds_its_end(engine: Engine) -> None:
    await make_table(engine)
    run = await engine.start(tx_chained(2))

    async def is_last() -> bool:
        return len(await run.runs()) == 3

    await until_store(is_last)
    async with engine.transaction() as tx:
        await insert(tx, 1)
        await run.signal(go, "to the last")
    assert await run.result(60) == "to the last"
    assert list(await bookings(engine)) == [1]


async def test_a_cancel_joins_too(engine: Engine) -> None:
    run = await engine.start(tx_plain())
    async with engine.transaction():
        await run.cancel("joined")
    await until_status(run, RunStatus.CANCELLED)


async def test_after_the_block_the_engine_is_as_before(engine: Engine) -> None:
    await make_table(engine)
    release = asyncio.Event()

    async def later() -> str:
        await release.wait()
        run = await engine.start(tx_plain())
        await run.signal(go, "later")
        return await run.result()

    async with engine.transaction() as tx:
        await insert(tx, 1)
        outliving = asyncio.create_task(later())
    release.set()
    assert await outliving == "later"
    with pytest.raises(TransactionOver):
        await insert(tx, 2)


async def test_a_user_has_no_way_to_end_it(engine: Engine) -> None:
    async with engine.transaction() as tx:
        for name in ("commit", "close", "rollback", "prepare"):
            assert not hasattr(tx, name)


async def test_a_transaction_needs_an_open_engine() -> None:
    engine = Engine("sqlite:///:memory:")
    with pytest.raises(perdure.PerdureError, match="not open"):
        async with engine.transaction():
            pass


async def test_sqlite_joins_no_connection() -> None:
    async with opened("sqlite:///:memory:") as engine:
        with pytest.raises(perdure.InputError, match="one writer"):
            async with engine.transaction(connection=object()):
                pass


@pytest.mark.parametrize("limit", [0, -1, "5", float("nan")])
async def test_a_time_limit_is_a_time(limit: Any) -> None:
    with pytest.raises(perdure.InputError, match="transaction_timeout"):
        Settings(transaction_timeout=limit)


# One inside another

nesting: Engine


async def helps_itself() -> None:
    async with nesting.transaction() as tx:
        await insert(tx, 2)


@task(transactional=True)
async def tx_nest(tx: Transaction) -> None:
    await insert(tx, 1)
    await helps_itself()


@workflow
async def tx_nesting() -> str:
    try:
        await tx_nest()
    except perdure.InputError as error:
        return error.remedy
    return "it was let in"


async def test_a_transaction_inside_another_is_refused(engine: Engine) -> None:
    global nesting  # noqa: PLW0603 - a body can only reach what is global
    nesting = engine
    await make_table(engine)
    run = await engine.start(tx_nesting())
    assert "pass its `tx` on" in await run.result()
    assert await bookings(engine) == {}
    async with engine.transaction() as tx:
        await insert(tx, 1)
        with pytest.raises(perdure.InputError, match="inside another one"):
            await helps_itself()
        await insert(tx, 3)
    assert list(await bookings(engine)) == [1, 3]
    release = asyncio.Event()

    async def later() -> None:
        await release.wait()
        await helps_itself()

    async with engine.transaction():
        outliving = asyncio.create_task(later())
    release.set()
    await outliving
    assert list(await bookings(engine)) == [1, 2, 3]


async def test_one_of_another_engine_is_none_inside_another(engine_url: str) -> None:
    async with opened(engine_url) as engine, opened("sqlite:///:memory:") as other:
        await make_table(engine)
        await make_table(other)
        async with engine.transaction() as tx, other.transaction() as tx_of_other:
            await insert(tx, 1)
            await insert(tx_of_other, 2)
        assert list(await bookings(engine)) == [1]
        assert list(await bookings(other)) == [2]


@workflow
async def tx_hanging_alone(number: int) -> str:
    try:
        await tx_hang(number)
    except TimeoutError:
        return "over"
    return "not reached"


async def test_on_sqlite_many_that_hang_hold_others_up_no_longer_than_one(engine_url: str) -> None:
    async with opened(engine_url, QUICK) as engine:
        await make_table(engine)
        hanging = await engine.start_many([tx_hanging_alone(n) for n in range(10)])
        await until_recorded(engine, hanging[0], e.InvokeStarted)
        await asyncio.sleep(LIMIT_S / 2)
        loop = asyncio.get_running_loop()
        for _ in range(3):
            began = loop.time()
            await engine.start(tx_plain())
            assert loop.time() - began < 4 * LIMIT_S
        for run in hanging:
            assert await run.result() == "over"
