"""Errors of programs that misuse the engine: each says what is wrong and what to do next."""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import pytest

import perdure
from perdure import (
    Engine,
    Handle,
    InputError,
    KeyReused,
    Retry,
    RunClosed,
    RunFailed,
    Settings,
    Signal,
    SyncEngine,
    UnknownRun,
    task,
    workflow,
)
from perdure.core.errors import (
    CallReused,
    DepthExceeded,
    EngineClosed,
    ForeignAwait,
    InvalidId,
    InvalidUrl,
    JoinSetClosed,
    NeverAwaited,
    NotEncodable,
    OutsideRun,
    PayloadTooLarge,
    PerdureError,
    StoreClosed,
    TurnTooLong,
)
from perdure.core.limits import MAX_DEPTH, MAX_KEY_LENGTH, MAX_PAYLOAD_BYTES

MEMORY = "sqlite:///:memory:"
UNKNOWN = "r_" + "0" * 32
TOO_LONG = "x" * MAX_PAYLOAD_BYTES

word = Signal("word", str)
forgotten = Signal("forgotten", int)


class Opaque:
    """Has no JSON form."""


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def url(request: pytest.FixtureRequest) -> str:
    if request.param == "sqlite":
        return MEMORY
    found: str = request.getfixturevalue("emptied_postgres")
    return found


@asynccontextmanager
async def clean_engine(url: str) -> AsyncIterator[Engine]:
    """An engine whose books must be clean at the end."""
    async with Engine(url) as opened:
        yield opened
        assert (await opened.audit()).is_clean
        assert (await opened.verify()).is_clean


@pytest.fixture
async def engine(url: str) -> AsyncIterator[Engine]:
    async with clean_engine(url) as opened:
        yield opened


@pytest.fixture
async def memory() -> AsyncIterator[Engine]:
    """An in-memory engine, for calls that are refused before they reach a store."""
    async with clean_engine(MEMORY) as opened:
        yield opened


@task
async def bill(order: int) -> str:
    return f"paid {order}"


@task
async def stretch(text: str, times: int = 1) -> str:
    return text * times


@workflow
async def hears() -> str:
    return await word.receive()


@workflow
async def pays(order: int) -> str:
    return await bill(order)


async def refusal_of(
    engine: Engine, call: perdure.ProgramCall[Any], kind: type[PerdureError]
) -> PerdureError:
    """The error that failed the run of `call`: of that kind, and with a remedy."""
    run = await engine.start(call)
    with pytest.raises(kind) as caught:
        await run.result(timeout=60)
    assert await run.status() == "failed"
    assert caught.value.remedy
    return caught.value


# What a workflow may not await


@pytest.mark.parametrize(
    ("wrong", "what", "remedy"),
    [
        (lambda: asyncio.to_thread(print), "loop.run_in_executor", "@task that is a plain `def`"),
        (lambda: asyncio.open_connection("127.0.0.1", 1), "loop.create_connection", "in a @task"),
        (lambda: asyncio.create_subprocess_exec("true"), "loop.subprocess_exec", "in a @task"),
    ],
)
async def test_asyncio_that_reaches_outside_is_refused_with_its_line(
    engine: Engine, wrong: Callable[[], Awaitable[Any]], what: str, remedy: str
) -> None:
    @workflow(lint="off")
    async def reaches_out() -> None:
        await wrong()

    refusal = await refusal_of(engine, reaches_out(), ForeignAwait)
    assert f"workflow 'reaches_out' calls {what}" in refusal.what
    assert "test_wrong_use.py" in refusal.what
    assert remedy in refusal.remedy


async def test_asyncio_run_in_a_workflow_is_refused(engine: Engine) -> None:
    async def nothing() -> None: ...

    @workflow(lint="off")
    async def runs() -> None:
        inner = nothing()
        try:
            asyncio.run(inner)
        finally:
            inner.close()

    refusal = await refusal_of(engine, runs(), ForeignAwait)
    assert "cannot be called from a running event loop" in refusal.what
    assert "await the coroutine" in refusal.remedy


async def test_a_wait_that_nothing_can_end_is_refused_with_its_line(engine: Engine) -> None:
    @workflow
    async def waits_for_ever() -> None:
        await asyncio.Event().wait()

    refusal = await refusal_of(engine, waits_for_ever(), ForeignAwait)
    assert "waits for what nothing in it will set" in refusal.what
    assert "test_wrong_use.py" in refusal.what
    assert "await a Signal" in refusal.remedy


