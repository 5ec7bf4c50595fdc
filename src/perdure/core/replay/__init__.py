"""Decisions of replay: deterministic ids, comparison of program and journal, retries, doubt."""
