"""Workflows: their coroutines driven by us, and driven again from the journal."""
