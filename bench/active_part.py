"""The part of the benchmark that measures many active runs."""

from functools import partial

from bench.report import Report
from bench.running import STORES, Bench, in_turns, scaled

RUNS = {500: 1.0, 5_000: 0.8, 20_000: 0.6}
"""Active runs, and the goal: the rate, of that with the fewest."""

STEPS = 10


def measure_active(bench: Bench, report: Report) -> None:
    """Chains of steps with more and more active runs: whether the steps get dearer, and the memory that it takes."""
    bench = bench.with_default_collector()
    report.table(
        f"active: runs at once of {STEPS} steps each, with Python's thresholds of the garbage collector; ratios to "
        f"{min(RUNS)} runs",
        *(
            "store",
            "runs",
            "steps/s",
            "ratio",
            "work per step",
            "ratio",
            "memory grew by",
            "without a replay",
        ),
    )
    for store in STORES:
        measured = in_turns(
            *(partial(bench.ours, store, "active", scaled(runs), STEPS) for runs in RUNS)
        )
        first = measured[0]
        for (runs, goal), figures in zip(RUNS.items(), measured, strict=True):
            speed = figures["steps_per_s"] / first["steps_per_s"]
            work = figures["step_work_ms"] / first["step_work_ms"]
            report.row(
                *(store, f"{scaled(runs):,}", f"{figures['steps_per_s']:,.0f}", f"{speed:.2f}"),
                *(f"{figures['step_work_ms']:.3f} ms", f"{work:.2f}"),
                *(f"{figures['grown_mb']:.0f} MB", f"{figures['warm_share']:.1%}"),
            )
            if runs != min(RUNS):
                name = f"chain with {runs:,} active runs, of {min(RUNS)}"
                report.at_least(name, store, speed, goal)
