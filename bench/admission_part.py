"""The part of the benchmark that measures admission under limits."""

from functools import partial

from bench.cells import count as _count
from bench.cells import ms as _ms
from bench.cells import ratio as _ratio
from bench.report import Report
from bench.running import STORES, Bench, in_turns, scaled

STARTS = 1000
OFFERED = 10_000
FEW, MANY = 10_000, 1_000_000

DEARER = 3.0
"""How many times as long as a free start one under a limit may take."""

KEPT = 0.8
"""Which part of its throughput a limit keeps when ten times as many runs are offered."""

SLOWER = 1.5
"""How many times as long an admission may take when many runs wait."""


def measure_admission(bench: Bench, report: Report) -> None:
    """What a limit costs a start, what an overload costs the runs, and what a long line costs an admission."""
    report.table(
        "admission: a free start and one under a limit; runs/s at the limit and at ten times as many callers; "
        f"an admission with {scaled(FEW):,} and {scaled(MANY):,} runs in line",
        *("store", "free", "limited", "ratio", "at the limit", "overloaded", "ratio"),
        *("short line", "long line", "ratio"),
    )
    for store in STORES:
        starts, load, few, many = in_turns(
            partial(bench.ours, store, "admission", "starts", scaled(STARTS)),
            partial(bench.ours, store, "admission", "overload", scaled(OFFERED)),
            partial(bench.ours, store, "admission", "dequeue", scaled(FEW)),
            partial(bench.ours, store, "admission", "dequeue", scaled(MANY)),
            rounds=1,
        )
        dearer = starts["limited_us"] / starts["free_us"]
        kept = load["overloaded_per_s"] / load["calm_per_s"]
        slower = many["dequeue_ms"] / few["dequeue_ms"]
        report.row(
            store,
            *(f"{starts['free_us']:.0f} us", f"{starts['limited_us']:.0f} us", _ratio(dearer)),
            *(_count(load["calm_per_s"]), _count(load["overloaded_per_s"]), _ratio(kept)),
            *(_ms(few["dequeue_ms"]), _ms(many["dequeue_ms"]), _ratio(slower)),
        )
        report.at_most("start under a limit, of a free one", store, dearer, DEARER)
        report.at_least("throughput when overloaded, of that without", store, kept, KEPT)
        report.at_most("admission from a long line, of a short one", store, slower, SLOWER)
