"""Real processes, killed while they work: journaled steps are never repeated, and all others are accounted for."""

import asyncio
import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.chains import Journal, Step, assert_clean, read_journal
from tests.client.runs.killed import LINE, STEPS, total_of
from tests.paths import ROOT

PATIENCE_S = 60

Line = tuple[int, int, int]
"""A run, a step and an attempt: its body began. A run and `STEPS`: it is over."""

Property = Callable[[str, object], None]


class Moment(NamedTuple):
    """A kill: what was in the journal then, and how many lines in the log."""

    completed: set[Step]
    logged: int


class Life(NamedTuple):
    """How long a process lives: until it has logged so much, and then for so many seconds."""

    lines: int
    delay_s: float


class Victim:
    """The process, started again after each kill, and the log that its bodies write."""

    def __init__(self, url: str, log: Path, runs: int) -> None:
        self._command = [sys.executable, "-m", "tests.client.runs.killed", url, str(log), str(runs)]
        self._log = log
        self._runs = runs
        log.touch()

    def lines(self) -> list[Line]:
        """All lines logged so far."""
        return lines_of(self._log.read_bytes())

    def live(self, life: Life, at_risk: set[Step]) -> bool:
        """Start, pass the steps at risk, run for the given life, and be killed.

        False if it ended by itself.
        """
        process = subprocess.Popen(self._command, cwd=ROOT)
        try:
            self._watch(process, life.lines, dict(at_risk))
            time.sleep(life.delay_s)
        finally:
            process.kill()
            process.wait()
        assert process.returncode in (0, -9)
        return process.returncode == -9

    def _watch(self, process: subprocess.Popen[bytes], count: int, at_risk: dict[int, int]) -> None:
        deadline = time.monotonic() + PATIENCE_S
        logged = b""
        with self._log.open("rb") as log:
            log.seek(0, os.SEEK_END)
            while process.poll() is None and (count > 0 or at_risk):
                logged += log.read()
                # A line may be seen in part while it is written.
                whole = len(logged) - len(logged) % LINE
                for run, step, _ in lines_of(logged[:whole]):
                    count -= 1
                    if step > at_risk.get(run, step):
                        del at_risk[run]
                logged = logged[whole:]
                assert time.monotonic() < deadline
                time.sleep(0.002)

    def finish(self) -> None:
        subprocess.run(self._command, cwd=ROOT, check=True, timeout=PATIENCE_S)


def lines_of(logged: bytes) -> list[Line]:
    assert len(logged) % LINE == 0
    found = []
    for line in logged.splitlines():
        run, step, attempt = map(int, line.split())
        found.append((run, step, attempt))
    return found


def lives(count: int, runs: int, seed: int) -> list[Life]:
    """From a few bodies to a step and a half of every run, and up to 20 ms more."""
    chance = random.Random(seed)
    return [Life(chance.randrange(1, 3 * runs // 2), chance.random() / 50) for _ in range(count)]


def kill_again_and_again(url: str, log: Path, runs: int, plan: list[Life]) -> str:
    """Returns the counts of what happened."""
    victim = Victim(url, log, runs)
    moments = []
    at_risk: set[Step] = set()
    for life in plan:
        assert victim.live(life, at_risk), "it ended before it was killed"
        journal = asyncio.run(read_journal(url))
        moments.append(Moment(journal.completed, len(victim.lines())))
        at_risk = journal.at_risk()
    victim.finish()
    journal, lines = asyncio.run(read_journal(url)), victim.lines()
    assert_all_is_done(journal, runs)
    for moment in moments:
        again = {(run, step) for run, step, _ in lines[moment.logged :]}
        assert again & moment.completed == set(), "done again, though its result was durable"
    repeats = assert_repeats_are_accounted_for(journal, lines)
    asyncio.run(assert_clean(url, runs))
    return (
        f"{len(moments)} kills -9 over {runs:,} runs of {STEPS} steps: "
        f"{', '.join(f'{len(moment.completed):,}' for moment in moments)} steps were durable at each, and none "
        f"of them ran again; {journal.doubted.total():,} in doubt, {repeats:,} of them had begun"
    )


def assert_all_is_done(journal: Journal, runs: int) -> None:
    everything = {(run, step) for run in range(runs) for step in range(STEPS)}
    assert journal.completed == everything
    assert journal.results == {run: b"%d" % total_of(run) for run in range(runs)}


def assert_repeats_are_accounted_for(journal: Journal, lines: list[Line]) -> int:
    """Each attempt of a step but its first was journaled as in doubt. Returns how many bodies were repeats."""
    assert journal.doubted == Counter({s: n - 1 for s, n in journal.started.items() if n > 1})
    bodies = [line for line in lines if line[1] < STEPS]
    assert len(set(bodies)) == len(bodies), "an attempt began twice"
    for run, step, attempt in bodies:
        assert 1 <= attempt <= journal.started[run, step]
    begun = Counter((run, step) for run, step, _ in bodies)
    assert set(begun) == set(journal.started), "a result without a body"
    return sum(count - 1 for count in begun.values())


def test_five_hundred_runs_survive_kills(tmp_path: Path, record_property: Property) -> None:
    url = f"sqlite:///{tmp_path}/killed.db"
    figures = kill_again_and_again(url, tmp_path / "log", 500, lives(8, 500, seed=1))
    record_property("explored", f"sqlite: {figures}")


@pytest.mark.postgres
def test_a_hundred_runs_on_postgres_survive_kills(
    emptied_postgres: str, tmp_path: Path, record_property: Property
) -> None:
    figures = kill_again_and_again(emptied_postgres, tmp_path / "log", 100, lives(6, 100, seed=2))
    record_property("explored", f"postgres: {figures}")


@pytest.mark.deep
def test_more_runs_than_fit_in_memory_survive_many_kills(
    tmp_path: Path, record_property: Property
) -> None:
    url = f"sqlite:///{tmp_path}/killed.db"
    figures = kill_again_and_again(url, tmp_path / "log", 1500, lives(10, 1500, seed=3))
    record_property("explored", f"sqlite: {figures}")