async def test_coroutines_that_resume_each_other_for_ever_are_refused(memory: Engine) -> None:
    @workflow
    async def spins() -> None:
        while True:  # noqa: ASYNC110 - that is the mistake
            await asyncio.sleep(0)

    refusal = await refusal_of(memory, spins(), TurnTooLong)
    assert "never waited" in refusal.what


async def test_io_in_a_workflow_suggests_tasks_and_cancels_its_future(
    engine: Engine,
) -> None:
    response = asyncio.get_running_loop().create_future()

    class Client:
        async def get(self) -> object:
            return await response

    @workflow
    async def fetches() -> None:
        await Client().get()

    refusal = await refusal_of(engine, fetches(), ForeignAwait)
    assert "do I/O such as HTTP in a @task" in refusal.remedy
    assert response.cancelled()


async def test_workflow_may_continue_after_a_refusal(engine: Engine) -> None:
    @workflow(lint="off")
    async def learns() -> str:
        try:
            await asyncio.to_thread(print)
        except ForeignAwait:
            return await bill(1)
        return "awaited"

    run = await engine.start(learns())
    assert await run.result(timeout=60) == "paid 1"


async def test_library_may_keep_state_for_the_current_task(engine: Engine) -> None:
    """As anyio and httpx do."""

    @workflow(lint="off")
    async def asks() -> str:
        states: WeakKeyDictionary[Any, str] = WeakKeyDictionary()
        states[asyncio.current_task()] = await bill(1)
        return states[asyncio.current_task()]

    assert await (await engine.start(asks())).result(timeout=60) == "paid 1"


async def test_a_runtime_error_of_the_program_is_its_own(engine: Engine) -> None:
    @workflow
    async def stumbles() -> None:
        raise RuntimeError("mine")

    run = await engine.start(stumbles())
    with pytest.raises(RuntimeError, match="mine"):
        await run.result(60)


async def test_tasks_of_a_workflow_are_not_on_the_hosts_loop(engine: Engine) -> None:
    before = asyncio.all_tasks()

    @workflow(lint="off")
    async def gathers() -> list[str]:
        async def branch() -> str:
            return await bill(3)

        return list(await asyncio.gather(bill(1), branch()))

    run = await engine.start(gathers())
    assert await run.result(timeout=60) == ["paid 1", "paid 3"]
    assert not {each for each in asyncio.all_tasks() - before if "branch" in repr(each)}


async def test_a_workflow_that_raises_asyncios_cancelled_error_fails(engine: Engine) -> None:
    @workflow
    async def gives_up() -> None:
        raise asyncio.CancelledError("no reason")

    with pytest.raises(RunFailed, match="CancelledError: no reason"):
        await (await engine.start(gives_up())).result(timeout=60)


@pytest.mark.parametrize("verb", [perdure.gather, perdure.first])
async def test_a_verb_that_is_given_a_future_of_another_loop_refuses_it(
    memory: Engine, verb: Any
) -> None:
    response: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    @workflow(lint="off")
    async def mixes() -> None:
        await verb(response, perdure.sleep(0.01))

    refusal = await refusal_of(memory, mixes(), ForeignAwait)
    assert "awaits something that is not durable: <Future" in refusal.what


# Calls


async def test_a_call_that_is_never_awaited_fails_the_run(engine: Engine) -> None:
    @workflow
    async def forgets() -> str:
        bill(1)  # type: ignore[unused-awaitable]
        return "done"

    refusal = await refusal_of(engine, forgets(), NeverAwaited)
    assert refusal.what == "workflow 'forgets' called bill and never awaited it"
    assert refusal.remedy == "write `await bill(...)`"


@pytest.mark.parametrize(
    ("forget", "called"),
    [
        (lambda: perdure.sleep(3600), "perdure.sleep"),
        (forgotten.receive, "Signal('forgotten', int).receive"),
        (lambda: forgotten.receive(timeout=1), "Signal('forgotten', int).receive"),
    ],
)
async def test_a_verb_that_is_never_awaited_fails_the_run(
    engine: Engine, forget: Callable[[], object], called: str
) -> None:
    @workflow
    async def forgets_a_verb() -> str:
        forget()
        await bill(1)
        return "done"

    refusal = await refusal_of(engine, forgets_a_verb(), NeverAwaited)
    assert refusal.what == f"workflow 'forgets_a_verb' called {called} and never awaited it"
    assert refusal.remedy == f"write `await {called}(...)`"


