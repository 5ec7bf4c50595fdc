"""Schedules: when runs start by themselves, and what becomes of each tick."""
