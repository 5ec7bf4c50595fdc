"""Graphs: what their parts are called, and what follows from what."""
