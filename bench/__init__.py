"""Benchmarks. Figures are ratios to a floor that is measured in the same run, on the same machine."""

import gc

PYTHON_GC = gc.get_threshold()
"""The thresholds of the garbage collector that Python begins with."""

# As `perdure worker` has it; DBOS gets the same.
gc.set_threshold(50_000, 2, 2)
