"""Rows that were changed or deleted behind the engine's back: a run resumes from its journal, or is parked."""

import asyncio
import logging
import threading
from typing import Any

import asyncpg
import pytest

import perdure
from perdure import Engine, Handle, Retry, RunDiverged, RunStatus, Signal, task, workflow
from perdure.core.errors import CorruptJournal
from perdure.core.graph import model as m
from perdure.core.ids import RunId, message_guid
from perdure.core.journal import events as e
from perdure.store.sqlite.store import SqliteStore
from perdure.testing.probe import Probe
from tests.client.engines import (
    ALWAYS_REPLAY,
    assert_sound,
    killed,
    recorded,
    store_of,
    until,
    until_recorded,
    until_status,
    until_store,
)
from tests.store.builders import raw

pytestmark = pytest.mark.asyncio

go = Signal("damaged.go", int)
attempts: list[int] = []


@task(name="damaged.add")
async def add(a: int, b: int) -> int:
    return a + b


@task(name="damaged.queued", queue="damaged")
async def queued_add(a: int, b: int) -> int:
    return a + b


@task(name="damaged.flaky", retry=Retry(attempts=3, first=3600, jitter=0))
async def flaky() -> str:
    attempts.append(1)
    if len(attempts) == 1:
        raise ConnectionError("not yet")
    return "done"


@workflow(name="damaged.waiting")
async def waiting() -> int:
    one = await add(1, 0)
    return one + await go.receive()


@workflow(name="damaged.sleeping")
async def sleeping() -> str:
    await perdure.sleep(0.3)
    return "slept"


@workflow(name="damaged.sleeping_long")
async def sleeping_long() -> None:
    await perdure.sleep(3600)


@workflow(name="damaged.queueing")
async def queueing() -> int:
    return await queued_add(1, 2)


@workflow(name="damaged.retrying")
async def retrying() -> str:
    return await flaky()


@workflow(name="damaged.parent")
async def parent() -> int:
    return 1 + await waiting()


@task(name="damaged.flaky_on_queue", queue="flaky", retry=Retry(attempts=3, first=1, jitter=0))
async def flaky_on_queue() -> str:
    attempts.append(1)
    if len(attempts) == 1:
        raise ConnectionError("not yet")
    return "done"


@workflow(name="damaged.retrying_on_queue")
async def retrying_on_queue() -> str:
    return await flaky_on_queue()


@task(name="damaged.late", queue="flaky", retry=Retry(attempts=2, first=3600, jitter=0))
async def late() -> None:
    raise ConnectionError("not yet")


@workflow(name="damaged.retrying_on_queue_late")
async def retrying_on_queue_late() -> None:
    await late()


began: list[int] = []
may_end = threading.Event()


@task(name="damaged.counted", queue="counted")
async def counted() -> int:
    began.append(1)
    return 1


@workflow(name="damaged.queueing_counted")
async def queueing_counted() -> int:
    return await counted()


@task(name="damaged.held", queue="held")
def held() -> int:
    began.append(1)
    may_end.wait(60)
    return 1


@workflow(name="damaged.holding")
async def holding() -> int:
    return await held()


@task(name="damaged.held_here")
def held_here() -> int:
    began.append(1)
    may_end.wait(60)
    return 1


@workflow(name="damaged.holding_here")
async def holding_here() -> int:
    return await held_here()


async def _tamper(engine: Engine, statement: str) -> None:
    store = store_of(engine)
    if isinstance(store, SqliteStore):
        await raw(store, statement)
        return
    connection = await asyncpg.connect(Probe(engine).url)
    try:
        await connection.execute(statement.format("perdure."))
    finally:
        await connection.close()


async def _waits(engine: Engine, handle: Handle[Any]) -> None:
    await until_recorded(engine, handle, e.ExecutionAwaiting, 2)


async def _parked_reason(engine: Engine, handle: Handle[Any]) -> str:
    await until_status(handle, RunStatus.PARKED)
    run = await store_of(engine).run(handle.run_id)
    return str(run.parked)


