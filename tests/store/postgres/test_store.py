import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import asyncpg
import msgspec
import pytest

from perdure.core.errors import (
    CommitRejected,
    RunExists,
    StaleFence,
    StaleToken,
    StoreUnavailable,
)
from perdure.core.ids import HostId
from perdure.store.commit.bundle import Bundle
from perdure.store.commit.group import Group
from perdure.store.opening import open_store
from perdure.store.postgres.connections import opening
from perdure.store.postgres.store import PostgresStore
from perdure.store.postgres.writing import Connection, is_committed
from perdure.store.schema import migrations
from perdure.store.statements import statements
from tests.postgres_server import PostgresServer
from tests.store.builders import (
    HOST,
    NOW,
    OTHER_HOST,
    Driven,
    assert_books_balance,
    assert_typed,
    begun,
    contents,
    raw,
    sending,
    some_run_id,
    together,
)
from tests.store.failing import (
    LOST,
    Failing,
    SlowCommit,
    confuse_the_driver,
    deadlock,
    fail_asking_once,
    fail_once,
    lose_after_commit,
    lose_before_commit,
    refuse_to_serialize,
)

pytestmark = [pytest.mark.asyncio, pytest.mark.postgres]

End = Callable[[Any, Any], Awaitable[None]]

ENDINGS = pytest.mark.parametrize(
    "end",
    [lose_before_commit, lose_after_commit, confuse_the_driver, refuse_to_serialize, deadlock],
)
THIRD_HOST = HostId("host-3")
DEADLOCKS = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"

LOSSES = pytest.mark.parametrize("end", [lose_before_commit, lose_after_commit])


@pytest.fixture
async def postgres(emptied_postgres: str) -> AsyncIterator[PostgresStore]:
    store = await open_postgres(emptied_postgres)
    yield store
    await assert_books_balance(store)
    await store.close()


async def open_postgres(url: str) -> PostgresStore:
    store = await open_store(url)
    assert isinstance(store, PostgresStore)
    return store


async def end_connections(url: str) -> int:
    """End every connection of Perdure's to this database, as an operator would."""
    connection = await asyncpg.connect(url)
    ended = await connection.fetch(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE datname = current_database() AND application_name = 'perdure'"
    )
    await connection.close()
    return len(ended)


async def assert_stored(store: PostgresStore, run: Driven) -> None:
    """The store has all entries that the run was driven through, and no others."""
    found = await store.run(run.run_id)
    assert found is not None
    assert (found.seq, found.head) == (run.journal.seq, run.journal.head)


async def begun_with_claimed_work(store: PostgresStore, token: str) -> Driven:
    """A run whose queued work `HOST` has claimed under this token."""
    run = await begun(store)
    putting = Bundle()
    putting.put_work(run.fence, run.work())
    await store.commit(putting)
    await store.claim_work(HOST, ["gpu"], token, NOW, 1000, 1)
    return run


def result_of(run: Driven, token: str, kind: str = "") -> Bundle:
    """A worker's bundle: the result of the run's work, under the token of its claim."""
    message = run.message("result")
    bundle = sending(msgspec.structs.replace(message, kind=kind) if kind else message)
    bundle.finish_work(run.run_id, run.work().step, token)
    return bundle


async def test_a_connection_that_ends_between_commits_loses_nothing(
    postgres: PostgresStore, emptied_postgres: str
) -> None:
    run = await begun(postgres)
    await postgres.run(run.run_id)
    assert await end_connections(emptied_postgres) == 2
    await postgres.commit(run.step())
    await assert_stored(postgres, run)


