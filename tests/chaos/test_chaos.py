"""Three hosts under load, killed, paused and cut off from their server at random: all is done, and nothing twice."""

import asyncio
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.chains import assert_clean, read_journal
from tests.chaos.director import Director, Plan
from tests.chaos.evidence import (
    assert_all_is_done,
    assert_nothing_complete_began_again,
    assert_repeats_are_accounted_for,
    lines_of,
    spread,
    takeovers,
)
from tests.chaos.faults import Kind, plan
from tests.chaos.host import STEPS
from tests.postgres_server import PostgresServer

Property = Callable[[str, object], None]

ON_FILES = (Kind.KILL, Kind.PAUSE)
ON_SERVERS = (Kind.KILL, Kind.PAUSE, Kind.RESTART)


def survive(url: str, folder: Path, chaos: Plan, server: PostgresServer | None = None) -> str:
    """Returns what happened, in figures."""
    with Director(url, folder, chaos, server) as director:
        director.direct()
    lines = lines_of(director.logged())
    journal = asyncio.run(read_journal(url))
    assert_all_is_done(journal, chaos.runs)
    assert_nothing_complete_began_again(lines, director.snapshots)
    repeats = assert_repeats_are_accounted_for(journal, lines)
    asyncio.run(assert_clean(url, chaos.runs))
    taken = takeovers(lines, director.kills)
    assert taken, "no kill hit a run under way"
    happened = Counter(fault.kind for fault in chaos.faults)
    return (
        f"{chaos.hosts} hosts, {chaos.runs:,} runs of {STEPS} steps in {director.lasted_s:.0f} s, "
        f"{', '.join(f'{count} {kind}s' for kind, count in happened.items())}: "
        f"{journal.doubted.total():,} steps in doubt, {repeats:,} of them had begun, none was complete; "
        f"from a kill to the first step elsewhere {spread([each.first_s for each in taken])}, "
        f"to the first step of every run {spread([each.last_s for each in taken])}"
    )


def test_hosts_on_a_file_survive_chaos(tmp_path: Path, record_property: Property) -> None:
    chaos = Plan(runs=100, pace_s=0.6, faults=plan(1, 5.0, 3, ON_FILES))
    figures = survive(f"sqlite:///{tmp_path}/chaos.db", tmp_path, chaos)
    record_property("explored", f"chaos on sqlite: {figures}")


@pytest.mark.postgres
def test_hosts_on_a_server_survive_chaos(
    private_postgres: PostgresServer, tmp_path: Path, record_property: Property
) -> None:
    chaos = Plan(runs=100, pace_s=0.6, faults=plan(2, 5.0, 3, ON_SERVERS))
    figures = survive(private_postgres.url(), tmp_path, chaos, private_postgres)
    record_property("explored", f"chaos on postgres: {figures}")


@pytest.mark.deep
@pytest.mark.parametrize("seed", [3, 4])
def test_a_thousand_runs_on_a_file_survive_chaos(
    seed: int, tmp_path: Path, record_property: Property
) -> None:
    chaos = Plan(runs=1000, pace_s=2.0, faults=plan(seed, 40.0, 3, ON_FILES))
    figures = survive(f"sqlite:///{tmp_path}/chaos.db", tmp_path, chaos)
    record_property("explored", f"chaos on sqlite, seed {seed}: {figures}")


@pytest.mark.deep
@pytest.mark.postgres
@pytest.mark.parametrize("seed", [5, 6])
def test_a_thousand_runs_on_a_server_survive_chaos(
    seed: int, private_postgres: PostgresServer, tmp_path: Path, record_property: Property
) -> None:
    chaos = Plan(runs=1000, pace_s=2.0, faults=plan(seed, 40.0, 3, ON_SERVERS))
    figures = survive(private_postgres.url(), tmp_path, chaos, private_postgres)
    record_property("explored", f"chaos on postgres, seed {seed}: {figures}")