async def test_a_changed_semaphore_parks_the_run_once_with_both_values(
    shared_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "perdure.host")
    async with Engine(shared_url) as engine:
        run = await engine.start(waiting())
        await _waits(engine, run)
        await _tamper(engine, f"UPDATE {{}}run SET semaphore = 7 WHERE id = '{run.run_id}'")
        await run.signal(go, 1)
        reason = await _parked_reason(engine, run)
        assert reason.startswith("books-differ: ")
        assert "the semaphore is 7 in its row and 1 by its journal" in reason
        loads = 0
        load_all = store_of(engine).load_all

        async def count(run_ids: Any) -> Any:
            nonlocal loads
            loads += 1
            return await load_all(run_ids)

        store_of(engine).load_all = count
        await asyncio.sleep(1.2)  # a look at what is due, and another
        assert loads == 0
        with pytest.raises(RunDiverged, match="semaphore is 7"):
            await run.result(5)
        logged = [record for record in caplog.records if "is parked" in record.message]
        assert len(logged) == 1
        await _tamper(engine, f"UPDATE {{}}run SET semaphore = 1 WHERE id = '{run.run_id}'")
    async with Engine(shared_url) as engine:
        assert await engine.handle(run.run_id).result(10) == 2
        await assert_sound(engine)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("status = 'running'", "the status is 'running' in its row and 'blocked' by its journal"),
        ("key = 'other'", "the start key is 'other' in its row and 'mine' by its journal"),
        ("key = NULL", "the start key is None in its row and 'mine' by its journal"),
        ("scope = 'x'", "the scope is 'x' in its row and 'shop' by its journal"),
        ("version = '9'", "the version is '9' in its row and '' by its journal"),
        ("digest = 'abc'", "the digest is 'abc' in its row and "),
    ],
)
async def test_a_changed_row_parks_the_run_when_it_is_loaded(
    shared_url: str, change: str, said: str
) -> None:
    async with killed(shared_url) as engine:
        run = await engine.start(waiting(), key="mine", scope="shop")
        await _waits(engine, run)
    async with Engine(shared_url, settings=ALWAYS_REPLAY) as engine:
        before = await store_of(engine).run(run.run_id)
        await _tamper(engine, f"UPDATE {{}}run SET {change} WHERE id = '{run.run_id}'")
        handle = engine.handle(run.run_id)
        await handle.signal(go, 1)
        assert said in await _parked_reason(engine, handle)
        undo = (
            f"UPDATE {{}}run SET status = '{before.status}', key = '{before.key}',"
            f" version = '{before.version}', digest = '{before.digest}', scope = 'shop'"
        )
        await _tamper(engine, f"{undo} WHERE id = '{run.run_id}'")
    async with Engine(shared_url) as engine:
        assert await engine.handle(run.run_id).result(10) == 2
        await assert_sound(engine)


async def test_an_open_run_with_a_time_of_closing_is_reported(shared_url: str) -> None:
    """No host finds such a run, because all look for runs without that time: no caller may wait for its result."""
    async with Engine(shared_url) as engine:
        run = await engine.start(waiting())
        await _waits(engine, run)
        await _tamper(engine, f"UPDATE {{}}run SET closed_at_ms = 5 WHERE id = '{run.run_id}'")
    async with Engine(shared_url) as engine:
        handle = engine.handle(run.run_id)
        for ask in (handle.result, handle.status):
            with pytest.raises(CorruptJournal, match="blocked, but its row says that it was clos"):
                await ask()
        assert [each.name for each in (await engine.audit()).findings] == ["closing_differs"]
        await _tamper(engine, f"UPDATE {{}}run SET closed_at_ms = NULL WHERE id = '{run.run_id}'")
    async with Engine(shared_url) as engine:
        handle = engine.handle(run.run_id)
        await handle.signal(go, 1)
        assert await handle.result(10) == 2
        await assert_sound(engine)


