"""Benchmarks. Figures are ratios to a floor that is measured in the same run, on the same machine."""
