"""Two hosts, one of them cut off from the server: it starts nothing, the other takes over its runs, it rejoins."""

import asyncio
import signal
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.chains import assert_clean
from tests.chaos.evidence import Line, Snapshot, assert_done_once
from tests.chaos.host import STEPS
from tests.chaos.hosts import Hosts, Place
from tests.chaos.namespaces import Namespace, why_not
from tests.chaos.proxy import Proxy
from tests.postgres_server import PostgresServer

Property = Callable[[str, object], None]

RUNS = 40
PACE_S = 0.5
SETTLED_S = 0.3
"""After a cut: what was on its way has arrived or is lost."""

pytestmark = pytest.mark.postgres


def address(server: PostgresServer, host: str, port: int) -> str:
    return server.url().replace(f"127.0.0.1:{server.port}", f"{host}:{port}")


def is_amid_queued_work(lines: list[Line], pid: int) -> bool:
    """A task from the queue, and not the first of its run, has just begun there."""
    lately = time.monotonic_ns() - round(PACE_S / 2 * 1e9)
    return any(
        line.pid == pid and line.is_queued and line.step > 1 and line.at_ns > lately
        for line in lines
    )


def has_taken_over(lines: list[Line], pid: int) -> bool:
    """Elsewhere a step has begun that only the owner of its run executes, of a run that was owned there."""
    local = [line for line in lines if not line.is_queued]
    theirs = {line.run for line in local if line.pid == pid}
    return any(line.pid != pid and line.run in theirs for line in local)


def split(hosts: Hosts, cut: Callable[[], None], mend: Callable[[], None]) -> str:
    """Cut host 0 off while both are at work, until host 1 has taken over its runs; then kill host 1."""
    cut_off = hosts.pid(0)
    hosts.wait_until(lambda: is_amid_queued_work(hosts.lines(), cut_off))
    cut()
    cut_at = time.monotonic_ns()
    hosts.wait_until(lambda: has_taken_over(hosts.lines(), cut_off))
    taken_at = time.monotonic_ns()
    # On a busy machine it could finish all before it is killed.
    hosts.send(1, signal.SIGSTOP)
    completed = hosts.journal().completed
    snapshot = Snapshot(time.monotonic_ns(), completed)
    assert len(snapshot.completed) < RUNS * STEPS, (
        "nothing was left to do for the host that rejoins"
    )
    mend()
    healed_at = time.monotonic_ns()
    # The one that was cut off has to finish everything.
    hosts.send(1, signal.SIGKILL)
    hosts.bury(1)
    hosts.wait_until(hosts.is_all_done)
    hosts.drain()
    lines, journal = hosts.lines(), hosts.journal()
    repeats = assert_done_once(journal, lines, [snapshot], RUNS)
    assert repeats > 0
    settled_at = cut_at + round(SETTLED_S * 1e9)
    theirs = [line for line in lines if line.pid == cut_off]
    assert [line for line in theirs if settled_at < line.at_ns < healed_at] == []
    assert any(line.at_ns > healed_at for line in theirs), "it did not rejoin"
    return (
        f"cut off for {(healed_at - cut_at) / 1e9:.1f} s, {RUNS} runs of {STEPS} steps: it began nothing meanwhile, "
        f"its runs resumed elsewhere after {(taken_at - cut_at) / 1e9:.1f} s, "
        f"{journal.doubted.total()} steps in doubt, {repeats} of them had begun, none was complete"
    )


@pytest.mark.parametrize("is_lost", [False, True], ids=["late", "lost"])
def test_a_host_behind_a_dead_connection_begins_nothing_and_rejoins(
    is_lost: bool, private_postgres: PostgresServer, tmp_path: Path, record_property: Property
) -> None:
    """What it had sent arrives late, or never."""
    url = private_postgres.url()
    with Proxy(private_postgres.port) as proxy:
        places = [Place(address(private_postgres, "127.0.0.1", proxy.port)), Place(url)]
        with Hosts(url, places, tmp_path, runs=RUNS, pace_s=PACE_S) as hosts:
            figures = split(hosts, proxy.cut, lambda: proxy.mend(is_lost=is_lost))
    asyncio.run(assert_clean(url, RUNS))
    record_property("explored", f"a cut connection, {'lost' if is_lost else 'late'}: {figures}")


def test_a_host_in_a_network_of_its_own_begins_nothing_while_its_cable_is_pulled(
    private_postgres: PostgresServer, tmp_path: Path, record_property: Property
) -> None:
    reason = why_not()
    if reason is not None:
        pytest.skip(reason)
    url = private_postgres.url()
    with ExitStack() as stack:
        networks = [stack.enter_context(Namespace(number)) for number in range(2)]
        places = []
        for network in networks:
            proxy = stack.enter_context(Proxy(private_postgres.port, network.address))
            there = address(private_postgres, network.address, proxy.port)
            places.append(Place(there, network.prefix))
        with Hosts(url, places, tmp_path, runs=RUNS, pace_s=PACE_S) as hosts:
            figures = split(hosts, networks[0].cut, networks[0].mend)
    asyncio.run(assert_clean(url, RUNS))
    record_property("explored", f"a pulled cable: {figures}")
