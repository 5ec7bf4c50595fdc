"""What the log of the bodies is judged by: each kind of wrongdoing is found."""

from collections import Counter

import pytest

from tests.chains import Journal
from tests.chaos.evidence import (
    Kill,
    Line,
    Snapshot,
    Takeover,
    assert_done_once,
    lines_of,
    spread,
    takeovers,
)
from tests.chaos.faults import Fault, Kind, plan
from tests.chaos.host import LINE, STEPS, total_of

S = 1_000_000_000
"""A second, in the log."""


def line(step: int, at_s: float, *, run: int = 0, pid: int = 1, attempt: int = 1) -> Line:
    return Line(run, step, attempt, f"key-{run}-{step}", pid, round(at_s * S), is_queued=False)


def chain() -> list[Line]:
    """A run that nothing happened to: a step per second."""
    return [line(step, float(step)) for step in range(STEPS)]


def journal(doubted: dict[tuple[int, int], int] | None = None) -> Journal:
    """Of one run that is over."""
    steps = {(0, step) for step in range(STEPS)}
    return Journal(steps, Counter(steps), Counter(doubted or {}), {0: b"%d" % total_of(0)})


def test_a_run_that_nothing_happened_to() -> None:
    assert assert_done_once(journal(), chain(), [Snapshot(4 * S, {(0, 0), (0, 1)})], 1) == 0


def test_a_step_that_was_in_doubt_and_began_again_is_counted() -> None:
    lines = sorted([*chain(), line(3, 3.5, attempt=2)], key=lambda line: line.at_ns)
    assert assert_done_once(journal({(0, 3): 1}), lines, [], 1) == 1


@pytest.mark.parametrize(
    ("also", "doubted", "complaint"),
    [
        (line(3, 3.5, attempt=2), {}, "began 2 times"),
        (line(3, 3.5), {(0, 3): 1}, "an attempt began twice"),
        (line(3, 4.5, attempt=2), {(0, 3): 1}, "step=3"),
        (line(9, 30.0, attempt=2), {(0, 9): 1}, "step=9"),
        (line(3, 3.5, attempt=2)._replace(key="other"), {(0, 3): 1}, "one key"),
    ],
    ids=["without a doubt", "the same attempt", "after its successor", "after the end", "key"],
)
def test_what_must_not_happen_is_found(
    also: Line, doubted: dict[tuple[int, int], int], complaint: str
) -> None:
    lines = sorted([*chain(), also], key=lambda line: line.at_ns)
    end = Snapshot(20 * S, journal().completed)
    with pytest.raises(AssertionError, match=complaint):
        assert_done_once(journal(doubted), lines, [end], 1)


def test_a_result_without_a_body_is_found() -> None:
    with pytest.raises(AssertionError, match="without a body"):
        assert_done_once(journal(), chain()[:-1], [], 1)


def test_a_run_that_is_not_over_is_found() -> None:
    with pytest.raises(AssertionError):
        assert_done_once(journal(), chain(), [], 2)


def test_a_takeover_lasts_from_the_kill_to_the_first_step_elsewhere() -> None:
    lines = [
        *(line(0, 1.0), line(0, 1.0, run=1), line(0, 1.0, run=2, pid=2)),
        *(line(1, 2.1, run=2, pid=2), line(1, 2.5, pid=2), line(1, 3.0, run=1, pid=2)),
    ]
    kill = Kill(2 * S, 1, frozenset({0, 1}))
    assert takeovers(lines, [kill]) == [Takeover(0.5, 1.0)]
    assert takeovers(lines, [kill._replace(at_ns=4 * S)]) == []
    with pytest.raises(AssertionError, match="it was dead"):
        takeovers([*lines, line(2, 5.0, pid=1)], [kill])
    assert spread([1.0, 2.0, 6.0]) == "p50 2.00 s, worst 6.00 s"


def test_lines_are_read_in_the_order_of_time_and_whole() -> None:
    late = b"00007 03 02 0123456789abcdef 0000042 0000000000000000002 1\n"
    early = b"00008 00 01 fedcba9876543210 0000043 0000000000000000001 0\n"
    assert len(late) == len(early) == LINE
    assert lines_of(late + early) == [
        Line(8, 0, 1, "fedcba9876543210", 43, 1, is_queued=False),
        Line(7, 3, 2, "0123456789abcdef", 42, 2, is_queued=True),
    ]
    with pytest.raises(AssertionError, match="torn"):
        lines_of(late + early[:-1])


@pytest.mark.parametrize("seed", range(20))
def test_a_plan_has_every_kind_and_one_fault_on_a_host_at_a_time(seed: int) -> None:
    faults = plan(seed, 10.0, 3, tuple(Kind))
    assert faults == plan(seed, 10.0, 3, tuple(Kind))
    assert {fault.kind for fault in faults} == set(Kind)
    until: dict[int, Fault] = {}
    for fault in faults:
        before = until.get(fault.host)
        assert before is None or before.at_s + before.for_s <= fault.at_s
        until[fault.host] = fault
