"""Event buses: where the events of runs are published."""
