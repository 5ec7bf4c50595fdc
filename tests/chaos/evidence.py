"""What the bodies of all hosts have logged, and what it proves: nothing was done again that was done."""

import statistics
from collections import Counter
from itertools import pairwise
from typing import NamedTuple

from tests.chains import Journal, Step
from tests.chaos.host import LINE, STEPS, total_of


class Line(NamedTuple):
    """A body began. Times are those of one clock for the whole machine, in nanoseconds."""

    run: int
    step: int
    attempt: int
    key: str
    pid: int
    at_ns: int
    is_queued: bool


class Snapshot(NamedTuple):
    """Which steps were complete in the journal, at that time or before."""

    at_ns: int
    completed: set[Step]


class Kill(NamedTuple):
    """A process was killed, and the runs that it owned."""

    at_ns: int
    pid: int
    runs: frozenset[int]


def lines_of(logged: bytes) -> list[Line]:
    """In the order of time."""
    assert len(logged) % LINE == 0, "a line was torn"
    return sorted(map(_line, logged.splitlines()), key=lambda line: line.at_ns)


def _line(text: bytes) -> Line:
    run, step, attempt, key, pid, at_ns, is_queued = text.decode().split()
    return Line(int(run), int(step), int(attempt), key, int(pid), int(at_ns), is_queued == "1")


def assert_done_once(
    journal: Journal, lines: list[Line], snapshots: list[Snapshot], runs: int
) -> int:
    """Everything is done, and what was done is not begun again. Returns how many bodies were repeats."""
    assert_all_is_done(journal, runs)
    assert_nothing_complete_began_again(lines, snapshots)
    return assert_repeats_are_accounted_for(journal, lines)


def assert_all_is_done(journal: Journal, runs: int) -> None:
    everything = {(run, step) for run in range(runs) for step in range(STEPS)}
    assert journal.completed == everything
    assert journal.results == {run: b"%d" % total_of(run) for run in range(runs)}


def assert_nothing_complete_began_again(lines: list[Line], snapshots: list[Snapshot]) -> None:
    """Neither by what the journal said at some time, nor by what followed: a step begins when the one before it is
    complete in the journal."""
    for snapshot in snapshots:
        late = [line for line in lines if line.at_ns > snapshot.at_ns]
        assert [line for line in late if (line.run, line.step) in snapshot.completed] == []
    first: dict[Step, int] = {}
    last: dict[Step, Line] = {}
    for line in lines:
        first.setdefault((line.run, line.step), line.at_ns)
        last[line.run, line.step] = line
    for run in {line.run for line in lines}:
        for step, following in pairwise(range(STEPS)):
            if (run, following) in first:
                assert last[run, step].at_ns < first[run, following], last[run, step]


def assert_repeats_are_accounted_for(journal: Journal, lines: list[Line]) -> int:
    """A step began once, and once more for each time that it was in doubt, at most.

    Returns how many bodies were repeats.
    """
    begun = Counter((line.run, line.step) for line in lines)
    assert set(begun) == journal.completed, "a result without a body"
    for step, count in begun.items():
        assert count <= 1 + journal.doubted[step], f"step {step} began {count} times"
    keys = {(line.run, line.step, line.key) for line in lines}
    assert len(keys) == len(begun) == len({key for _, _, key in keys}), "a step has one key"
    local = [(line.run, line.step, line.attempt) for line in lines if not line.is_queued]
    assert len(set(local)) == len(local), "an attempt began twice"
    return begun.total() - len(begun)


class Takeover(NamedTuple):
    """How long after a kill the first of its runs continued on another host, and the last."""

    first_s: float
    last_s: float


def takeovers(lines: list[Line], kills: list[Kill]) -> list[Takeover]:
    """Measured by the steps that owners execute themselves. A kill whose runs had no such step left gives no figure."""
    found = []
    for kill in kills:
        resumed: dict[int, float] = {}
        for line in lines:
            if line.at_ns > kill.at_ns and line.run in kill.runs and not line.is_queued:
                assert line.pid != kill.pid, "it was dead"
                resumed.setdefault(line.run, (line.at_ns - kill.at_ns) / 1e9)
        if resumed:
            found.append(Takeover(min(resumed.values()), max(resumed.values())))
    return found


def spread(seconds: list[float]) -> str:
    """The median and the worst of some times."""
    return f"p50 {statistics.median(seconds):.2f} s, worst {max(seconds):.2f} s"
