"""The part of the benchmark that measures hops between two processes, one by one."""

from functools import partial

from bench.cells import count, ms, times
from bench.report import Report
from bench.running import POOLED, ROUNDS, SCALE, STORES, Bench, in_turns, scaled
from tests.pgbouncer import PGBOUNCER

HOPS = {
    "queued": "queued step",
    "signal": "signal to result",
    "started": "run started elsewhere",
}
"""What is measured, and its name in the report."""

NUMBER = 300
SECONDS = 10.0
"""A round of one kind of hop ends after so many of them, or after so much time."""

SHORTEST_S = 2.0
"""Of a round, also in a rehearsal."""

POLL_MS = 1000.0
"""How often a host looks into the store by default."""

TIMES_LOCAL_P50 = 10.0
TIMES_LOCAL_P99 = 30.0
"""How much longer a hop may take than a run of one step inside one process."""


def measure_hops(bench: Bench, report: Report) -> None:
    """Two processes on one store, nothing else to do: what passes between them, beside a run inside one of them."""
    report.table(
        "hops between two processes, one by one on idle engines, with Python's default collector; a local run of one "
        "step beside them",
        *("store", "hop", "p50", "p99", "local, p50", "local, p99", "ratio of p50", "ratio of p99"),
        *("hops", "found by"),
    )
    for store in STORES if PGBOUNCER is None else (*STORES, POOLED):
        _measure_store(bench.with_default_collector(), report, store)
    report.say(f"\n{_pooler_note()}")
    report.say(
        "A child run can't be measured here: the host of a parent starts its children, and must have their programs."
    )


def _measure_store(bench: Bench, report: Report, store: str) -> None:
    number, most_s = scaled(NUMBER), max(SHORTEST_S, SECONDS * SCALE)
    whats = ("local", *HOPS)
    programs = [partial(bench.ours, store, "hops", what, number, most_s) for what in whats]
    # Behind a pooler every hop waits for a poll: one round shows it, and three take minutes.
    local, *others = in_turns(*programs, rounds=1 if store == POOLED else ROUNDS)
    for name, hop in zip(HOPS.values(), others, strict=True):
        p50, p99 = hop["p50_ms"] / local["p50_ms"], hop["p99_ms"] / local["p99_ms"]
        # Half a poll is what a hop takes on average that only a poll finds.
        found_by = "poll" if hop["p50_ms"] >= POLL_MS / 2 else "wake-up"
        report.row(
            *(store, name, ms(hop["p50_ms"]), ms(hop["p99_ms"])),
            *(ms(local["p50_ms"]), ms(local["p99_ms"]), times(p50), times(p99)),
            *(count(hop["hops"]), found_by),
        )
        if store != POOLED:
            report.at_most(f"{name}, p50 of a local run's", store, p50, TIMES_LOCAL_P50)
            report.at_most(f"{name}, p99 of a local run's", store, p99, TIMES_LOCAL_P99)


def _pooler_note() -> str:
    if PGBOUNCER is None:
        return "**pgbouncer is not installed: hops through it are left out.**"
    return (
        f"{POOLED}: Postgres through {PGBOUNCER} with `pool_mode=transaction` and `statement_cache_size=0`, its local "
        "run too. Where polls find the hops, the fallback is in effect: LISTEN does not work behind such a pooler."
    )
