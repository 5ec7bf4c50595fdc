"""Three hosts under load, killed, paused and cut off from their server at random: all is done, and nothing twice."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.chains import assert_clean
from tests.chaos.director import Director
from tests.chaos.evidence import assert_done_once, spread, takeovers
from tests.chaos.faults import Fault, Kind, plan
from tests.chaos.host import STEPS
from tests.chaos.hosts import Hosts, Place
from tests.postgres_server import PostgresServer

Property = Callable[[str, object], None]

HOSTS = 3
ON_FILES = (Kind.KILL, Kind.PAUSE)
ON_SERVERS = (Kind.KILL, Kind.PAUSE, Kind.RESTART)


class Chaos(NamedTuple):
    """How much there is to do, how long each step takes, and what goes wrong meanwhile."""

    runs: int
    pace_s: float
    faults: list[Fault]
    has_hints: bool = True


def survive(url: str, folder: Path, chaos: Chaos, server: PostgresServer | None = None) -> str:
    """Returns what happened, in figures."""
    places, runs, began = [Place(url)] * HOSTS, chaos.runs, time.monotonic()
    load: dict[str, Any] = {"runs": runs, "pace_s": chaos.pace_s, "has_hints": chaos.has_hints}
    with Hosts(url, places, folder, **load) as hosts:
        hosts.wait_until(lambda: len({line.pid for line in hosts.lines()}) > 1)
        director = Director(hosts, server)
        director.disturb(chaos.faults)
        hosts.wait_until(hosts.is_all_done)
        seconds = time.monotonic() - began
        hosts.drain()
        lines, journal = hosts.lines(), hosts.journal()
    repeats = assert_done_once(journal, lines, director.snapshots, runs)
    asyncio.run(assert_clean(url, runs))
    taken = takeovers(lines, director.kills)
    assert taken, "no kill hit an open run"
    happened = Counter(fault.kind for fault in chaos.faults)
    return (
        f"{HOSTS} hosts, {runs:,} runs of {STEPS} steps in {seconds:.0f} s, "
        f"{', '.join(f'{count} x {kind}' for kind, count in happened.items())}: "
        f"{journal.doubted.total():,} steps in doubt, {repeats:,} of them had begun, none was complete; "
        f"from a kill to the first step elsewhere {spread([each.first_s for each in taken])}, "
        f"to the first step of every run {spread([each.last_s for each in taken])}"
    )


def test_hosts_on_a_file_survive_chaos(tmp_path: Path, record_property: Property) -> None:
    chaos = Chaos(runs=100, pace_s=0.4, faults=plan(1, 4.0, HOSTS, ON_FILES))
    figures = survive(f"sqlite:///{tmp_path}/chaos.db", tmp_path, chaos)
    record_property("explored", f"chaos on sqlite: {figures}")


@pytest.mark.parametrize("store", ["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def test_hosts_without_hints_survive_chaos(
    store: str, request: pytest.FixtureRequest, tmp_path: Path, record_property: Property
) -> None:
    """They find each other's work by polling alone."""
    url = f"sqlite:///{tmp_path}/chaos.db"
    if store == "postgres":
        server: PostgresServer = request.getfixturevalue("private_postgres")
        url = server.url()
    chaos = Chaos(60, 0.3, plan(2, 3.0, HOSTS, ON_FILES), has_hints=False)
    record_property("explored", f"chaos on {store} without hints: {survive(url, tmp_path, chaos)}")


@pytest.mark.postgres
def test_hosts_on_a_server_survive_chaos(
    private_postgres: PostgresServer, tmp_path: Path, record_property: Property
) -> None:
    chaos = Chaos(runs=100, pace_s=0.4, faults=plan(8, 4.0, HOSTS, ON_SERVERS))
    figures = survive(private_postgres.url(), tmp_path, chaos, private_postgres)
    record_property("explored", f"chaos on postgres: {figures}")


@pytest.mark.deep
def test_a_thousand_runs_on_a_file_survive_chaos(tmp_path: Path, record_property: Property) -> None:
    chaos = Chaos(runs=1000, pace_s=2.0, faults=plan(3, 40.0, HOSTS, ON_FILES))
    figures = survive(f"sqlite:///{tmp_path}/chaos.db", tmp_path, chaos)
    record_property("explored", f"chaos on sqlite: {figures}")


@pytest.mark.deep
@pytest.mark.postgres
def test_a_thousand_runs_on_a_server_survive_chaos(
    private_postgres: PostgresServer, tmp_path: Path, record_property: Property
) -> None:
    chaos = Chaos(runs=1000, pace_s=2.0, faults=plan(5, 40.0, HOSTS, ON_SERVERS))
    figures = survive(private_postgres.url(), tmp_path, chaos, private_postgres)
    record_property("explored", f"chaos on postgres: {figures}")