async def test_a_cancel_of_a_child_that_is_never_awaited_fails_the_run(engine: Engine) -> None:
    @workflow
    async def forgets_to_cancel() -> str:
        child = await perdure.start(pays(1))
        child.cancel()  # type: ignore[unused-awaitable]
        return "done"

    refusal = await refusal_of(engine, forgets_to_cancel(), NeverAwaited)
    assert refusal.remedy == "write `await ChildRun.cancel(...)`"


async def test_a_verb_that_was_used_or_refused_or_never_had_its_turn_is_not_forgotten(
    memory: Engine,
) -> None:
    foreign: Any = object()

    @workflow
    async def uses_its_verbs() -> str:
        twice = perdure.sleep(0)
        await twice
        await twice
        await perdure.gather(perdure.sleep(0), perdure.first(bill(1), forgotten.receive()))
        with suppress(TimeoutError):
            await forgotten.receive(timeout=0)
        with suppress(ForeignAwait):
            await perdure.gather(perdure.sleep(1), forgotten.receive(timeout=1), foreign)
        submitted = perdure.join_set()
        submitted.submit(bill(1))
        await submitted.next()
        with suppress(JoinSetClosed):
            submitted.submit(perdure.sleep(1))
        abandoned = perdure.join_set()
        abandoned.submit(perdure.sleep(1))
        abandoned.submit(forgotten.receive(timeout=1))
        return "done"

    assert await (await memory.start(uses_its_verbs())).result(60) == "done"


async def test_a_call_that_is_awaited_twice_in_a_workflow_is_refused(engine: Engine) -> None:
    @workflow
    async def repeats() -> str:
        once = bill(1)
        await once
        return await once

    refusal = await refusal_of(engine, repeats(), CallReused)
    assert refusal.remedy == "call bill(...) again for a second step"


async def test_a_call_that_was_handed_to_a_gather_that_refused_is_not_forgotten(
    engine: Engine,
) -> None:
    @workflow
    async def recovers() -> str:
        try:
            await perdure.gather(stretch(TOO_LONG), bill(1))
        except PayloadTooLarge:
            return "recovered"
        return "gathered"

    run = await engine.start(recovers())
    assert await run.result(timeout=60) == "recovered"


async def test_branches_that_a_refused_gather_had_not_begun_are_closed(engine: Engine) -> None:
    @workflow
    async def recovers() -> str:
        async def branch() -> str:
            return await bill(1)

        try:
            await perdure.gather(branch(), stretch(TOO_LONG), branch())
        except PayloadTooLarge:
            return "recovered"
        return "gathered"

    run = await engine.start(recovers())
    assert await run.result(timeout=60) == "recovered"


# Values


async def test_a_tasks_result_that_cant_be_stored_is_the_tasks_failure(engine: Engine) -> None:
    @task
    async def makes() -> Any:
        return Opaque()

    @workflow
    async def uses() -> Any:
        return await makes()

    refusal = await refusal_of(engine, uses(), NotEncodable)
    assert "'Opaque' can't be stored" in refusal.what
    assert "JSON-like values" in refusal.remedy
    assert any("task 'makes' (step root.0) failed" in note for note in refusal.__notes__)


async def test_a_workflows_result_that_cant_be_stored_is_its_failure(engine: Engine) -> None:
    @workflow
    async def makes() -> Any:
        return Opaque()

    refusal = await refusal_of(engine, makes(), NotEncodable)
    assert "'Opaque' can't be stored" in refusal.what


async def test_a_tasks_arguments_that_cant_be_stored_are_refused_where_it_is_awaited(
    engine: Engine,
) -> None:
    @task
    async def takes(thing: Any) -> None: ...

    @workflow
    async def passes() -> None:
        await takes(Opaque())

    refusal = await refusal_of(engine, passes(), NotEncodable)
    assert "Opaque" in refusal.what
    assert "JSON-like values" in refusal.remedy


async def test_a_workflows_arguments_that_cant_be_stored_are_refused_before_it_starts(
    memory: Engine,
) -> None:
    @workflow
    async def takes(thing: Any) -> None: ...

    with pytest.raises(NotEncodable, match=r"Opaque.*JSON-like values"):
        await memory.start(takes(Opaque()))
    assert (await memory.audit()).runs == 0


