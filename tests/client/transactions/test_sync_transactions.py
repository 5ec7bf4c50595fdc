"""Transactions for sync code."""

import time

import pytest

from perdure import InputError, NotCommitted, Settings, Signal, SyncEngine, workflow

said = Signal("said", str)


@workflow
async def listen_in(who: str) -> str:
    return f"{who}: {await said.receive()}"


def make_notes(engine: SyncEngine) -> None:
    with engine.transaction() as tx:
        tx.execute("DROP TABLE IF EXISTS notes")
        tx.execute("CREATE TABLE notes (id integer)")


def notes(engine: SyncEngine) -> list[int]:
    with engine.transaction() as tx:
        assert tx.fetch_value("SELECT count(*) FROM notes") == len(tx.fetch("SELECT * FROM notes"))
        assert tx.fetch_one("SELECT id FROM notes WHERE id = $1", 99) is None
        return [row["id"] for row in tx.fetch("SELECT id FROM notes ORDER BY id")]


def test_a_row_a_run_and_a_signal_appear_together(engine_url: str) -> None:
    with SyncEngine(engine_url) as engine:
        make_notes(engine)
        waiting = engine.start(listen_in("ann"))
        with engine.transaction() as tx:
            assert tx.execute("INSERT INTO notes VALUES ($1)", 1) == 1
            run = engine.start(listen_in("bob"), key="bob")
            run.signal(said, "inside")
            waiting.signal(said, "beside")
            with pytest.raises(NotCommitted):
                run.result()
        assert run.result(60) == "bob: inside"
        assert waiting.result(60) == "ann: beside"
        assert notes(engine) == [1]
        assert engine.audit().is_clean


def test_nothing_appears_if_the_block_raises(engine_url: str) -> None:
    def fail(engine: SyncEngine) -> None:
        with engine.transaction() as tx:
            tx.execute("INSERT INTO notes VALUES ($1)", 1)
            engine.start(listen_in("bob"), key="bob")
            raise ZeroDivisionError

    with SyncEngine(engine_url) as engine:
        make_notes(engine)
        with pytest.raises(ZeroDivisionError):
            fail(engine)
        assert notes(engine) == []
        run = engine.start(listen_in("bob"), key="bob")
        run.signal(said, "outside")
        assert run.result(60) == "bob: outside"


def test_a_block_that_takes_too_long_is_rolled_back(engine_url: str) -> None:
    def hang(engine: SyncEngine, *, tries_again: bool) -> None:
        with engine.transaction() as tx:
            tx.execute("INSERT INTO notes VALUES ($1)", 1)
            time.sleep(0.5)
            if tries_again:
                tx.execute("INSERT INTO notes VALUES ($1)", 2)

    with SyncEngine(engine_url, settings=Settings(transaction_timeout=0.2)) as engine:
        make_notes(engine)
        for tries_again in (False, True):
            with pytest.raises(TimeoutError, match=r"open for more than 0.2 s"):
                hang(engine, tries_again=tries_again)
        assert notes(engine) == []


def test_the_thread_is_in_no_transaction_afterwards(engine_url: str) -> None:
    with SyncEngine(engine_url) as engine:
        with engine.transaction():
            pass
        run = engine.start(listen_in("ann"))
        run.signal(said, "it")
        assert run.result(60) == "ann: it"


def test_a_transaction_inside_another_is_refused(engine_url: str) -> None:
    def nest(engine: SyncEngine) -> None:
        with engine.transaction() as tx:
            tx.execute("INSERT INTO notes VALUES ($1)", 2)

    with SyncEngine(engine_url) as engine:
        make_notes(engine)
        with engine.transaction() as tx:
            tx.execute("INSERT INTO notes VALUES ($1)", 1)
            with pytest.raises(InputError, match="inside another one"):
                nest(engine)
        assert notes(engine) == [1]
