"""The part of the benchmark that measures what tracing costs the warm chain."""

from functools import partial

from bench.report import Report
from bench.running import STORES, Bench, in_turns, scaled

RUNS = 500
STEPS = 10

DEARER = 1.15
"""How much longer the chain may take with tracing."""


def measure_tracing(bench: Bench, report: Report) -> None:
    """The chain without tracing, and beside it with a span for each run and each attempt."""
    runs = scaled(RUNS)
    report.table(
        f"tracing: {runs:,} runs of {STEPS} steps; steps/s, and work of the process for each step",
        *("store", "without", "work", "traced", "work"),
    )
    for store in STORES:
        plain, traced = in_turns(
            *(
                partial(bench.ours, store, "chain", what, runs, STEPS)
                for what in ("chain", "traced")
            )
        )
        cells = [
            cell
            for each in (plain, traced)
            for cell in (f"{each['steps_per_s']:,.0f}", f"{each['step_work_ms']:.3f} ms")
        ]
        report.row(store, *cells)
        ratio = plain["steps_per_s"] / traced["steps_per_s"]
        report.at_most("chain with tracing, of its time", store, ratio, DEARER)
