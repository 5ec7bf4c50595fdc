"""The part of the benchmark that measures what a bus costs the warm chain."""

from functools import partial

from bench.report import Report
from bench.running import STORES, Bench, in_turns, scaled

RUNS = 500
STEPS = 10

DEARER = 1.1
"""How much longer the chain may take with a bus."""


def measure_bus(bench: Bench, report: Report) -> None:
    """The chain without a bus, beside it with a subscriber to the ends of runs, and with one to all events."""
    runs = scaled(RUNS)
    report.table(
        f"bus: {runs:,} runs of {STEPS} steps; steps/s, and work of the process for each step",
        *("store", "without", "work", "ends", "work", "all events", "work"),
    )
    for store in STORES:
        measured = in_turns(
            *(
                partial(bench.ours, store, "chain", what, runs, STEPS)
                for what in ("chain", "ends", "events")
            )
        )
        cells = [
            cell
            for each in measured
            for cell in (f"{each['steps_per_s']:,.0f}", f"{each['step_work_ms']:.3f} ms")
        ]
        report.row(store, *cells)
        without, *with_bus = (each["steps_per_s"] for each in measured)
        for what, speed in zip(("ends of runs", "all events"), with_bus, strict=True):
            report.at_most(
                f"chain with a bus ({what}), of its time", store, without / speed, DEARER
            )
