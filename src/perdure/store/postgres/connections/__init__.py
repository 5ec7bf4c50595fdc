"""Connections to a Postgres server: opening, pools, poolers, sessions."""