@pytest.mark.parametrize("part", ["migrate", "require_migrated"])
async def test_a_connection_lost_while_a_store_opens_is_reported_as_unavailable(
    postgres: PostgresStore, emptied_postgres: str, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    """`postgres` has made the tables."""
    real = getattr(opening, part)

    async def ended(connection: Connection, name: str) -> None:
        await end_connections(emptied_postgres)
        await real(connection, name)

    monkeypatch.setattr(f"perdure.store.postgres.store.{part}", ended)
    with pytest.raises(StoreUnavailable, match="can't be reached"):
        await open_store(emptied_postgres, as_it_is=part == "require_migrated")


async def test_opening_refuses_a_user_who_may_not_write(
    postgres: PostgresStore, emptied_postgres: str
) -> None:
    """`postgres` has made the tables."""
    with pytest.raises(StoreUnavailable, match=r"refused a statement .*read-only"):
        await open_store(f"{emptied_postgres}?default_transaction_read_only=on")


@ENDINGS
@pytest.mark.parametrize("is_owned", [True, False])
async def test_a_host_learns_which_runs_it_took_however_the_commit_ends(
    postgres: PostgresStore, end: End, is_owned: bool
) -> None:
    runs = [await begun(postgres) for _ in range(3)]
    if not is_owned:
        await postgres.release_runs(HOST)
    await fail_asking_once(postgres, end)
    if is_owned:
        taken = await postgres.take_over(HOST, OTHER_HOST, 2)
    else:
        taken = await postgres.claim_runs(OTHER_HOST, 2)
    assert [run.run_id for run in taken] == sorted(run.run_id for run in runs)[:2]
    assert taken == await postgres.open_runs(OTHER_HOST)


@pytest.mark.parametrize("is_committed", [True, False])
async def test_runs_that_another_host_took_after_a_lost_answer_stay_with_it(
    postgres: PostgresStore, is_committed: bool
) -> None:
    runs = sorted([(await begun(postgres)).run_id for _ in range(3)])

    async def lose_and_be_overtaken(_: Failing, transaction: Any) -> None:
        await (transaction.commit() if is_committed else transaction.rollback())
        await postgres.take_over(OTHER_HOST if is_committed else HOST, THIRD_HOST, 1)
        raise LOST

    await fail_asking_once(postgres, lose_and_be_overtaken)
    taken = await postgres.take_over(HOST, OTHER_HOST, 3)
    assert [run.run_id for run in taken] == runs[1:]
    assert [run.run_id for run in await postgres.open_runs(THIRD_HOST)] == runs[:1]


async def test_a_takeover_waits_for_its_own_commit_that_is_still_ending(
    postgres: PostgresStore,
) -> None:
    runs = sorted([(await begun(postgres)).run_id for _ in range(3)])
    slow = SlowCommit(0.3)
    await fail_asking_once(postgres, slow)
    taken = await postgres.take_over(HOST, OTHER_HOST, 2)
    await slow.wait_ended()
    assert [run.run_id for run in taken] == runs[:2]
    assert taken == await postgres.open_runs(OTHER_HOST)


async def test_connections_that_end_during_commits_lose_nothing_and_do_nothing_twice(
    postgres: PostgresStore, emptied_postgres: str
) -> None:
    runs = [await begun(postgres) for _ in range(10)]

    async def drive(run: Driven) -> None:
        for _ in range(10):
            await postgres.commit(run.step())
        await postgres.commit(run.finish())

    driving = asyncio.gather(*map(drive, runs))
    for _ in range(5):
        await asyncio.sleep(0.02)
        await end_connections(emptied_postgres)
    await driving
    for run in runs:
        await assert_stored(postgres, run)


async def test_a_crashed_server_decides_every_commit_rightly(
    private_postgres: PostgresServer,
) -> None:
    store = await open_postgres(private_postgres.url())
    runs = [await begun(store) for _ in range(50)]
    crashed = asyncio.Event()

    async def drive(run: Driven) -> None:
        while not crashed.is_set():
            await store.commit(run.step())
        await store.commit(run.finish())

    driving = asyncio.gather(*map(drive, runs))
    await asyncio.sleep(0.2)
    await asyncio.to_thread(private_postgres.restart)
    crashed.set()
    async with asyncio.timeout(60):
        await driving
    for run in runs:
        await assert_stored(store, run)
        found = await store.run(run.run_id)
        assert found is not None
        assert found.closed_at_ms is not None
    await assert_books_balance(store)
    await store.close()


@ENDINGS
async def test_an_append_whose_commit_fails_is_stored_exactly_once(
    postgres: PostgresStore, end: End
) -> None:
    run, other = await begun(postgres), await begun(postgres)
    fail_once(postgres, end)
    await asyncio.gather(
        postgres.commit(together(run.step(), sending(other.message("hello")))),
        postgres.commit(other.step()),
    )
    for driven in (run, other):
        assert driven.journal.seq == 9
        await assert_stored(postgres, driven)
    assert len(await postgres.messages(other.run_id)) == 1
    await postgres.commit(run.step())


@ENDINGS
async def test_a_start_whose_commit_fails_is_stored_exactly_once(
    postgres: PostgresStore, end: End
) -> None:
    run = Driven(key="order-42")
    fail_once(postgres, end)
    await postgres.commit(run.start())
    found = await postgres.run_by_key("", "checkout", "order-42")
    assert found is not None
    assert found.run_id == run.run_id
    await postgres.commit(run.first_step())


@ENDINGS
async def test_a_result_whose_commit_fails_is_stored_exactly_once(
    postgres: PostgresStore, end: End
) -> None:
    """A worker's bundle: it appends nothing, so no journal head shows its outcome."""
    run = await begun_with_claimed_work(postgres, "token")
    fail_once(postgres, end)
    await postgres.commit(result_of(run, "token"))
    assert len(await postgres.messages(run.run_id)) == 1
    assert await raw(postgres, "SELECT * FROM {}work") == []


@LOSSES
async def test_a_late_result_is_refused_after_a_lost_connection_too(
    postgres: PostgresStore, end: End
) -> None:
    run = await begun_with_claimed_work(postgres, "old")
    await postgres.claim_work(OTHER_HOST, ["gpu"], "new", NOW + 1000, 1000, 1)
    fail_once(postgres, end)
    with pytest.raises(StaleToken):
        await postgres.commit(result_of(run, "old"))
    assert await postgres.messages(run.run_id) == []


async def test_a_result_that_another_host_sent_first_is_refused_after_a_lost_connection_too(
    postgres: PostgresStore, emptied_postgres: str
) -> None:
    """Another host took the task off its queue: the run must get the result of that claim."""
    run = await begun_with_claimed_work(postgres, "old")

    async def lose_to_another(_: Any, transaction: Any) -> None:
        await transaction.rollback()
        other = await open_store(emptied_postgres)
        await other.claim_work(OTHER_HOST, ["gpu"], "new", NOW + 1000, 1000, 1)
        await other.commit(result_of(run, "new", "completed:2:retry"))
        await other.close()
        raise LOST

    fail_once(postgres, lose_to_another)
    with pytest.raises(StaleToken):
        await postgres.commit(result_of(run, "old", "completed"))
    ((message, _, _),) = await postgres.messages(run.run_id)
    assert message.kind == "completed:2:retry"


async def test_a_start_that_the_server_is_still_committing_is_recognized_as_its_own(
    postgres: PostgresStore,
) -> None:
    run, slow = Driven(key="order-42"), SlowCommit(0.4)
    fail_once(postgres, slow)
    await postgres.commit(run.start())
    await slow.wait_ended()
    await postgres.commit(run.first_step())


async def test_an_append_that_the_server_is_still_committing_is_waited_for(
    postgres: PostgresStore,
) -> None:
    run, slow = await begun(postgres), SlowCommit(0.4)
    fail_once(postgres, slow)
    await postgres.commit(run.step())
    await slow.wait_ended()
    await postgres.commit(run.step())


async def test_a_result_that_the_server_is_still_committing_is_waited_for(
    postgres: PostgresStore,
) -> None:
    run, slow = await begun_with_claimed_work(postgres, "token"), SlowCommit(0.4)
    fail_once(postgres, slow)
    await postgres.commit(result_of(run, "token"))
    await slow.wait_ended()
    assert len(await postgres.messages(run.run_id)) == 1


async def test_a_conflict_while_reading_the_outcome_leaves_it_in_doubt(
    postgres: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = 0

    async def conflicting(connection: Connection, group: Group) -> bool:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise asyncpg.SerializationError("could not serialize access")
        return await is_committed(connection, group)

    monkeypatch.setattr(
        "perdure.store.postgres.connections.commit_connection.is_committed", conflicting
    )
    run = await begun(postgres)
    fail_once(postgres, lose_after_commit)
    await postgres.commit(run.step())
    assert calls == 2


async def test_a_rejected_bundle_of_a_group_is_named_after_a_lost_connection(
    postgres: PostgresStore,
) -> None:
    stale, good, holder = await begun(postgres), await begun(postgres), Driven(key="k")
    await postgres.commit(holder.start())
    await postgres.commit((await stale.reload(postgres)).step())
    late = Driven(key="k")
    fail_once(postgres, lose_before_commit)
    outcomes = await asyncio.gather(
        *map(postgres.commit, [stale.step(), good.step(), late.start()]), return_exceptions=True
    )
    assert [type(outcome) for outcome in outcomes] == [StaleFence, type(None), RunExists]


async def test_a_takeover_waits_for_the_commit_of_the_old_owner(
    postgres: PostgresStore, emptied_postgres: str
) -> None:
    """And the other way round: a commit after a takeover sees the new epoch, not its old snapshot."""
    run = await begun(postgres)
    connection = await asyncpg.connect(emptied_postgres)
    transaction = connection.transaction()
    await transaction.start()
    await connection.execute("UPDATE perdure.run SET owner = 'host-b', epoch = epoch + 1")
    committing = asyncio.ensure_future(postgres.commit(run.step()))
    await asyncio.sleep(0.1)
    assert not committing.done()
    await transaction.commit()
    await connection.close()
    with pytest.raises(StaleFence):
        await committing
    found = await postgres.run(run.run_id)
    assert found is not None
    assert (found.seq, found.epoch) == (4, 2)


async def test_run_rows_are_locked_in_the_order_of_ids(
    postgres: PostgresStore, emptied_postgres: str
) -> None:
    """A group that waits for its first run locks no later one."""
    ids = sorted(some_run_id() for _ in range(2))
    low, high = [await begun(postgres, run_id=run_id) for run_id in reversed(ids)][::-1]
    holder, prober = [await asyncpg.connect(emptied_postgres) for _ in range(2)]
    lock = "SELECT 1 FROM perdure.run WHERE id = $1 FOR UPDATE NOWAIT"
    transaction = holder.transaction()
    await transaction.start()
    await holder.execute(lock, low.run_id)
    committing = asyncio.ensure_future(postgres.commit(together(high.step(), low.step())))
    await asyncio.sleep(0.1)
    assert not committing.done()
    await prober.execute(lock, high.run_id)
    await transaction.commit()
    await committing
    await holder.close()
    await prober.close()


async def test_hosts_that_write_the_same_runs_in_any_order_do_not_deadlock(
    emptied_postgres: str,
) -> None:
    stores = [await open_postgres(emptied_postgres) for _ in range(3)]
    before = await raw(stores[0], DEADLOCKS)
    runs = [await begun(stores[0]) for _ in range(20)]
    copies = [[await run.reload(stores[0]) for run in runs] for _ in stores]

    async def drive(store: PostgresStore, mine: list[Driven]) -> list[BaseException | None]:
        return await asyncio.gather(
            *(store.commit(run.step()) for run in mine), return_exceptions=True
        )

    outcomes = await asyncio.gather(
        drive(stores[0], copies[0]),
        drive(stores[1], copies[1][::-1]),
        drive(stores[2], copies[2]),
    )
    winners = [outcome for host in outcomes for outcome in host if outcome is None]
    losers = [outcome for host in outcomes for outcome in host if outcome is not None]
    assert len(winners) == 20
    assert all(isinstance(loser, StaleFence) for loser in losers)
    await assert_books_balance(stores[0])
    assert await raw(stores[0], DEADLOCKS) == before
    for store in stores:
        await store.close()


async def test_several_hosts_may_migrate_an_empty_database_at_once(fresh_postgres: str) -> None:
    stores = await asyncio.gather(*(open_postgres(fresh_postgres) for _ in range(8)))
    for store in stores:
        await begun(store)
    assert len(await stores[0].open_runs(HOST)) == 8
    newest = str(len(migrations("postgres")))
    assert await raw(stores[0], "SELECT key, value FROM {}meta") == [("schema_version", newest)]
    await asyncio.gather(*(store.close() for store in stores))


async def test_a_store_works_without_prepared_statements(emptied_postgres: str) -> None:
    store = await open_postgres(f"{emptied_postgres}?statement_cache_size=0")
    run = await begun(store)
    await asyncio.gather(*(store.commit(run.step()) for _ in range(5)))
    await store.commit(run.finish())
    await assert_books_balance(store)
    await store.close()


async def test_a_store_works_in_a_serializable_database(emptied_postgres: str) -> None:
    setting = "ALTER ROLE perdure IN DATABASE {} {} default_transaction_isolation {}"
    connection = await asyncpg.connect(emptied_postgres)
    name = '"' + emptied_postgres.rpartition("/")[2] + '"'
    await connection.execute(setting.format(name, "SET", "= 'serializable'"))
    try:
        stores = await asyncio.gather(*(open_postgres(emptied_postgres) for _ in range(3)))
        runs = [await begun(store) for store in stores for _ in range(5)]
        for _ in range(3):
            await asyncio.gather(
                *(stores[n % 3].commit(run.step()) for n, run in enumerate(runs)),
                *(store.claim_runs(OTHER_HOST, 3) for store in stores),
            )
        await assert_books_balance(stores[0])
        for store in stores:
            await store.close()
    finally:
        await connection.execute(setting.format(name, "RESET", ""))
        await connection.close()


async def test_a_missing_table_is_a_typed_error_and_breaks_the_fences(
    postgres: PostgresStore,
) -> None:
    run = await begun(postgres)
    before = await contents(postgres)
    await raw(postgres, "ALTER TABLE {}ledger RENAME TO elsewhere")
    with pytest.raises(StoreUnavailable) as error:
        await postgres.commit(run.step())
    assert_typed(error.value, "store-unavailable", "perdure.ledger")
    with pytest.raises(CommitRejected):
        await postgres.commit(run.step())
    with pytest.raises(StoreUnavailable):
        await postgres.balances(run.run_id)
    await raw(postgres, "ALTER TABLE {}elsewhere RENAME TO ledger")
    assert await contents(postgres) == before
    await postgres.commit((await run.reload(postgres)).step())


async def test_reads_share_few_connections_and_all_are_answered(postgres: PostgresStore) -> None:
    run = await begun(postgres)
    found = await asyncio.gather(*(postgres.run(run.run_id) for _ in range(100)))
    assert all(one is not None and one.run_id == run.run_id for one in found)
    connections = await raw(
        postgres,
        "SELECT count(*) FROM pg_stat_activity"
        " WHERE datname = current_database() AND application_name = 'perdure'",
    )
    assert connections[0][0] <= 5


async def test_closing_ends_every_connection(emptied_postgres: str) -> None:
    store = await open_postgres(emptied_postgres)
    run = await begun(store)
    await asyncio.gather(*(store.run(run.run_id) for _ in range(10)))
    await store.close()
    assert await end_connections(emptied_postgres) == 0


async def test_a_store_closes_even_if_the_server_is_gone(
    private_postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("perdure.store.postgres.connections.commit_connection.LONGEST_WAIT_S", 0.2)
    store = await PostgresStore.open(private_postgres.url())
    run = await begun(store)
    private_postgres.stop()
    waiting = asyncio.ensure_future(store.commit(run.step()))
    await asyncio.sleep(0)
    await store.close()
    with pytest.raises(StoreUnavailable, match="closed while it could not be reached"):
        await waiting


async def test_a_cancelled_read_leaves_no_transaction_to_the_next(
    postgres: PostgresStore,
) -> None:
    run = Driven()
    await postgres.commit(run.start())
    is_begun = asyncio.Event()

    async def dawdle(connection: Connection) -> None:
        await connection.execute("BEGIN")
        is_begun.set()
        await asyncio.sleep(60)

    reading = asyncio.ensure_future(postgres._use(dawdle))
    await is_begun.wait()
    reading.cancel()
    await asyncio.wait([reading])
    for _ in range(12):
        ((row, entries),) = await postgres.load([run.run_id])
        assert len(entries) == row.seq


async def test_a_chunk_whose_statement_began_before_its_run_ended_is_refused(
    postgres: PostgresStore, emptied_postgres: str
) -> None:
    """The statement has read the open run when the run ends, and locks its row after that."""
    run = await begun(postgres)
    ending = run.finish()
    ending.enqueue(run.message("late"))  # so that it is a transaction, not one statement
    sql = statements("postgres")["grow_streams"]
    gated = sql.replace(
        "FROM perdure.run AS run\n    WHERE",
        "FROM perdure.run AS run, (SELECT pg_advisory_xact_lock(7) OFFSET 0) AS gate\n    WHERE",
    ).replace("FOR KEY SHARE", "FOR KEY SHARE OF run")
    assert gated.count("gate") == 1
    holder, appender = [await asyncpg.connect(emptied_postgres) for _ in range(2)]
    try:
        await holder.execute("SELECT pg_advisory_lock(7)")
        growing = asyncio.ensure_future(
            appender.fetch(gated, [run.run_id], ["tokens"], [1], [False])
        )
        while not await holder.fetchval("SELECT count(*) FROM pg_locks WHERE NOT granted"):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        await postgres.commit(ending)
        await holder.execute("SELECT pg_advisory_unlock(7)")
        assert await growing == []
    finally:
        await holder.close()
        await appender.close()