async def test_a_branch_may_return_what_cant_be_stored(engine: Engine) -> None:
    @workflow
    async def branches() -> bool:
        async def branch() -> Opaque:
            await bill(1)
            return Opaque()

        (found,) = await perdure.gather(branch())
        return isinstance(found, Opaque)

    assert await (await engine.start(branches())).result(timeout=60)


async def test_a_payload_over_the_limit_is_refused_as_a_workflows_argument(memory: Engine) -> None:
    @workflow
    async def takes(text: str) -> None: ...

    with pytest.raises(PayloadTooLarge, match="2,097,152: store it elsewhere and pass a refer"):
        await memory.start(takes(TOO_LONG))


async def test_a_payload_over_the_limit_is_refused_as_a_tasks_argument(engine: Engine) -> None:
    @workflow
    async def passes() -> str:
        return await stretch(TOO_LONG)

    refusal = await refusal_of(engine, passes(), PayloadTooLarge)
    assert refusal.what.startswith("an argument of task 'stretch' (step root.0 of run 'r_")
    assert "over the limit of 2,097,152" in refusal.what
    assert refusal.remedy == "store it elsewhere and pass a reference"


async def test_argument_over_the_limit_in_a_branch_names_the_step_of_the_branch(
    memory: Engine,
) -> None:
    async def branch() -> str:
        await stretch("x")
        return await stretch(TOO_LONG)

    @workflow
    async def branches() -> None:
        await perdure.gather(stretch("x"), branch())

    refusal = await refusal_of(memory, branches(), PayloadTooLarge)
    assert "(step root.1.1 of run 'r_" in refusal.what


@pytest.mark.parametrize(
    ("what", "named"),
    [
        ("publish", "value 'text' published by task 'tells' (step root.0 of run 'r_"),
        ("append", "a chunk of stream 'text' appended by task 'tells' (step root.0 of run 'r_"),
    ],
)
async def test_task_output_over_the_limit_names_its_step(
    memory: Engine, what: str, named: str
) -> None:
    @task
    async def tells() -> None:
        if what == "publish":
            perdure.publish("text", TOO_LONG)
        else:
            perdure.stream("text").append(TOO_LONG)

    @workflow
    async def asks() -> None:
        await tells()

    refusal = await refusal_of(memory, asks(), PayloadTooLarge)
    assert refusal.what.startswith(named)


