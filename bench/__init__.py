"""Benchmarks. Figures are ratios to a floor that is measured in the same run, on the same machine."""

import gc

gc.set_threshold(20_000, 2, 2)
"""As `perdure worker` has it; DBOS gets the same."""