@pytest.mark.parametrize("change", ["status = 'completed'", "closed_at_ms = 5"])
async def test_result_and_status_report_the_damaged_row_of_a_run_that_waits_in_memory(
    shared_url: str, change: str
) -> None:
    async with Engine(shared_url) as engine:
        run = await engine.start(waiting())
        await _waits(engine, run)
        assert run.run_id in Probe(engine).warm_runs
        await _tamper(engine, f"UPDATE {{}}run SET {change} WHERE id = '{run.run_id}'")
        for ask in (run.result, run.status):
            with pytest.raises(CorruptJournal, match=run.run_id):
                await ask()
        undo = "status = 'blocked', closed_at_ms = NULL"
        await _tamper(engine, f"UPDATE {{}}run SET {undo} WHERE id = '{run.run_id}'")
        assert await run.status() is RunStatus.BLOCKED
        await run.signal(go, 1)
        assert await run.result(10) == 2
        await assert_sound(engine)


async def test_result_and_status_of_a_run_whose_task_runs_here_rely_on_memory(
    shared_url: str,
) -> None:
    began.clear()
    may_end.clear()
    async with Engine(shared_url) as engine:
        run = await engine.start(holding_here())
        await until(lambda: bool(began))
        await _tamper(engine, f"UPDATE {{}}run SET status = 'completed' WHERE id = '{run.run_id}'")
        result = asyncio.ensure_future(run.result(10))
        assert await run.status() is RunStatus.BLOCKED
        may_end.set()
        assert await result == 1
        assert await run.status() is RunStatus.COMPLETED
        await assert_sound(engine)


async def test_a_time_of_closing_parks_an_open_run_when_it_is_loaded_and_keeps_its_signals(
    shared_url: str,
) -> None:
    async with Engine(shared_url, settings=ALWAYS_REPLAY) as engine:
        run = await engine.start(waiting())
        await _waits(engine, run)
        await _tamper(engine, f"UPDATE {{}}run SET closed_at_ms = 5 WHERE id = '{run.run_id}'")
        await run.signal(go, 1)

        async def is_parked() -> bool:
            return (await store_of(engine).run(run.run_id)).parked is not None

        await until_store(is_parked)
        reason = await _parked_reason(engine, run)
        assert "the run is closed at 5 in its row and 'blocked' by its journal" in reason
        ((message, state, _),) = await store_of(engine).messages(run.run_id)
        assert (message.kind, state) == (f"signal:{go.name}", "pending")
        await _tamper(engine, f"UPDATE {{}}run SET closed_at_ms = NULL WHERE id = '{run.run_id}'")
    async with Engine(shared_url) as engine:
        assert await engine.handle(run.run_id).result(10) == 2
        await assert_sound(engine)


async def test_an_emptied_ledger_parks_the_run_with_both_values(shared_url: str) -> None:
    async with Engine(shared_url) as engine:
        run = await engine.start(waiting())
        await _waits(engine, run)
        await _tamper(engine, f"DELETE FROM {{}}ledger WHERE run_id = '{run.run_id}'")
    async with Engine(shared_url) as engine:
        handle = engine.handle(run.run_id)
        await handle.signal(go, 1)
        reason = await _parked_reason(engine, handle)
        assert "holds 000000000000000 in the ledger and 001100000000001 by its journal" in reason
        assert not await recorded(engine, handle, e.SignalDelivered)
        findings = (await engine.audit()).findings
        assert {finding.name for finding in findings} == {"balance_differs"}