async def test_graph_argument_over_the_limit_names_its_step(memory: Engine) -> None:
    @task
    async def takes_two(one: str, two: str) -> None: ...

    builder = perdure.GraphBuilder("wide", input={"text": str})
    builder.edge(
        builder.worker("taken", task=takes_two, input={"one": "text", "two": "text"}),
        builder.output("done", "1"),
    )
    call = perdure.GraphProgram(builder.build())(text="x" * (MAX_PAYLOAD_BYTES // 2))
    run = await memory.start(call)
    with pytest.raises(RunFailed, match=r"an argument of task 'takes_two' \(step taken,0,0 of run"):
        await run.result(timeout=60)


async def test_a_payload_over_the_limit_is_refused_as_a_tasks_result(engine: Engine) -> None:
    @workflow
    async def passes() -> int:
        return len(await stretch("x", MAX_PAYLOAD_BYTES))

    refusal = await refusal_of(engine, passes(), PayloadTooLarge)
    assert any("task 'stretch' (step root.0) failed" in note for note in refusal.__notes__)


async def test_task_result_over_the_limit_is_not_retried_and_names_its_step(engine: Engine) -> None:
    attempts: list[int] = []

    @task(retry=Retry(attempts=5, first=0.01))
    async def large() -> str:
        attempts.append(perdure.info().attempt)
        return "x" * MAX_PAYLOAD_BYTES

    @workflow
    async def makes_large() -> str:
        return await large()

    refusal = await refusal_of(engine, makes_large(), PayloadTooLarge)
    assert attempts == [1]
    assert refusal.what.startswith("the result of task 'large' (step root.0 of run 'r_")
    assert "payload of 2,097,154 bytes is over the limit of 2,097,152" in refusal.what


async def test_a_join_set_can_not_be_awaited(engine: Engine) -> None:
    @workflow
    async def awaits_a_set() -> None:
        await perdure.join_set()

    refusal = await refusal_of(engine, awaits_a_set(), InputError)
    assert refusal.what == "join set root.0 is awaited"


async def test_a_payload_over_the_limit_is_refused_as_a_workflows_result(engine: Engine) -> None:
    @workflow
    async def makes() -> str:
        return "x" * MAX_PAYLOAD_BYTES

    refusal = await refusal_of(engine, makes(), PayloadTooLarge)
    assert refusal.what.startswith("the result of workflow 'makes' (run 'r_")
    assert "over the limit of 2,097,152" in refusal.what


async def test_signal_over_the_payload_limit_is_refused_and_the_run_continues(
    engine: Engine,
) -> None:
    run = await engine.start(hears())
    with pytest.raises(PayloadTooLarge, match="pass a reference"):
        await run.signal(word, TOO_LONG)
    await run.signal(word, "short")
    assert await run.result(timeout=60) == "short"


async def test_a_payload_over_the_limit_is_refused_as_a_published_value(memory: Engine) -> None:
    @workflow
    async def publishes() -> None:
        perdure.publish("progress", TOO_LONG)
        await bill(1)

    refusal = await refusal_of(memory, publishes(), PayloadTooLarge)
    assert refusal.what.startswith("value 'progress' published by run 'r_")


async def test_a_payload_at_the_limit_passes_everywhere(engine: Engine) -> None:
    longest = MAX_PAYLOAD_BYTES - len('""')

    @workflow
    async def passes() -> str:
        return await stretch("x", longest)

    run = await engine.start(passes())
    assert len(await run.result(timeout=60)) == longest


# Runs that are over


async def finished(engine: Engine) -> Handle[str]:
    run = await engine.start(pays(1))
    await run.result(timeout=60)
    return run


async def test_a_finished_run_takes_no_signal(engine: Engine) -> None:
    run = await finished(engine)
    said = f"run '{run.run_id}' is completed and can't take signal 'word': start another run"
    with pytest.raises(RunClosed, match=re.escape(said)):
        await run.signal(word, "late")


async def test_a_finished_run_cant_be_cancelled(engine: Engine) -> None:
    run = await finished(engine)
    with pytest.raises(RunClosed, match="is completed and can't be cancelled: start another run"):
        await run.cancel()
    assert await run.status() == "completed"


# Keys


async def test_a_used_key_with_the_same_arguments_gives_the_same_run(engine: Engine) -> None:
    first = await engine.start(pays(1), key="o-1")
    again = await engine.start(pays(1), key="o-1")
    assert again.run_id == first.run_id
    assert await again.result(timeout=60) == "paid 1"
    assert (await engine.audit()).runs == 1


async def test_a_used_key_with_other_arguments_is_refused(engine: Engine) -> None:
    first = await engine.start(pays(1), key="o-1")
    with pytest.raises(
        KeyReused, match=r"'o-1' of workflow 'pays' is taken.*another key"
    ) as caught:
        await engine.start(pays(2), key="o-1")
    assert caught.value.run_id == first.run_id
    assert await first.result(timeout=60) == "paid 1"


async def test_a_used_key_is_free_in_another_scope_and_for_another_workflow(
    engine: Engine,
) -> None:
    @workflow
    async def refund(order: int) -> str:
        return await bill(-order)

    runs = [
        await engine.start(pays(1), key="o-1"),
        await engine.start(pays(2), key="o-1", scope="other"),
        await engine.start(refund(1), key="o-1"),
    ]
    assert [await run.result(timeout=60) for run in runs] == ["paid 1", "paid 2", "paid -1"]


@pytest.mark.parametrize("key", ["", "k" * (MAX_KEY_LENGTH + 1), "a\0b", "\ud800"])
async def test_a_key_that_no_store_can_keep_is_refused(memory: Engine, key: str) -> None:
    with pytest.raises(InputError, match=r"can't be a key|a key (of 1025 bytes|'.* holds a)"):
        await memory.start(pays(1), key=key)


@pytest.mark.parametrize("name", ["", "k" * (MAX_KEY_LENGTH + 1), "a\0b", "\ud800"])
async def test_a_signals_id_that_no_store_can_keep_is_refused(memory: Engine, name: str) -> None:
    run = await memory.start(hears())
    with pytest.raises(InputError, match="the id of a signal"):
        await run.signal(word, "hello", id=name)
    await run.cancel()


# Nesting


async def test_branches_that_nest_too_deep_are_refused(engine: Engine) -> None:
    @workflow
    async def digs() -> None:
        async def dig(depth: int) -> None:
            await perdure.gather(dig(depth + 1), dig(-1)) if depth >= 0 else await bill(1)

        await dig(0)

    refusal = await refusal_of(engine, digs(), DepthExceeded)
    assert "branch 'dig' would nest" in refusal.what
    assert refusal.remedy == "at most 64 levels may nest; start a child run instead"


async def test_branches_nest_as_deep_as_the_limit_allows(engine: Engine) -> None:
    @workflow
    async def digs(levels: int) -> str:
        async def dig(depth: int) -> str:
            if depth == levels:
                return await bill(depth)
            (found,) = await perdure.gather(dig(depth + 1))
            return found

        return await dig(0)

    deepest = MAX_DEPTH - 1
    assert await (await engine.start(digs(deepest))).result(timeout=60) == f"paid {deepest}"
    await refusal_of(engine, digs(deepest + 1), DepthExceeded)


# Verbs in the wrong place

WORKFLOW_VERBS: dict[str, Callable[[], object]] = {
    "perdure.now": perdure.now,
    "perdure.random": perdure.random,
    "perdure.uuid4": perdure.uuid4,
    "perdure.join_set": perdure.join_set,
    "perdure.sleep": lambda: perdure.sleep(1),
    "perdure.gather": lambda: perdure.gather(bill(1), bill(2)),
    "perdure.first": lambda: perdure.first(bill(1), bill(2)),
    "perdure.start": lambda: perdure.start(pays(1)),
    "Signal.receive": word.receive,
}


@pytest.mark.parametrize("name", WORKFLOW_VERBS)
async def test_a_task_is_refused_a_workflows_verb(memory: Engine, name: str) -> None:
    @task
    async def strays() -> None:
        found = WORKFLOW_VERBS[name]()
        if isinstance(found, Awaitable):
            await found

    @workflow
    async def flow() -> None:
        await strays()

    refusal = await refusal_of(memory, flow(), OutsideRun)
    assert refusal.what == f"{name} is called in a task"
    assert refusal.remedy == "call it in a function decorated with @workflow"


@pytest.mark.parametrize("verb", [perdure.heartbeat, perdure.key])
@pytest.mark.parametrize("steps", [0, 1])
async def test_a_workflow_is_refused_a_tasks_verb_before_and_after_its_first_step(
    memory: Engine, verb: Any, steps: int
) -> None:
    @workflow
    async def strays() -> None:
        for number in range(steps):
            await bill(number)
        verb()

    refusal = await refusal_of(memory, strays(), OutsideRun)
    assert refusal.what == f"perdure.{verb.__name__} is called in a workflow"
    assert refusal.remedy == "call it in a function decorated with @task"


async def test_a_join_set_that_was_awaited_takes_nothing_more(engine: Engine) -> None:
    @workflow
    async def submits() -> None:
        found = perdure.join_set()
        found.submit(bill(1))
        await found.next()
        found.submit(bill(2))

    refusal = await refusal_of(engine, submits(), JoinSetClosed)
    assert refusal.what == "join set root.0 was awaited before"
    assert refusal.remedy == "submit everything first, or make another join set"


async def test_what_a_closed_join_set_refused_is_not_forgotten(engine: Engine) -> None:
    @workflow
    async def submits() -> str:
        async def branch() -> str:
            return await bill(3)

        found = perdure.join_set()
        found.submit(bill(1))
        first: str = await found.next()
        for late in (bill(2), branch()):
            with pytest.raises(JoinSetClosed):
                found.submit(late)
        return first

    assert await (await engine.start(submits())).result(timeout=60) == "paid 1"


# Starting what can't be started


async def test_a_task_cant_be_started(memory: Engine) -> None:
    with pytest.raises(InputError, match="'bill' is a task and can't be started alone: start a "):
        await memory.start(bill(1))  # type: ignore[arg-type]


async def test_a_workflow_that_is_not_called_cant_be_started(memory: Engine) -> None:
    with pytest.raises(InputError, match=r"can't be started: pass a call of a workflow: `checkou"):
        await memory.start(pays)  # type: ignore[arg-type]


@pytest.mark.parametrize("wrong", [bill, pays, bill.fn], ids=["task", "workflow", "function"])
async def test_a_workflow_can_start_only_calls_of_workflows(memory: Engine, wrong: Any) -> None:
    @workflow
    async def starts() -> None:
        await perdure.start(wrong)

    refusal = await refusal_of(memory, starts(), InputError)
    assert "perdure.start was given" in refusal.what
    assert refusal.remedy == "pass a call of a workflow"


async def test_a_workflow_cant_start_a_call_of_a_task(memory: Engine) -> None:
    @workflow
    async def starts() -> None:
        await perdure.start(bill(1))  # type: ignore[arg-type]

    refusal = await refusal_of(memory, starts(), InputError)
    assert "<Call bill(order=1)>" in refusal.what
    assert refusal.remedy == "pass a call of a workflow"


async def test_a_call_can_be_started_once(engine: Engine) -> None:
    call = pays(1)
    run = await engine.start(call)
    with pytest.raises(CallReused, match=r"awaited or started before: call pays\(\.\.\.\) again"):
        await engine.start(call)
    await run.result(timeout=60)


# Engines and handles


async def test_an_engine_that_is_not_open_says_how_to_open_it() -> None:
    with pytest.raises(EngineClosed, match="not open: use it inside `async with Engine"):
        await Engine(MEMORY).start(pays(1))


async def test_an_engine_that_was_closed_says_so() -> None:
    async with Engine(MEMORY) as engine:
        pass
    with pytest.raises(EngineClosed, match="not open: use it inside `async with Engine"):
        await engine.audit()
    with pytest.raises(EngineClosed):
        engine.handle(UNKNOWN)


async def test_an_engine_may_be_closed_twice_and_opened_again() -> None:
    engine = Engine(MEMORY)
    await engine.open()
    await engine.close()
    await engine.close()
    async with engine:
        assert await (await engine.start(pays(1))).result(timeout=60) == "paid 1"


async def test_an_open_engine_cant_be_opened(memory: Engine) -> None:
    with pytest.raises(InputError, match="open already: open it once"):
        await memory.open()


async def test_handle_of_a_closed_engine_raises_store_closed() -> None:
    async with Engine(MEMORY) as engine:
        run = await finished(engine)
    with pytest.raises(StoreClosed):
        await run.status()


def test_a_sync_engine_that_is_not_open_says_how_to_open_it() -> None:
    engine = SyncEngine(MEMORY)
    with pytest.raises(EngineClosed, match="not open: use it inside `with SyncEngine"):
        engine.audit()


async def test_a_url_that_names_no_store_is_refused() -> None:
    with pytest.raises(InvalidUrl):
        await Engine("orders.db").open()


def test_queues_given_as_one_text_are_refused() -> None:
    with pytest.raises(InputError, match=r"queues is 'slow': pass a sequence: \['slow'\]"):
        Engine(MEMORY, queues="slow")


async def test_keys_must_be_as_many_as_calls(memory: Engine) -> None:
    with pytest.raises(InputError, match="2 keys for 1 calls: pass one key for each"):
        await memory.start_many([pays(1)], keys=["a", "b"])


ASKED: dict[str, Any] = {
    "status": lambda run: run.status(),
    "result": lambda run: run.result(timeout=60),
    "signal": lambda run: run.signal(word, "hello"),
    "cancel": lambda run: run.cancel(),
    "published": lambda run: run.published(),
    "events": lambda run: anext(run.events()),
    "stream": lambda run: anext(run.stream("tokens")),
    "history": lambda run: anext(run.history()),
    "follow": lambda run: anext(run.follow()),
    "watch": lambda run: anext(run.watch()),
    "view": lambda run: run.view(),
    "ledger": lambda run: run.ledger(),
}


@pytest.mark.parametrize("question", ASKED)
async def test_unknown_run_is_reported_by_every_method(engine: Engine, question: str) -> None:
    said = f"there is no run '{UNKNOWN}': check the id and the store"
    with pytest.raises(UnknownRun, match=said):
        await ASKED[question](engine.handle(UNKNOWN))


@pytest.mark.parametrize("text", ["", "r_1", "o-7", UNKNOWN.upper(), UNKNOWN + "0"])
async def test_a_malformed_run_id_is_refused_at_once(memory: Engine, text: str) -> None:
    with pytest.raises(InvalidId, match="is not a run id: a run id is 'r_' and 32 hex digits"):
        memory.handle(text)


async def test_result_timeout_leaves_the_run_running(engine: Engine) -> None:
    run = await engine.start(hears())
    said = f"run {run.run_id} is not over after 0.02 s: it continues, ask again later"
    with pytest.raises(TimeoutError, match=said):
        await run.result(timeout=0.02)
    await run.signal(word, "late")
    assert await run.result(timeout=60) == "late"


async def test_run_that_raises_timeout_error_is_not_mistaken_for_an_open_one(
    engine: Engine,
) -> None:
    @workflow
    async def waits() -> str:
        return await word.receive(timeout=0.01)

    run = await engine.start(waits())
    with pytest.raises(TimeoutError, match=r"^no signal 'word' within 0.01 s\n"):
        await run.result(timeout=60)


@pytest.mark.parametrize("first", ["a", -1, 1.5, None])
async def test_a_number_of_an_entry_that_is_none_is_refused(memory: Engine, first: Any) -> None:
    @workflow
    async def brief() -> None: ...

    run = await memory.start(brief())
    await run.result(60)
    with pytest.raises(InputError, match="can't be an offset"):
        await anext(run.events(first))


# Settings


@pytest.mark.parametrize(
    ("wrong", "remedy"),
    [
        ({"concurrency": 0}, "concurrency is 0: pass a whole number of at least 1"),
        ({"concurrency": 1.5}, "concurrency is 1.5: pass a whole number of at least 1"),
        ({"threads": True}, "threads is True: pass a whole number of at least 1"),
        ({"warm_memory": -1}, "warm_memory is -1: pass a whole number of at least 0"),
        ({"lease": 0.01}, "lease is 0.01: pass at least 0.1 seconds"),
        ({"lease": float("inf")}, "lease is inf: pass a duration of at least 0 that is finite"),
        ({"grace": -1.0}, "grace is -1.0: pass a duration of at least 0 that is finite"),
        ({"grace": "soon"}, "grace is 'soon': pass seconds as a number, or a timedelta"),
    ],
)
def test_a_wrong_setting_is_refused_by_name(wrong: dict[str, Any], remedy: str) -> None:
    with pytest.raises(InputError, match=f"^{re.escape(remedy)}$"):
        Settings(**wrong)


# Values that would lose fields


@dataclass
class Parcel:
    weight: int


@dataclass
class Tracked(Parcel):
    code: str = ""


parcels = Signal("wrong_use.parcels", Parcel)


@task(name="wrong_use.weigh")
async def weigh(parcel: Parcel) -> int:
    return parcel.weight


@task(name="wrong_use.wrap")
async def wrap(weight: int) -> Parcel:
    return Tracked(weight, "T")


@workflow(name="wrong_use.ships")
async def ships(how: str) -> object:
    match how:
        case "argument":
            return await weigh(Tracked(1, "T"))
        case "result":
            return (await wrap(1)).weight
        case _:
            return await packs()


@workflow(name="wrong_use.packs")
async def packs() -> Parcel:
    return Tracked(1, "T")


@workflow(name="wrong_use.unpacks")
async def unpacks(parcel: Parcel) -> int:
    return (await parcels.receive()).weight + parcel.weight


@pytest.mark.parametrize("how", ["argument", "result", "result of a child"])
async def test_a_value_of_a_subclass_that_adds_fields_is_refused(engine: Engine, how: str) -> None:
    refusal = await refusal_of(engine, ships(how), NotEncodable)
    assert "is a Tracked, and annotated as Parcel" in refusal.what
    assert "without 'code'" in refusal.what
    assert refusal.remedy.startswith("annotate it as Tracked")


async def test_what_a_client_passes_of_a_subclass_that_adds_fields_is_refused(
    engine: Engine,
) -> None:
    with pytest.raises(NotEncodable, match="argument 'parcel' of unpacks"):
        await engine.start(unpacks(Tracked(1, "T")))
    run = await engine.start(unpacks(Parcel(1)))
    with pytest.raises(NotEncodable, match=r"the value of signal 'wrong_use\.parcels'"):
        await run.signal(parcels, Tracked(2, "T"))
    await run.signal(parcels, Parcel(2))
    assert await run.result(timeout=60) == 3
