"""Postgres: one database, many machines."""