async def test_a_lost_timer_is_written_again_when_its_run_is_loaded(
    shared_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with Engine(shared_url) as engine:
        run = await engine.start(sleeping())
        await _tamper(engine, f"DELETE FROM {{}}message WHERE run_id = '{run.run_id}'")
    async with Engine(shared_url) as engine:
        assert await engine.handle(run.run_id).result(10) == "slept"
        await assert_sound(engine)
    assert "the host wrote them again: timer of step root.0" in caplog.text


async def test_lost_work_is_put_on_its_queue_again_when_its_run_is_loaded(shared_url: str) -> None:
    async with Engine(shared_url) as engine:
        run = await engine.start(queueing())
        await _tamper(engine, f"DELETE FROM {{}}work WHERE run_id = '{run.run_id}'")
    async with Engine(shared_url, queues=["damaged"]) as engine:
        assert await engine.handle(run.run_id).result(10) == 3
        await assert_sound(engine)


async def test_a_lost_retry_is_written_again_when_its_run_is_loaded(shared_url: str) -> None:
    attempts.clear()
    async with Engine(shared_url) as engine:
        run = await engine.start(retrying())
        await until_recorded(engine, run, e.InvokeRetrying)
        ((message, _, _),) = await store_of(engine).messages(run.run_id)
        await _tamper(engine, f"DELETE FROM {{}}message WHERE run_id = '{run.run_id}'")
    async with Engine(shared_url) as engine:

        async def is_back() -> bool:
            found = await store_of(engine).messages(run.run_id)
            return [(each.guid, each.due_at_ms) for each, _, _ in found] == [
                (message.guid, message.due_at_ms)
            ]

        await until_store(is_back)
        await assert_sound(engine)


async def test_the_lost_result_of_a_child_is_written_again_when_its_parent_is_loaded(
    shared_url: str,
) -> None:
    async with Engine(shared_url) as engine:
        run = await engine.start(parent())
        assert run.run_id
        (child,) = [
            each for each in await store_of(engine).open_ids(None, 10) if each != run.run_id
        ]
        # The parent can't take the result in while its row is not what it was.
        await _tamper(engine, f"UPDATE {{}}run SET semaphore = 5 WHERE id = '{run.run_id}'")
        await engine.handle(child).signal(go, 1)
        assert await engine.handle(child).result(10) == 2
        await _parked_reason(engine, run)
        await _tamper(engine, f"DELETE FROM {{}}message WHERE run_id = '{run.run_id}'")
        await _tamper(engine, f"UPDATE {{}}run SET semaphore = 2 WHERE id = '{run.run_id}'")
    async with Engine(shared_url) as engine:
        assert await engine.handle(run.run_id).result(10) == 3
        await assert_sound(engine)


async def test_a_run_whose_child_is_gone_is_parked(shared_url: str) -> None:
    async with Engine(shared_url) as engine:
        run = await engine.start(parent())
        (child,) = [
            each for each in await store_of(engine).open_ids(None, 10) if each != run.run_id
        ]
    async with Engine(shared_url, settings=ALWAYS_REPLAY) as engine:
        for table, column in (("run", "id"), ("event", "run_id"), ("ledger", "run_id")):
            await _tamper(engine, f"DELETE FROM {{}}{table} WHERE {column} = '{child}'")
    async with Engine(shared_url) as engine:
        reason = await _parked_reason(engine, engine.handle(run.run_id))
        assert f"run '{child}' is not in the store, and step root.0" in reason


def _joined() -> perdure.GraphProgram[..., Any]:
    nodes = (
        m.TriggerNode(name="t"),
        m.AssignNode(name="plain", set={"p": "x + 1"}),
        m.WorkerNode(name="w", task="damaged.add", input={"a": "p", "b": "1"}),
        m.HookNode(name="h", topic="damaged.go", key="'k'"),
        m.AssignNode(name="both", set={"got": "[p, w, h]"}),
        m.OutputNode(name="o", value="got"),
    )
    arrows = [("t", "plain"), ("plain", "w"), ("plain", "h"), ("w", "both"), ("h", "both")]
    edges = tuple(m.Edge(*arrow) for arrow in [*arrows, ("both", "o")])
    return perdure.GraphProgram(
        m.Graph("damaged.joins", nodes, edges, input={"x": m.FieldType("int")})
    )


joins = _joined()


@pytest.mark.parametrize("table", ["readiness", "inbox", "hook"])
async def test_the_lost_index_of_a_graph_is_rebuilt_when_its_run_is_loaded(
    shared_url: str, table: str
) -> None:
    async def index() -> tuple[Any, Any, Any]:
        store = store_of(engine)
        hooks = await store.hooks_waiting(run.run_id)
        return (
            await store.readiness(run.run_id),
            await store.inbox(run.run_id),
            [(hook.step, hook.mailbox, hook.topic, hook.key) for hook in hooks],
        )

    async with Engine(shared_url) as engine:
        run = await engine.start(joins(x=1))

        async def is_waiting() -> bool:
            return bool(await store_of(engine).inbox(run.run_id))

        await until_store(is_waiting)
        before = await index()
        await _tamper(engine, f"DELETE FROM {{}}{table} WHERE run_id = '{run.run_id}'")
        assert await index() != before
    async with Engine(shared_url) as engine:

        async def is_back() -> bool:
            return await index() == before

        await until_store(is_back)
        await engine.send("damaged.go", "k", 7)
        assert await engine.handle(run.run_id).result(10) == [2, 3, 7]
        await assert_sound(engine)


@pytest.mark.parametrize(
    ("program", "table", "finding"),
    [
        (sleeping_long, "message", "timer_missing"),
        (retrying, "message", "work_missing"),
        (queueing, "work", "work_missing"),
    ],
)
async def test_the_audit_names_what_a_run_can_never_receive(
    shared_url: str, program: Any, table: str, finding: str
) -> None:
    attempts.clear()
    async with Engine(shared_url) as engine:
        run = await engine.start(program())
        if program is retrying:
            await until_recorded(engine, run, e.InvokeRetrying)
        await assert_sound(engine)
        await _tamper(engine, f"DELETE FROM {{}}{table} WHERE run_id = '{run.run_id}'")
        report = await engine.audit()
        assert [(each.name, each.run_id) for each in report.findings] == [(finding, run.run_id)]
        assert "step root.0" in str(report)
        await run.cancel()


async def test_the_audit_names_a_child_that_is_gone(shared_url: str) -> None:
    async with Engine(shared_url) as engine:
        run = await engine.start(parent())
        (child,) = [
            each for each in await store_of(engine).open_ids(None, 10) if each != run.run_id
        ]
        for table, column in (("run", "id"), ("event", "run_id"), ("ledger", "run_id")):
            await _tamper(engine, f"DELETE FROM {{}}{table} WHERE {column} = '{child}'")
        report = await engine.audit()
        assert [(each.name, each.run_id) for each in report.findings] == [
            ("child_missing", run.run_id)
        ]


@pytest.mark.parametrize("column", ["scope", "program", "version", "digest", "chain"])
async def test_audit_reports_a_column_that_contradicts_the_first_entry(
    shared_url: str, column: str
) -> None:
    async with Engine(shared_url) as engine:
        run = await engine.start(waiting())
        await _tamper(engine, f"UPDATE {{}}run SET {column} = 'other' WHERE id = '{run.run_id}'")
        report = await engine.audit()
        assert [(each.name, each.seq) for each in report.findings] == [(f"{column}_differs", 0)]


async def test_the_audit_names_a_start_key_that_was_changed(shared_url: str) -> None:
    async with Engine(shared_url) as engine:
        run = await engine.start(waiting(), key="mine")
        await _tamper(engine, f"UPDATE {{}}run SET key = 'other' WHERE id = '{run.run_id}'")
        report = await engine.audit()
        assert [(each.name, each.seq) for each in report.findings] == [("key_differs", 0)]


DAMAGED_SIGNALS = {
    "state = 'unknown'": "is 'unknown', which is no state of a message",
    "kind = 'unknown'": "has the unknown kind 'unknown'",
    "due_at_ms = 9000000000000000000": "is due at 9000000000000000000, and every 'signal:damaged.go'",
    "payload = NULL": "has no payload",
}


@pytest.mark.parametrize("change", DAMAGED_SIGNALS)
async def test_the_audit_names_a_signal_that_can_never_be_received(
    shared_url: str, change: str
) -> None:
    async with Engine(shared_url, hosts=False) as engine:
        run = await engine.start(waiting())
        await run.signal(go, 1)
        assert (await engine.audit()).is_clean
        await _tamper(engine, f"UPDATE {{}}message SET {change} WHERE run_id = '{run.run_id}'")
        report = await engine.audit()
        assert [(each.name, each.run_id) for each in report.findings] == [
            ("message_damaged", run.run_id)
        ]
        assert DAMAGED_SIGNALS[change] in str(report)


async def test_a_message_with_a_damaged_guid_does_not_stop_its_host(shared_url: str) -> None:
    async with killed(shared_url) as engine:
        run = await engine.start(sleeping())
    update = f"SET guid = 'damaged', due_at_ms = 1 WHERE run_id = '{run.run_id}'"
    async with Engine(shared_url) as engine, asyncio.timeout(60):
        await _tamper(engine, f"UPDATE {{}}message {update}")
        for _ in range(3):  # each look finds the damaged message
            await Probe(engine).host.poller.look()
        assert await (await engine.start(sleeping())).result(10) == "slept"


@pytest.mark.parametrize("damage", ["bytes", "NULL"])
async def test_work_that_can_not_be_read_is_found_and_keeps_no_host_from_other_work(
    shared_url: str, caplog: pytest.LogCaptureFixture, damage: str
) -> None:
    if damage == "bytes":
        damage = "x'00ff'" if shared_url.startswith("sqlite") else "'\\x00ff'"
    # This engine keeps the damaged run in memory, so that no load writes its work again.
    async with Engine(shared_url) as owner:
        bad = await owner.start(queueing())
        await _tamper(
            owner, f"UPDATE {{}}work SET payload = {damage} WHERE run_id = '{bad.run_id}'"
        )
        good = await owner.start(queueing())
        async with Engine(shared_url, queues=["damaged"]) as engine:
            assert await engine.handle(good.run_id).result(10) == 3
            assert await (await engine.start(queueing())).result(10) == 3
        logged = [each for each in caplog.records if "writes its row again" in each.message]
        assert [bad.run_id in each.message for each in logged] == [True]
        assert [each.name for each in (await owner.audit()).findings] == ["work_unreadable"]
    async with Engine(shared_url, queues=["damaged"]) as engine:
        assert await engine.handle(bad.run_id).result(10) == 3
        await assert_sound(engine)


DAMAGED_MESSAGES = [
    "state = 'dead'",
    "state = 'unknown'",
    "kind = 'unknown'",
    "due_at_ms = 9000000000000000000",
    "step = 'root.7'",
]


@pytest.mark.parametrize("program", [sleeping_long, retrying])
@pytest.mark.parametrize("change", DAMAGED_MESSAGES)
async def test_a_damaged_message_is_found_and_written_again_when_its_run_is_loaded(
    shared_url: str, program: Any, change: str
) -> None:
    attempts.clear()
    async with Engine(shared_url) as engine:
        run = await engine.start(program())
        if program is retrying:
            await until_recorded(engine, run, e.InvokeRetrying)
        whole = await store_of(engine).messages(run.run_id)
        assert len(whole) == 1
        await _tamper(engine, f"UPDATE {{}}message SET {change} WHERE run_id = '{run.run_id}'")
        finding = "work_missing" if program is retrying else "timer_missing"
        assert [each.name for each in (await engine.audit()).findings] == [finding]
    async with Engine(shared_url) as engine:

        async def is_back() -> bool:
            return bool(await store_of(engine).messages(run.run_id) == whole)

        await until_store(is_back)
        await assert_sound(engine)


async def test_work_under_another_guid_is_found_and_put_again_when_its_run_is_loaded(
    shared_url: str,
) -> None:
    async with Engine(shared_url) as engine:
        run = await engine.start(queueing())
        guid = message_guid(run.run_id, "other")
        await _tamper(engine, f"UPDATE {{}}work SET guid = '{guid}' WHERE run_id = '{run.run_id}'")
        assert [each.name for each in (await engine.audit()).findings] == ["work_missing"]
    # Without the queue first: a host that serves it may claim the work before the run is loaded.
    async with Engine(shared_url) as engine:

        async def is_sound() -> bool:
            return (await engine.audit()).is_clean

        await until_store(is_sound)
    async with Engine(shared_url, queues=["damaged"]) as engine:
        assert await engine.handle(run.run_id).result(10) == 3
        await assert_sound(engine)


@pytest.mark.parametrize(
    ("change", "finding"),
    [
        ("queue = 'nowhere'", "queue_differs"),
        ("available_at_ms = 9000000000000000", "due_differs"),
        ("available_at_ms = -9000000000000000", "due_differs"),
        ("available_at_ms = 900000000000", "due_differs"),
        ("payload = NULL", "work_unreadable"),
    ],
)
@pytest.mark.parametrize("program", [queueing, retrying_on_queue])
async def test_changed_work_is_found_and_put_again_when_its_run_is_loaded(
    shared_url: str, program: Any, change: str, finding: str
) -> None:
    attempts.clear()
    expected = 3 if program is queueing else "done"
    async with Engine(shared_url, queues=["flaky"]) as engine:
        run = await engine.start(program())
        if program is retrying_on_queue:
            await until_recorded(engine, run, e.InvokeRetrying)
        await assert_sound(engine)
        await _tamper(engine, f"UPDATE {{}}work SET {change} WHERE run_id = '{run.run_id}'")
        assert [each.name for each in (await engine.audit()).findings] == [finding]
    async with Engine(shared_url) as engine:

        async def is_sound() -> bool:
            return (await engine.audit()).is_clean

        await until_store(is_sound)
    async with Engine(shared_url, queues=["damaged", "flaky"]) as engine:
        assert await engine.handle(run.run_id).result(10) == expected
        await assert_sound(engine)


async def test_retry_on_a_queue_that_is_due_too_early_is_found(shared_url: str) -> None:
    attempts.clear()
    async with Engine(shared_url, queues=["flaky"]) as engine:
        run = await engine.start(retrying_on_queue_late())
        retrying = await until_recorded(engine, run, e.InvokeRetrying)
    # A host would load the run, and write its row again.
    async with Engine(shared_url, hosts=False) as engine:
        assert (await engine.audit()).is_clean
        early = retrying.retry_at_ms - 1
        await _tamper(engine, f"UPDATE {{}}work SET available_at_ms = {early}")
        assert [each.name for each in (await engine.audit()).findings] == ["due_differs"]


async def _result_of_parked_run(shared_url: str) -> str:
    """The id of a run whose queued task has ended, and whose result waits in the store."""
    async with Engine(shared_url) as engine:
        run = await engine.start(queueing_counted())
    async with Engine(shared_url, settings=ALWAYS_REPLAY) as engine:
        await _tamper(engine, f"UPDATE {{}}run SET semaphore = 5 WHERE id = '{run.run_id}'")
        handle = engine.handle(run.run_id)
        await handle.signal(go, 1)
        await _parked_reason(engine, handle)
        async with Engine(shared_url, queues=["counted"]) as worker:

            async def is_sent() -> bool:
                found = await store_of(worker).messages(run.run_id)
                return any(message.step is not None for message, _, _ in found)

            await until_store(is_sent)
        await _tamper(engine, f"UPDATE {{}}run SET semaphore = 2 WHERE id = '{run.run_id}'")
    return run.run_id


RESULT_ROW = "step IS NOT NULL"
KEPT_RESULTS = ["step = NULL", "step = 'root.7'", "state = 'unknown'", "due_at_ms = 7"]
LOST_RESULTS = {
    "kind = 'unknown'": "is a 'unknown' with a payload, by the journal the result of attempt 1",
    "kind = 'timer'": "is a 'timer' with a payload, by the journal the result of attempt 1",
    "kind = 'signal:damaged.go'": "is a 'signal:damaged.go' with a payload, by the journal",
    "kind = 'completed:many'": "is a 'completed:many' with a payload, by the journal the result",
    "payload = NULL": "is a 'completed' without a payload, by the journal the result of attempt 1",
    "guid = '{guid}'": "is an outcome of step root.0; by the journal the result of attempt 1",
}


@pytest.mark.parametrize("change", KEPT_RESULTS)
async def test_damaged_result_of_a_queued_task_is_delivered_and_the_task_is_not_repeated(
    shared_url: str, change: str
) -> None:
    began.clear()
    run_id = RunId(await _result_of_parked_run(shared_url))
    async with Engine(shared_url) as engine:
        # Until it is loaded, no host delivers anything to the run.
        await _tamper(engine, f"UPDATE {{}}message SET {change} WHERE {RESULT_ROW}")
    async with Engine(shared_url, queues=["counted"]) as engine:
        assert await engine.handle(run_id).result(10) == 1
        await assert_sound(engine)
    assert len(began) == 1


@pytest.mark.parametrize("change", LOST_RESULTS)
async def test_result_whose_outcome_is_lost_parks_its_run_and_the_task_is_not_repeated(
    shared_url: str, change: str
) -> None:
    began.clear()
    run_id = RunId(await _result_of_parked_run(shared_url))
    other = message_guid(run_id, "other")
    async with Engine(shared_url, hosts=False) as engine:
        ((whole, _, _),) = [
            each for each in await store_of(engine).messages(run_id) if each[0].step is not None
        ]
        damage = change.format(guid=other)
        await _tamper(engine, f"UPDATE {{}}message SET {damage} WHERE {RESULT_ROW}")
        assert [each.name for each in (await engine.audit()).findings] == ["result_damaged"]
    async with Engine(shared_url, queues=["counted"]) as engine:
        reason = await _parked_reason(engine, engine.handle(run_id))
        assert reason.startswith("books-differ: ")
        assert LOST_RESULTS[change] in reason
    payload = "x'31'" if shared_url.startswith("sqlite") else "'\\x31'"
    async with Engine(shared_url, hosts=False) as engine:
        undo = f"kind = '{whole.kind}', payload = {payload}, guid = '{whole.guid}'"
        await _tamper(engine, f"UPDATE {{}}message SET {undo} WHERE {RESULT_ROW}")
    async with Engine(shared_url, queues=["counted"]) as engine:
        assert await engine.handle(run_id).result(10) == 1
        await assert_sound(engine)
    assert len(began) == 1


async def test_work_under_another_step_is_not_executed_beside_the_work_that_a_load_puts_again(
    shared_url: str,
) -> None:
    began.clear()
    async with Engine(shared_url) as engine:
        run = await engine.start(queueing_counted())
        await _tamper(engine, f"UPDATE {{}}work SET step = 'root.7' WHERE run_id = '{run.run_id}'")
    async with Engine(shared_url) as engine:

        async def is_sound() -> bool:
            return (await engine.audit()).is_clean

        await until_store(is_sound)
        assert len(await raw(store_of(engine), "SELECT step FROM {}work")) == 1
    async with Engine(shared_url, queues=["counted"]) as engine:
        assert await engine.handle(run.run_id).result(10) == 1
    assert len(began) == 1


async def test_changed_work_that_a_host_has_claimed_is_not_executed_twice(shared_url: str) -> None:
    began.clear()
    may_end.clear()
    async with Engine(shared_url, queues=["held"], settings=ALWAYS_REPLAY) as engine:
        run = await engine.start(holding())
        await until(lambda: bool(began))
        await _tamper(
            engine, f"UPDATE {{}}work SET queue = 'nowhere' WHERE run_id = '{run.run_id}'"
        )
        assert [each.name for each in (await engine.audit()).findings] == ["queue_differs"]
        await run.signal(go, 1)  # loads the run
        await until_recorded(engine, run, e.SignalDelivered)
        may_end.set()
        assert await run.result(10) == 1
        assert len(began) == 1
        await assert_sound(engine)


async def test_a_childs_result_out_of_delivery_is_found_and_written_again(shared_url: str) -> None:
    async with Engine(shared_url) as engine:
        run = await engine.start(parent())
        (child,) = [
            each for each in await store_of(engine).open_ids(None, 10) if each != run.run_id
        ]
        # The parent can't take the result in while its row is not what it was.
        await _tamper(engine, f"UPDATE {{}}run SET semaphore = 5 WHERE id = '{run.run_id}'")
        await engine.handle(child).signal(go, 1)
        assert await engine.handle(child).result(10) == 2
        await _parked_reason(engine, run)
        await _tamper(engine, f"UPDATE {{}}run SET semaphore = 2 WHERE id = '{run.run_id}'")
        await _tamper(
            engine, f"UPDATE {{}}message SET state = 'stale' WHERE run_id = '{run.run_id}'"
        )
        assert [each.name for each in (await engine.audit()).findings] == ["result_missing"]
    async with Engine(shared_url) as engine:
        assert await engine.handle(run.run_id).result(10) == 3
        await assert_sound(engine)
