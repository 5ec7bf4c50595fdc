"""Publishes the events of runs to event buses."""
