"""Admission: which starts begin at once, which wait, and which are refused."""
