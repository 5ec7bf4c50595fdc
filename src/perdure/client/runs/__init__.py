"""Runs as callers see them: handles, acts, forks, history, lists, descriptions."""
