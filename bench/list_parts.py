"""The part of the benchmark that measures lists of runs."""

from functools import partial

from bench.report import Report
from bench.running import STORES, Bench, in_turns, scaled

FEW, MANY = 10_000, 1_000_000

SLOWER = 2.0
"""How many times as long a first page may take among many runs."""


def measure_lists(bench: Bench, report: Report) -> None:
    """The first page of a list, by filter: whether it costs more the more runs there are."""
    few, many = scaled(FEW), scaled(MANY)
    report.table(
        f"lists: the first 100 runs by filter, among {few:,} and {many:,} runs",
        *("store", "filter", f"{few:,}", f"{many:,}", "ratio"),
    )
    for store in STORES:
        small, large = in_turns(
            partial(bench.ours, store, "lists", few),
            partial(bench.ours, store, "lists", many),
            rounds=1,
        )
        for name, few_ms in small.items():
            ratio = large[name] / few_ms
            report.row(store, name, f"{few_ms:.2f} ms", f"{large[name]:.2f} ms", f"{ratio:.2f}")
        worst = max(small, key=lambda name: large[name] / small[name])
        report.at_most(
            f"first page ({worst}), of few runs", store, large[worst] / small[worst], SLOWER
        )
