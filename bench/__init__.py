"""Benchmarks. Figures are ratios to a floor that is measured in the same run, on the same machine."""

import gc
import os

COLLECTOR = "BENCH_COLLECTOR"
"""Set to `default`, it leaves Python's garbage collector as it is."""

if os.environ.get(COLLECTOR) != "default":
    # As `perdure worker` has it; DBOS gets the same.
    gc.set_threshold(50_000, 2, 2)
