"""Polls for due messages and delivers them to runs, in order."""
