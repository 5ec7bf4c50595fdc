"""Starts the runs of schedules."""
