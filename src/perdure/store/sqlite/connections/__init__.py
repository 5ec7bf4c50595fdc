"""Connections to a SQLite file: opening, locks, threads, failures."""
