"""Descriptions of runs, from their journals and rows."""
