"""The books, by hand: a run that is killed and resumes, and an audit that finds every damage.

    python examples/books.py

What lies below workflows: events, ledger and store, without an engine. A child process takes an order
through its first step and is killed with SIGKILL; this process reads the books, finishes the run and
prints the journal beside the ledger. Then it tampers with one digit, and with one byte, to show that
each is named.
"""

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import apsw

from perdure.core.ids import HostId, StepId, new_run_id
from perdure.core.journal.events import (
    Event,
    ExecutionAwaiting,
    ExecutionCompleted,
    ExecutionResumed,
    ExecutionStarted,
    InvokeCompleted,
    InvokeScheduled,
    InvokeStarted,
)
from perdure.core.journal.postings import effect_of
from perdure.core.ledger import ACTIVITY, diagram, spell_balance
from perdure.engine.runs.warm import LoadedRun, create_run, load_run
from perdure.engine.sources import Sources
from perdure.store.commit.bundle import Bundle
from perdure.store.inspection import audit_store, verify_store
from perdure.store.opening import open_store
from perdure.store.rows.records import NewRun
from perdure.store.store import Store

CHARGE, SHIP = StepId("root.0"), StepId("root.1")
CHILD, PARENT = HostId("child"), HostId("parent")


class RealSources(Sources):
    """The real clock and real entropy."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def entropy(self, count: int) -> bytes:
        return os.urandom(count)


SOURCES = RealSources()


def ask(step: StepId, task: str) -> list[Event]:
    """The program asks for a task and waits for it."""
    return [
        InvokeScheduled(step, task, payload=b'{"order": 42}'),
        ExecutionAwaiting((step,)),
        InvokeStarted(step, 1),
    ]


def answer(step: StepId, result: bytes) -> list[Event]:
    """The task is done and the program continues."""
    return [InvokeCompleted(step, 1, payload=result), ExecutionResumed()]


async def commit(store: Store, run: LoadedRun, events: list[Event]) -> None:
    bundle = Bundle()
    bundle.append(run.fence, run.append(events, SOURCES))
    await store.commit(bundle)


async def start_and_die(url: str) -> None:
    """Charge the order, ask for its shipping, and be killed before anything is shipped."""
    store = await open_store(url)
    run_id = new_run_id(SOURCES.now_ms(), SOURCES.entropy(10))
    new = NewRun(run_id, "checkout", SOURCES.now_ms(), digest="digest", key="order-42", owner=CHILD)
    started = ExecutionStarted(
        "checkout", "digest", "00" * 32, idempotency_key="order-42", payload=b'{"order": 42}'
    )
    bundle = Bundle()
    run = create_run(bundle, new, [started, *ask(CHARGE, "charge")], SOURCES)
    await store.commit(bundle)
    await commit(store, run, [*answer(CHARGE, b'"paid"'), *ask(SHIP, "ship")])
    os.kill(os.getpid(), signal.SIGKILL)


async def take_over_and_finish(store: Store) -> LoadedRun:
    """What finished is not done again: the journal says that only the shipping is open."""
    (row,) = await store.take_over(CHILD, PARENT, limit=10)
    run = await load_run(store, row)
    state = run.journal.state
    print(f"2. taken over: {row.seq} entries, {state.status}, {state.semaphore} open obligations")
    print(f"   charge {'is done' if CHARGE in state.completed else 'is open'},", end=" ")
    print(f"ship {'is done' if SHIP in state.completed else 'is open'}\n")
    done = ExecutionCompleted(payload=b'"shipped"', released=1)
    await commit(store, run, [*answer(SHIP, b'"shipped"'), done])
    return run


async def print_books(store: Store, run: LoadedRun) -> None:
    print("3. the journal, and what each entry posts to the ledger:\n")
    semaphore = 0
    for entry in await store.entries(run.journal.run_id):
        postings, delta = effect_of(entry.event)
        semaphore += delta
        posted = ", ".join(f"{account} +{increment:,}" for account, increment in postings)
        name = type(entry.event).__name__
        print(f"   {entry.seq:>2}  {name:<20} open {semaphore}  {posted}")
    print("\n   the ledger:\n")
    for account, balance in sorted((await store.balances(run.journal.run_id)).items()):
        print(f"   {account:<12} {spell_balance(balance, ACTIVITY)}")
    print("\n   " + diagram(balance, ACTIVITY).replace("\n", "\n   ") + "\n")


def tamper(path: Path, sql: str) -> None:
    """What no program of ours does: change a row behind the books' back."""
    connection = apsw.Connection(str(path))
    connection.execute(sql)
    connection.close()


def kill_a_child(url: str) -> None:
    child = subprocess.run([sys.executable, __file__, url], check=False)
    print(f"1. a child process started a run and was killed (exit {child.returncode})")


async def resume(path: Path) -> None:
    url = f"sqlite:///{path}"
    store = await open_store(url)
    run = await take_over_and_finish(store)
    await print_books(store, run)
    print(f"4. audit:  {await audit_store(store)}\n   verify: {await verify_store(store)}\n")
    await store.close()

    print("5. now one digit of the ledger and one byte of the journal are changed:\n")
    tamper(path, "UPDATE perdure_ledger SET balance = balance + 1 WHERE account = 'step:root.0'")
    tamper(path, "UPDATE perdure_event SET body = replace(body, 'charge', 'refund') WHERE seq = 1")
    store = await open_store(url)
    for report in (await audit_store(store), await verify_store(store)):
        print("   " + "\n     ".join(map(str, report.findings)))
    await store.close()


if __name__ == "__main__":
    if len(sys.argv) > 1:
        asyncio.run(start_and_die(sys.argv[1]))
    with tempfile.TemporaryDirectory() as folder:
        kill_a_child(f"sqlite:///{folder}/orders.db")
        asyncio.run(resume(Path(folder, "orders.db")))
