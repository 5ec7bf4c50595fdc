"""Engines and handles: start runs, send them messages, and read their state, results and streams."""
